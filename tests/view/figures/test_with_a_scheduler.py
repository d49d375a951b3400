"""A real scheduler reports to a view: what it says of turns becomes GPU-hours."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.view.usage import Known, UsageRecord
from tests.scheduler.report.test_real_scheduler import flags
from tests.support.scheduler_process import running_scheduler
from tests.support.view_stand_in import NAME, ViewStandIn
from tests.support.waits import wait_until

HELD_S = 0.1


def has_had(view: ViewStandIn, name: str) -> bool:
    """It had a turn that is over."""
    node = view.fleet.nodes.get(NAME)
    rows = [] if node is None else [*node.tenants.values()]
    return any(row.name == name and row.held_s > 0 and row.state == "idle" for row in rows)


@pytest.mark.promise("view-19")
def test_turns_of_a_scheduler(tmp_path: Path) -> None:
    """An account's two notebooks have the turn one after the other; a restart counts none twice."""
    wall_s = time.time()
    usage = UsageRecord(Known(until_wall_s=wall_s), now_s=time.monotonic(), wall_s=wall_s)
    counted_s = 0.0

    def counts(view: ViewStandIn) -> float:
        nonlocal counted_s
        usage.take(view.fleet, [*view.fleet.nodes], now_s=time.monotonic(), wall_s=time.time())
        lines = usage.changes().lines
        assert {(line.kind, line.owner) for line in lines} <= {("account", user_name(os.getuid()))}
        counted_s += sum(each for line, each in lines.items() if not line.group)
        return counted_s

    def has_been_counted(view: ViewStandIn, name: str) -> bool:
        counts(view)
        return has_had(view, name)

    said_s = 0.0
    with ViewStandIn() as view:
        for start in range(2):
            folder = tmp_path / f"start{start}"
            folder.mkdir()
            with running_scheduler(folder / "run", *flags(view, folder)) as scheduler:
                for name in (f"first-{start}", f"second-{start}"):
                    with scheduler.joined(name) as client:
                        turn = client.take_turn()
                        time.sleep(HELD_S)
                        client.drop(turn.turn_id)
                        wait_until(
                            lambda name=name: has_been_counted(view, name),  # type: ignore[misc]
                            f"the report of the turn of {name}",
                        )
                said_s += sum(row.held_s for row in view.node.tenants.values())
                assert counts(view) == pytest.approx(said_s)
        assert said_s >= 4 * HELD_S
        assert not any(node.doubt for node in view.fleet.nodes.values())
