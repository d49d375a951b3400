"""Two tenants whose memory together is more than a device has, and a host that has hardly more than
what must be parked at one time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hook.runtime.test_arena import Group
from tests.hook.test_from_the_issue_movable import eventually
from tests.support.memory_tenants import MemoryTenant, MemoryTenants, faults, swapping_scheduler
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import MIB, SimulatedMachine

DEVICE = 512 * MIB
HELD = 400 * MIB
SEGMENT = 64 * MIB


class Host:
    """A device, its scheduler, and tenants in one control group."""

    def __init__(
        self, scheduler: SchedulerUnderTest, tenants: MemoryTenants, group: Group
    ) -> None:
        self.scheduler, self._tenants, self.group = scheduler, tenants, group

    def start(self, name: str, *, size: int = HELD, **env: str) -> MemoryTenant:
        """With so much memory, which it has used in a turn."""
        tenant = self._tenants.start(name, env={**self.group.env, **env})
        tenant.ok("begin")
        tenant.hold(0, len(name), size)
        tenant.ok("end")
        return tenant

    def parked(self, name: str) -> int:
        (found,) = (t for t in self.scheduler.status()["tenants"] if t["name"] == name)
        return sum(int(memory["bytes_parked"]) for memory in found["memory"])

    def reason(self, name: str) -> str:
        (found,) = (t for t in self.scheduler.status()["tenants"] if t["name"] == name)
        return str(found["blocked_reason"] or "")

    def usable(self) -> int:
        (device,) = self.scheduler.status()["devices"]
        return int(device["bytes_total"] - device["bytes_reserved"] - device["bytes_foreign"])


@contextmanager
def host(folder: Path) -> Iterator[Host]:
    machine = SimulatedMachine(
        folder / "machine",
        bytes_per_device=DEVICE,
        context_bytes=MIB // 4,
        copy_bytes_per_s=4_000_000_000,
    )
    group = Group(folder)
    group.env["LD_PRELOAD"] = group.env["LD_PRELOAD"].split(":")[0]
    with swapping_scheduler(folder, machine.env(), check=True) as scheduler:
        with MemoryTenants(scheduler, machine.env(), folder) as tenants:
            yield Host(scheduler, tenants, group)
    assert faults(machine) == []


def test_two_notebooks_share_a_host_with_little_more_than_what_is_parked(tmp_path: Path) -> None:
    """(800 MiB less what is usable) and two segments are enough, hand-over after hand-over, and no
    more is ever taken."""
    with host(tmp_path) as shared:
        shared.group.leave(4 * HELD)
        one = shared.start("one")
        needed = 2 * HELD - shared.usable() + 2 * SEGMENT
        shared.group.leave(needed)
        two = shared.start("three")
        for _ in range(3):
            one.verify()
            two.verify()
        print(shared.usable() // MIB, needed // MIB, [x // MIB for x in shared.group.taken()], shared.parked("one") // MIB)
        assert shared.group.taken()[1] <= needed + SEGMENT
