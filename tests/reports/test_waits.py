"""How long tenants waited for their turns, counted."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.shown.moves import Moves
from jupyter_gpushare.reports.format import WAIT_BOUNDS_S
from jupyter_gpushare.reports.waits import WaitCounter
from tests.core.desk import Desk


class Counting(Desk):
    """Each event's moves are noted, as the scheduler's process does."""

    def __init__(self, devices: str = "A") -> None:
        self._waits = WaitCounter()
        self._moves: Moves | None = None
        super().__init__(devices=devices)
        self._moves = Moves(self.scheduler)

    def do(self, event, *, after_s: float = 0.0):  # type: ignore[no-untyped-def]
        done = super().do(event, after_s=after_s)
        for move in self._moves.take() if self._moves else ():
            self._waits.note(move, self.now_s)
        return done

    @property
    def counts(self) -> dict[float, int]:
        """By the upper bound of each class that has any."""
        bounds = (*WAIT_BOUNDS_S, float("inf"))
        found = zip(bounds, self._waits.counted.counts, strict=True)
        return {bound: count for bound, count in found if count}

    @property
    def sum_s(self) -> float:
        return self._waits.counted.sum_s


@pytest.mark.promise(
    "scheduler-57", "Waits that end with a turn are counted by their length for the view"
)
def test_a_wait_counts_when_it_ends_with_a_turn() -> None:
    """Who has the device at once has not waited."""
    desk = Counting()
    first, second = desk.client("a"), desk.client("b")
    desk.ask(first)
    desk.ask(second)
    assert desk.counts == {}
    desk.drop(first, after_s=7.0)
    assert desk.granted() == [second]
    assert (desk.counts, desk.sum_s) == ({10.0: 1}, 7.0)


@pytest.mark.promise("scheduler-57")
def test_who_gives_up_is_not_counted() -> None:
    """Nor twice, when it comes again."""
    desk = Counting()
    first, second = desk.client("a"), desk.client("b")
    desk.ask(first)
    desk.ask(second)
    desk.withdraw(second, after_s=100.0)
    desk.ask(second, after_s=1.0)
    desk.drop(first, after_s=3.0)
    assert desk.counts == {5.0: 1}
    assert desk._waits._since_s == {}


@pytest.mark.promise("scheduler-57")
def test_a_wait_for_two_devices_counts_once() -> None:
    """A tenant gets all its devices or none."""
    desk = Counting("AB")
    first, second = desk.client("a", "A"), desk.client("b", "AB")
    desk.ask(first)
    desk.ask(second)
    desk.drop(first, after_s=1000.0)
    assert desk.granted() == [second]
    assert desk.counts == {1800.0: 1}


def test_who_ends_while_it_waits_is_forgotten() -> None:
    desk = Counting()
    first, second = desk.client("a"), desk.client("b")
    desk.ask(first)
    desk.ask(second)
    desk.lose(second)
    assert desk._waits._since_s == {}


def test_the_core_counts_as_many() -> None:
    """Its own counters of tenants say the same of a day at work."""
    desk = Counting()
    clients = [desk.client(name) for name in "abc"]
    for client in clients:
        desk.ask(client)
    for round_ in range(30):
        holder = int(desk.device().holders[0].turn)
        client = next(c for c in clients if desk.turns[c] == holder)
        desk.drop(client, after_s=0.1 * round_)
        desk.ask(client, after_s=0.05)
    tenants = [desk.status(name).counters for name in "abc"]
    waiting = [each.waited_s for each in desk.device().queue]
    counted = desk._waits.counted
    assert sum(counted.counts) == sum(each.waits for each in tenants)
    waited_s = sum(each.waited_s_total for each in tenants) - sum(waiting)
    assert counted.sum_s == pytest.approx(waited_s)
