"""What is made of NVML's failures, with NVML's functions in the test's hands."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from jupyter_gpushare.scheduler.devices.nvml import Nvml


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
    """Another failure leaves what the device answered last: taking it for lost would let everybody
    run on it at once."""
    uuid = "GPU-00000000-0000-0000-0000-000000000001"
    answers = {
        "nvmlInit": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": None,
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetMigMode": (pynvml.NVML_DEVICE_MIG_DISABLE, 0),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=8, used=1),
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
    assert nvml.read() == (first if still_there else [])
