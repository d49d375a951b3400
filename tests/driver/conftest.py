"""The conformance suite: one set of cases, two drivers, equal results.

Every case asks the driver that GPUSHARE_DRIVER names: `real`, `sim`, or what is there. On a machine
with a GPU, `GPUSHARE_DRIVER=real python3 -m pytest tests/driver` needs pytest, pytest-timeout,
cuda-bindings, NumPy and nvidia-ml-py, and nothing of ours. What a case expects was seen on a real
device first: where the simulated driver answers differently, that one is wrong. A case that says
"documented" expects what the driver's reference says, until a device has been asked. What the
reference leaves open is in tests/driver/questions.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from tests.driver.harness import Gpu, driver_kind, driver_under_test


def pytest_report_header() -> str:
    return f"driver under test: {driver_kind()}"


@pytest.fixture(scope="package", autouse=True)
def _driver() -> Iterator[None]:
    with driver_under_test():
        yield


@pytest.fixture(scope="package")
def _shared_gpu(_driver: None) -> Gpu:
    return Gpu()


@pytest.fixture
def gpu(_shared_gpu: Gpu) -> Iterator[Gpu]:
    """Device 0, its primary context current."""
    _shared_gpu.clean_up()
    yield _shared_gpu
    _shared_gpu.clean_up()
