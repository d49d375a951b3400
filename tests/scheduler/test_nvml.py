"""What is made of NVML's failures, with NVML's functions in the test's hands."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pynvml
import pytest

from jupyter_gpushare.scheduler.devices.nvml import Nvml, reading_of
from jupyter_gpushare.scheduler.devices.visible import DeviceName

UUID = "00000000-0000-0000-0000-000000000001"
MEMORY = SimpleNamespace(total=8, used=1)


@pytest.mark.parametrize(
    ("code", "still_there"),
    [
        (pynvml.NVML_ERROR_TIMEOUT, True),
        (pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, True),
        (pynvml.NVML_ERROR_GPU_IS_LOST, False),
    ],
)
def test_only_a_lost_device_is_lost(
    monkeypatch: pytest.MonkeyPatch, code: int, still_there: bool
) -> None:
    """Another failure leaves what the device answered last, as what it is: taking it for lost would
    let everybody run on it at once."""
    answers = {
        "nvmlInit": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": None,
        "nvmlDeviceGetUUID": f"GPU-{UUID}",
        "nvmlDeviceGetMigMode": (pynvml.NVML_DEVICE_MIG_DISABLE, 0),
        "nvmlDeviceGetMemoryInfo": MEMORY,
        "nvmlDeviceGetName": "GPU",
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, lambda *_, answer=answer: answer)
    nvml = Nvml()
    first = nvml.read()
    assert len(first) == 1

    def fail(*_: object) -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", fail)
    old = [replace(reading, is_old=True) for reading in first]
    assert nvml.read() == (old if still_there else [])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda _: MEMORY)
    assert nvml.read() == first


def test_a_device_may_say_how_busy_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not, such as a MIG instance, is read all the same."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda _: MEMORY)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda _: "GPU")
    listed = DeviceName(0, f"MIG-{UUID}", f"GPU-{UUID}")
    rates = SimpleNamespace(gpu=37, memory=0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", lambda _: rates)
    assert reading_of(None, listed).percent == 37

    def fail(_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", fail)
    reading = reading_of(None, listed)
    assert (reading.percent, reading.bytes_used) == (None, 1)
