"""A scheduler's process and a view."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.kubelet.pods import Mistake
from jupyter_gpushare.kubelet.problems_file import write_problems
from jupyter_gpushare.protocol.messages import TurnGranted
from tests.support.hook_client import DEVICE, GIB, memory_reported
from tests.support.scheduler_process import (
    SchedulerDidNotStart,
    SchedulerUnderTest,
    running_scheduler,
)
from tests.support.view_stand_in import ViewStandIn, token_file

GPU = DEVICE.hex()


def flags(view: ViewStandIn, folder: Path) -> list[str]:
    return [
        f"--report-to={view.url}/",
        f"--report-token-file={token_file(folder)}",
        "--report-platform=machine",
    ]


@pytest.mark.promise("scheduler-64")
def test_what_the_view_is_told(runtime: Path, tmp_path: Path) -> None:
    """Devices with holder and queue, tenants with owner, memory and time, and the node."""
    with (
        ViewStandIn() as view,
        running_scheduler(runtime, *flags(view, tmp_path)) as scheduler,
        scheduler.joined("first") as first,
        scheduler.joined("second") as second,
    ):
        turn = first.take_turn()
        first.send(memory_reported(DEVICE, 2 * GIB, parked=GIB))
        second.ask()
        view.eventually(lambda: view.node.devices[GPU].queue)
        (holder,), (waiter,) = view.node.devices[GPU].holders, view.node.devices[GPU].queue
        rows = view.node.tenants
        assert (rows[holder.tenant].name, rows[waiter.tenant].name) == ("first", "second")
        me = user_name(os.getuid())
        assert [each.owner for _, _, each in view.fleet.tenants_of(me)] == [me, me]
        view.eventually(lambda: view.node.tenants[holder.tenant].bytes_parked == GIB)
        row = view.node.row
        assert row is not None
        assert (row.owners, row.platform, row.turns_on) == ("accounts", "machine", True)
        assert row.bytes_host_available > 0 and sum(row.waits.counts) == 0
        first.drop(turn.turn_id)
        view.eventually(lambda: view.node.row and sum(view.node.row.waits.counts) == 1)
        view.eventually(lambda: view.node.tenants[waiter.tenant].state == "holding")
        assert view.node.tenants[holder.tenant].turns == 1
        scheduler.client.remove_tenant(holder.tenant)
        view.eventually(lambda: holder.tenant not in view.node.tenants)


@pytest.mark.promise(
    "scheduler-63", "The status says whether reports reach the view, since when, and why not"
)
def test_a_view_that_goes_and_comes(runtime: Path, tmp_path: Path) -> None:
    """What is taken for true stays true: the same boot reports everything again."""
    view = ViewStandIn()
    with (
        view,
        running_scheduler(runtime, *flags(view, tmp_path)) as scheduler,
        scheduler.joined("first") as first,
    ):
        first.take_turn()
        view.eventually(lambda: view.node.devices[GPU].holders)
        boot = view.node.boot
        scheduler.eventually(lambda s: s["scheduler"]["reports"]["ok"])
        view.__exit__()
        gone = scheduler.eventually(lambda s: not s["scheduler"]["reports"]["ok"])["scheduler"]
        assert gone["reports"]["to"].endswith("/services/gpushare-view/api/v1/reports")
        assert gone["reports"]["why"]
        first.send(memory_reported(DEVICE, GIB))
        view.__enter__()
        view.eventually(lambda: view.node.devices[GPU].holders)
        assert view.node.boot == boot and view.reports[0].whole
        scheduler.eventually(lambda s: s["scheduler"]["reports"]["ok"])
    assert "nothing is reported: " in scheduler.log


@pytest.mark.promise("scheduler-55")
def test_a_scheduler_that_is_started_again(runtime: Path, tmp_path: Path) -> None:
    """It is another boot; what the one before had said is gone."""
    with ViewStandIn() as view:
        with running_scheduler(runtime, *flags(view, tmp_path)) as scheduler:
            scheduler.tenant("first")
            view.eventually(lambda: view.node.tenants)
            boot = view.node.boot
        with running_scheduler(runtime, *flags(view, tmp_path)) as scheduler:
            scheduler.tenant("second")
            view.eventually(lambda: [t.name for t in view.node.tenants.values()] == ["second"])
            assert view.node.boot != boot and list(view.node.earlier_boots) == [boot]


@pytest.mark.promise("kubernetes-21")
def test_what_the_plugin_has_found(runtime: Path, tmp_path: Path) -> None:
    """It comes with the next report."""
    with ViewStandIn() as view, running_scheduler(runtime, *flags(view, tmp_path)) as scheduler:
        view.eventually(lambda: view.node.row)
        write_problems(runtime, [Mistake("A pod has no seat.", "Give it one.")])
        scheduler.tenant("first")
        view.eventually(lambda: view.node.row and view.node.row.problems)
        assert view.node.row and view.node.row.problems == ("A pod has no seat. Give it one.",)


@pytest.mark.promise("bad-input-57")
@pytest.mark.parametrize("fault", ["silent", "nonsense", "much", "page"])
def test_turns_go_on_whatever_the_view_does(runtime: Path, tmp_path: Path, fault: str) -> None:
    """And the scheduler ends when it is told to."""
    with ViewStandIn() as view, running_scheduler(runtime, *flags(view, tmp_path)) as scheduler:
        view.fault = fault
        with scheduler.joined("first") as first, scheduler.joined("second") as second:
            for _ in range(20):
                turn = first.take_turn()
                second.ask()
                first.drop(turn.turn_id)
                second.drop(second.expect(TurnGranted).turn_id)
        view.eventually(lambda: view.faults_met)


def test_without_a_view(runtime: Path) -> None:
    """Nothing is reported, and the status says nothing of it."""
    with running_scheduler(runtime) as scheduler:
        assert scheduler.status()["scheduler"]["reports"] is None


def test_a_scheduler_whose_token_is_missing_does_not_start(runtime: Path, tmp_path: Path) -> None:
    """It says what to do."""
    missing = f"--report-token-file={tmp_path / 'missing'}"
    with pytest.raises(SchedulerDidNotStart, match="Put the node's token there"):
        SchedulerUnderTest(runtime, "--report-to=https://hub/v", missing)
