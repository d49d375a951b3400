"""Plain driver sharing: the driver runs the processes of a device in slices of time.

Source: NVIDIA's MPS and compute-mode documents (default time slice about 2 ms, one process on the
device at a time), and what was measured of two processes on an H200. A process that always has work
uses its whole slice. A process whose queue runs dry (`gap_s` after `burst_s`) leaves the device at
that moment, and waits for its next slice. Each change of the process costs `switch_s`.

Memory that does not fit is unified memory, and thrashes: in each slice comes back what others have
pushed out. This part is not measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpushare.core.ids import Seconds

from ..base.hardware import Hardware
from ..base.kernel import Kernel
from ..base.loop import Loop
from ..base.workload import Notebook
from ..base.world import World

_ROUNDS_MAX = 200
_CLOSE_ENOUGH = 1e-9


class TimeslicingDevice:
    """One device, on which all cells run at once."""

    def __init__(self, loop: Loop, world: World) -> None:
        self._world = world
        self._running: dict[int, Kernel] = {}

    def opened(self, kernel: Kernel) -> None:
        """Nothing to do before its first launch."""

    def wants(self, kernel: Kernel) -> None:
        self._running[kernel.number] = kernel
        self._share_out()

    def ended(self, kernel: Kernel) -> None:
        del self._running[kernel.number]
        self._share_out()

    def closed(self, kernel: Kernel) -> None:
        """Its cells have ended."""

    def _share_out(self) -> None:
        kernels = list(self._running.values())
        notebooks = [kernel.notebook for kernel in kernels]
        speeds = speeds_of(notebooks, self._world.hardware, self._world.device_bytes)
        for kernel, (speed, share) in zip(kernels, speeds, strict=True):
            kernel.go(speed=speed, share=share)


def speeds_of(
    notebooks: Sequence[Notebook], hardware: Hardware, device_bytes: int
) -> list[tuple[float, float]]:
    """How fast the work of each goes on, against alone on the device, and its part of the device's
    time. Pure."""
    if len(notebooks) == 1:
        return [(1.0, 1.0)]
    slices = [_slice_s(each, hardware) for each in notebooks]
    gaps = [
        each.gap_s * slice_s / each.burst_s if each.burst_s else 0.0
        for each, slice_s in zip(notebooks, slices, strict=True)
    ]
    pages = _paging_s(notebooks, slices, hardware, device_bytes)
    round_s = _round_s(slices, gaps, pages, hardware.switch_s)
    answers = []
    for slice_s, gap_s in zip(slices, gaps, strict=True):
        period_s = max(round_s, slice_s + gap_s)
        answers.append(((slice_s + gap_s) / period_s, slice_s / period_s))
    return answers


def _slice_s(notebook: Notebook, hardware: Hardware) -> Seconds:
    """How long it stays on the device in its turn."""
    return min(notebook.burst_s, hardware.slice_s) if notebook.gap_s else hardware.slice_s


def _round_s(
    slices: Sequence[Seconds],
    gaps: Sequence[Seconds],
    pages: Sequence[Seconds],
    switch_s: Seconds,
) -> Seconds:
    """How long it takes until each that is ready has had its slice. One whose gap is longer than
    the others' slices is not ready each time, and then there is nobody to switch to."""
    round_s = sum(slices) + sum(pages) + switch_s * len(slices)
    for _ in range(_ROUNDS_MAX):
        ready = [min(1.0, round_s / (s + g)) for s, g in zip(slices, gaps, strict=True)]
        in_all = sum(ready)
        shorter_s = sum(
            part * (slice_s + page_s + switch_s * min(1.0, in_all - part))
            for part, slice_s, page_s in zip(ready, slices, pages, strict=True)
        )
        if abs(shorter_s - round_s) < _CLOSE_ENOUGH:
            break
        round_s = shorter_s
    return round_s


def _paging_s(
    notebooks: Sequence[Notebook],
    slices: Sequence[Seconds],
    hardware: Hardware,
    device_bytes: int,
) -> list[Seconds]:
    """What each waits in its slice for memory that the others have pushed out."""
    used = sum(each.bytes_used for each in notebooks)
    if used <= device_bytes:
        return [0.0] * len(notebooks)
    missing = 1 - device_bytes / used
    seconds_a_byte = 1 / hardware.page_bytes_per_s
    return [
        min(1.0, slice_s / hardware.touch_s) * each.bytes_used * missing * seconds_a_byte
        for each, slice_s in zip(notebooks, slices, strict=True)
    ]
