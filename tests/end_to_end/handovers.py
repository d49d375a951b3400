"""Hand-overs at random: tenants that together hold more than the device, faults at every step,
processes that are killed, host memory that is taken away. After each hand-over every byte of every
tenant that lives is verified, by launches on the device.

All choices come from one seed; what the machine makes of them in time does not, so a seed that
failed may have to be tried more than once.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpushare.client import RequestRefused
from tests.support.fake_cgroup import FakeCgroup
from tests.support.memory_tenants import (
    OUT_OF_MEMORY,
    SUCCESS,
    MemoryTenant,
    MemoryTenants,
)
from tests.support.sim import MIB, SimulatedMachine

TENANTS = 6
DEVICE_BYTES = 160 * MIB
CONTEXT_BYTES = 1 * MIB
HELD_BYTES_MAX = 40 * MIB
SIZES = (4096, 100_000, 1 * MIB, 2 * MIB, 2 * MIB + 4096, 5 * MIB, 12 * MIB, 20 * MIB)
SLOTS = 8
KINDS = {"alloc": 0.3, "map": 0.3, "pool": 0.2, "managed": 0.2}
"""Of the allocations: plain ones, memory that the program makes and maps itself, such that is
allocated in a stream, and managed memory."""
CALLS_THAT_FAIL = {
    "cuMemCreate": (OUT_OF_MEMORY,),
    "cuMemMap": (OUT_OF_MEMORY, 999),
    "cuMemSetAccess": (OUT_OF_MEMORY, 999),
    "cuMemcpyHtoDAsync": (OUT_OF_MEMORY, 999),
    "cuMemHostRegister": (OUT_OF_MEMORY,),
    "cuMemAddressReserve": (OUT_OF_MEMORY,),
    "cuMemPrefetchAsync": (OUT_OF_MEMORY, 1, 999),
    "cuMemAllocManaged": (OUT_OF_MEMORY,),
}
CALLS_THAT_ALLOCATE = ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess")
CALLS_THAT_STALL = (
    *("cuMemCreate", "cuMemUnmap", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"),
    "cuMemPrefetchAsync",
)
ANSWER_S_MAX = 60.0


def machine_for(directory: Path) -> SimulatedMachine:
    """A small device with a fast bus: what counts is how often memory moves."""
    return SimulatedMachine(
        directory,
        bytes_per_device=DEVICE_BYTES,
        context_bytes=CONTEXT_BYTES,
        copy_bytes_per_s=4_000_000_000,
    )


def fault_plan(chance: random.Random) -> str:
    """What is to go wrong in one process: allocations, copies, registrations that fail or hang."""
    lines = []
    for _ in range(chance.randint(2, 6)):
        call = chance.choice(sorted(CALLS_THAT_FAIL))
        result = chance.choice(CALLS_THAT_FAIL[call])
        times = chance.randint(1, 3)
        lines.append(f"fail {call} nth={chance.randint(3, 400)} result={result} times={times}")
    if chance.random() < 0.5:  # what cannot be copied out stays on the device, so only once
        lines.append(f"fail cuMemcpyDtoHAsync nth={chance.randint(3, 100)} result=999")
    for _ in range(chance.randint(1, 4)):
        call = chance.choice(CALLS_THAT_STALL)
        lines.append(f"stall {call} nth={chance.randint(3, 400)} ms={chance.randint(1, 40)}")
    return ";".join(lines)


def errors_of_allocations(plan: str) -> set[int]:
    """What a process with this plan may hear from the driver when it allocates."""
    failing = [line for line in plan.split(";") if line.startswith("fail ")]
    return {
        int(line.split("result=")[1].split()[0])
        for line in failing
        if line.split()[1] in CALLS_THAT_ALLOCATE
    }


@dataclass
class Counts:
    """What has happened, for the report of a run."""

    steps: int = 0
    verified: int = 0
    kills: int = 0
    allocated: int = 0
    refused: int = 0
    cgroup_changes: int = 0
    mapped: int = 0
    pooled: int = 0
    managed: int = 0
    moved: int = 0
    taken_back: int = 0
    faults: int = 0


@dataclass
class Director:
    """Tells the tenants what to do."""

    tenants: MemoryTenants
    chance: random.Random
    directory: Path
    env: Mapping[str, str] = field(default_factory=dict)
    faults: bool = True
    counts: Counts = field(default_factory=Counts)
    alive: list[MemoryTenant] = field(default_factory=list)
    cgroups: dict[str, FakeCgroup] = field(default_factory=dict)
    answers: dict[str, set[int]] = field(default_factory=dict)
    """What else a tenant's allocations may answer."""
    mapped: dict[tuple[str, int], bool] = field(default_factory=dict)
    """By tenant and slot: whether the program has mapped it."""
    _number: int = 0
    _limited: FakeCgroup | None = None

    def begin(self) -> None:
        for _ in range(TENANTS):
            self.add()

    def add(self) -> None:
        """A tenant with a fault plan and a control group of its own, and something to lose."""
        self._number += 1
        name = f"tenant-{self._number}"
        group = self.cgroups[name] = FakeCgroup(self.directory / f"cgroup-{self._number}")
        env = {**self.env, **group.env()}
        plan = fault_plan(self.chance) if self.faults else ""
        if plan:
            env["GPUSHARE_SIM_FAULTS"] = plan
        self.answers[name] = errors_of_allocations(plan)
        tenant = self.tenants.start(name, env=env)
        self.alive.append(tenant)
        for _ in range(3):
            self.grow(tenant)

    # ---- what a tenant may do ----

    def grow(self, tenant: MemoryTenant) -> None:
        """Allocate something that fits, in a cell. Out of memory is an answer, and so is what the
        driver says of itself; wrong data is none."""
        free_slots = [slot for slot in range(SLOTS) if slot not in tenant.held]
        held = sum(size for _, size in tenant.held.values())
        sizes = [size for size in SIZES if held + size <= HELD_BYTES_MAX]
        if not free_slots or not sizes:
            return self.shrink(tenant)
        slot, size = self.chance.choice(free_slots), self.chance.choice(sizes)
        tenant.ok("begin")
        if self.chance.random() < 0.5:  # else the allocation itself has to wait for the turn
            tenant.ok("stamp", within_s=ANSWER_S_MAX)
        command = self.chance.choices(list(KINDS), weights=list(KINDS.values()))[0]
        result = tenant.result(f"{command} {slot} {size}", within_s=ANSWER_S_MAX)
        allowed = (SUCCESS, OUT_OF_MEMORY, *self.answers[tenant.name])
        assert result in allowed, (tenant.name, result, tenant.process.errors())
        if result == SUCCESS:
            tenant.refill(slot, self.chance.getrandbits(32), size)
            self.counts.allocated += 1
            self.counts.mapped += command == "map"
            self.counts.pooled += command == "pool"
            self.counts.managed += command == "managed"
            self.mapped[tenant.name, slot] = command == "map"
        else:
            self.counts.refused += 1
        tenant.ok("end")
        return None

    def move(self, tenant: MemoryTenant) -> None:
        """The program maps memory of its own elsewhere. It may be told that there is no room."""
        slots = [slot for slot in sorted(tenant.held) if self.mapped.get((tenant.name, slot))]
        if not slots:
            return self.grow(tenant)
        tenant.ok("begin")
        result = tenant.result(f"move {self.chance.choice(slots)}", within_s=ANSWER_S_MAX)
        allowed = (SUCCESS, OUT_OF_MEMORY, *self.answers[tenant.name])
        assert result in allowed, (tenant.name, result, tenant.process.errors())
        self.counts.moved += result == SUCCESS
        tenant.ok("end")
        return None

    def shrink(self, tenant: MemoryTenant) -> None:
        """Free something, wherever it is just now: frees need no turn."""
        if tenant.held:
            tenant.free(self.chance.choice(sorted(tenant.held)))

    def rewrite(self, tenant: MemoryTenant) -> None:
        if not tenant.held:
            return self.grow(tenant)
        slot = self.chance.choice(sorted(tenant.held))
        tenant.ok("begin")
        tenant.refill(slot, self.chance.getrandbits(32), tenant.held[slot][1])
        tenant.ok("end")
        return None

    # ---- hand-overs ----

    def ask(self, tenant: MemoryTenant) -> None:
        """A cell that looks at all of its memory; the answer comes when it has had its turn."""
        for command in ("begin", "sums", "end"):
            tenant.say(command)

    def collect(self, tenant: MemoryTenant) -> None:
        assert tenant.heard("begin")[0] == SUCCESS
        sums = tenant.heard_sums(within_s=ANSWER_S_MAX)
        assert sums == tenant.expected(), f"{tenant.name} has lost data"
        tenant.heard("end")
        self.counts.verified += 1

    def several_at_once(self) -> None:
        """Two or three ask at the same time, and have it one after the other."""
        asking = self.chance.sample(self.alive, min(len(self.alive), self.chance.randint(2, 3)))
        for tenant in asking:
            self.ask(tenant)
        for tenant in asking:
            self.collect(tenant)

    def kill_in_a_hand_over(self) -> None:
        """One gives and one takes; either is killed while memory is on its way both ways."""
        giver, taker = self.chance.sample(self.alive, 2)
        self.ask(giver)
        self.collect(giver)
        self.ask(taker)
        time.sleep(self.chance.uniform(0, 0.015))  # what is to be hit is a moment, not an event
        victim, other = self.chance.choice([(giver, taker), (taker, giver)])
        victim.process.signal(signal.SIGKILL)
        self.alive.remove(victim)
        self.counts.kills += 1
        if other is taker:
            self.collect(taker)
        victim.process.wait()
        victim.process.end()
        self.add()

    def take_turns_back(self, tenant: MemoryTenant) -> None:
        """Its user, or somebody in the panel, takes the turn back again and again while its memory
        comes back; it is given the turn again at once."""
        self.ask(tenant)
        for _ in range(self.chance.randint(1, 3)):
            until_s = time.monotonic() + self.chance.uniform(0, 0.03)  # a moment, not an event
            while time.monotonic() < until_s:
                with contextlib.suppress(RequestRefused):
                    self.tenants.scheduler.client.release_tenant(tenant.tenant_id)
                    self.counts.taken_back += 1
                    break
        self.collect(tenant)

    def change_a_cgroup(self) -> None:
        """Less host memory for one tenant; never for two, who could then keep a third one out."""
        if self._limited is not None:
            self._limited.limit(None)
        self._limited = self.cgroups[self.chance.choice(self.alive).name]
        self._limited.limit(self.chance.choice([0, 16 * MIB, 48 * MIB]))
        self.counts.cgroup_changes += 1

    # ---- one step ----

    def step(self) -> None:
        """Something happens, and then everybody's bytes are looked at, in random order."""
        self.counts.steps += 1
        kind = self.chance.choices(
            ("hand over", "several", "rewrite", "grow", "shrink", "move", "back", "kill", "cgroup"),
            weights=(6, 4, 4, 3, 2, 3, 3, 2, 1),
        )[0]
        tenant = self.chance.choice(self.alive)
        if kind == "several":
            self.several_at_once()
        elif kind == "rewrite":
            self.rewrite(tenant)
        elif kind == "grow":
            self.grow(tenant)
        elif kind == "shrink":
            self.shrink(tenant)
        elif kind == "move":
            self.move(tenant)
        elif kind == "back":
            self.take_turns_back(tenant)
        elif kind == "kill":
            self.kill_in_a_hand_over()
        elif kind == "cgroup":
            self.change_a_cgroup()
        for survivor in self.chance.sample(self.alive, len(self.alive)):
            self.ask(survivor)
            self.collect(survivor)

    def end(self) -> list[str]:
        """All of them end by themselves; what they had to complain about."""
        complaints = []
        for tenant in self.alive:
            with contextlib.suppress(BrokenPipeError):
                status = tenant.process.finish()
            errors = tenant.process.errors()
            if status != 0 or errors:
                complaints.append(f"{tenant.name} ended with {status}: {errors[:4000]}")
        return complaints
