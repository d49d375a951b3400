"""Why tenants waited, as it is kept and found afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Command, TellBudget
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from jupyter_gpushare.core.shares.classes import ORDINARY, URGENT
from jupyter_gpushare.core.shown.moves import Begun, Move, Moves
from jupyter_gpushare.core.shown.waits import Reason, Waiter
from jupyter_gpushare.core.space.requests import Obstacle, ObstacleKind
from jupyter_gpushare.scheduler.service.past_waits import (
    CAUSES_MAX,
    LANES_MAX,
    TENANTS_MAX,
    TURNS_MAX,
    WAITS_MAX,
    How,
    PastWaits,
)
from jupyter_gpushare.scheduler.service.past_waits_parts import (
    INTERVALS_MAX,
    Interval,
    Restored,
    Told,
    told_of,
)
from jupyter_gpushare.scheduler.service.timeline import Label
from tests.core.desk import TURNS_ALONE, Desk

A, B, LATER_S = DeviceId("A"), DeviceId("B"), 10_000.0


def label_of(tenant: TenantId, name: str, owner: str) -> Label:
    return Label(tenant, name, owner)


class Watched(Desk):
    """A desk with one who keeps the waits."""

    def __init__(self, wanted: SchedulerSettings = TURNS_ALONE) -> None:
        self.waits = PastWaits()
        self._moves: Moves | None = None
        super().__init__(wanted)

    def tenant(
        self, name: str, *, cap_bytes: int = 0, owner: str = "", asked_class: str = ""
    ) -> TenantId:
        """Each has an owner of its own, unless told otherwise."""
        return super().tenant(
            name, cap_bytes=cap_bytes, owner=owner or name, asked_class=asked_class
        )

    def do(self, event: ev.Event, *, after_s: float = 0.0) -> list[Command]:
        commands = super().do(event, after_s=after_s)
        self._moves = self._moves or Moves(self.scheduler)
        for move in self._moves.take():
            self.waits.note(move, label_of, self.now_s)
        return commands

    def told(self, tenant: str) -> list[Told]:
        return told_of(self.waits, TenantId(tenant), self.now_s)[0]

    def story(self, tenant: str) -> list[tuple[str, list[tuple[Reason | None, float, str]]]]:
        """How each wait ended; its parts, each with its reason, its length and who had a device."""
        return [
            (
                each.wait.how.value,
                [
                    (part.reason, round(part.end_s - part.begin_s, 3), " ".join(sorted(part.had)))
                    for part in each.intervals
                ],
            )
            for each in self.told(tenant)
        ]


def fits_together(told: list[Told]) -> None:
    """The parts of a wait follow each other from its beginning to its end, and waits do not
    overlap."""
    before_s = 0.0
    for each in told:
        assert each.wait.begin_s >= before_s
        before_s = each.wait.begin_s
        for part in each.intervals:
            assert part.begin_s == before_s and part.end_s >= part.begin_s
            assert sum(s for _, s in part.had.values()) >= 0
            before_s = part.end_s
        assert each.wait.over_s in (None, before_s)


@pytest.mark.promise(
    "scheduler-86",
    "The scheduler keeps why each tenant waited lately, who had the device meanwhile, and how the "
    "wait ended",
)
def test_a_wait_has_who_was_before_it() -> None:
    """Two go before the third: one reason, and how long each of them had the device."""
    desk = Watched()
    a, b, c = (desk.client(name) for name in "abc")
    desk.ask(a)
    desk.ask(b, after_s=1)
    desk.ask(c, after_s=1)
    desk.drop(a, after_s=3)
    assert desk.story("b") == [("served", [(Reason.TURN, 4, "a")])]
    assert desk.story("c") == [("waits", [(Reason.TURN, 3, "a")])]
    desk.drop(b, after_s=5)
    assert desk.story("c") == [("served", [(Reason.TURN, 8, "a b")])]
    ((told,), (first,)) = desk.told("c"), desk.told("c")[0].intervals[:1]
    assert {tenant: round(s, 3) for tenant, (_, s) in first.had.items()} == {"a": 3, "b": 5}
    assert not told.wait.is_pause
    assert desk.story("a") == []  # it never waited


def test_a_pause_is_told_from_a_wait() -> None:
    """Whose turn was asked back while its cell went on was paused, after what it had used."""
    desk = Watched()
    a, b = desk.client("a"), desk.client("b")
    desk.do(ev.CellBegan(client=a))
    desk.ask(a)
    desk.ask(b)
    desk.do(ev.ClockTicked(), after_s=10)
    desk.drop(a, ev.DropReason.RECALL)
    desk.ask(a)
    desk.drop(b, after_s=4)
    (pause,) = desk.told("a")
    assert (pause.wait.is_pause, pause.wait.used_s, pause.wait.how) == (True, 10, How.SERVED)
    assert desk.story("a") == [("served", [(Reason.TURN, 4, "b")])]


def test_a_turn_that_was_given_back_is_no_pause() -> None:
    """A cell that did not use the device gave its turn back by itself, and waits for another."""
    desk = Watched()
    a, b = desk.client("a"), desk.client("b")
    desk.do(ev.CellBegan(client=a))
    desk.ask(a)
    desk.ask(b)
    desk.drop(a, ev.DropReason.IDLE, after_s=1)
    desk.ask(a, after_s=1)
    (again,) = desk.told("a")
    assert (again.wait.is_pause, again.wait.used_s) == (False, 1)


@pytest.mark.promise("scheduler-86")
def test_how_waits_end() -> None:
    """Served, interrupted (told before or just after the end), or given up by its own calls."""
    desk = Watched()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    for tells in ("never", "before", "after", "much later"):
        desk.ask(b, after_s=1)
        if tells == "before":
            desk.waits.interrupted(TenantId("b"), desk.now_s)
        desk.withdraw(b, after_s=1)
        if tells == "after":
            desk.waits.interrupted(TenantId("b"), desk.now_s + 1)
    desk.waits.interrupted(TenantId("b"), desk.now_s + 60)
    desk.waits.interrupted(TenantId("nobody"), desk.now_s + 60)
    assert [each.wait.how for each in desk.told("b")] == [
        How.GAVE_UP,
        How.INTERRUPTED,
        How.INTERRUPTED,
        How.GAVE_UP,
    ]
    desk.ask(b, after_s=1)
    desk.waits.interrupted(TenantId("b"), desk.now_s)  # it has its turn before it hears of that
    desk.drop(a)
    assert desk.told("b")[-1].wait.how is How.SERVED


def test_a_process_that_ends_waits_no_longer() -> None:
    """A wait ends with its process; what a tenant has is forgotten with the tenant."""
    desk = Watched()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.do(ev.ClientLost(client=b), after_s=2)
    assert desk.story("b") == [("gave_up", [(Reason.TURN, 2, "a")])]
    desk.waits.forget(TenantId("b"))
    assert desk.told("b") == []


@pytest.mark.promise("scheduler-86")
def test_reasons_that_change_make_parts() -> None:
    """A user keeps the device by hand, then no longer; then an admin pauses it."""
    desk = Watched(replace(TURNS_ALONE, hold_max_s=600, quantum_s=600))
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.hold(a, 100, after_s=1)
    desk.hold(a, 0, after_s=5)
    desk.do(ev.DeviceModeChanged(device=A, mode=ev.DeviceMode.PAUSED), after_s=2)
    desk.drop(a, after_s=3)
    desk.do(ev.DeviceModeChanged(device=A, mode=ev.DeviceMode.OPEN), after_s=4)
    assert desk.story("b") == [
        (
            "served",
            [
                (Reason.TURN, 1, "a"),
                (Reason.HELD, 5, "a"),
                (Reason.TURN, 2, "a"),
                (Reason.PAUSED, 7, "a"),
            ],
        )
    ]
    fits_together(desk.told("b"))


def test_a_class_goes_first() -> None:
    """Who came later and is served first for its class is told as that."""
    desk = Watched(replace(TURNS_ALONE, allowed_classes="ann=realtime"))
    desk.tenant("c", owner="ann", asked_class="realtime")
    a, b, c = (desk.client(name) for name in "abc")
    desk.ask(a)
    desk.ask(b, after_s=1)
    desk.ask(c, after_s=1)
    desk.drop(a, ev.DropReason.RECALL)
    desk.drop(c, after_s=3)
    assert desk.story("b") == [("served", [(Reason.TURN, 1, "a"), (Reason.CLASS, 3, "c")])]


def test_a_notebook_of_its_own_owner_is_told_as_that() -> None:
    """As it is told while it waits; somebody else's notebook is not one."""
    desk = Watched()
    for name, owner in (("a", "ann"), ("b", "ann"), ("c", "ben")):
        desk.tenant(name, owner=owner)
    a, b, c = (desk.client(name) for name in "abc")
    desk.ask(a)
    desk.ask(b)
    (estimate,) = desk.scheduler.estimates([TenantId("b")], desk.now_s).values()
    assert estimate.reason is Reason.OWN
    desk.drop(a, after_s=3)
    assert desk.story("b") == [("served", [(Reason.OWN, 3, "a")])]
    desk.ask(c)
    desk.drop(b, after_s=2)
    assert desk.story("c") == [("served", [(Reason.TURN, 2, "b")])]
    desk.ask(a)
    desk.drop(c, after_s=5)
    assert desk.story("a") == [("served", [(Reason.TURN, 5, "c")])]


def test_a_turn_that_goes_on_is_told_as_what_it_goes_on() -> None:
    """A new cell goes first. When it is new no longer, its turn goes on because its owner has had
    less: from then on that is the reason."""
    desk = Watched(SchedulerSettings(memory_mode=MemoryMode.OFF))
    for name, owner in (("a", "ann"), ("b", "ann"), ("c", "ben")):
        desk.tenant(name, owner=owner)
    a, b, c = (desk.client(name) for name in "abc")
    desk.do(ev.CellBegan(client=c))
    desk.ask(a)
    desk.ask(b)
    desk.do(ev.ClockTicked(), after_s=20)
    desk.ask(c)
    desk.drop(a, ev.DropReason.RECALL)
    assert desk.holders() == ["c"]
    desk.ask(a)
    began_s = desk.now_s
    while desk.now_s < began_s + 3:
        desk.sleep_until_woken()
    assert desk.holders() == ["c"] and desk.recalled() == []
    (told,) = desk.told("b")
    quantum_s = desk.scheduler.settings.quantum_min_s
    last, then = told.intervals[-1], told.intervals[-2]
    assert (last.reason, last.begin_s) == (Reason.SHARE, pytest.approx(began_s + quantum_s))
    assert then.reason is Reason.TURN


def test_a_tenant_of_two_devices_waits_once() -> None:
    """It gets both at once; whoever had one of them was in its way."""
    desk = Watched()
    a, b, c = desk.client("a", "A"), desk.client("b", "B"), desk.client("c", "AB")
    desk.ask(a)
    desk.ask(b)
    desk.ask(c)
    desk.drop(a, after_s=2)
    desk.drop(b, after_s=3)
    assert desk.story("c") == [("served", [(Reason.TURN, 5, "a b")])]
    ((part,),) = [each.intervals for each in desk.told("c")]
    assert {tenant: s for tenant, (_, s) in part.had.items()} == {"a": 2, "b": 5}


def test_a_device_that_is_needed_no_longer_is_no_reason() -> None:
    """The tenant closes a paused device, and waits for the other one from then on."""
    desk = Watched()
    a, b, c = desk.client("a", "A"), desk.client("b", "B"), desk.client("c", "AB")
    desk.ask(a)
    desk.ask(b)
    desk.do(ev.DeviceModeChanged(device=B, mode=ev.DeviceMode.PAUSED))
    desk.ask(c)
    desk.do(ev.DeviceClosed(client=c, device=B), after_s=2)
    desk.do(ev.ClockTicked(), after_s=3)
    assert desk.story("c") == [("waits", [(Reason.PAUSED, 2, "a b"), (Reason.TURN, 3, "a")])]
    desk.drop(a)
    fits_together(desk.told("c"))
    assert desk.story("c")[0][0] == "served"


@pytest.mark.promise("scheduler-86")
def test_a_wait_goes_on_while_its_turn_is_asked_back() -> None:
    """A turn that stalls lacks a device, and leaves the queue for that with each new recall. Its
    call waits all the time; a call that comes later is another wait."""
    desk = Watched()
    a, n = desk.client("a", "A"), desk.client("n", "B")
    desk.ask(a)
    desk.ask(n)
    sibling = desk.client("a", "B")
    desk.ask(sibling)
    desk.stall(a)
    desk.do(ev.DeviceModeChanged(device=A, mode=ev.DeviceMode.PAUSED))
    for _ in range(2 * CAUSES_MAX):
        desk.do(ev.ClockTicked(), after_s=desk.scheduler.settings.recall_retry_s)
        assert desk.recalled() == [a]
        desk.stall(a)
    waited_s = CAUSES_MAX * 2 * desk.scheduler.settings.recall_retry_s
    assert desk.story("a") == [("waits", [(Reason.TURN, waited_s, "n")])]
    desk.withdraw(sibling, after_s=0.1)
    desk.ask(sibling, after_s=0.1)
    desk.drop(n, after_s=0.1)
    assert desk.story("a") == [
        ("gave_up", [(Reason.TURN, waited_s + 0.1, "n")]),
        ("served", [(Reason.TURN, 0.1, "n")]),
    ]
    fits_together(desk.told("a"))


# ---- told by hand ---------------------------------------------------------------------------


def move(device: DeviceId = A, **news: object) -> Move:
    nothing: dict[str, object] = dict.fromkeys(
        ("begun", "still", "ended", "recalled", "waiters", "left"), ()
    )
    return Move(device=device, queued=0, **{**nothing, **news})  # type: ignore[arg-type]


def has(
    tenant: str,
    *,
    level: int = ORDINARY,
    place: int = 0,
    by_hand: bool = False,
    to_come: int = 0,
) -> Begun:
    return Begun(
        tenant=TenantId(tenant),
        name=tenant,
        owner="me",
        level=level,
        place=place,
        by_hand=by_hand,
        bytes_to_come=to_come,
    )


def waits(
    tenant: str, reason: Reason | None = None, obstacle: Obstacle | None = None, place: int = 5
) -> Waiter:
    return Waiter(
        tenant=TenantId(tenant),
        owner="waiting",
        waited_s=0.0,
        used_s=0.0,
        level=ORDINARY,
        place=place,
        is_batch=False,
        reason=reason,
        obstacle=obstacle,
    )


def in_the_way(kind: ObstacleKind, tenant: str, short: int = 1) -> Obstacle:
    return Obstacle(
        kind=kind, device=A, bytes_in_the_way=9, bytes_short=short, tenant=TenantId(tenant)
    )


def reasons(kept: PastWaits, now_s: float) -> list[tuple[Reason | None, float, object]]:
    (told,), _, _ = told_of(kept, TenantId("w"), now_s)
    return [
        (part.reason, part.end_s - part.begin_s, part.obstacle and part.obstacle.kind)
        for part in told.intervals
    ]


def test_memory_that_is_in_the_way_is_told_until_it_is_not() -> None:
    """With whose it is; more bytes of the same are no other reason. Memory that may not move yet
    is the reason until the turn ends."""
    kept = PastWaits()
    kept.note(move(begun=(has("a"),)), label_of, 0)
    kept.note(move(waiters=(waits("w", Reason.MEMORY),)), label_of, 0)
    kept.note(move(ended=("a",), begun=(has("b"),)), label_of, 10)
    fixed = in_the_way(ObstacleKind.FIXED, "b")
    kept.note(move(waiters=(waits("w", Reason.MEMORY, fixed),)), label_of, 15)
    kept.note(move(ended=("b",)), label_of, 17)
    more = in_the_way(ObstacleKind.FIXED, "b", short=2)
    kept.note(move(waiters=(waits("w", Reason.MEMORY, more),)), label_of, 18)
    kept.note(move(waiters=(waits("w"),)), label_of, 20)
    assert reasons(kept, 21) == [
        (Reason.MEMORY, 10, None),
        (Reason.TURN, 5, None),
        (Reason.MEMORY, 5, ObstacleKind.FIXED),
        (Reason.TURN, 1, None),
    ]
    (told,), _, _ = told_of(kept, TenantId("w"), 21)
    assert told.intervals[2].whose == Label(TenantId("b"), "", "")


def test_who_came_later_and_was_served_first() -> None:
    """By its share, among those of one level; by its class otherwise."""
    kept = PastWaits()
    kept.note(move(begun=(has("a", place=3),)), label_of, 0)
    kept.note(move(waiters=(waits("w", place=5),)), label_of, 0)
    kept.note(move(ended=("a",), begun=(has("b", place=7),)), label_of, 2)
    kept.note(move(ended=("b",), begun=(has("c", level=URGENT, place=8),)), label_of, 5)
    assert reasons(kept, 9) == [
        (Reason.TURN, 2, None),
        (Reason.SHARE, 3, None),
        (Reason.CLASS, 4, None),
    ]


def test_what_is_forgotten_of_a_wait_is_told_as_such() -> None:
    """Of a very long wait the end is kept: who had the device before is not known any more."""
    kept = PastWaits()
    kept.note(move(waiters=(waits("w"),)), label_of, 0)
    for number in range(TURNS_MAX + 10):
        kept.note(move(ended=(str(number - 1),), begun=(has(str(number)),)), label_of, number)
    (told,), _, _ = told_of(kept, TenantId("w"), TURNS_MAX + 10)
    assert [(part.reason, part.begin_s) for part in told.intervals] == [
        (None, 0),
        (Reason.TURN, 10),
    ]
    assert len(told.intervals[1].had) == TURNS_MAX
    kept = PastWaits()
    kept.note(move(waiters=(waits("w"),)), label_of, 0)
    for number in range(1, 4 * INTERVALS_MAX):
        reason = Reason.PAUSED if number % 2 else None
        kept.note(move(waiters=(waits("w", reason),)), label_of, number)
    (told,), _, _ = told_of(kept, TenantId("w"), 4 * INTERVALS_MAX)
    assert len(told.intervals) == INTERVALS_MAX
    assert told.intervals[0].reason is None
    fits_together([told])


def test_a_reason_that_holds_is_not_forgotten() -> None:
    """One device is paused all the time, and much happens on the other one."""
    kept = PastWaits()
    kept.note(move(B, waiters=(waits("w", Reason.PAUSED),)), label_of, 0)
    for number in range(4 * CAUSES_MAX):
        reason = Reason.MEMORY if number % 2 else None
        kept.note(move(waiters=(waits("w", reason),)), label_of, number)
    (told,), _, _ = told_of(kept, TenantId("w"), 4 * CAUSES_MAX)
    assert [part.reason for part in told.intervals] == [None, Reason.PAUSED]
    assert told.intervals[1].begin_s == 3 * CAUSES_MAX + 1


def test_what_a_device_has_forgotten_stays_forgotten() -> None:
    """One has it all the time, beside many others: it is forgotten first."""
    kept = PastWaits()
    kept.note(move(begun=(has("x"),), waiters=(waits("w"),)), label_of, 0)
    for number in range(1, TURNS_MAX + 2):
        kept.note(move(ended=(str(number - 1),), begun=(has(str(number)),)), label_of, number)
    (told,), _, _ = told_of(kept, TenantId("w"), TURNS_MAX + 9)
    assert [part.begin_s for part in told.intervals] == [0, TURNS_MAX]


@pytest.mark.parametrize("jump_s", [-1000.0, -0.5, 5000.0])
def test_a_clock_that_jumps(jump_s: float) -> None:
    """No part of a wait ends before it began."""
    kept = PastWaits()
    kept.note(move(begun=(has("a"),), waiters=(waits("w"),)), label_of, 2000)
    kept.note(move(ended=("a",), begun=(has("b"),)), label_of, 2010 + jump_s)
    kept.note(move(left=("w",)), label_of, 2012 + jump_s)
    told, _, now_s = told_of(kept, TenantId("w"), 2013 + jump_s)
    fits_together(told)
    assert told[0].wait.end_s == pytest.approx(now_s - 1)


NAMES = st.sampled_from(["a", "b", "c", "w"])
REASONS = st.sampled_from([None, Reason.PAUSED, Reason.LIMIT, Reason.MEMORY])
HAPPENS = st.tuples(
    st.sampled_from(["begin", "still", "end", "wait", "leave", "served", "interrupt", "forget"]),
    NAMES,
    st.sampled_from([A, B]),
    REASONS,
    st.booleans(),
    st.sampled_from([0, 0, 1, 7]),
    st.floats(-1, 20, allow_nan=False),
)


@pytest.mark.promise(
    "scheduler-87",
    "The scheduler keeps past waits within a bound, and shows each caller only the names that it "
    "may see",
)
@settings(max_examples=200)
@given(st.lists(HAPPENS, max_size=120))
def test_whatever_is_told_fits_together_and_is_bounded(happens: list[tuple]) -> None:  # type: ignore[type-arg]
    """In whatever order it comes, also what contradicts itself, and whatever the clock does."""
    kept, now_s = PastWaits(), 1000.0
    for what, name, device, reason, flag, to_come, after_s in happens:
        now_s += after_s
        tenant = TenantId(name)
        match what:
            case "begin":
                begun = has(name, by_hand=flag, to_come=to_come)
                kept.note(move(device, begun=(begun,)), label_of, now_s)
            case "still":
                still = has(name, by_hand=flag, to_come=to_come)
                kept.note(move(device, still=(still,)), label_of, now_s)
            case "served":
                begun = has(name, to_come=to_come)
                kept.note(move(device, begun=(begun,), left=(tenant,)), label_of, now_s)
            case "end":
                recalled = (tenant,) if flag else ()
                kept.note(move(device, ended=(tenant,), recalled=recalled), label_of, now_s)
            case "wait":
                kept.note(move(device, waiters=(waits(name, reason),)), label_of, now_s)
            case "leave":
                kept.note(move(device, left=(tenant,)), label_of, now_s)
            case "interrupt":
                kept.interrupted(tenant, now_s)
            case "forget":
                kept.forget(tenant)
        for each in "abcw":
            told, _, own_s = told_of(kept, TenantId(each), now_s)
            fits_together(told)
            assert len(told) <= WAITS_MAX
            for one in told:
                assert len(one.wait.causes) <= CAUSES_MAX
                assert 1 <= len(one.intervals) <= INTERVALS_MAX
                assert one.intervals[-1].end_s <= own_s
                assert TenantId(each) not in one.intervals[-1].had


@pytest.mark.promise("scheduler-87")
def test_very_many_are_bounded() -> None:
    """Waits of a tenant, changes of reason in a wait, turns of a device, tenants and devices."""
    kept = PastWaits()
    for number in range(3 * WAITS_MAX):
        kept.note(move(waiters=(waits("w"),)), label_of, number)
        kept.note(move(left=(TenantId("w"),)), label_of, number + 0.5)
    told, forgotten, _ = told_of(kept, TenantId("w"), 100)
    assert (len(told), forgotten) == (WAITS_MAX, 2 * WAITS_MAX)
    for number in range(5 * TURNS_MAX):
        reason = Reason.PAUSED if number % 2 else None
        begun = has(str(number))
        kept.note(move(begun=(begun,), waiters=(waits("w", reason),)), label_of, 200 + number)
        kept.note(move(ended=(begun.tenant,)), label_of, 200.5 + number)
    lane = kept._lanes[A]
    assert (len(lane.turns), len(lane.open)) == (TURNS_MAX, 0)
    last = told_of(kept, TenantId("w"), LATER_S)[0][-1]
    assert len(last.wait.causes) == CAUSES_MAX
    for number in range(2 * LANES_MAX):
        kept.note(move(DeviceId(str(number))), label_of, LATER_S)
    for number in range(TENANTS_MAX + 10):
        kept.note(move(waiters=(waits(str(number)),)), label_of, LATER_S)
    assert (len(kept._lanes), len(kept._tenants)) == (LANES_MAX, TENANTS_MAX)


def test_a_hand_over_is_noted_once_however_many_wait() -> None:
    """What is kept of those who wait does not change when a device changes hands."""
    kept = PastWaits()
    kept.note(move(waiters=tuple(waits(str(number)) for number in range(500))), label_of, 0)
    before = {id(tenant): list(tenant.waits[-1].causes) for tenant in kept._tenants.values()}
    kept.note(move(begun=(has("a"),)), label_of, 1)
    kept.note(move(ended=(TenantId("a"),), begun=(has("b"),)), label_of, 2)
    after = {id(tenant): list(tenant.waits[-1].causes) for tenant in kept._tenants.values()}
    assert after == before
    assert len(kept._lanes[A].turns) == 2


def test_ids_are_as_the_core_has_them() -> None:
    """A restart of the core inside the scheduler is seen as it is: those who wait go on."""
    desk = Watched()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(ClientId(a))
    desk.ask(b)
    desk._moves = Moves(desk.scheduler)  # as after a failure: everything is told again
    desk.do(ev.ClockTicked(), after_s=3)
    desk.drop(a, after_s=1)
    assert desk.story("b") == [("served", [(Reason.TURN, 4, "a")])]


# ---- memory that comes back ------------------------------------------------------------------


def restored(part: Interval) -> tuple[float, Restored | None]:
    return round(part.end_s - part.begin_s, 3), part.restored


@pytest.mark.promise(
    "scheduler-88",
    "The scheduler keeps for how long a cell that had the device waited for its memory to come "
    "back, and how much that was",
)
def test_memory_that_comes_back_is_a_part_of_the_wait() -> None:
    """From the turn's begin until all of it is back; the queue's part ends where it begins."""
    kept = PastWaits()
    kept.note(move(begun=(has("a"),), waiters=(waits("w"),)), label_of, 0)
    kept.note(move(ended=("a",), begun=(has("w", to_come=9),), left=(TenantId("w"),)), label_of, 10)
    (told,) = told_of(kept, TenantId("w"), 10.5)[0]
    assert (told.wait.how, told.wait.over_s) == (How.SERVED, None)
    assert restored(told.intervals[-1]) == (0.5, Restored(9, is_over=False, came_all=False))
    kept.note(move(still=(has("w", to_come=4),)), label_of, 11)  # kept by hand, say
    kept.note(move(still=(has("w"),)), label_of, 12)
    kept.note(move(ended=("w",)), label_of, 20)
    (told,) = told_of(kept, TenantId("w"), 30)[0]
    assert told.wait.over_s == 12
    assert [(part.reason, *restored(part)) for part in told.intervals] == [
        (Reason.TURN, 10, None),
        (None, 2, Restored(9, is_over=True, came_all=True)),
    ]
    fits_together([told])


@pytest.mark.promise("scheduler-88")
def test_memory_comes_back_to_a_cell_that_never_queued() -> None:
    """It is a wait of its own, and the next one is not taken for a part of it."""
    kept = PastWaits()
    kept.note(move(begun=(has("w", to_come=9),)), label_of, 5)
    kept.note(move(ended=("w",)), label_of, 6)
    kept.note(move(begun=(has("w", to_come=3),)), label_of, 7)
    kept.note(move(still=(has("w"),)), label_of, 9)
    kept.note(move(ended=("w",)), label_of, 9)
    told = told_of(kept, TenantId("w"), 30)[0]
    assert [[restored(part) for part in each.intervals] for each in told] == [
        [(1, Restored(9, is_over=True, came_all=False))],
        [(2, Restored(3, is_over=True, came_all=True))],
    ]
    assert [each.wait.how for each in told] == [How.SERVED, How.SERVED]
    fits_together(told)


def test_memory_of_a_turn_on_two_devices_comes_back_once() -> None:
    """The turn goes on where one of the devices is closed, and its memory still comes."""
    kept = PastWaits()
    for device in (A, B):
        kept.note(move(device, waiters=(waits("w"),)), label_of, 0)
    for device in (A, B):
        news = {"begun": (has("w", to_come=9),), "left": (TenantId("w"),)}
        kept.note(move(device, **news), label_of, 5)
    kept.note(move(A, ended=("w",)), label_of, 6)
    kept.note(move(B, still=(has("w"),)), label_of, 8)
    (told,) = told_of(kept, TenantId("w"), 30)[0]
    assert [restored(part) for part in told.intervals] == [
        (5, None),
        (3, Restored(9, is_over=True, came_all=True)),
    ]


def test_memory_that_comes_twice_while_it_queues_begins_no_other_wait() -> None:
    """A turn that lacks a further device waits for that, whatever its memory does meanwhile. The
    wait was lost: another one began beside it, and it never ended."""
    kept = PastWaits()
    kept.note(move(begun=(has("w"),)), label_of, 0)
    kept.note(move(B, begun=(has("b"),), waiters=(waits("w"),)), label_of, 1)
    for at_s, to_come in ((2, 9), (3, 0), (4, 5)):
        kept.note(move(still=(has("w", to_come=to_come),)), label_of, at_s)
        fits_together(told_of(kept, TenantId("w"), at_s)[0])
    kept.note(move(B, ended=("b",), begun=(has("w", to_come=5),), left=("w",)), label_of, 6)
    kept.note(move(still=(has("w"),)), label_of, 8)
    (told,) = told_of(kept, TenantId("w"), 30)[0]
    assert told.wait.how is How.SERVED
    assert [restored(part) for part in told.intervals] == [
        (5, None),
        (2, Restored(5, is_over=True, came_all=True)),
    ]


def test_a_turn_that_queues_once_more_waits_for_that() -> None:
    """It lacks a further device while memory comes back to the first one."""
    kept = PastWaits()
    kept.note(move(begun=(has("w", to_come=9),)), label_of, 0)
    kept.note(move(B, begun=(has("b"),), waiters=(waits("w"),)), label_of, 1)
    kept.note(move(still=(has("w"),)), label_of, 2)
    kept.note(move(B, ended=("b",), begun=(has("w"),), left=(TenantId("w"),)), label_of, 4)
    told = told_of(kept, TenantId("w"), 30)[0]
    assert [[restored(part) for part in each.intervals] for each in told] == [
        [(1, Restored(9, is_over=True, came_all=False))],
        [(3, None)],
    ]
    fits_together(told)


def test_memory_that_comes_back_changes_nothing_for_those_who_wait() -> None:
    """Its turn is the one of before: nothing that hung on it is over, and it is kept once."""
    kept = PastWaits()
    kept.note(move(begun=(has("a", to_come=9),)), label_of, 0)
    kept.note(move(waiters=(waits("w", Reason.MEMORY),)), label_of, 0)
    kept.note(move(still=(has("a"),)), label_of, 3)
    assert reasons(kept, 5) == [(Reason.MEMORY, 5, None)]
    assert len(kept._lanes[A].turns) == 1


def test_the_core_tells_when_memory_is_back() -> None:
    """With the reports of a process: at the grant it is parked, then a part of it is back, then
    all of it. Where nothing moves for long, its cell waits all the same."""
    desk = Watched(SchedulerSettings(memory_mode=MemoryMode.SWAP, quantum_s=10))
    a, b = desk.client("a"), desk.client("b")
    serials: dict[int, int] = {}

    def report(client: ClientId, parked: int, after_s: float = 0.0) -> None:
        for command in desk.last:
            if isinstance(command, TellBudget):
                serials[command.client] = command.serial
        event = ev.MemoryReported(
            client=client,
            device=A,
            bytes_allocated=3000,
            bytes_fixed=0,
            bytes_parked=parked,
            bytes_parkable=9000,
            budget_serial=serials.get(client, 0),
        )
        desk.do(event, after_s=after_s)

    desk.ask(a)
    report(a, 0)
    desk.drop(a)
    report(a, 3000)
    desk.ask(b)
    desk.ask(a, after_s=1)
    desk.drop(b, after_s=4)
    assert desk.holders() == ["a"]
    report(a, 2000, after_s=1)
    late_s = 2 * desk.scheduler.settings.park_timeout_s
    desk.do(ev.ClockTicked(), after_s=late_s)
    report(a, 0, after_s=1)
    desk.drop(a, after_s=7)
    (told,) = desk.told("a")
    assert [restored(part) for part in told.intervals] == [
        (4, None),
        (late_s + 2, Restored(3000, is_over=True, came_all=True)),
    ]


# ---- who is forgotten first --------------------------------------------------------------------


@pytest.mark.promise("scheduler-87")
def test_who_waits_is_not_forgotten_for_those_who_do_not() -> None:
    """It came first of very many; of all the others one does not wait any more."""
    kept = PastWaits()
    kept.note(move(waiters=(waits("first"),)), label_of, 0)
    for number in range(TENANTS_MAX - 1):
        kept.note(move(waiters=(waits(str(number)),)), label_of, 1)
    kept.note(move(left=(TenantId("7"),)), label_of, 2)
    kept.note(move(waiters=(waits("new"),)), label_of, 3)
    assert [len(told_of(kept, TenantId(each), 9)[0]) for each in ("first", "7", "new")] == [1, 0, 1]
    kept.note(move(waiters=(waits("one more"),)), label_of, 4)  # all wait: one of them goes
    assert len(kept._tenants) == TENANTS_MAX
    assert len(told_of(kept, TenantId("one more"), 9)[0]) == 1
