"""Looks at the NVIDIA driver through NVML, and for MPS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pynvml

from .facts import DeviceFacts, MachineFacts
from .processes import origins_of

_MODES = {
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
}
_MPS_DAEMONS = ("nvidia-cuda-mps", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
_COMM_CHARACTERS = 15
"""The kernel keeps so many of a program's name."""


def machine_facts(environ: Mapping[str, str], *, root: Path = Path("/")) -> MachineFacts:
    mps = _mps(environ, root)
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError, AttributeError) as error:
        return MachineFacts(nvml_problem=str(error), mps=mps)
    try:
        devices = tuple(_devices())
        return MachineFacts(
            driver_version=_text(_ask(pynvml.nvmlSystemGetDriverVersion) or ""),
            cuda_version=int(_ask(pynvml.nvmlSystemGetCudaDriverVersion) or 0),
            devices=devices,
            mps=mps,
            names_of_pids={pid: _name_of(root, pid) for d in devices for pid in d.pids},
            origins=origins_of({pid for d in devices for pid in d.pids}, root),
        )
    except (pynvml.NVMLError, OSError) as error:
        return MachineFacts(nvml_problem=str(error), mps=mps)
    finally:
        _ask(pynvml.nvmlShutdown)


def _devices() -> Iterator[DeviceFacts]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        memory = None if handle is None else _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            continue  # lost; the scheduler's status says so
        processes = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        yield DeviceFacts(
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            bytes_total=int(memory.total),
            bytes_used=int(memory.used),
            compute_mode=_MODES.get(_ask(pynvml.nvmlDeviceGetComputeMode, handle), "default"),
            pids=tuple(sorted({int(process.pid) for process in processes})),
        )


def _ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer; None where this device or this driver has none."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def _mps(environ: Mapping[str, str], root: Path) -> str:
    """By its daemon, where we can see it; else by the pipe that its clients are led to."""
    for process in sorted((root / "proc").glob("[0-9]*")):
        if _name_of(root, int(process.name)) in {n[:_COMM_CHARACTERS] for n in _MPS_DAEMONS}:
            return f"process {process.name}"
    pipes = Path(environ.get("CUDA_MPS_PIPE_DIRECTORY") or root / "tmp/nvidia-mps")
    return f"the pipe {pipes / 'control'}" if (pipes / "control").exists() else ""


def _name_of(root: Path, pid: int) -> str:
    try:
        return (root / "proc" / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
