"""How long a quantum is: it grows with its cell, and pays for the memory that moves for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.core.swap_budget import FILLS_FOR_S, SwapBudget

from .many_runs import many_runs
from .memory_desk import MemoryDesk

SETTINGS = SchedulerSettings()
GIB = 1 << 30
SWAP_BYTES = 20 * GIB
DEVICE = DeviceId("A")
LENGTH = pytest.mark.promise(
    "scheduler-38",
    "Quanta grow as a cell goes on, from quantum_min_s to quantum_max_s, and are long enough that "
    "memory which moves for them costs swap_percent of them",
)
SWAPS = pytest.mark.promise(
    "scheduler-39",
    "A new cell whose memory has to move recalls a turn when the device's swap budget covers the "
    "way in and out, or after swap_wait_max_s; where nothing has to move, at once",
)


@pytest.fixture
def desk() -> MemoryDesk:
    """One device of 80 GiB."""
    desk = MemoryDesk(devices="")
    desk.find_device(80 * GIB)
    return desk


def asks(desk: MemoryDesk, name: str, *, after_s: float = 0.0) -> ClientId:
    """A program, of an owner of its own."""
    desk.tenant(name, owner=name)
    client = desk.client(name)
    desk.ask(client, after_s=after_s)
    return client


def runs_a_cell(desk: MemoryDesk, name: str) -> ClientId:
    desk.tenant(name, owner=name)
    client = desk.client(name)
    desk.do(ev.CellBegan(client=client))
    desk.ask(client)
    return client


def swap_of(desk: MemoryDesk) -> SwapBudget:
    return desk.scheduler._machine._state.devices[DEVICE].swap


def swap_s(desk: MemoryDesk) -> float:
    return SWAP_BYTES / swap_of(desk).bytes_per_s


def is_parked(desk: MemoryDesk, name: str) -> ClientId:
    """A process of another owner, whose memory has left the device for somebody's."""
    desk.tenant(name, owner=name)
    client = desk.with_memory(name, SWAP_BYTES)
    desk.report(client, parked=SWAP_BYTES)
    return client


@LENGTH
@pytest.mark.parametrize(
    ("used_s", "quantum_s"),
    [(0.1, SETTINGS.quantum_min_s), (4.0, 4.0), (100.0, SETTINGS.quantum_max_s)],
)
def test_a_quantum_is_as_long_as_the_cell_was_before(
    desk: MemoryDesk, used_s: float, quantum_s: float
) -> None:
    cell = runs_a_cell(desk, "ann")
    asks(desk, "ben", after_s=used_s)
    others_came_s = desk.now_s
    while not desk.recalled():
        desk.sleep_until_woken()
    assert desk.recalled() == [cell]
    assert desk.now_s - others_came_s == pytest.approx(quantum_s)


@LENGTH
def test_a_fixed_quantum_does_not_grow() -> None:
    desk = MemoryDesk(quantum_s=2)
    runs_a_cell(desk, "ann")
    asks(desk, "ben", after_s=100)
    others_came_s = desk.now_s
    while not desk.recalled():
        desk.sleep_until_woken()
    assert desk.now_s - others_came_s == pytest.approx(2)


@LENGTH
def test_a_quantum_pays_for_its_memory(desk: MemoryDesk) -> None:
    """The way back takes a tenth of the turn."""
    parked = is_parked(desk, "ann")
    desk.ask(parked, after_s=10)
    quantum_s = desk.scheduler._machine._state.tenants[desk.status("ann").id].turn.quantum_s
    way_back_s = swap_s(desk)
    assert way_back_s == pytest.approx(
        (quantum_s + way_back_s) * SETTINGS.swap_percent / 100, rel=0.01
    )


def comes_back(desk: MemoryDesk, spent_s: float) -> float:
    """After how long a new cell with parked memory ends the turn of a program, where so much of the
    swap budget has been spent."""
    parked = is_parked(desk, "ben")
    asks(desk, "ann", after_s=10)
    desk.do(ev.ClockTicked(), after_s=40)
    swap = swap_of(desk)
    swap.spend(int(spent_s * swap.bytes_per_s), desk.now_s, SETTINGS.swap_percent / 100)
    began_s = desk.now_s
    desk.do(ev.CellBegan(client=parked))
    desk.ask(parked)
    while not desk.recalled():
        desk.sleep_until_woken()
    (recall,) = desk.all(RecallTurn)
    assert recall.reason is RecallReason.CELL_WAITS
    return desk.now_s - began_s


@SWAPS
def test_a_swap_that_the_budget_covers_comes_at_once(desk: MemoryDesk) -> None:
    assert comes_back(desk, spent_s=0) == 0


@SWAPS
def test_a_swap_waits_for_the_budget(desk: MemoryDesk) -> None:
    """It holds 6 s, fills at a tenth of time, and has to have room for the way in and out."""
    both_ways_s = 2 * SWAP_BYTES / SwapBudget().bytes_per_s
    left_s = both_ways_s - 0.3
    assert comes_back(desk, spent_s=6 - left_s) == pytest.approx(3.0)


@SWAPS
def test_a_swap_waits_no_longer_than_that(desk: MemoryDesk) -> None:
    assert comes_back(desk, spent_s=60) == pytest.approx(SETTINGS.swap_wait_max_s)


@SWAPS
@pytest.mark.parametrize("shrinks_by", [4096, 70 * GIB], ids=["a-little", "all"])
def test_a_swap_that_becomes_possible_comes_at_once(desk: MemoryDesk, shrinks_by: int) -> None:
    """The holder's memory was in the way as long as it could not be moved. The report that it can
    be moved is all that happens."""
    desk.tenant("ben", owner="ben")
    ben = desk.with_memory("ben", SWAP_BYTES)
    ann = asks(desk, "ann", after_s=10)
    state = desk.scheduler._machine._state
    stays = state.usable_bytes(state.devices[DEVICE]) - SWAP_BYTES + 4096
    desk.need(ann, stays)
    desk.park(ben)
    desk.report(ann, allocated=stays, fixed=stays)
    desk.need(ann, 0)
    desk.do(ev.CellBegan(client=ben))
    desk.ask(ben)
    assert not desk.recalled()
    desk.report(ann, fixed=stays - min(shrinks_by, stays))
    (recall,) = desk.all(RecallTurn)
    assert recall.reason is RecallReason.CELL_WAITS


@SWAPS
def test_the_bus_is_as_fast_as_it_was_lately() -> None:
    swap = SwapBudget()
    before = swap.bytes_per_s
    for _ in range(10):
        swap.learn(40 * GIB, 1.0)
    assert swap.bytes_per_s == pytest.approx(40 * GIB, rel=0.01) and swap.bytes_per_s != before
    swap.learn(1, 1.0)  # says nothing about the bus
    assert swap.bytes_per_s == pytest.approx(40 * GIB, rel=0.01)


@SWAPS
def test_what_comes_back_is_spent(desk: MemoryDesk) -> None:
    parked = is_parked(desk, "ann")
    desk.ask(parked, after_s=10)
    assert swap_of(desk).spent_s == pytest.approx(SWAP_BYTES / swap_of(desk).bytes_per_s)
    assert swap_of(desk).covers_at_s(6.0, 0.1) > desk.now_s


# ---- whatever the sizes and times are ----------------------------------------------------------

SIZES = st.integers(64 << 20, 60 * GIB)


def new_desk(**changes: object) -> MemoryDesk:
    desk = MemoryDesk(devices="", **changes)
    desk.find_device(80 * GIB)
    return desk


def quantum_is_within_its_bounds(
    used_s: float, parked: int, quanta: tuple[float, float], swap_percent: float
) -> None:
    """Of a cell that has used the device for so long, and then lost its memory to somebody."""
    desk = new_desk(quantum_min_s=quanta[0], quantum_max_s=quanta[1], swap_percent=swap_percent)
    cell = runs_a_cell(desk, "ann")
    desk.grow(cell, parked)
    desk.drop(cell, ev.DropReason.RECALL, after_s=used_s)
    desk.report(cell, parked=parked)
    desk.ask(cell, after_s=0.5)
    turn = desk.scheduler._machine._state.tenants[desk.status("ann").id].turn
    way_back_s = parked / swap_of(desk).bytes_per_s
    pays_s = way_back_s * (100 / swap_percent - 1)
    wanted_s = max(used_s, pays_s)
    assert turn.quantum_s == pytest.approx(min(max(wanted_s, quanta[0]), quanta[1]))
    if turn.quantum_s < quanta[1]:
        assert way_back_s <= (turn.quantum_s + way_back_s) * swap_percent / 100 + 1e-6


QUANTA = {
    "used_s": st.floats(0.01, 100),
    "parked": SIZES,
    "quanta": st.sampled_from([(0.5, 30.0), (0.1, 5.0), (2.0, 2.0), (1.0, 300.0)]),
    "swap_percent": st.floats(1, 50),
}


@LENGTH
@settings(max_examples=15)
@given(**QUANTA)
def test_quanta_are_within_their_bounds(**world: object) -> None:
    quantum_is_within_its_bounds(**world)  # type: ignore[arg-type]


@LENGTH
@many_runs
@given(**QUANTA)
def test_quanta_are_within_their_bounds_in_many_runs(**world: object) -> None:
    """The same in many more runs."""
    quantum_is_within_its_bounds(**world)  # type: ignore[arg-type]


def swap_waits_for_its_budget(
    parked: int, spent_s: float, swap_wait_max_s: float, swap_percent: float
) -> None:
    """And no longer; nor for longer than `swap_wait_max_s`."""
    desk = new_desk(swap_percent=swap_percent, swap_wait_max_s=swap_wait_max_s)
    desk.tenant("ben", owner="ben")
    client = desk.with_memory("ben", parked)
    desk.report(client, parked=parked)
    asks(desk, "ann", after_s=10)
    desk.do(ev.ClockTicked(), after_s=40)
    swap, share = swap_of(desk), swap_percent / 100
    swap.spend(int(spent_s * swap.bytes_per_s), desk.now_s, share)
    full_s = FILLS_FOR_S * share
    missing_s = max(0.0, spent_s - max(0.0, full_s - 2 * parked / swap.bytes_per_s))
    began_s = desk.now_s
    desk.do(ev.CellBegan(client=client))
    desk.ask(client)
    while not desk.recalled():
        desk.sleep_until_woken()
    waited_s = desk.now_s - began_s
    assert waited_s == pytest.approx(min(missing_s / share, swap_wait_max_s), abs=1e-3)


SWAPPED = {
    "parked": SIZES,
    "spent_s": st.floats(0, 60),
    "swap_wait_max_s": st.floats(0.1, 20),
    "swap_percent": st.floats(1, 50),
}


@SWAPS
@settings(max_examples=15)
@given(**SWAPPED)
def test_a_swap_waits_for_its_budget_alone(**world: object) -> None:
    swap_waits_for_its_budget(**world)  # type: ignore[arg-type]


@SWAPS
@many_runs
@given(**SWAPPED)
def test_a_swap_waits_for_its_budget_alone_in_many_runs(**world: object) -> None:
    """The same in many more runs."""
    swap_waits_for_its_budget(**world)  # type: ignore[arg-type]


@SWAPS
@many_runs
@given(
    steps=st.lists(st.tuples(st.floats(0, 100), st.integers(0, 200 * GIB)), max_size=30),
    share=st.floats(0.01, 0.5),
    cost_s=st.floats(0, 80),
)
def test_swaps_that_the_budget_covers_cost_no_more_than_their_part(
    steps: list[tuple[float, int]], share: float, cost_s: float
) -> None:
    """Over any time, from any beginning: what came in, what the budget holds, and one cost."""
    budget, now_s, spent = SwapBudget(), 0.0, [(0.0, 0.0)]
    for pause_s, size in steps:
        now_s += pause_s
        takes_s = size / budget.bytes_per_s
        if budget.covers_at_s(takes_s, share) <= now_s:
            spent.append((now_s, spent[-1][1] + takes_s))
            budget.spend(size, now_s, share)
    holds_s = FILLS_FOR_S * share
    for number, (since_s, before_s) in enumerate(spent):
        longest_s = max((b[1] - a[1] for a, b in pairwise(spent[number:])), default=0.0)
        for at_s, total_s in spent[number:]:
            most_s = holds_s + share * (at_s - since_s) + longest_s
            assert total_s - before_s <= most_s + 1e-6
    covered_at_s = budget.covers_at_s(cost_s, share)
    assert covered_at_s <= now_s + budget.spent_s / share + 1e-6
