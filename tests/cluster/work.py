"""Cells of two users whose memory does not fit on the device together."""

from __future__ import annotations

from collections.abc import Mapping

from tests.hub.visitor import HubKernel
from tests.support import gpu_cells
from tests.support.sim import MIB

DEVICE_BYTES = 512 * MIB
KEPT_WORDS = 75 << 20  # 300 MiB: both users' memory is more than the device has
BUSY_S_MAX = 60.0


def submit_work(kernels: Mapping[str, HubKernel], rounds: int = 1) -> list[tuple[HubKernel, str]]:
    """Cells that check what they have kept, for all at once."""
    return [
        (kernel, kernel.submit(gpu_cells.keep_and_check(7 + n, KEPT_WORDS) + "gpu.spin(20, 5)\n"))
        for _ in range(rounds)
        for n, kernel in enumerate(kernels.values())
    ]


def check(cells: list[tuple[HubKernel, str]]) -> None:
    for kernel, cell in cells:
        kernel.wait(cell, BUSY_S_MAX).ok()
