"""What the mover does next, and how much host memory it keeps: without a process or a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.protocol.messages import Ahead
from tests.hook.runtime.pure import Goal, HostStep, HostView, Pure, Step, SwapView, host_is_tight

MIB = 1 << 20
CHUNK = 32 * MIB
GIB = 1 << 30


@pytest.mark.promise("park-28")
def test_what_is_over_the_budget_leaves_and_no_more(pure: Pure) -> None:
    """What is on its way out counts as gone."""
    view = SwapView(goal=Goal.PARK, bytes_over=CHUNK, to_leave=10)
    assert view.step(pure) is Step.LEAVE
    view.flights, view.flight_bytes, view.leaving_bytes = 1, CHUNK, CHUNK
    assert view.step(pure) is Step.WAIT
    view.bytes_over += 1
    assert view.step(pure) is Step.LEAVE


@pytest.mark.promise(
    "park-61",
    "Several chunks are always on their way; a change of goal or budget takes effect within a "
    "chunk, and none is lost",
)
def test_several_chunks_are_on_their_way_and_not_all(pure: Pure) -> None:
    """At least four copies, or 64 MiB of small ones, so that none waits for a mapping."""
    view = SwapView(goal=Goal.PARK, bytes_over=100 * CHUNK, to_leave=100)
    view.flights, view.flight_bytes = 3, 3 * CHUNK
    assert view.step(pure) is Step.LEAVE
    view.flights, view.flight_bytes = 4, 4 * CHUNK
    assert view.step(pure) is Step.WAIT
    view.flights, view.flight_bytes = 20, 40 * MIB
    assert view.step(pure) is Step.LEAVE
    view.flights, view.flight_bytes = 32, 63 * MIB
    assert view.step(pure) is Step.WAIT


@pytest.mark.promise("park-61")
def test_chunks_with_a_good_copy_leave_without_being_copied(pure: Pure) -> None:
    """They are unmapped first, once none is on its way in."""
    view = SwapView(goal=Goal.PARK, bytes_over=CHUNK, to_leave=1, to_take_back=1, copies=1)
    assert view.step(pure) is Step.UNMAP
    view.arrives, view.flights = True, 1
    assert view.step(pure) is Step.WAIT


def test_without_host_memory_nothing_leaves(pure: Pure) -> None:
    """It stays on the device until some is to be had; as where the driver has nothing left for the
    copies themselves."""
    view = SwapView(goal=Goal.PARK, bytes_over=CHUNK, to_leave=1, host_is_short=True)
    assert view.step(pure) is Step.NOTHING
    view = SwapView(goal=Goal.PARK, bytes_over=CHUNK, to_leave=1, stream_is_short=True)
    assert view.step(pure) is Step.NOTHING
    view = SwapView(goal=Goal.PARK, bytes_over=CHUNK, to_leave=0)
    assert view.step(pure) is Step.NOTHING, "all of it is fixed"


def test_nothing_comes_while_too_much_is_there(pure: Pure) -> None:
    """Not even what needs no more of the device, since its memory there was kept for it: it would
    be refused, and tried again without end."""
    view = SwapView(goal=Goal.RESTORE, to_come=1, bytes_next=0, bytes_over=1)
    assert view.step(pure) is Step.NOTHING


def test_memory_comes_back_as_far_as_the_budget_reaches(pure: Pure) -> None:
    """A chunk that did not fit waits for a budget that it fits in."""
    view = SwapView(goal=Goal.RESTORE, to_come=1, bytes_next=CHUNK, bytes_free=CHUNK)
    assert view.step(pure) is Step.COME
    view.bytes_free = CHUNK - 1
    assert view.step(pure) is Step.NOTHING
    view.bytes_free = CHUNK
    assert view.step(pure) is Step.COME
    view.room_is_short = True
    assert view.step(pure) is Step.NOTHING


UNLIMITED = 2**64 - 1


@pytest.mark.promise(
    "park-62",
    "Without a turn, parked memory comes back as far as the budget reaches, and what came so "
    "leaves first, without a copy",
)
def test_without_a_turn_memory_comes_as_far_as_the_budget_reaches(pure: Pure) -> None:
    """Only where the budget is for that, nothing is confirmed before the turn, and what the driver
    refused once is not tried again."""
    figures = {"goal": Goal.PARK, "to_come": 1, "bytes_next": CHUNK}
    view = SwapView(**figures, bytes_free=CHUNK, comes_ahead=True)
    assert view.step(pure) is Step.COME
    view.comes_ahead = False
    assert view.step(pure) is Step.NOTHING
    view.comes_ahead, view.bytes_free = True, CHUNK - 1
    assert view.step(pure) is Step.NOTHING
    view.bytes_free, view.has_failed = CHUNK, True
    assert view.step(pure) is Step.NOTHING
    view = SwapView(goal=Goal.PARK, copies=1, to_take_back=1, all_here=True, bytes_free=CHUNK)
    assert view.step(pure) is Step.NOTHING
    view.bytes_over, view.to_leave = 1, 1
    assert view.step(pure) is Step.UNMAP


COPYING = {"goal": Goal.PARK, "bytes_free": CHUNK, "to_leave": 9, "to_copy": 9}
"""A view of who may copy ahead of need."""


@pytest.mark.promise(
    "park-63",
    "While a process has no turn, what would leave first is copied to the host ahead of need, as "
    "far as the scheduler says; it leaves without a copy then, and before the turn the copies are "
    "given up",
)
def test_what_would_leave_first_is_copied_ahead_of_need(pure: Pure) -> None:
    """As much as is said, of what is not managed. Nothing of it is confirmed for want of work."""
    view = SwapView(**COPYING, bytes_to_copy=1)
    assert view.step(pure) is Step.COPY
    view.to_copy = 0
    assert view.step(pure) is Step.NOTHING
    view = SwapView(**COPYING, bytes_to_copy=0, copies=3, copied=3, to_take_back=3, all_here=True)
    assert view.step(pure) is Step.NOTHING
    view.goal, view.bytes_to_copy = Goal.REST, CHUNK
    assert view.step(pure) is Step.NOTHING


@pytest.mark.promise("park-63")
@pytest.mark.parametrize(
    ("lack", "step"),
    [
        ({"bytes_over": 1}, Step.LEAVE),
        ({"bytes_over": 1, "to_take_back": 1}, Step.UNMAP),
        ({"bytes_over": 1, "leaving_bytes": 1, "flights": 1, "flight_bytes": 1}, Step.WAIT),
        ({"to_come": 1, "bytes_next": 1, "comes_ahead": True}, Step.COME),
        ({"to_come": 1, "bytes_next": 1}, Step.COPY),
        ({"arrives": True, "flights": 1}, Step.WAIT),
        ({"has_failed": True}, Step.COPY),
        ({"host_is_short": True}, Step.NOTHING),
        ({"stream_is_short": True}, Step.NOTHING),
        ({"host_is_tight": True}, Step.NOTHING),
        ({"host_is_tight": True, "flights": 1}, Step.WAIT),
        ({"host_is_tight": True, "copies": 1, "copied": 0}, Step.NOTHING),
        ({"host_is_tight": True, "copies": 1, "copied": 1}, Step.CONFIRM),
        ({"host_is_tight": True, "copies": 1, "copied": 1, "flights": 1}, Step.CONFIRM),
        ({"host_is_tight": True, "copies": 1, "copied": 1, "bytes_over": 1}, Step.LEAVE),
    ],
)
def test_copies_ahead_of_need_give_way_to_all_else(
    pure: Pure, lack: dict[str, int], step: Step
) -> None:
    """To memory that has to leave or may come, and to others that could lack host memory: then the
    copies that were made go, and no copy of what was away."""
    assert SwapView(**{**COPYING, "bytes_to_copy": CHUNK, **lack}).step(pure) is step


@pytest.mark.promise("park-63")
def test_few_copies_ahead_of_need_are_on_their_way(pure: Pure) -> None:
    """A turn waits for them. Less than 128 MiB before the next one begins, so two large chunks."""
    view = SwapView(**COPYING, bytes_to_copy=GIB, flights=1, flight_bytes=64 * MIB)
    assert view.step(pure) is Step.COPY
    view.flights, view.flight_bytes = 2, 128 * MIB - 1
    assert view.step(pure) is Step.COPY
    view.flight_bytes += 1
    assert view.step(pure) is Step.WAIT
    view.flights, view.flight_bytes = 31, 62 * MIB
    assert view.step(pure) is Step.COPY
    view.flights, view.flight_bytes = 32, 64 * MIB
    assert view.step(pure) is Step.WAIT


def test_a_chunk_that_still_has_its_device_memory_needs_no_budget(pure: Pure) -> None:
    """The driver would not take it back, so it counts as on the device all the time."""
    view = SwapView(goal=Goal.RESTORE, to_come=1, bytes_next=0, bytes_free=0)
    assert view.step(pure) is Step.COME


def test_what_nobody_can_bring_back_is_not_waited_for(pure: Pure) -> None:
    """Chunks that are being freed, or were lost with their context, are none to come."""
    view = SwapView(goal=Goal.RESTORE, to_come=0, bytes_next=0, bytes_free=CHUNK)
    assert view.step(pure) is Step.NOTHING
    view.copies, view.all_here = 1, True
    assert view.step(pure) is Step.CONFIRM


def test_host_copies_go_when_all_is_back_everywhere(pure: Pure) -> None:
    """A restore that could still fail keeps them, on all devices."""
    view = SwapView(goal=Goal.RESTORE, copies=1, flights=1)
    assert view.step(pure) is Step.WAIT
    view.flights = 0
    assert view.step(pure) is Step.NOTHING, "another device is not ready"
    view.all_here = True
    assert view.step(pure) is Step.CONFIRM


@pytest.mark.promise(
    "park-64",
    "Where host memory is short, what comes back with a turn gives it up piece by piece, so that "
    "two processes under one limit need two segments more than what is parked",
)
def test_where_the_host_is_tight_copies_go_as_soon_as_a_chunk_is_back(pure: Pure) -> None:
    """With a turn alone, and not once the restore has failed: what has a copy then leaves without
    being copied."""
    figures = {"copies": 1, "to_take_back": 1, "to_come": 1, "bytes_next": CHUNK, "flights": 1}
    view = SwapView(goal=Goal.RESTORE, bytes_free=CHUNK, host_is_tight=True, **figures)
    assert view.step(pure) is Step.CONFIRM
    view.has_failed = True
    assert view.step(pure) is Step.WAIT
    for elsewhere in ({"goal": Goal.PARK, "host_is_tight": True}, {"goal": Goal.RESTORE}):
        view = SwapView(bytes_free=CHUNK, **figures, **elsewhere)
        view.comes_ahead = True
        assert view.step(pure) is Step.COME


@pytest.mark.promise("park-64")
def test_the_host_is_tight_where_others_could_not_make_room_for_the_rest(pure: Pure) -> None:
    """They need as much as is still parked here, and two segments are left to them in any case."""
    assert not host_is_tight(pure, room=128 * MIB, parked=0)
    assert host_is_tight(pure, room=128 * MIB - 1, parked=0)
    assert not host_is_tight(pure, room=328 * MIB, parked=200 * MIB)
    assert host_is_tight(pure, room=327 * MIB, parked=200 * MIB)
    assert not host_is_tight(pure, room=UNLIMITED, parked=UNLIMITED - 128 * MIB)


@pytest.mark.promise("park-44")
def test_a_restore_that_failed_is_rolled_back(pure: Pure) -> None:
    """What is on its way arrives first; then all of it is unmapped, and the mover gives up."""
    view = SwapView(goal=Goal.RESTORE, has_failed=True, to_take_back=1, copies=1, flights=2)
    assert view.step(pure) is Step.WAIT
    view.flights = 0
    assert view.step(pure) is Step.ROLL_BACK
    view.to_take_back = 0  # what is left was fixed meanwhile
    assert view.step(pure) is Step.GIVE_UP


def test_at_rest_nothing_begins(pure: Pure) -> None:
    """With the turn held, or nothing to do, whatever the budget says."""
    view = SwapView(goal=Goal.REST, bytes_over=CHUNK, to_leave=1, bytes_free=CHUNK)
    assert view.step(pure) is Step.NOTHING


@dataclass
class Device:
    """The mover and a device in a few lines: steps become states, one flight ends at a time."""

    pure: Pure
    resident: int
    budget: int
    parked: int = 0
    back: int = 0
    copied: int = 0
    """Has never left, and was copied ahead of need."""
    out: int = 0
    inward: int = 0
    ahead: Ahead = Ahead.NOTHING
    hint: int = 0
    host_is_tight: bool = False

    @property
    def flights(self) -> int:
        return self.out + self.inward

    @property
    def used(self) -> int:
        return self.resident + self.back + self.copied + self.flights

    @property
    def on_the_host(self) -> int:
        return self.parked + self.back + self.copied + self.flights

    def view(self, goal: Goal) -> SwapView:
        worth_a_copy = max(0, self.hint - self.parked - self.back - self.copied - self.out)
        return SwapView(
            goal=goal,
            flights=self.flights,
            flight_bytes=self.flights * CHUNK,
            leaving_bytes=self.out * CHUNK,
            bytes_over=max(0, self.used - self.budget) * CHUNK,
            bytes_free=max(0, self.budget - self.used) * CHUNK,
            bytes_to_copy=worth_a_copy * CHUNK if self.ahead is Ahead.COPIES else 0,
            bytes_next=CHUNK if self.parked else 0,
            to_leave=self.resident,
            to_copy=self.resident,
            to_come=self.parked,
            to_take_back=self.back + self.copied,
            copies=self.back + self.copied,
            copied=self.copied,
            arrives=self.inward > 0,
            comes_ahead=self.ahead is Ahead.RESTORE,
            all_here=self.parked == 0 and self.flights == 0,
            host_is_tight=self.host_is_tight,
        )

    def take(self, goal: Goal) -> Step:
        step = self.view(goal).step(self.pure)
        if step in (Step.LEAVE, Step.COPY):
            self.resident -= 1
            self.out += 1
        elif step is Step.COME:
            self.parked -= 1
            self.inward += 1
        elif step is Step.UNMAP:
            self.copied -= self.back == 0
            self.back -= self.back > 0
            self.parked += 1
        elif step is Step.CONFIRM:
            self.confirm(goal)
        elif step is Step.WAIT:
            self.land(goal)
        assert min(self.resident, self.parked, self.back, self.copied) >= 0
        return step

    def confirm(self, goal: Goal) -> None:
        """In a park what was copied ahead of need alone."""
        back = 0 if goal is Goal.PARK else self.back
        self.resident += self.copied + back
        self.copied = 0
        self.back -= back

    def land(self, goal: Goal) -> None:
        """The oldest copy ends."""
        if self.inward:
            self.inward -= 1
            self.back += 1
        elif self.out:
            over = self.view(goal).bytes_over > 0
            self.out -= 1
            self.parked += goal is Goal.PARK and over
            stays_copied = goal is Goal.PARK and not over and self.ahead is Ahead.COPIES
            self.copied += stays_copied
            self.resident += not (goal is Goal.PARK and over) and not stays_copied


@dataclass
class Change:
    """What the scheduler says, or the turn, and how many steps follow at most."""

    goal: Goal
    budget: int
    steps: int = 10_000
    ahead: Ahead = Ahead.NOTHING
    hint: int = 0
    host_is_tight: bool = False

    def on(self, device: Device) -> bool:
        """Whether the mover has come to its rest. No chunk is lost meanwhile, nothing comes beyond
        the budget, and no more is copied ahead than is said."""
        chunks = device.used + device.parked
        device.budget, device.hint, device.ahead = self.budget, self.hint, self.ahead
        device.host_is_tight = self.host_is_tight
        for _ in range(self.steps):
            before = device.view(self.goal)
            step = device.take(self.goal)
            if step is Step.COME:
                assert before.bytes_free >= CHUNK
            if step is Step.COPY:
                assert device.parked + device.back + device.copied + device.out <= device.hint
                assert device.flights * CHUNK <= 128 * MIB
            assert device.used + device.parked == chunks
            if step is Step.NOTHING:
                return True
        return False


few_steps = st.builds(
    Change,
    st.sampled_from(list(Goal)),
    st.integers(0, 20),
    st.integers(0, 30),
    st.sampled_from(list(Ahead)),
    st.integers(0, 20),
    st.booleans(),
)


@pytest.mark.promise("park-61")
@settings(deadline=None)
@given(st.integers(0, 20), st.lists(few_steps))
def test_any_order_of_goals_and_budgets_ends_where_it_should(
    pure: Pure, chunks: int, changes: list[Change]
) -> None:
    """No chunk is lost, nothing comes beyond the budget, and left alone the mover gets there."""
    device = Device(pure, resident=chunks, budget=chunks)
    for change in changes:
        change.on(device)
    assert Change(Goal.PARK, 0).on(device)
    assert device.parked == chunks
    assert Change(Goal.RESTORE, chunks).on(device)
    assert device.resident == chunks


@pytest.mark.promise("park-63")
@settings(deadline=None)
@given(st.integers(0, 20), st.lists(few_steps), few_steps)
def test_whatever_is_said_the_mover_comes_to_its_rest(
    pure: Pure, chunks: int, changes: list[Change], last: Change
) -> None:
    """With nothing on its way. Then as much has a copy as was said, or where the host is tight
    nothing that could be given up; at a turn nothing has one."""
    device = Device(pure, resident=chunks, budget=chunks)
    for change in changes:
        change.on(device)
    last.steps = 20 * chunks + 20
    assert last.on(device)
    assert device.flights == 0
    has_place = device.used <= device.budget
    if last.goal is Goal.PARK and last.host_is_tight and has_place:
        assert device.copied == 0
    elif last.goal is Goal.PARK and last.ahead is Ahead.COPIES and has_place:
        assert device.parked + device.back + device.copied >= min(last.hint, chunks)
    elif last.goal is Goal.RESTORE and device.parked == 0:
        assert device.back == device.copied == 0


def exchange(pure: Pure, leaves: Device, comes: Device, usable: int, host: int) -> bool:
    """The second is granted a turn, and the first makes room, in chunks: as much as finds host
    memory, and no more than is missing. Whether all came back."""
    chunks = leaves.resident + comes.resident + comes.parked
    for _ in range(40 * chunks + 40):
        room = host - leaves.on_the_host - comes.on_the_host
        comes.host_is_tight = host_is_tight(
            pure, room=room * 64 * MIB, parked=comes.parked * 64 * MIB
        )
        missing = comes.used + comes.parked + leaves.used - usable
        leaves.budget = leaves.used - max(0, min(missing, room))
        comes.budget = usable - leaves.used
        if leaves.take(Goal.PARK) is Step.LEAVE:
            assert leaves.on_the_host + comes.on_the_host <= host
        comes.take(Goal.RESTORE)
        assert leaves.used + comes.used <= usable
        assert chunks == sum(each.used + each.parked for each in (leaves, comes))
        if comes.resident == comes.used and comes.parked == 0:
            return True
    return False


@pytest.mark.promise("park-64")
@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_two_chunks_of_host_memory_beyond_what_is_parked_are_enough(
    pure: Pure, first: int, second: int, data: st.DataObject
) -> None:
    """To and fro, for any two that fit alone; without the two, who is parked does not come back."""
    usable = data.draw(st.integers(max(first, second), first + second))
    parked = first + second - usable
    one = Device(pure, resident=first, budget=first)
    two = Device(pure, resident=second - parked, parked=parked, budget=second)
    for leaves, comes in ((one, two), (two, one), (one, two)):
        assert exchange(pure, leaves, comes, usable, parked + 2)
    if one.parked == parked > 0:
        assert not exchange(pure, two, one, usable, parked)


@pytest.mark.promise("park-51")
@pytest.mark.parametrize(
    ("view", "step", "wanted"),
    [
        (HostView(hint_bytes=CHUNK, movable_bytes=10 * CHUNK), HostStep.PREPARE, CHUNK),
        (HostView(hint_bytes=10 * CHUNK, movable_bytes=CHUNK), HostStep.PREPARE, CHUNK),
        (HostView(free_bytes=64 * MIB), HostStep.KEEP, 0),
        (HostView(free_bytes=64 * MIB, excess_ms=30_000), HostStep.TRIM, 0),
        (HostView(free_bytes=64 * MIB, is_short=True), HostStep.TRIM, 0),
        (HostView(begun_bytes=64 * MIB, room_bytes=64 * MIB), HostStep.TRIM, 0),
        (HostView(begun_bytes=64 * MIB), HostStep.KEEP, 0),
        (HostView(room_bytes=64 * MIB), HostStep.KEEP, 0),
        (
            HostView(free_bytes=96 * MIB, hint_bytes=CHUNK, movable_bytes=CHUNK, excess_ms=30_000),
            HostStep.TRIM,
            CHUNK,
        ),
        (
            HostView(free_bytes=64 * MIB, hint_bytes=CHUNK, movable_bytes=CHUNK, excess_ms=30_000),
            HostStep.KEEP,
            CHUNK,
        ),
        (
            HostView(free_bytes=3 * CHUNK, hint_bytes=CHUNK, movable_bytes=GIB, room_bytes=GIB),
            HostStep.KEEP,
            CHUNK,
        ),
        (
            HostView(free_bytes=3 * CHUNK, hint_bytes=CHUNK, movable_bytes=GIB, room_bytes=GIB - 1),
            HostStep.TRIM,
            CHUNK,
        ),
        (
            HostView(hint_bytes=CHUNK, movable_bytes=CHUNK, room_bytes=192 * MIB),
            HostStep.PREPARE,
            CHUNK,
        ),
        (
            HostView(hint_bytes=CHUNK, movable_bytes=CHUNK, room_bytes=191 * MIB),
            HostStep.KEEP,
            CHUNK,
        ),
        (
            HostView(free_bytes=MIB, hint_bytes=CHUNK, movable_bytes=CHUNK, room_bytes=127 * MIB),
            HostStep.TRIM,
            0,
        ),
    ],
)
def test_host_memory_is_prepared_by_the_hint_and_given_back_without_it(
    pure: Pure, view: HostView, step: HostStep, wanted: int
) -> None:
    """As much as could have to leave; what is beyond goes after 30 s, or at once where the system
    has less than could leave, or is short. Where little is left, it is left to others."""
    assert view.step(pure) is step
    assert view.wanted(pure) == wanted
