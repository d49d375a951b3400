"""Two tenants whose memory together is more than a device has, and a host that has hardly more than
what must be parked at one time."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import pytest

from jupyter_gpushare.client import RequestRefused
from tests.end_to_end import handovers
from tests.end_to_end.handovers import (
    CONTEXT_BYTES,
    HELD_BYTES_MAX,
    TENANTS,
    Director,
)
from tests.end_to_end.test_random_handovers import SETTINGS
from tests.hook.runtime.test_arena import Group
from tests.hook.runtime.two_devices import Files
from tests.support.memory_tenants import MemoryTenant, MemoryTenants, faults, swapping_scheduler
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import GIB, MIB, SimulatedMachine
from tests.support.waits import wait_until

DEVICE = 512 * MIB
HELD = 400 * MIB
SEGMENT = 64 * MIB
SMALL_DEVICE = 224 * MIB
"""Less than six tenants soon have together."""
SMALL_FIXED = 48 * MIB
"""Of that. Memory that is given away as a whole would not fit beside it."""


OTHER_VICTIMS = [("who leaves", 1), ("who comes", 1), ("who comes", 3)]


class Host:
    """A device, its scheduler, and tenants in one control group."""

    def __init__(
        self,
        scheduler: SchedulerUnderTest,
        tenants: MemoryTenants,
        group: Group,
        machine: SimulatedMachine,
    ) -> None:
        self.scheduler, self._tenants, self.group = scheduler, tenants, group
        self.files = Files(machine)

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
def host(folder: Path, *options: str) -> Iterator[Host]:
    machine = SimulatedMachine(
        folder / "machine",
        bytes_per_device=DEVICE,
        context_bytes=MIB // 4,
        copy_bytes_per_s=4_000_000_000,
    )
    group = Group(folder)
    group.env["LD_PRELOAD"] = group.env["LD_PRELOAD"].split(":")[0]
    with (
        swapping_scheduler(folder, machine.env(), *options, check=True) as scheduler,
        MemoryTenants(scheduler, machine.env(), folder) as tenants,
    ):
        yield Host(scheduler, tenants, group, machine)
    assert faults(machine) == []


def one_that_keeps_another_parked(
    shared: Host, room: int, **env_of_three: str
) -> tuple[MemoryTenant, MemoryTenant]:
    """The first is parked because the second has as much, and the host could take `room` more."""
    shared.group.leave(4 * HELD)
    one = shared.start("one")
    three = shared.start("three", **env_of_three)
    shared.scheduler.eventually(lambda status: shared.parked("one") == parked_least(shared))
    shared.group.leave(shared.group.taken()[0] + room)
    return one, three


def nothing_is_ready(shared: Host) -> None:
    """What was made ready ahead of need goes back where nothing is left."""
    shared.group.leave(0)
    wait_until(lambda: shared.group.taken()[0] <= parked_least(shared), "nothing is ready")


def parked_least(shared: Host) -> int:
    """What of one of them does not fit beside the other, in whole chunks."""
    return -(-(2 * HELD - shared.usable()) // SEGMENT) * SEGMENT


def ask(tenant: MemoryTenant) -> None:
    """A cell that looks at all of its memory."""
    for command in ("begin", "sums", "end"):
        tenant.say(command)


def answers(tenant: MemoryTenant) -> None:
    assert tenant.heard("begin") == [0]
    assert tenant.heard_sums() == tenant.expected(), f"{tenant.name} has lost data"
    tenant.heard("end")


@pytest.mark.promise("park-64")
def test_two_notebooks_share_a_host_with_little_more_than_what_is_parked(tmp_path: Path) -> None:
    """(800 MiB less what is usable) and two segments are enough, hand-over after hand-over, and no
    more is ever taken."""
    with host(tmp_path) as shared:
        shared.group.leave(4 * HELD)
        one = shared.start("one")
        needed = 2 * HELD - shared.usable() + 2 * SEGMENT
        shared.group.leave(needed)
        three = shared.start("three")
        for _ in range(2):
            one.verify()
            three.verify()
        assert shared.group.taken()[1] <= needed


@pytest.mark.promise("accounts-24")
def test_with_less_nothing_moves_and_who_waits_reads_why(tmp_path: Path) -> None:
    """Not a byte, until the host has room; then all of it is right."""
    with host(tmp_path) as shared:
        one, three = one_that_keeps_another_parked(shared, 0)
        nothing_is_ready(shared)
        shared.group.leave(shared.group.taken()[0])
        before = shared.group.taken()
        ask(one)
        shared.scheduler.eventually(lambda status: shared.reason("one"))
        assert shared.reason("one").startswith(
            "three has 400.0 MiB on Simulated GPU for which the host, or the memory limit of its "
            "server, has no room: at least 32.0 MiB of host memory are missing. Raise that limit, "
        )
        assert shared.parked("three") == 0 and shared.parked("one") == parked_least(shared)
        assert shared.group.taken() == before
        shared.group.leave(before[0] + 2 * SEGMENT)
        answers(one)
        three.verify()


@pytest.mark.promise("park-64")
def test_a_recall_in_the_middle_of_an_exchange_loses_nothing(tmp_path: Path) -> None:
    """The turn is taken away again and again while memory goes both ways: what has given its host
    memory up stays where it is, and can leave again as the other's comes back."""
    with host(tmp_path) as shared:
        one, three = one_that_keeps_another_parked(shared, 2 * SEGMENT)
        for asks, other in ((one, three), (three, one)):
            ask(asks)
            for _ in range(4):
                with suppress(RequestRefused):  # it may not have it yet, or not any more
                    shared.scheduler.client.release_tenant(asks.tenant_id)
            ask(other)
            answers(asks)
            answers(other)


@pytest.mark.full
@pytest.mark.promise("bad-memory-30")
def test_a_host_that_runs_out_in_the_middle_of_an_exchange(tmp_path: Path) -> None:
    """The third piece is on its way to the host when others take all that it has left. Who waits
    reads why, and goes on when there is room again, and so does the other one."""
    stop = "hold cuMemcpyDtoHAsync thread=gpushare-mem nth=3 from=exchange until=go"
    why = "for which the host, or the memory limit of its server, has no room"
    with host(tmp_path) as shared:
        one, three = one_that_keeps_another_parked(shared, 2 * SEGMENT, GPUSHARE_SIM_FAULTS=stop)
        nothing_is_ready(shared)
        shared.group.leave(shared.group.taken()[0])
        ask(one)
        # Only now: a client that thinks copies ahead of need while the host has room.
        shared.scheduler.eventually(lambda status: why in shared.reason("one"))
        shared.files.make("exchange")
        shared.group.leave(shared.group.taken()[0] + 2 * SEGMENT)
        shared.files.wait_for_held("go")
        shared.group.leave(0)
        shared.files.make("go")
        shared.scheduler.eventually(
            lambda status: (
                why in shared.reason("one") and 0 < shared.parked("one") < parked_least(shared)
            )
        )
        shared.group.leave(4 * HELD)
        answers(one)
        three.verify()
        one.verify()


@pytest.mark.promise("park-64")
@pytest.mark.parametrize(
    ("victim", "gone"),
    [
        ("who leaves", 3),
        *(pytest.param(*each, marks=pytest.mark.full) for each in OTHER_VICTIMS),
    ],
)
def test_a_process_killed_in_the_middle_of_an_exchange(
    tmp_path: Path, victim: str, gone: int
) -> None:
    """When some pieces are over: the other one has every byte."""
    with host(tmp_path) as shared:
        one, three = one_that_keeps_another_parked(shared, 2 * SEGMENT)
        ask(one)
        wanted = parked_least(shared) - gone * SEGMENT
        shared.scheduler.eventually(lambda status: shared.parked("one") <= wanted)
        killed, other = (three, one) if victim == "who leaves" else (one, three)
        killed.process.signal(signal.SIGKILL)
        killed.process.wait()
        if other is one:
            answers(one)
        other.verify()


@pytest.mark.full
@pytest.mark.promise("park-64")
def test_three_notebooks_share_a_host_with_little_more_than_what_is_parked(tmp_path: Path) -> None:
    """Each of them has its turn again and again, whoever is parked then."""
    with host(tmp_path) as shared:
        size = HELD * 3 // 4
        shared.group.leave(4 * HELD)
        tenants = [shared.start(name, size=size) for name in ("one", "four", "three")]
        shared.group.leave(3 * size - shared.usable() + 2 * SEGMENT)
        for _ in range(2):
            for tenant in tenants:
                tenant.verify()


class OneGroup:
    """For all tenants of a run, with the same limit to its end."""

    env_of_all: ClassVar[dict[str, str]] = {}

    def __init__(self, root: Path) -> None:
        """Where a group of its own would be."""

    def env(self) -> dict[str, str]:
        return self.env_of_all

    def limit(self, size: int | None) -> None:
        """It stays."""


class Together(Director):
    """Nobody is killed: the account of the group would not see it."""

    def kill_in_a_hand_over(self, tenant: MemoryTenant) -> None:
        self.several_at_once(tenant)

    def kill_and_replace(self, tenant: MemoryTenant) -> None:
        """It lives on."""


@pytest.mark.promise("park-64")
@pytest.mark.full
@pytest.mark.parametrize(("seed", "with_faults"), [(5, False), (6, True)])
def test_random_hand_overs_under_one_limit_lose_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, with_faults: bool
) -> None:
    """Six tenants with memory of every kind and size, on a host with what docs/memory.md says that
    they need: each hand-over ends, and every byte is right after each."""
    group = Group(tmp_path)
    group.env["LD_PRELOAD"] = group.env["LD_PRELOAD"].split(":")[0]
    group.leave(GIB)
    monkeypatch.setattr(OneGroup, "env_of_all", group.env)
    monkeypatch.setattr(handovers, "FakeCgroup", OneGroup)
    machine = SimulatedMachine(
        tmp_path / "machine",
        bytes_per_device=SMALL_DEVICE,
        context_bytes=CONTEXT_BYTES,
        copy_bytes_per_s=4_000_000_000,
    )
    with (
        swapping_scheduler(tmp_path / "run", machine.env(), *SETTINGS, check=True) as scheduler,
        MemoryTenants(scheduler, machine.env(), tmp_path) as tenants,
    ):
        director = Together(
            tenants,
            random.Random(seed),
            tmp_path,
            faults=with_faults,
            fixed_bytes_max=SMALL_FIXED,
            wholes=False,
        )
        director.begin()
        for _ in range(24):
            (device,) = scheduler.status()["devices"]
            parked = device["bytes_allocated"] + HELD_BYTES_MAX - device["bytes_usable"]
            group.leave(max(0, parked) + (2 + TENANTS) * SEGMENT)
            director.step()
        assert director.end() == []
    assert faults(machine) == []
    assert group.taken()[1] > 0, "no memory ever left the device"
