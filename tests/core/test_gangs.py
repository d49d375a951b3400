"""Tenants of several devices (gangs): they get all their devices or none, nobody waits for ever,
and no device is idle for one that could not use it. Memory and gangs together have their worlds in
test_gangs_with_memory.py, test_memory_machine.py and test_incremental.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import GrantTurn, RecallTurn, WakeAt
from jupyter_gpushare.core.ids import DeviceId, Seconds
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

from .crowd import DRAIN_S, Crowd, Member, Work
from .desk import Desk

LOOP = Work(in_cells=False)
PASSES_MAX = 6
"""So many turns of each of the others a tenant waits at most, whatever they have open."""
SERVED = pytest.mark.promise(
    "scheduler-26",
    "Tenants of several devices get all of them or none, and everybody who could be served is, in "
    "bounded time, whoever else wants which devices: there is no circle of waits",
)


class Gangs(Crowd):
    """Counts for how long each has waited while nothing but others' turns was in its way."""

    def __init__(self, settings: SchedulerSettings, devices: str) -> None:
        self.waited_s: defaultdict[Member, Seconds] = defaultdict(float)
        self.longest_wait_s: Seconds = 0.0
        self.shut: set[DeviceId] = set()
        """Paused or lost."""
        super().__init__(settings, devices)

    def say(self, event: ev.Event) -> None:
        """Devices are known at the beginning, and then each command is obeyed."""
        for command in self._handled(event):
            match command:
                case WakeAt(at_s=at_s):
                    self._wake_at_s = at_s
                case GrantTurn(client=client, turn=turn) if client in self.members:
                    self.waited_s.pop(self.members[client], None)
                    self._granted(self.members[client], turn)
                case RecallTurn(client=client) if client in self.members:
                    self._recalled(self.members[client])
                case _:
                    pass

    def _goes_on_to(self, at_s: Seconds) -> None:
        passed_s = at_s - self.now_s
        for member in self._who_could_be_served() if passed_s > 0 else ():
            self.waited_s[member] += passed_s
            self.longest_wait_s = max(self.longest_wait_s, self.waited_s[member])
        super()._goes_on_to(at_s)

    def _who_could_be_served(self) -> Iterator[Member]:
        for member in self.members.values():
            waits = member.wants and member.turn is None
            is_open = not self.shut & set(member.devices)
            if waits and is_open:
                yield member

    def shuts(self, device: str, at_s: Seconds, for_s: Seconds, *, lost: bool) -> None:
        """A device is paused, or falls off the bus, and is there again later."""
        name = DeviceId(device)
        found = ev.DeviceFound(device=name, name=name, bytes_total=8000)
        paused, opened = (
            ev.DeviceModeChanged(device=name, mode=mode)
            for mode in (ev.DeviceMode.PAUSED, ev.DeviceMode.OPEN)
        )

        def ends() -> None:
            self.shut.discard(name)
            self.say(found if lost else opened)

        def begins() -> None:
            self.shut.add(name)
            self.say(ev.DeviceLost(device=name) if lost else paused)
            self._later(for_s, ends)

        self._later(at_s, begins)


MEMBERS = st.lists(
    st.tuples(
        st.integers(0, 3),  # its owner
        st.integers(1, 255),  # its devices, as bits
        st.sampled_from([None, None, (0.2, 0.0), (0.2, 1.0), (2.0, 0.0), (2.0, 5.0), (10.0, 1.0)]),
        st.sampled_from([0.0, 0.0, 3.0, 20.0]),  # when it comes
        st.sampled_from([0.0, 0.0, 0.0, 30.0]),  # when it goes; 0: it stays
    ),
    min_size=2,
    max_size=7,
)
SHUT = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from([5.0, 12.0]), st.booleans()), max_size=2
)
WEIGHTS = st.tuples(*[st.sampled_from([1.0, 1.0, 3.0])] * 4)


def everybody_is_served(
    devices: int,
    members: list[tuple[int, int, tuple[float, float] | None, float, float]],
    weights: tuple[float, ...],
    shut: list[tuple[int, float, bool]],
    lasts_s: float,
) -> None:
    """In a time that does not depend on how long the others go on."""
    names = "ABCDEFGH"[:devices]
    chosen = SchedulerSettings(
        memory_mode=MemoryMode.OFF,
        quantum_s=1.0,
        credit_s=0,  # an owner's new cells may keep its older ones waiting
        weights=", ".join(f"owner{n}={weight}" for n, weight in enumerate(weights)),
    )
    gangs = Gangs(chosen, names)
    for owner, bits, cells, at_s, goes_s in members:
        wants = "".join(name for n, name in enumerate(names) if bits >> n & 1) or names[0]
        work = LOOP if cells is None else Work(cell_s=cells[0], pause_s=cells[1])
        member = gangs.add(f"owner{owner}", work, devices=wants, at_s=at_s)
        if goes_s:
            gangs._later(goes_s, lambda member=member: gangs.leaves(member))  # type: ignore[misc]
    for number, for_s, lost in shut:
        gangs.shuts(names[number % devices], 8.0, for_s, lost=lost)
    gangs.run(lasts_s)
    longest_s = max(gangs.longest_s, 1.0) + DRAIN_S
    bound_s = PASSES_MAX * len(members) * longest_s * max(weights) * (1 + len(shut))
    assert gangs.longest_wait_s <= bound_s, (gangs.longest_wait_s, bound_s)
    gangs.scheduler.check_invariants()


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Making a failing example small would take longer than reading it does."""
EVERYTHING = {
    "devices": st.integers(2, 8),
    "members": MEMBERS,
    "weights": WEIGHTS,
    "shut": SHUT,
}


@SERVED
@settings(max_examples=6, phases=PHASES)
@given(**EVERYTHING)  # type: ignore[arg-type]
def test_everybody_is_served(**world: object) -> None:
    """Random gangs over two to eight devices, which are paused and lost; members come and go."""
    everybody_is_served(**world, lasts_s=150)  # type: ignore[arg-type]


@SERVED
@pytest.mark.full
@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=300, phases=PHASES)
@given(**EVERYTHING)  # type: ignore[arg-type]
def test_everybody_is_served_in_many_runs(**world: object) -> None:
    """The same in many more runs."""
    everybody_is_served(**world, lasts_s=120)  # type: ignore[arg-type]


@SERVED
def test_a_gang_takes_nothing_from_those_before_it() -> None:
    """A notebook of one device waits beside gangs of its own owner and of others, which are next
    on another device."""
    gangs = Gangs(SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=1.0), "AB")
    gangs.add("ann", LOOP, devices="AB")
    single = gangs.add("ann", Work(cell_s=10, pause_s=5), devices="B", at_s=20)
    gangs.add("ben", LOOP, devices="AB", at_s=20)
    gangs.add("cem", Work(cell_s=10, pause_s=5), devices="A")
    gangs.add("cem", LOOP, devices="AB", at_s=3)
    gangs.run(300)
    assert len(single.waits_s) > 1
    assert gangs.longest_wait_s < 20


@SERVED
def test_gangs_behind_each_other() -> None:
    """Three of them are in a circle: each is next on one device and behind on another."""
    gangs = Gangs(SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=1.0), "ABC")
    for owner, devices in (("ann", "AB"), ("ben", "BC"), ("cem", "CA")):
        gangs.add(owner, LOOP, devices=devices)
        gangs.add(owner, LOOP, devices=devices[0])
    gangs.run(200)
    assert gangs.longest_wait_s < 12
    for owner, devices in (("ann", "AB"), ("ben", "BC"), ("cem", "CA")):
        parts = [gangs.part_s(owner, device) for device in devices]
        assert min(parts) > 20


@pytest.mark.promise(
    "scheduler-27",
    "A device is not kept idle for a tenant of several devices while it is not its turn on another",
)
def test_no_device_is_kept_for_a_gang_whose_turn_it_is_not() -> None:
    """Ann's loop wants a device that four others want too. Ben has the other one meanwhile."""
    gangs = Gangs(SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=1.0), "AB")
    gangs.add("ann", LOOP, devices="AB")
    gangs.add("ben", LOOP, devices="A")
    for owner in ("cem", "dee", "eva", "fay"):
        gangs.add(owner, LOOP, devices="B")
    gangs.run(300)
    assert gangs.part_s("ann", "B") == pytest.approx(60, rel=0.1)
    assert gangs.part_s("ben", "A") >= 0.55 * 300


@SERVED
def test_all_or_none() -> None:
    """A gang that waits for one of its devices has none of the others."""
    desk = Desk(devices="AB")
    holder, gang = desk.client("h", "A"), desk.client("g", "AB")
    desk.ask(holder)
    desk.ask(gang)
    assert (desk.holders("A"), desk.holders("B")) == (["h"], [])
    desk.drop(holder)
    assert (desk.holders("A"), desk.holders("B")) == (["g"], ["g"])


@pytest.mark.promise("scheduler-19")
def test_a_gang_has_its_share_of_each_device() -> None:
    """Ann is always next on the device that nobody else wants, and gets no more of the other one
    by that."""
    chosen = SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=1.0, weights="ben=4")
    gangs = Gangs(chosen, "AB")
    gangs.add("ann", LOOP, devices="AB")
    gangs.add("ben", LOOP, devices="B")
    gangs.add("ben", LOOP, devices="B")
    gangs.run(300)
    assert gangs.part_s("ann", "B") == pytest.approx(60, rel=0.1)
