"""Between the core's words and the protocol's."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from jupyter_gpushare.core.commands import TellHold
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.protocol import messages
from jupyter_gpushare.protocol.fields import Message
from jupyter_gpushare.protocol.messages import HoldChanged
from jupyter_gpushare.scheduler.devices.named import NAMED_MAX, DeviceBook
from jupyter_gpushare.scheduler.hook.connection import Clients
from jupyter_gpushare.scheduler.hook.translate import Inbound, message_of
from jupyter_gpushare.scheduler.service.looks import Look, Looks
from jupyter_gpushare.scheduler.service.members import Members
from jupyter_gpushare.scheduler.service.service import Service
from tests.support.hook_client import DEVICE


@pytest.mark.parametrize(
    ("now_s", "hold_s", "hold_ms"),
    [(16164.678266207715, 300.0, 300_000), (16_000.0, 0.0004, 1), (1.0, 0.0, 0)],
)
def test_a_hold_lasts_as_long_as_was_asked(now_s: float, hold_s: float, hold_ms: int) -> None:
    """Whole milliseconds, rounded up; what the sum of two times adds is not counted."""
    until_s = now_s + hold_s
    told = TellHold(client=ClientId(1), left_s=until_s - now_s, cause="test")
    assert message_of(told) == HoldChanged(hold_ms=hold_ms)


class Questions:
    """In the place of what the clients' questions are answered from and through."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Look], None]] = []
        self.answered: list[int] = []
        self.inbound = Inbound(
            submit=lambda event: None,
            service=cast(Service, self),
            members=cast(Members, self),
            clients=cast(Clients, self),
            looks=cast(Looks, self),
            devices=DeviceBook(clients_may_name=True),
        )

    def ask(self, answer: Callable[[Look], None]) -> None:
        self.waiting.append(answer)

    def memory_seen_by(self, client: int, device: str, look: Look) -> tuple[int, int]:
        return 8, 1

    def send(self, client: int, message: Message) -> bool:
        self.answered.append(client)
        return True

    def answer_all(self) -> None:
        waiting, self.waiting = self.waiting, []
        for answer in waiting:
            answer(cast(Look, None))


@pytest.mark.promise("bad-input-62")
def test_a_flood_of_questions_waits_as_one() -> None:
    """Who asks once is not behind a thousand questions of another. The last of the thousand is
    answered from a look of its own, for the first look may be older than it."""
    scene = Questions()
    for _ in range(1000):
        scene.inbound.received(1, messages.MemoryQueried(device=DEVICE))
    scene.inbound.received(2, messages.MemoryQueried(device=DEVICE))
    assert len(scene.waiting) == 2
    scene.answer_all()
    scene.answer_all()
    assert scene.answered == [1, 2, 1]
    assert not scene.waiting


@pytest.mark.promise("bad-input-62")
def test_questions_about_invented_devices_have_a_bound() -> None:
    """A client asks about no more devices at once than the scheduler knows at most."""
    scene = Questions()
    for number in range(1000):
        scene.inbound.received(1, messages.MemoryQueried(device=number.to_bytes(16, "big")))
    assert len(scene.waiting) == NAMED_MAX
