"""When a turn begins: ranges that are ordered, and unknown where nobody can say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.estimates import LOOKED_AT, Estimate, Reason
from jupyter_gpushare.core.habits import (
    BINS,
    EDGES,
    OWNER_CELLS,
    TENANT_CELLS,
    UNKNOWN_LENGTHS,
    Habits,
    bin_of,
    remaining,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

from .crowd import Crowd, Member, Work
from .desk import Desk
from .full_machine import check_estimate
from .many_runs import many_runs
from .memory_desk import MemoryDesk
from .test_memory_admission import two_that_do_not_fit

WAITERS = pytest.mark.promise(
    "scheduler-16",
    "Who waits is told a position, a range of time for the start, and a reason; and nothing about "
    "the time where it hangs on a person or a fault",
)
LOOP = Work(in_cells=False)
GROWING = SchedulerSettings(memory_mode=MemoryMode.OFF)


def of(desk: Desk, tenant: str) -> Estimate:
    found = desk.scheduler.estimates([TenantId(tenant)], desk.now_s)[TenantId(tenant)]
    check_estimate(found)
    return found


def of_member(crowd: Crowd, member: Member) -> Estimate | None:
    return crowd.scheduler.estimates([member.tenant], crowd.now_s).get(member.tenant)


def three_that_wait(desk: Desk) -> list[ClientId]:
    """A has the turn, B and C wait; each is of an owner of its own."""
    for tenant in "abc":
        desk.tenant(tenant, owner=tenant)
    clients = [desk.client(tenant) for tenant in "abc"]
    for client in clients:
        desk.ask(client)
    return clients


@WAITERS
def test_who_waits_has_a_place_and_a_range() -> None:
    """A program uses its whole quantum; the second waits for two of them. The holder has none."""
    desk = Desk()
    three_that_wait(desk)
    b, c = of(desk, "b"), of(desk, "c")
    assert (b.position, c.position) == (1, 2)
    assert b.known and c.known
    assert b.reason is Reason.TURN
    assert b.latest_s == pytest.approx(10.0, abs=0.5)
    assert 10.0 < c.latest_s < 21.0
    assert b.share == pytest.approx(1 / 3)
    assert desk.scheduler.estimates([TenantId("a"), TenantId("nobody")], desk.now_s) == {}


@WAITERS
def test_a_range_comes_nearer_with_time() -> None:
    desk = Desk()
    three_that_wait(desk)
    before = of(desk, "b")
    desk.now_s += 4
    after = of(desk, "b")
    assert after.latest_s == pytest.approx(before.latest_s - 4, abs=0.2)


@WAITERS
def test_who_was_stopped_in_the_middle_is_told_how_much_it_has_had() -> None:
    """A preempted tenant has an estimate as others have."""
    desk = Desk()
    first = three_that_wait(desk)[0]
    desk.sleep_until_woken()
    assert desk.recalled() == [first]
    desk.drop(first, ev.DropReason.RECALL)
    desk.ask(first)
    told = of(desk, "a")
    assert told.used_s == pytest.approx(10.0)
    assert told.known and told.latest_s > 10


@WAITERS
def test_a_paused_device_has_no_time() -> None:
    desk = Desk()
    three_that_wait(desk)
    desk.do(ev.DeviceModeChanged(device=DeviceId("A"), mode=ev.DeviceMode.PAUSED))
    told = of(desk, "b")
    assert (told.known, told.reason, told.latest_s) == (False, Reason.PAUSED, 0.0)


@WAITERS
def test_a_frozen_process_without_the_turn_hides_no_time() -> None:
    """Its tenant's turn ends without it."""
    desk = Desk()
    three_that_wait(desk)
    helper = desk.client("a")
    desk.do(ev.ClientFrozen(client=helper, frozen=True))
    assert of(desk, "b").known


@WAITERS
def test_a_frozen_holder_has_no_time() -> None:
    """Nobody can say when it goes on."""
    desk = Desk()
    first = three_that_wait(desk)[0]
    desk.do(ev.ClientFrozen(client=first, frozen=True))
    assert not of(desk, "b").known
    desk.do(ev.ClientFrozen(client=first, frozen=False))
    assert of(desk, "b").known


@WAITERS
def test_an_overdue_holder_has_no_time() -> None:
    desk = Desk()
    three_that_wait(desk)
    desk.sleep_until_woken()
    assert of(desk, "b").known, "it drains"
    desk.sleep_until_woken()
    assert not of(desk, "b").known


@WAITERS
def test_a_hold_has_its_own_time() -> None:
    """It ends by itself at the latest; its user may end it before."""
    desk = Desk()
    first = three_that_wait(desk)[0]
    desk.hold(first, 120.0)
    told = of(desk, "b")
    assert told.reason is Reason.HELD
    assert told.known
    assert told.earliest_s < 60 < told.latest_s <= 121


@WAITERS
def test_memory_in_the_way_has_no_time() -> None:
    """It leaves when its user wants."""
    desk = MemoryDesk()
    one, two = two_that_do_not_fit(desk)
    desk.ask(one)
    desk.report(two, fixed=5000)
    desk.drop(two, after_s=1)
    told = of(desk, "a")
    assert (told.known, told.reason) == (False, Reason.MEMORY)


@WAITERS
def test_who_is_overtaken_reads_that_it_is_its_share() -> None:
    """Its owner has had more than another one, which came later and is before it."""
    desk = Desk()
    for tenant, owner in (("a", "ann"), ("b", "ben"), ("d", "ann"), ("c", "cem")):
        desk.tenant(tenant, owner=owner)
    other = desk.client("d")
    desk.ask(other)
    desk.drop(other, after_s=20)
    desk.ask(desk.client("a"))
    desk.ask(desk.client("b"), after_s=3)
    desk.ask(other, after_s=3)
    desk.ask(desk.client("c"), after_s=2)
    assert desk.queue() == ["b", "c", "d"]
    assert [of(desk, tenant).reason for tenant in "bcd"] == [Reason.TURN, Reason.TURN, Reason.SHARE]


def test_cells_make_ranges_shorter() -> None:
    """Whose cells have always been short is waited for shortly, and a program for its quantum."""
    settings = GROWING.replace(credit_s=0, quantum_min_s=5.0, quantum_max_s=30.0)
    crowd = Crowd(settings)
    crowd.add("ann", Work(cell_s=0.2, pause_s=0.13))
    crowd.run(30)
    ben = crowd.add("ben", Work(cell_s=0.2, pause_s=0.11))
    seen = []
    for _ in range(300):
        crowd.run(0.05)
        told = of_member(crowd, ben)
        if told is not None:
            check_estimate(told)
            seen.append(told.latest_s)
    assert seen and max(seen) < 2.0


def test_a_long_line_is_carried_on() -> None:
    """Those far behind wait longer, in proportion; the estimate of one costs the same."""
    desk = Desk()
    for number in range(3 * LOOKED_AT):
        desk.tenant(f"t{number}", owner=f"o{number}")
        desk.ask(desk.client(f"t{number}"))
    near, far = of(desk, f"t{LOOKED_AT}"), of(desk, f"t{3 * LOOKED_AT - 1}")
    assert far.position == 3 * LOOKED_AT - 1
    assert far.latest_s > 2 * near.latest_s
    assert far.earliest_s > near.earliest_s


# ---- lengths of cells --------------------------------------------------------------------------

LENGTHS = st.floats(0, 1e9, allow_nan=False) | st.just(math.inf)


@given(used_s=st.floats(0, 1e7), cells=st.lists(LENGTHS, max_size=40))
def test_what_is_left_is_ordered_and_bounded(used_s: float, cells: list[float]) -> None:
    """Whatever lengths there have been, and however long a cell goes on."""
    counts = [0.05] * BINS
    for length_s in cells:
        counts[bin_of(length_s)] += 1
    left = remaining(counts, used_s)
    assert list(left) == sorted(left)
    assert all(0 <= each <= max(EDGES[-1], used_s) for each in left)


def test_quantiles_are_those_of_the_lengths() -> None:
    """Of cells of 1 s the most are over after a second; one that has used 10 s is another kind."""
    counts = [0.001] * BINS
    counts[bin_of(1.0)] = 100.0
    new, later = remaining(counts, 0.0), remaining(counts, 10.0)
    assert all(0.9 < each < 1.5 for each in new)
    assert later[2] > 10
    assert remaining(UNKNOWN_LENGTHS, 3600.0)[2] > 3600


LIARS = {
    "lies": st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["began", "ended", "busy", "idle"])),
        max_size=60,
    ),
    "step_s": st.sampled_from([0.0, 0.01, 1.0, 1e6]),
}
LIES = pytest.mark.promise(
    "scheduler-17",
    "A notebook that lies about its cells changes no other's estimate beyond a range",
)


def lies_harm_nobody(lies: list[tuple[int, str]], step_s: float) -> None:
    desk = Desk(SchedulerSettings(memory_mode=MemoryMode.OFF))
    clients = three_that_wait(desk)
    for number, what in lies:
        tenant = TenantId("ab"[number])
        event: ev.Event
        match what:
            case "began":
                event = ev.CellBegan(client=clients[number])
            case "ended":
                event = ev.CellEnded(client=clients[number])
            case _:
                event = ev.TenantBusy(tenant=tenant, busy=what == "busy")
        desk.do(event, after_s=step_s)
        for estimate in desk.scheduler.estimates([TenantId(t) for t in "abc"], desk.now_s).values():
            check_estimate(estimate)
    habits = desk.scheduler._machine._state.habits
    assert all(len(cells) <= OWNER_CELLS for cells in habits.of_owner.values())


@LIES
@given(**LIARS)
def test_lies_about_cells_harm_nobody(lies: list[tuple[int, str]], step_s: float) -> None:
    """Cells that begin twice, end without a beginning, last for weeks or for nothing."""
    lies_harm_nobody(lies, step_s)


@LIES
@many_runs
@given(**LIARS)
def test_lies_harm_nobody_in_many_runs(lies: list[tuple[int, str]], step_s: float) -> None:
    """The same in many more runs."""
    lies_harm_nobody(lies, step_s)


WAITING = {
    "owners": st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([LOOP, Work(), Work(0.1, 0.05), Work(0.9, 0.4), Work(4.0, 1.0)]),
            st.sampled_from(["", "", "batch", "realtime"]),
            st.sampled_from(["A", "A", "B", "AB"]),
            st.sampled_from([0.0, 0.0, 1.3]),
        ),
        min_size=2,
        max_size=6,
    ),
    "quantum_s": st.sampled_from([0.0, 0.5, 2.0]),
    "weight": st.sampled_from([0.2, 1.0, 5.0]),
    "limit": st.sampled_from(["", "owner1=0.3"]),
    "looks_s": st.lists(st.floats(0.01, 1.5), min_size=3, max_size=8),
    "paused": st.booleans(),
}


def estimates_are_sound(
    owners: list[tuple[int, Work, str, str, float]],
    quantum_s: float,
    weight: float,
    limit: str,
    looks_s: list[float],
    paused: bool,
) -> None:
    """`owners`: whose notebook it is, its work, class and devices, and when it begins."""
    crowd = Crowd(
        GROWING.replace(
            quantum_s=quantum_s,
            weights=f"owner0={weight}",
            hard_limits=limit,
            share_window_s=4.0,
            allowed_classes="owner0=realtime",
        ),
        devices="AB",
    )
    for number, work, asked, devices, at_s in owners:
        mine = Work(work.cell_s, work.pause_s, work.in_cells, asked)
        crowd.add(f"owner{number}", mine, devices=devices, at_s=at_s)
    for number, look_s in enumerate(looks_s):
        if paused and number == 2:
            device = DeviceId("B")
            crowd.say(ev.DeviceModeChanged(device=device, mode=ev.DeviceMode.PAUSED))
        crowd.run(look_s)
        members = list(crowd.members.values())
        told = crowd.scheduler.estimates([each.tenant for each in members], crowd.now_s)
        assert told.keys() == {m.tenant for m in members if m.wants and m.turn is None}
        for member in members:
            if (estimate := told.get(member.tenant)) is not None:
                check_estimate(estimate)
                shut = paused and number >= 2 and "B" in member.devices
                in_the_way = shut or len(member.devices) > 1 or estimate.reason is Reason.LIMIT
                assert estimate.known or in_the_way, estimate
                assert not (shut and estimate.known)
                assert estimate.position <= len(members)


@WAITERS
@settings(max_examples=15)
@given(**WAITING)
def test_whoever_waits_has_a_sound_estimate(**world: object) -> None:
    """At any moment: one for each that waits, with a range where nobody but others' turns is in the
    way, and without one where the device is paused, or at a limit."""
    estimates_are_sound(**world)  # type: ignore[arg-type]


@WAITERS
@many_runs
@given(**WAITING)
def test_whoever_waits_has_a_sound_estimate_in_many_runs(**world: object) -> None:
    """The same in many more runs."""
    estimates_are_sound(**world)  # type: ignore[arg-type]


def test_what_is_known_of_cells_is_bounded() -> None:
    """A tenant's and an owner's last cells, and a fading count of everybody's."""
    habits, last_cells = Habits(), b""
    for number in range(5000):
        last_cells = habits.cell_ended("ann", last_cells, 0.1 + number, [DeviceId("A")], number)
    assert len(last_cells) == TENANT_CELLS
    assert len(habits.of_owner["ann"]) == OWNER_CELLS
    assert sum(habits.everybody) < 513
    assert sum(habits.counts("ann", last_cells)) < 8 + OWNER_CELLS + TENANT_CELLS + 1


@pytest.mark.parametrize("by_server", [False, True])
def test_a_cell_counts_when_it_ends(by_server: bool) -> None:
    """As the process says or, of other languages, as the server does; with what its turns lasted. A
    cell without the device is none."""
    desk = Desk(GROWING)
    client = desk.client("a")

    def cell(busy: bool) -> None:
        event = ev.CellBegan(client=client) if busy else ev.CellEnded(client=client)
        busy_event = ev.TenantBusy(tenant=TenantId("a"), busy=busy)
        desk.do(busy_event if by_server else event, after_s=3.0)

    for works in (True, False):
        cell(True)
        if works:
            desk.ask(client)
            desk.drop(client, after_s=5.0)
        cell(False)
    habits = desk.scheduler._machine._state.habits
    assert habits.of_owner == {"me": bytes([bin_of(5.0)])}
    assert habits.new_cells_per_s(DeviceId("A"), desk.now_s) > 0


@WAITERS
@pytest.mark.parametrize("runs_as", ["batch", ""])
def test_who_waits_for_a_higher_class_reads_so(runs_as: str) -> None:
    """A batch tenant waits for all others, and at the latest until it has waited long enough; among
    equals it is a matter of turns."""
    desk = Desk(GROWING.replace(starvation_s=60.0))
    for tenant, asked in (("a", ""), ("b", runs_as), ("c", "")):
        desk.do(
            ev.TenantRegistered(
                tenant=TenantId(tenant), name=tenant, owner=tenant, kind="run", asked_class=asked
            )
        )
    for tenant in "abc":
        desk.ask(desk.client(tenant))
    told = of(desk, "b")
    assert told.reason is (Reason.CLASS if runs_as else Reason.TURN)
    assert told.position == (2 if runs_as else 1)
    assert told.known and told.latest_s <= 60.0 + GROWING.quantum_max_s
