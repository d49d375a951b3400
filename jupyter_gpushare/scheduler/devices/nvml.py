"""Reads this machine's devices from NVML. Every call may block: never use it on the event loop."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from .visible import DeviceName

log = logging.getLogger(__name__)

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN)


class NvmlMissing(Exception):
    """There is no NVML here, or none that answers."""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One device now. `device` is the 32 digits of its UUID; a device that has just been lost has
    no reading."""

    device: str
    listed: DeviceName
    name: str
    bytes_total: int
    bytes_used: int
    processes: tuple[tuple[int, int], ...] = ()
    """Of each process with a context there that NVML shows: its pid, and the bytes that it has."""
    percent: int | None = None
    """Of the last moment, in which a kernel ran on the device; None where the device does not say,
    as MIG instances do not."""
    is_old: bool = False
    """NVML has failed since. Clients may have allocated and freed memory meanwhile."""


class Nvml:
    """Used by one thread."""

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
        except (pynvml.NVMLError, OSError, AttributeError) as error:
            raise NvmlMissing(str(error)) from error
        self._last: dict[int, list[DeviceReading]] = {}
        """By GPU, what it answered last."""

    def read(self) -> list[DeviceReading]:
        """All devices that are there: MIG instances instead of a GPU that is divided into them. A
        failure that does not say that the device is lost leaves what it answered last."""
        for index in range(count := pynvml.nvmlDeviceGetCount()):
            try:
                self._last[index] = list(self._read_gpu(index))
            except pynvml.NVMLError as error:
                if error.value in _LOST:
                    self._last.pop(index, None)
                else:
                    log.warning("NVML fails for device %s: %s", index, error)
                    last = self._last.get(index, [])
                    self._last[index] = [replace(reading, is_old=True) for reading in last]
        return [reading for index in range(count) for reading in self._last.get(index, [])]

    def close(self) -> None:
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            log.debug("NVML does not shut down: %s", error)

    def _read_gpu(self, index: int) -> Iterator[DeviceReading]:
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(pynvml.nvmlDeviceGetUUID(gpu))
        if not _mig_is_on(gpu):
            yield reading_of(gpu, DeviceName(index, uuid, uuid))
            return
        for number in range(_or_none(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0):
            instance = _or_none(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, number)
            if instance is not None:
                name = DeviceName(index, _text(pynvml.nvmlDeviceGetUUID(instance)), uuid)
                yield reading_of(instance, name)


def reading_of(handle: Any, listed: DeviceName) -> DeviceReading:
    """What the device behind this handle says; raises NVMLError."""
    found = _UUID.search(listed.uuid)
    if not found:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return DeviceReading(
        device=found.group().replace("-", "").lower(),
        listed=listed,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        bytes_total=int(memory.total),
        bytes_used=int(memory.used),
        processes=_processes(handle),
        percent=_percent(handle),
    )


def _processes(handle: Any) -> tuple[tuple[int, int], ...]:
    """NVML shows none to who lives in a container, and for some no bytes. Without them contexts are
    as good as strangers."""
    try:
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return ()
    return tuple(
        (int(each.pid), int(each.usedGpuMemory))
        for each in running
        if each.usedGpuMemory is not None
    )


def _percent(handle: Any) -> int | None:
    """A device that does not say it is as good as any other."""
    try:
        return int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except pynvml.NVMLError:
        return None


def _mig_is_on(gpu: Any) -> bool:
    mode = _or_none(pynvml.nvmlDeviceGetMigMode, gpu)
    return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _or_none(call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where this device or this NVML has no such thing."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in (
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_NOT_FOUND,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_INVALID_ARGUMENT,
        ):
            return None
        raise


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
