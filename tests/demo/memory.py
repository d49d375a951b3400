"""The demo's oversubscription: alice and bob each hold four fifths of the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.demo.scenes import Act, Scene
from tests.support import gpu_cells
from tests.support.machine import Machine, choose_machine
from tests.support.memory_tenants import bare_tenant
from tests.support.sim import GIB, MIB
from tests.support.timeline import hand_overs

SHARE_OF_DEVICE = 0.8
PARKED_SHARE_MIN = 0.5
CELLS = 3
KINDS = (("",), ("_pooled", "_mapped"))
"""The first notebook holds plain memory, the second one a pool's and such that it maps itself."""
REAL_DEVICE_BYTES = 16 * GIB
SIMULATED_DEVICE_BYTES = GIB // 2
SIMULATED_CONTEXT_BYTES = 8 * MIB
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"


def bytes_held(device_bytes: int) -> int:
    """By each notebook."""
    return int(device_bytes * SHARE_OF_DEVICE) // 4096 * 4096


def more_than_the_device(device_bytes: int) -> Scene:
    """Each notebook's memory follows its turn."""
    return _memory("More memory than the device has", device_bytes, CELLS, memory_mode="swap")


def without_swap(device_bytes: int) -> Scene:
    """The control: the same cells, and memory that stays where it is."""
    return _memory("Control run with memory that stays", device_bytes, 1, memory_mode="off")


def _memory(title: str, device_bytes: int, cells: int, memory_mode: str) -> Scene:
    words = bytes_held(device_bytes) // 4

    def cell(notebook: int, number: int) -> str:
        return gpu_cells.keep_and_check(notebook + 1, words, KINDS[notebook % len(KINDS)])

    settings = {"memory_mode": memory_mode, "device_reserve_bytes": device_bytes // 16}
    return Scene(title, {"turns": "on", **settings}, cells, cell, moves_memory=True)


@dataclass(frozen=True)
class MemoryReport:
    """What is in demo-report.json about memory."""

    device_bytes: int
    oversubscribed: bool
    """Both hold their memory at the same time, and it is more than the device has."""
    checksums_ok: bool
    """Every cell found every byte that it had written, by launches on the device."""
    oom: int
    memory_hand_overs: int
    bytes_parked_per_handover: int
    oom_without_swap: int

    def complaints(self) -> list[str]:
        """One sentence for each thing that does not hold."""
        found = []
        if not self.oversubscribed:
            found.append("The notebooks did not hold more memory than the device has.")
        if not self.checksums_ok:
            found.append("Not every cell found all the bytes that its notebook had written.")
        if self.oom:
            found.append(f"Memory followed the turn, and {self.oom} cells were out of memory.")
        if self.bytes_parked_per_handover < PARKED_SHARE_MIN * self.device_bytes:
            found.append(
                f"A hand-over parked {self.bytes_parked_per_handover} bytes, which is less than "
                f"half of the device's {self.device_bytes}."
            )
        if not self.oom_without_swap:
            found.append(
                "With memory that stays nobody was out of memory either, so that this run proves "
                "nothing."
            )
        return found


def make_memory_report(device_bytes: int, swapped: Act, control: Act) -> MemoryReport:
    """From both acts."""
    holders = {cell.kernel for cell in swapped.cells}
    # The third notebook has nothing that could move.
    works = [work for work in swapped.works if work.kernel in holders]
    found = hand_overs(works, swapped.cells)
    complete = not swapped.failures and len(swapped.cells) == swapped.sent
    return MemoryReport(
        device_bytes=device_bytes,
        oversubscribed=complete and len(holders) * bytes_held(device_bytes) > device_bytes,
        checksums_ok=complete,
        oom=out_of_memory(swapped.failures),
        memory_hand_overs=len(found),
        bytes_parked_per_handover=swapped.bytes_parked // len(found) if found else 0,
        oom_without_swap=out_of_memory(control.failures),
    )


def out_of_memory(failures: Sequence[str]) -> int:
    return sum(OUT_OF_MEMORY in failure for failure in failures)


def choose_small_machine(folder: Path) -> Machine:
    """The real device, or a simulated one that is soon full."""
    return choose_machine(
        folder, bytes_per_device=SIMULATED_DEVICE_BYTES, context_bytes=SIMULATED_CONTEXT_BYTES
    )


@contextlib.contextmanager
def small_device(machine: Machine) -> Iterator[int]:
    """The device's bytes. Of a real one most is taken by a process that shares nothing: what can be
    shown with all of it can be shown with the rest, in a tenth of the time."""
    if machine.simulated:
        yield SIMULATED_DEVICE_BYTES
        return
    with bare_tenant(machine.env) as occupant:
        free_bytes, _ = occupant.ok("info")
        for slot in range((free_bytes - REAL_DEVICE_BYTES) // GIB):
            occupant.ok(f"alloc {slot} {GIB}")
        yield REAL_DEVICE_BYTES


class ParkedBytes:
    """How much memory has left the device, as the scheduler was told: the sum of all increases of
    what tenants have in host memory."""

    def __init__(self) -> None:
        self.total = 0
        self._parked: dict[str, int] = {}

    def look_at(self, status: dict[str, object]) -> None:
        tenants = status["tenants"]
        assert isinstance(tenants, list)
        for tenant in tenants:
            devices = [device for client in tenant["clients"] for device in client["devices"]]
            parked = sum(device["bytes_parked"] for device in devices)
            self.total += max(0, parked - self._parked.get(tenant["id"], 0))
            self._parked[tenant["id"]] = parked
