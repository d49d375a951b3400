"""`pause`, `drain`, `resume`, `release`, `interrupt`, `hold`, `evict`, `boost` and `audit` against
a running scheduler."""

from __future__ import annotations

import json

import pytest

from jupyter_gpushare.protocol.messages import (
    HoldChanged,
    QueuePosition,
    TurnGranted,
    TurnRecalled,
    WaitCancelled,
)
from tests.cli.conftest import Command
from tests.support.scheduler_process import SchedulerUnderTest


@pytest.mark.promise(
    "cli",
    "`pause`, `drain` and `resume` a device, and `release`, `interrupt`, `hold`, `evict` and "
    "`boost` a notebook by its name; `audit` shows what was done",
)
def test_devices_are_paused_and_go_on(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """The holder is asked for its turn with the reason, and is served again after `resume`."""
    with scheduler.joined("first") as client:
        turn = client.take_turn()
        done = gpushare("pause", "0")
        assert done.returncode == 0 and "paused: no turn begins" in done.stdout
        assert client.expect(TurnRecalled).cause.startswith("an administrator has paused ")
        client.drop(turn.turn_id)
        client.ask()
        scheduler.eventually(lambda s: s["devices"][0]["queue"])
        assert "An administrator has paused" in gpushare("status").stdout
        assert "drained: empty" in gpushare("drain", "all").stdout
        assert gpushare("resume", "0").returncode == 0
        client.expect(TurnGranted)
    told = [json.loads(line) for line in gpushare("audit", "--json").stdout.splitlines()]
    assert [entry["verb"] for entry in told] == ["pause", "drain", "resume"]
    assert "WHEN" in gpushare("audit", "-n", "1").stdout


@pytest.mark.promise("`pause`, `drain` and `resume` a device...")
def test_notebooks_are_acted_on_by_name(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """Each verb does what it says, and says what it did."""
    first, second, third = (scheduler.joined(name) for name in ("first", "second", "third"))
    with first, second, third:
        turn = first.take_turn()
        for client in (second, third):
            client.ask()
            client.expect(QueuePosition)
        assert "third has the next turn" in gpushare("boost", "th").stdout
        assert "keeps its turn" in gpushare("hold", "first", "10m").stdout
        assert first.expect(HoldChanged).hold_ms == 600_000
        assert gpushare("interrupt", "sec").returncode == 0
        second.expect(WaitCancelled)
        assert gpushare("evict", "first").returncode == 0
        first.expect(TurnRecalled)
        first.drop(turn.turn_id)
        turn = third.expect(TurnGranted)
        assert gpushare("release", "third").returncode == 0
        third.expect(TurnRecalled)
        assert gpushare("release", "second").returncode == 76
    for wrong in (["hold", "x", "soon"], ["boost", "nobody"], ["pause", "9"]):
        done = gpushare(*wrong)
        assert done.returncode == 2 and done.stderr.count(". ") == 1
