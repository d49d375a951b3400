"""What clients say is handled a little at a time, whoever says how much. The clock is a fake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.scheduler.hook.connection import MESSAGES_MAX, WORK_S, Intake


class FakeLoop:
    """Runs what it was asked to run, one turn at a time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Talker:
    """Has so many messages, each of which takes so long."""

    def __init__(self, loop: FakeLoop, messages: int, *, cost_s: float = 0.0) -> None:
        self.loop, self.messages, self.cost_s = loop, messages, cost_s
        self.handled = 0
        self.first_at_s: float | None = None

    def handle_next(self) -> bool:
        if self.handled == self.messages:
            return False
        self.handled += 1
        if self.first_at_s is None:
            self.first_at_s = self.loop.now_s
        self.loop.now_s += self.cost_s
        return True


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def intake(loop: FakeLoop) -> Intake:
    return Intake(loop, spent_s=loop.time)  # type: ignore[arg-type]


def test_a_quiet_client_is_heard_at_once(loop: FakeLoop, intake: Intake) -> None:
    """While nobody floods, messages do not wait for another turn of the loop."""
    talker = Talker(loop, 3)
    intake.offer(talker)
    assert talker.handled == 3


@pytest.mark.promise("bad-input-62")
@pytest.mark.parametrize("floods", [1, 200])
def test_a_turn_of_the_loop_handles_so_many_messages(
    loop: FakeLoop, intake: Intake, floods: int
) -> None:
    """However many clients flood, one turn of the loop handles no more than one of them could."""
    talkers = [Talker(loop, 1000) for _ in range(floods)]
    for talker in talkers:
        intake.offer(talker)
    before = 0
    for _ in range(10):
        handled = sum(talker.handled for talker in talkers)
        assert 0 < handled - before <= MESSAGES_MAX
        before = handled
        loop.turn()


@pytest.mark.promise("bad-input-62")
def test_costly_messages_are_fewer(loop: FakeLoop, intake: Intake) -> None:
    """In the long run a turn of the loop spends no more than its share on messages, however long
    one of them takes; so where the core takes longer, others still come in between as often."""
    flood = Talker(loop, 1000, cost_s=2.5 * WORK_S)
    intake.offer(flood)
    for _ in range(100):
        loop.turn()
    assert 35 <= flood.handled <= 41


@pytest.mark.promise("bad-input-62")
def test_clients_go_in_turn(loop: FakeLoop, intake: Intake) -> None:
    """Who has one message is not behind the thousand of another."""
    flood, other = Talker(loop, 1000, cost_s=WORK_S / 4), Talker(loop, 1)
    intake.offer(flood)
    asked_at_s = loop.now_s
    intake.offer(other)
    loop.turn()
    assert other.first_at_s is not None
    assert other.first_at_s - asked_at_s <= flood.cost_s
