"""What the core says, in the protocol's words."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.commands import TellHold
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.protocol.messages import HoldChanged
from jupyter_gpushare.scheduler.hook.translate import message_of


@pytest.mark.parametrize(
    ("now_s", "hold_s", "hold_ms"),
    [(16164.678266207715, 300.0, 300_000), (16_000.0, 0.0004, 1), (1.0, 0.0, 0)],
)
def test_a_hold_lasts_as_long_as_was_asked(now_s: float, hold_s: float, hold_ms: int) -> None:
    """Whole milliseconds, rounded up; what the sum of two times adds is not counted."""
    until_s = now_s + hold_s
    told = TellHold(client=ClientId(1), left_s=until_s - now_s, cause="test")
    assert message_of(told) == HoldChanged(hold_ms=hold_ms)
