"""Fixtures for tests on a real device; elsewhere everything here is skipped, and says why."""

from __future__ import annotations

import ctypes

import pytest


def real_device_count() -> int:
    """How many devices the real driver of this machine shows; 0 without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    if not hasattr(nvml, "nvmlInit_v2") or nvml.nvmlInit_v2() != 0:
        return 0
    count = ctypes.c_uint(0)
    found = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
    nvml.nvmlShutdown()
    return count.value if found else 0


DEVICES = real_device_count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and skip it where there is no device."""
    for item in items:
        if "tests/gpu/" in item.nodeid:
            item.add_marker(pytest.mark.gpu)
            if DEVICES == 0:
                item.add_marker(pytest.mark.skip(reason="needs a real GPU; this machine has none"))
