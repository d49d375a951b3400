"""What a client is told has no sign: a figure below 0 could not be sent, and the client would be
told to restart."""

from __future__ import annotations

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import TellHold
from jupyter_gpushare.core.ids import ClientId, TenantId
from jupyter_gpushare.core.settings import RestoreAhead
from tests.core.desk import Desk
from tests.core.memory_desk import MemoryDesk
from tests.core.test_hold import SETTINGS


def test_a_device_that_others_have_filled_beyond_what_is_usable() -> None:
    """While memory of the next one comes back, programs outside take all of the device: who
    computes is told of 0 bytes."""
    desk = MemoryDesk(restore_ahead=RestoreAhead.ON)
    next_one = desk.with_memory("b", 3000)
    desk.report(next_one, parked=3000)
    desk.report(next_one)
    holder = desk.client("a", "A")
    desk.ask(holder, after_s=0.01)
    desk.report(holder)
    desk.ask(next_one)
    desk.report(holder)
    desk.measure(8000, after_s=0.2)
    assert desk.budget(holder) >= 0


def test_a_hold_that_is_over_before_anybody_looked() -> None:
    """Another process of the notebook joins 10 ms after the end of the hold, before the clock has
    ticked."""
    desk = Desk(SETTINGS)
    first = desk.client("a", "A")
    desk.ask(first)
    desk.hold(first, 30)
    desk.now_s += 30.01
    second = ClientId(2)
    desk.do(
        ev.ClientJoined(
            client=second,
            tenant=TenantId("a"),
            pid=1002,
            process_name="python",
            held_turn=None,
        )
    )
    told = [each for each in desk.last if isinstance(each, TellHold) and each.client == second]
    assert {each.left_s for each in told} == {0.0}
