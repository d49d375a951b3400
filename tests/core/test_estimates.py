"""When a turn begins: ranges that are ordered, and unknown where nobody can say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.estimates import LOOKED_AT, cells_per_s, left_s
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.records import CELLS_MAX, LAST_CELLS, PastCell
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from jupyter_gpushare.core.shown.waits import Estimate, Reason

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


@WAITERS
def test_who_waits_behind_a_sibling_and_others_is_told_of_their_turns() -> None:
    """Too little is left of the sibling's quantum for it to take over. Each of the others has had
    less than its owner, but not by two quanta."""
    desk = Desk()
    for tenant, owner in (("a", "ann"), ("b", "ben"), ("d", "ann"), ("c", "cem")):
        desk.tenant(tenant, owner=owner)
    again = desk.client("d")
    desk.ask(again)
    desk.drop(again, after_s=20)
    desk.ask(desk.client("a"))
    desk.ask(desk.client("b"), after_s=3)
    desk.ask(again, after_s=3)
    desk.ask(desk.client("c"), after_s=2)
    assert desk.queue() == ["b", "c", "d"]
    told = of(desk, "d")
    assert told.full_s - 0.5 < told.earliest_s <= told.latest_s < told.full_s + 0.5


def test_an_owner_of_more_weight_has_further_turns_before() -> None:
    """As many as its share allows before the one who waits is next."""
    desk = Desk(GROWING.replace(weights="a=3", quantum_s=10.0))
    three_that_wait(desk)
    told = of(desk, "b")
    assert told.full_s == pytest.approx(10.0)
    assert 20.0 <= told.earliest_s <= told.latest_s < 31.0


def test_new_cells_go_before() -> None:
    """Where many have come of late, somebody's turn may end for one of them, and each takes its
    time. A day later there are few."""
    desk = Desk(GROWING)
    cells = desk.client("c")
    for _ in range(20):
        desk.do(ev.CellBegan(client=cells), after_s=1.0)
        desk.ask(cells)
        desk.drop(cells, after_s=2.0)
        desk.do(ev.CellEnded(client=cells))
    for tenant in "ab":
        desk.tenant(tenant, owner=tenant)
    desk.ask(desk.client("a"))
    desk.ask(desk.client("b"))
    told = of(desk, "b")
    assert told.latest_s > told.full_s + 0.1
    desk.do(ev.ClockTicked(), after_s=86_400.0)
    told = of(desk, "b")
    assert told.latest_s < told.full_s + 0.1


@WAITERS
def test_estimates_are_the_same_each_time() -> None:
    """The draws are the same, and asking changes nothing."""
    desk = Desk()
    three_that_wait(desk)
    assert of(desk, "c") == of(desk, "c")


# ---- lengths of cells --------------------------------------------------------------------------


LENGTHS_S = st.floats(0.001, 1e9)


@given(
    used_s=st.floats(0, 1e7),
    own=st.lists(LENGTHS_S, max_size=16),
    all_s=st.lists(LENGTHS_S, max_size=300),
)
def test_what_is_left_is_bounded(used_s: float, own: list[float], all_s: list[float]) -> None:
    """Whatever lengths there have been, and however long a cell goes on."""
    left = left_s(own, all_s, used_s)
    assert bool(left) == bool(own or all_s)
    assert all(0 <= each <= max(1e9, 3 * used_s) for each in left)


def test_what_is_left_is_that_of_cells_as_long() -> None:
    """A cell that has used 10 s is judged by those that lasted longer, and may go on for as long
    again."""
    lengths_s = [12.0, *[1.0] * 40, 13.0, 14.0]
    assert left_s([], lengths_s, 0.0) == lengths_s
    assert left_s([18.0], lengths_s, 10.0) == [8.0, 2.0, 3.0, 4.0, 10 / 3, 10.0, 30.0]
    assert left_s([], lengths_s, 60.0) == [20.0, 60.0, 180.0]
    assert left_s([], [], 5.0) == []


def test_a_program_is_judged_by_its_own_bursts() -> None:
    """What others run in cells says nothing of it, so it is taken to have its whole turn."""
    ranges = []
    for in_cell in (False, True):
        desk = Desk(GROWING)
        clients = three_that_wait(desk)
        desk.scheduler._machine._state.cells += [PastCell(0.1, frozenset(), 0.0)] * 40
        if in_cell:
            desk.do(ev.CellBegan(client=clients[0]))
        ranges.append(of(desk, "b").latest_s)
    program_s, cell_s = ranges
    assert program_s is not None and cell_s is not None and cell_s < program_s / 2


def test_cells_come_as_often_as_they_ended() -> None:
    a = DeviceId("A")
    cells = [PastCell(0.5, frozenset({a}), float(number)) for number in range(3)]
    assert cells_per_s(cells, a, 4.0) == pytest.approx(0.5)
    assert cells_per_s(cells, a, 40.0) == pytest.approx(0.05)
    assert cells_per_s(cells, DeviceId("B"), 4.0) == 0.0
    assert cells_per_s([], a, 4.0) == 0.0


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
    state = desk.scheduler._machine._state
    assert all(len(each.last_cells_s) <= LAST_CELLS for each in state.tenants.values())


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
    state = desk.scheduler._machine._state
    assert list(state.tenants[TenantId("a")].last_cells_s) == [pytest.approx(5.0)]
    assert [each.used_s for each in state.cells] == [pytest.approx(5.0)]
    assert state.cells[0].devices == {"A"} and state.cells.maxlen == CELLS_MAX


def test_a_burst_counts_for_its_own_program() -> None:
    """It is over when the program works again after a gap. Nobody else is judged by it."""
    desk = Desk(GROWING)
    client = desk.client("a")
    for _ in range(3):
        desk.ask(client, after_s=3.0)
        desk.drop(client, after_s=5.0)
    desk.ask(client, after_s=3.0)
    state = desk.scheduler._machine._state
    assert list(state.tenants[TenantId("a")].last_cells_s) == [pytest.approx(5.0)] * 2
    assert not state.cells


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
