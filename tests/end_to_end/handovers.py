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
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpushare.client import RequestRefused
from tests.end_to_end.holdings import (
    GRAPH_UNIT,
    KINDS,
    SHARED_BLOCK_MAX,
    STAYS,
    Holdings,
    fixed_bytes_of,
)
from tests.support.fake_cgroup import FakeCgroup
from tests.support.memory_tenants import (
    CANCELLED,
    OUT_OF_MEMORY,
    SUCCESS,
    MemoryTenant,
    MemoryTenants,
    expected_sum,
)
from tests.support.sim import MIB, SimulatedMachine
from tests.support.waits import WAIT_S_MAX

TENANTS = 6
DEVICE_BYTES = 416 * MIB
CONTEXT_BYTES = 1 * MIB
HELD_BYTES_LEAST = 40 * MIB
HELD_BYTES_MAX = 56 * MIB
FIXED_BYTES_MAX = 96 * MIB
"""Of all of them together, but for the one that is given away as a whole."""
WHOLE_BYTES = 66 * MIB
"""Of several parts, if it is made by one call."""
WHOLE_SLOT = 20
WHOLE_STEPS_MAX = 4
SIZES = (4096, 100_000, 1 * MIB, 2 * MIB, 2 * MIB + 4096, 5 * MIB, 12 * MIB, 20 * MIB)
SLOTS = 8
HOST_RESERVE = 256 * MIB
"""Of a control group the hook leaves so much alone."""
HOST_LIMITS = (0, HOST_RESERVE, HOST_RESERVE + 16 * MIB, HOST_RESERVE + 48 * MIB)
"""Tight ones: none, less than any chunk needs, and some."""
STEPS = {
    "hand_over": 5,
    "several_at_once": 4,
    "get_ahead": 6,
    "rewrite": 4,
    "grow": 4,
    "shrink": 3,
    "move": 3,
    "share": 3,
    "give_away": 2,
    "give_a_whole_away": 1,
    "replay": 2,
    "take_turns_back": 2,
    "kill_in_a_hand_over": 2,
    "change_a_cgroup": 2,
}
"""A pack of cards: each of them is dealt so often before it is shuffled again."""
DECK = sum(STEPS.values())
MEANWHILE = ("nothing", "interrupt", "limit", "limit the holder", "grow", "kill", "back")
"""What happens while the memory of the next one comes back ahead of its turn; likewise."""
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
MAP_FAILED, UNKNOWN, NOT_SUPPORTED = 205, 999, 801
CALLS_THAT_ALLOCATE = ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess")
CALLS_THAT_STALL = (
    *("cuMemCreate", "cuMemUnmap", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"),
    "cuMemPrefetchAsync",
)
ANSWER_S_MAX = WAIT_S_MAX
HOLDS_NS = 400_000_000
"""For so long one computes while the memory of the next one comes back. Its quantum is longer."""
REFUSED = " is out of memory, because "
REFUSED_WHOLE = "GPU memory of more than 64 MiB in one cuMemCreate cannot be given away"


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
    allocated: int = 0
    refused: int = 0
    faults: int = 0
    did: Counter[str] = field(default_factory=Counter)
    """By what it is called."""


@dataclass
class Deck:
    """Cards that are all dealt before they are shuffled again: whatever the seed is, a long run has
    each of them as often as it should."""

    cards: Sequence[str]
    chance: random.Random
    left: list[str] = field(default_factory=list)

    def deal(self) -> str:
        if not self.left:
            self.left = self.chance.sample(self.cards, len(self.cards))
        return self.left.pop()


def deck_of(weights: Mapping[str, int], chance: random.Random) -> Deck:
    return Deck([card for card, times in weights.items() for _ in range(times)], chance)


@dataclass
class Director:
    """Tells the tenants what to do."""

    tenants: MemoryTenants
    chance: random.Random
    directory: Path
    env: Mapping[str, str] = field(default_factory=dict)
    faults: bool = True
    fixed_bytes_max: int = FIXED_BYTES_MAX
    wholes: bool = True
    """Whether the device is large enough for memory that is given away as a whole."""
    counts: Counts = field(default_factory=Counts)
    alive: list[MemoryTenant] = field(default_factory=list)
    cgroups: dict[str, FakeCgroup] = field(default_factory=dict)
    answers: dict[str, set[int]] = field(default_factory=dict)
    """What else a tenant's allocations may answer."""
    may_read: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By tenant: what it has been told in words, besides in an answer."""

    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.holdings = Holdings(self.fixed_bytes_max)
        self._kinds = deck_of(KINDS, self.chance)
        self._steps = deck_of(STEPS, self.chance)
        self._meanwhile = Deck(MEANWHILE, self.chance)
        self._number = 0
        self._limited: FakeCgroup | None = None
        self._whole: tuple[MemoryTenant, int] | None = None

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
        while held_by(tenant) < HELD_BYTES_LEAST and len(tenant.held) < SLOTS - 1:
            self.grow(tenant)

    def ended(self, tenant: MemoryTenant) -> None:
        """It is gone, and what it had."""
        self.note_complaints(tenant)
        self.alive.remove(tenant)
        self.holdings.remove_all_of(tenant)
        if self._whole is not None and self._whole[0] is tenant:
            self._whole = None

    def named(self, name: str) -> MemoryTenant:
        return next(each for each in self.alive if each.name == name)

    # ---- what a tenant may do ----

    def may_answer(self, tenant: MemoryTenant, result: int, *more: int) -> bool:
        """Whether it went well. Out of memory is an answer, and so is what the driver says of
        itself; wrong data is none."""
        allowed = (SUCCESS, OUT_OF_MEMORY, *more, *self.answers[tenant.name])
        assert result in allowed, (tenant.name, result, tenant.process.errors())
        if result == OUT_OF_MEMORY:
            self.may_read[tenant.name].add(REFUSED)
        return result == SUCCESS

    def grow(self, tenant: MemoryTenant) -> None:
        """Allocate something that fits, in a cell."""
        place = self.place_and_size(tenant)
        if place is None:
            return self.shrink(tenant)
        tenant.ok("begin")
        if self.chance.random() < 0.5:  # else the allocation itself has to wait for the turn
            tenant.ok("stamp", within_s=ANSWER_S_MAX)
        self.allocate(tenant, *place)
        tenant.ok("end")
        return None

    def place_and_size(self, tenant: MemoryTenant) -> tuple[int, int] | None:
        """Where there is something to allocate, and how much."""
        free_slots = [slot for slot in range(SLOTS) if slot not in tenant.held]
        sizes = [size for size in SIZES if held_by(tenant) + size <= HELD_BYTES_MAX]
        if not free_slots or not sizes:
            return None
        return self.chance.choice(free_slots), self.chance.choice(sizes)

    def allocate(self, tenant: MemoryTenant, slot: int, size: int, kind: str = "") -> bool:
        kind = kind or self._kinds.deal()
        if kind in STAYS and not self.holdings.has_space_for(fixed_bytes_of(kind, size)):
            kind = "alloc"
        result = tenant.result(f"{kind} {slot} {size}", within_s=ANSWER_S_MAX)
        if not self.may_answer(tenant, result):
            self.counts.refused += 1
            return False
        tenant.refill(slot, self.chance.getrandbits(32), size)
        self.holdings.add((tenant.name, slot), kind, size)
        self.counts.allocated += 1
        self.counts.did[kind] += 1
        return True

    def move(self, tenant: MemoryTenant) -> None:
        """The program maps memory of its own elsewhere. It may be told that there is no room."""
        slots = self.holdings.of_kind(tenant, "map")
        if not slots:
            return self.grow(tenant)
        tenant.ok("begin")
        result = tenant.result(f"move {self.chance.choice(slots)}", within_s=ANSWER_S_MAX)
        self.counts.did["moved"] += self.may_answer(tenant, result)
        tenant.ok("end")
        return None

    def shrink(self, tenant: MemoryTenant) -> None:
        """Free something, wherever it is just now: frees need no turn."""
        if tenant.held:
            self.free(tenant, self.chance.choice(sorted(tenant.held)))

    def free(self, tenant: MemoryTenant, slot: int) -> None:
        """Other processes keep what they have of it, unless it had neighbours."""
        place = (tenant.name, slot)
        if self.holdings.owners.get(place) is None and tenant.held[slot][1] <= SHARED_BLOCK_MAX:
            for name, its in list(self.holdings.others_with(place)):
                self.free(self.named(name), its)
        tenant.free(slot)
        self.holdings.remove(place)

    def rewrite(self, tenant: MemoryTenant) -> None:
        """Whoever else has the memory reads the new words."""
        if not tenant.held:
            return self.grow(tenant)
        slot = self.chance.choice(sorted(tenant.held))
        tenant.ok("begin")
        tenant.refill(slot, self.chance.getrandbits(32), tenant.held[slot][1])
        tenant.ok("end")
        for name, its in self.holdings.others_with((tenant.name, slot)):
            self.named(name).held[its] = tenant.held[slot]
        return None

    def replay(self, tenant: MemoryTenant) -> None:
        """A graph with memory of its own, which counts as refused where there is none."""
        size, seed = self.chance.choice(SIZES), self.chance.getrandbits(32)
        if not self.holdings.has_space_for(GRAPH_UNIT):
            return self.grow(tenant)
        tenant.ok("begin")
        result, *found = tenant.ask(f"replay {size} {seed}", within_s=ANSWER_S_MAX)
        if self.may_answer(tenant, result):
            assert found == [expected_sum(seed, size)], f"{tenant.name}: a graph has lost data"
            self.counts.did["replayed"] += 1
        tenant.ok("end")
        return None

    # ---- what others may have ----

    def share(self, owner: MemoryTenant) -> None:
        """Another tenant opens memory of this one, and keeps it until it frees it."""
        slots = [
            slot
            for slot in self.holdings.of_kind(owner, "alloc", "pitch")
            if self.holdings.has_space_for(owner.held[slot][1])
        ]
        others = [each for each in self.alive if each is not owner and len(each.held) < SLOTS]
        if not slots or not others:
            return self.grow(owner)
        slot, other = self.chance.choice(slots), self.chance.choice(others)
        seed, size = owner.held[slot]
        owner.ok("begin")
        result, *handle = owner.ask(f"share {slot}", within_s=ANSWER_S_MAX)
        owner.ok("end")
        if not self.may_answer(owner, result):
            return None
        its = next(each for each in range(SLOTS) if each not in other.held)
        other.ok("begin")
        words = " ".join(str(word) for word in handle)
        result = other.result(f"attach {its} {size} {words}", within_s=ANSWER_S_MAX)
        other.ok("end")
        if self.may_answer(other, result, MAP_FAILED, UNKNOWN):
            other.held[its] = (seed, size)
            self.holdings.attach((other.name, its), (owner.name, slot), size)
            self.counts.did["shared"] += 1
        return None

    def give_away(self, tenant: MemoryTenant) -> None:
        """Memory that the program has mapped, by its handle: it stays from then on."""
        slots = [
            slot
            for slot in self.holdings.of_kind(tenant, "map")
            if self.holdings.has_space_for(tenant.held[slot][1])
        ]
        if not slots:
            return self.grow(tenant)
        slot = self.chance.choice(slots)
        self.give(tenant, slot, "given")
        self.holdings.fixed[tenant.name, slot] = tenant.held[slot][1]
        self.holdings.kinds[tenant.name, slot] = "given"
        return None

    def give(self, tenant: MemoryTenant, slot: int, what: str) -> None:
        """Who imports it reads every byte. It may be told that there is no room meanwhile."""
        tenant.ok("begin")
        result, *found = tenant.ask(f"give {slot}", within_s=ANSWER_S_MAX)
        if self.may_answer(tenant, result, NOT_SUPPORTED, UNKNOWN):
            assert found == [tenant.expected()[slot]], f"{tenant.name} has given wrong data away"
            self.counts.did[what] += 1
        else:
            self.may_read[tenant.name].add(REFUSED_WHOLE)
        tenant.ok("end")

    def give_a_whole_away(self, tenant: MemoryTenant) -> None:
        """Memory of several parts leaves and comes back as such, and becomes one allocation when it
        is given away. A few steps later it is freed."""
        if self._whole is not None or not self.wholes:
            return self.grow(tenant)
        tenant.ok("begin")
        if self.allocate(tenant, WHOLE_SLOT, WHOLE_BYTES, "map"):
            self.holdings.kinds[tenant.name, WHOLE_SLOT] = "whole"
            self._whole = (tenant, self.counts.steps)
        tenant.ok("end")
        if self._whole is not None:
            self.several_at_once(tenant)
            self.give(tenant, WHOLE_SLOT, "given whole")
        return None

    def free_the_whole_in_time(self) -> None:
        if self._whole is not None and self.counts.steps - self._whole[1] > WHOLE_STEPS_MAX:
            tenant, self._whole = self._whole[0], None
            if WHOLE_SLOT in tenant.held:
                self.free(tenant, WHOLE_SLOT)

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

    def collect_what_may_be_interrupted(self, tenant: MemoryTenant) -> None:
        assert tenant.heard("begin")[0] == SUCCESS
        line = tenant.process.expect("sums ", within_s=ANSWER_S_MAX)
        result, *found = line.split()[1:]
        assert int(result) in (SUCCESS, CANCELLED), (tenant.name, line, tenant.process.errors())
        if int(result) == SUCCESS:
            sums = dict(map(int, pair.split(":")) for pair in found)
            assert sums == tenant.expected(), f"{tenant.name} has lost data"
        self.counts.did["interrupted"] += int(result) == CANCELLED
        tenant.heard("end")

    def hand_over(self, tenant: MemoryTenant) -> None:
        """The looks at everybody's bytes are some."""

    def several_at_once(self, tenant: MemoryTenant) -> None:
        """Two or three ask at the same time, and have it one after the other."""
        asking = self.chance.sample(self.alive, min(len(self.alive), self.chance.randint(2, 3)))
        for each in asking:
            self.ask(each)
        for each in asking:
            self.collect(each)

    def get_ahead(self, holder: MemoryTenant) -> None:
        """While one computes, the memory of the next one comes back, and something happens. The
        next one is who has most of it to wait for."""
        status = self.tenants.scheduler.status()
        others = [each for each in self.alive if each is not holder]
        waiter = max(others, key=lambda each: parked_of(status, each))
        holder.ok("begin")
        holder.ok("stamp", within_s=ANSWER_S_MAX)
        holder.ok(f"spin {HOLDS_NS}")
        parked = self.parked(waiter)
        self.ask(waiter)
        happens = self._meanwhile.deal()
        if self.comes_ahead(holder, waiter, parked):
            self.counts.did["ahead"] += 1
            self.counts.did[f"ahead: {happens}"] += 1
        self.happens(happens, holder, waiter)
        holder.ok("sync", within_s=ANSWER_S_MAX)
        holder.ok("end")
        if happens == "interrupt":
            self.collect_what_may_be_interrupted(waiter)
        elif waiter in self.alive:
            self.collect(waiter)

    def comes_ahead(self, holder: MemoryTenant, waiter: MemoryTenant, parked: int) -> bool:
        """Whether some of it was seen to come while the other one had the turn."""
        until_s = time.monotonic() + HOLDS_NS * 3 / 4e9
        while parked > 0 and time.monotonic() < until_s:
            status = self.tenants.scheduler.status()
            holders = [each["name"] for each in status["devices"][0]["holders"]]
            if holders != [holder.name]:
                return False
            if parked_of(status, waiter) < parked:
                return True
        return False

    def parked(self, tenant: MemoryTenant) -> int:
        return parked_of(self.tenants.scheduler.status(), tenant)

    def happens(self, what: str, holder: MemoryTenant, waiter: MemoryTenant) -> None:
        match what:
            case "interrupt":
                waiter.say("!cancel")
            case "limit":
                self.limit(waiter)
            case "limit the holder":
                self.limit(holder)
            case "grow":
                place = self.place_and_size(holder)
                if place is not None:
                    self.allocate(holder, *place)
            case "kill":
                self.kill_and_replace(waiter)
            case "back":
                with contextlib.suppress(RequestRefused):
                    self.tenants.scheduler.client.release_tenant(holder.tenant_id)

    def kill_and_replace(self, tenant: MemoryTenant) -> None:
        tenant.process.signal(signal.SIGKILL)
        self.ended(tenant)
        self.counts.did["killed"] += 1
        tenant.process.wait()
        tenant.process.end()
        self.add()

    def kill_in_a_hand_over(self, tenant: MemoryTenant) -> None:
        """One gives and one takes; either is killed while memory is on its way both ways."""
        giver, taker = self.chance.sample(self.alive, 2)
        self.ask(giver)
        self.collect(giver)
        self.ask(taker)
        time.sleep(self.chance.uniform(0, 0.015))  # what is to be hit is a moment, not an event
        victim, other = self.chance.choice([(giver, taker), (taker, giver)])
        victim.process.signal(signal.SIGKILL)
        self.ended(victim)
        self.counts.did["killed"] += 1
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
                    self.counts.did["taken back"] += 1
                    break
        self.collect(tenant)

    def change_a_cgroup(self, tenant: MemoryTenant) -> None:
        """Less host memory for this one."""
        self.limit(tenant)

    def limit(self, tenant: MemoryTenant) -> None:
        """Never for two, who could then keep a third one out: the one before has ample memory."""
        if self._limited is not None:
            self._limited.limit(None)
        self._limited = self.cgroups[tenant.name]
        self._limited.limit(self.chance.choice(HOST_LIMITS))
        self.counts.did["limited"] += 1

    # ---- one step ----

    def step(self) -> None:
        """Something happens, and then everybody's bytes are looked at, in random order."""
        self.counts.steps += 1
        self.free_the_whole_in_time()
        tenant = self.chance.choice(self.alive)
        getattr(self, self._steps.deal())(tenant)
        for survivor in self.chance.sample(self.alive, len(self.alive)):
            self.ask(survivor)
            self.collect(survivor)

    def end(self) -> list[str]:
        """All of them end by themselves; what they, and those that were killed, had to complain
        about."""
        for tenant in self.alive:
            with contextlib.suppress(BrokenPipeError):
                status = tenant.process.finish()
            self.note_complaints(tenant)
            if status != 0:
                self.complaints.append(f"{tenant.name} ended with {status}")
        return self.complaints

    def note_complaints(self, tenant: MemoryTenant) -> None:
        told = self.may_read[tenant.name]
        lines = tenant.process.errors().splitlines(keepends=True)
        errors = "".join(line for line in lines if not any(words in line for words in told))
        if errors:
            self.complaints.append(f"{tenant.name}: {errors[:4000]}")


def held_by(tenant: MemoryTenant) -> int:
    return sum(size for slot, (_, size) in tenant.held.items() if slot != WHOLE_SLOT)


def parked_of(status: Mapping[str, Any], tenant: MemoryTenant) -> int:
    (found,) = (each for each in status["tenants"] if each["id"] == tenant.tenant_id)
    return sum(int(memory["bytes_parked"]) for memory in found["memory"])
