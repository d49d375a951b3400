"""A device that is too small for all who use it: alice and bob have more together than it has, and
a bystander has a little, which must be there in the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_tenants import (
    MemoryTenant,
    MemoryTenants,
    faults,
    swapping_scheduler,
)
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import MIB, SimulatedMachine
from tests.support.waits import wait_until

DEVICE = 64 * MIB
CONTEXT = MIB // 4
RESERVE = 2 * MIB
HELD = 40 * MIB
LITTLE = 5 * MIB
SLOW_BYTES_PER_S = 150_000_000
MAPPED_UNIT = 2 * MIB
FIRST_FURTHER_SLOT = 100
"""From here on lie the further pieces of what a tenant holds."""
SETTINGS = (
    f"--GPUShareScheduler.device_reserve_bytes={RESERVE}",
    "--GPUShareScheduler.probe_period_s=0.1",
    "--GPUShareScheduler.quantum_s=0.3",
    "--GPUShareScheduler.reclaim_s=1",
    "--GPUShareScheduler.memory_wait_s=0",
    "--GPUShareScheduler.park_timeout_s=20",  # nobody is passed over on a busy machine
)


@dataclass(frozen=True)
class Kind:
    """A way in which tenants allocate. There are several pieces where one of them is one chunk, and
    all is larger where memory comes by segments."""

    name: str
    number: int
    """Of memory_tenant.c."""
    pieces: int = 1
    scale: int = 1
    granule: int = MAPPED_UNIT

    @property
    def held(self) -> int:
        """What a tenant has."""
        return HELD * self.scale

    @property
    def charged(self) -> int:
        """What the device has of it."""
        return -(-self.held // self.granule) * self.granule


KINDS = {
    kind.name: kind
    for kind in (
        Kind("plain", 0, pieces=5),
        Kind("mapped", 1, pieces=5),
        Kind("async", 2, pieces=4, scale=3, granule=32 * MIB),
        Kind("managed", 3, pieces=5),
    )
}
_ASYNC = pytest.param("async", marks=pytest.mark.full)
"""Memory of pools moves as the rest does, in large segments. Its own ways: tests/hook/pooled."""
EVERY_KIND = pytest.mark.parametrize("kind", ["plain", "mapped", _ASYNC, "managed"])
EACH_KIND = pytest.mark.parametrize("kind", ["plain", "mapped", _ASYNC])
"""What moves by copies of the hook's; managed memory moves by prefetches of the driver's."""
OTHER_KINDS = pytest.mark.parametrize("kind", ["mapped", _ASYNC])
OTHERS_AT_LENGTH = pytest.mark.parametrize(
    "kind", ["plain", pytest.param("mapped", marks=pytest.mark.full), _ASYNC]
)


@dataclass
class SmallDevice:
    """Who is there, and what can be asked of the machine."""

    machine: SimulatedMachine
    scheduler: SchedulerUnderTest
    tenants: MemoryTenants
    bystander: MemoryTenant
    kind: Kind = KINDS["plain"]
    start_scheduler: Callable[[], SchedulerUnderTest] | None = None

    @property
    def size(self) -> int:
        return DEVICE * self.kind.scale

    @property
    def held(self) -> int:
        return self.kind.held

    def replace_scheduler(self) -> None:
        """Kill it, and start another one in its place."""
        assert self.start_scheduler is not None
        self.scheduler.kill()
        self.scheduler = self.tenants.scheduler = self.start_scheduler()

    def start(self, name: str, *, seed: int = 0, size: int = HELD, **options: Any) -> MemoryTenant:
        """A tenant; with a seed it holds that much memory (times the scale of the kind), written in
        a cell of its own."""
        tenant = self.tenants.start(name, **options)
        tenant.ok(f"kind {self.kind.number}")
        if seed:
            tenant.ok("begin")
            self.hold(tenant, seed, size)
            tenant.ok("end")
        return tenant

    def hold(self, tenant: MemoryTenant, seed: int, size: int = HELD) -> None:
        """So much in all, times the scale of the kind."""
        left = size * self.kind.scale
        piece = left // self.kind.pieces // MAPPED_UNIT * MAPPED_UNIT
        *first, last = self._slots() if piece > 0 else [0]
        for slot in first:
            tenant.hold(slot, seed + slot, piece)
            left -= piece
        tenant.hold(last, seed + last, left)

    def give_up(self, tenant: MemoryTenant) -> None:
        """All that `hold` has allocated; a pool gives it back when somebody has waited."""
        for slot in [slot for slot in self._slots() if slot in tenant.held]:
            tenant.free(slot)
        tenant.ok("sync")

    def _slots(self) -> list[int]:
        further = range(FIRST_FURTHER_SLOT, FIRST_FURTHER_SLOT + self.kind.pieces - 1)
        return [0, *further]

    def blocked_reason(self, tenant: MemoryTenant) -> str:
        """What the status says is in its way, or was when it was refused memory."""
        records = self.scheduler.status()["tenants"]
        (reason,) = (each["blocked_reason"] for each in records if each["name"] == tenant.name)
        return str(reason)

    def chunks_of_an_allocation(self) -> int:
        """How often cuMemCreate is called for what `start` allocates; seen in a process that has
        gone again when this returns."""
        tenant = self.start("probe", seed=9)
        pid = tenant.process.pid
        assert tenant.process.finish() == 0
        created = (r for r in self.machine.journal() if r.pid == pid and r.name == "chunk")
        return sum(r.kind.name == "ALLOC" for r in created)

    def memory_of(self, tenant: MemoryTenant) -> dict[str, int]:
        """What the scheduler knows of its memory: bytes allocated, parked and so on."""
        found: dict[str, int] = {}
        for record in self.scheduler.status()["tenants"]:
            if record["name"] == tenant.name:
                for client in record["clients"]:
                    for device in client["devices"]:
                        for key, value in device.items():
                            if key.startswith("bytes_"):
                                found[key] = found.get(key, 0) + value
        return found

    def await_memory(self, tenant: MemoryTenant, holds: Callable[[dict[str, int]], bool]) -> None:
        wait_until(lambda: holds(self.memory_of(tenant)), f"the memory of {tenant.name}")

    def park(self, victim: MemoryTenant, by: MemoryTenant) -> None:
        """Let `by` have its memory back, for which the victim has to make room."""
        by.cell("stamp")
        self.await_memory(victim, lambda memory: memory.get("bytes_parked", 0) > 0)

    def bytes_moved(self, pid: int, kind: str) -> int:
        """From the device's journal: bytes that a process has mapped (MAP) or unmapped (UNMAP).
        Managed memory is prefetched instead, either way."""
        kind = "PREFETCH" if self.kind.name == "managed" else kind
        return sum(r.amount for r in self.machine.journal() if r.pid == pid and r.kind.name == kind)

    def await_moved(self, pid: int, kind: str, at_least: int) -> None:
        wait_until(lambda: self.bytes_moved(pid, kind) >= at_least, f"{kind} by {pid}")


@contextmanager
def small_device(
    directory: Path, *options: str, copy_bytes_per_s: int = 4_000_000_000, kind: str = "plain"
) -> Iterator[SmallDevice]:
    """At the end the bystander has all that it had, and nobody's work lost its memory under it."""
    chosen = KINDS[kind]
    machine = SimulatedMachine(
        directory / "machine",
        bytes_per_device=DEVICE * chosen.scale,
        context_bytes=CONTEXT,
        copy_bytes_per_s=copy_bytes_per_s * chosen.scale,
    )
    with ExitStack() as stack:

        def start_scheduler() -> SchedulerUnderTest:
            settings = (*SETTINGS, *options)
            return stack.enter_context(
                swapping_scheduler(directory / "run", machine.env(), *settings, check=True)
            )

        scheduler = start_scheduler()
        tenants = MemoryTenants(scheduler, machine.env(), directory)
        stack.enter_context(tenants)
        device = SmallDevice(machine, scheduler, tenants, tenants.start("bystander"), chosen)
        device.start_scheduler = start_scheduler
        device.bystander.ok("begin")
        device.bystander.hold(0, 77, LITTLE)
        device.bystander.hold(1, 78, 4096)
        device.bystander.ok("end")
        yield device
        device.bystander.verify()
        assert device.bystander.process.finish() == 0
        assert device.bystander.process.errors() == ""
        assert faults(machine) == []


FOREIGN = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(sys.argv[1]))), flush=True)
sys.stdin.read()
"""


@contextmanager
def somebody_else(device: SmallDevice, size: int) -> Iterator[None]:
    """A process without the hook that has so much of the device for as long as the block lasts."""
    with subprocess.Popen(
        [sys.executable, "-c", FOREIGN, str(size)],
        env=device.machine.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "0\n"
        yield
        process.communicate()
