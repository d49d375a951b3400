"""What the mover does next, and how much host memory it keeps: without a process or a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hook.runtime.pure import Goal, HostStep, HostView, Pure, Step, SwapView, host_is_tight

MIB = 1 << 20
CHUNK = 32 * MIB
GIB = 1 << 30


@pytest.mark.promise("Memory stays where it is when...")
def test_what_is_over_the_budget_leaves_and_no_more(pure: Pure) -> None:
    """What is on its way out counts as gone."""
    view = SwapView(goal=Goal.PARK, bytes_over=CHUNK, to_leave=10)
    assert view.step(pure) is Step.LEAVE
    view.flights, view.flight_bytes, view.leaving_bytes = 1, CHUNK, CHUNK
    assert view.step(pure) is Step.WAIT
    view.bytes_over += 1
    assert view.step(pure) is Step.LEAVE


@pytest.mark.promise(
    "park",
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


@pytest.mark.promise("Several chunks are always on their...")
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
    "park",
    "Without a turn, parked memory comes back as far as the budget reaches, and what came so "
    "leaves first, without a copy",
)
def test_without_a_turn_memory_comes_as_far_as_the_budget_reaches(pure: Pure) -> None:
    """Not where no budget was told, nothing is confirmed before the turn, and what the driver
    refused once is not tried again."""
    view = SwapView(goal=Goal.PARK, to_come=1, bytes_next=CHUNK, bytes_free=CHUNK)
    assert view.step(pure) is Step.COME
    view.bytes_free = CHUNK - 1
    assert view.step(pure) is Step.NOTHING
    view.bytes_free = UNLIMITED
    assert view.step(pure) is Step.NOTHING
    view.bytes_free, view.has_failed = CHUNK, True
    assert view.step(pure) is Step.NOTHING
    view = SwapView(goal=Goal.PARK, copies=1, to_take_back=1, all_here=True, bytes_free=CHUNK)
    assert view.step(pure) is Step.NOTHING
    view.bytes_over, view.to_leave = 1, 1
    assert view.step(pure) is Step.UNMAP


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
    "park",
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
        assert view.step(pure) is Step.COME


@pytest.mark.promise("Where host memory is short, what comes...")
def test_the_host_is_tight_where_others_could_not_make_room_for_the_rest(pure: Pure) -> None:
    """They need as much as is still parked here, and two segments are left to them in any case."""
    assert not host_is_tight(pure, room=128 * MIB, parked=0)
    assert host_is_tight(pure, room=128 * MIB - 1, parked=0)
    assert not host_is_tight(pure, room=328 * MIB, parked=200 * MIB)
    assert host_is_tight(pure, room=327 * MIB, parked=200 * MIB)
    assert not host_is_tight(pure, room=UNLIMITED, parked=UNLIMITED - 128 * MIB)


@pytest.mark.promise("A restore that finds no room...")
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
    out: list[int] = field(default_factory=list)
    inward: list[int] = field(default_factory=list)
    host_is_tight: bool = False

    @property
    def used(self) -> int:
        return self.resident + self.back + len(self.out) + len(self.inward)

    @property
    def on_the_host(self) -> int:
        return self.parked + self.back + len(self.out) + len(self.inward)

    def view(self, goal: Goal) -> SwapView:
        flights = len(self.out) + len(self.inward)
        return SwapView(
            goal=goal,
            flights=flights,
            flight_bytes=flights * CHUNK,
            leaving_bytes=len(self.out) * CHUNK,
            bytes_over=max(0, self.used - self.budget) * CHUNK,
            bytes_free=max(0, self.budget - self.used) * CHUNK,
            bytes_next=CHUNK if self.parked else 0,
            to_leave=self.resident,
            to_come=self.parked,
            to_take_back=self.back,
            copies=self.back,
            arrives=bool(self.inward),
            all_here=self.parked == 0 and flights == 0,
            host_is_tight=self.host_is_tight,
        )

    def take(self, goal: Goal) -> Step:
        step = self.view(goal).step(self.pure)
        if step is Step.LEAVE:
            self.resident -= 1
            self.out.append(1)
        elif step is Step.COME:
            self.parked -= 1
            self.inward.append(1)
        elif step is Step.UNMAP:
            self.back -= 1
            self.parked += 1
        elif step is Step.CONFIRM:
            self.resident += self.back
            self.back = 0
        elif step is Step.WAIT:
            self.land(goal)
        assert min(self.resident, self.parked, self.back) >= 0
        return step

    def land(self, goal: Goal) -> None:
        """The oldest copy ends."""
        if self.inward:
            self.inward.pop()
            self.back += 1
        elif self.out:
            over = self.view(goal).bytes_over > 0
            self.out.pop()
            self.parked += goal is Goal.PARK and over
            self.resident += not (goal is Goal.PARK and over)


@pytest.mark.promise("Several chunks are always on their...")
@settings(deadline=None)
@given(
    st.integers(0, 20),
    st.lists(st.tuples(st.sampled_from(list(Goal)), st.integers(0, 20), st.integers(0, 30))),
)
def test_any_order_of_goals_and_budgets_ends_where_it_should(
    pure: Pure, chunks: int, changes: list[tuple[Goal, int, int]]
) -> None:
    """No chunk is lost, nothing comes beyond the budget, and left alone the mover gets there."""
    device = Device(pure, resident=chunks, budget=chunks)
    for goal, budget, steps in [*changes, (Goal.PARK, 0, 200), (Goal.RESTORE, chunks, 200)]:
        device.budget = budget
        for _ in range(steps):
            before = device.view(goal)
            step = device.take(goal)
            if step is Step.COME:
                assert before.bytes_free >= CHUNK
            flights = len(device.out) + len(device.inward)
            assert device.resident + device.parked + device.back + flights == chunks
            if step is Step.NOTHING:
                break
        if (goal, budget, steps) == (Goal.PARK, 0, 200):
            assert device.parked == chunks
    assert device.resident == chunks


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


@pytest.mark.promise("Where host memory is short, what comes...")
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


@pytest.mark.promise("Host memory is made ready ahead...")
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
