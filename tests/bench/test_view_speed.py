"""The benchmark of the view measures; with few nodes, for its figures are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from jupyter_gpushare.reports.format import NodeHello, Report, message_of, text_of
from jupyter_gpushare.view.fleet import Fleet
from tests.bench.bars import exit_status
from tests.bench.bench_view import Result, bars_of
from tests.bench.view_nodes import SimulatedNode
from tests.browser.chromium import find_chromium
from tests.browser.conftest import what_is_missing
from tests.support.node import NoProgram
from tests.support.paths import ROOT

NODES = 5
SCALE = (f"--nodes={NODES}", "--seconds=8", "--flood-s=3", "--pages=2", "--updates=2")
GOOD = Result(
    device="simulated nodes",
    nodes=1000,
    reports_per_s=2000,
    offered_per_s=1500,
    accept_ms_p95=20,
    accept_load_per_s=1000,
    reconnect_s=20,
    page_ms_p95=500,
    update_ms_p95=300,
    rss_mib=300,
    push_cpu=0.005,
    page="built",
)


@pytest.mark.full
@pytest.mark.promise(
    "speed-14",
    "`make bench-view` measures what the view takes of a thousand nodes, and how soon its page "
    "shows a change, with its bars",
)
def test_the_view_is_measured() -> None:
    """Each figure is there, after a restart of the view in the middle; the last line is JSON."""
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    try:
        find_chromium()
    except NoProgram as reason:
        pytest.skip(str(reason))
    command = [sys.executable, "-m", "tests.bench.bench_view", *SCALE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["nodes"] == NODES and result["device"] == "simulated nodes"
    for name in ("reports_per_s", "accept_ms_p95", "reconnect_s", "rss_mib", "push_cpu"):
        assert result[name] > 0, name
    for name in ("page_ms_p95", "update_ms_p95"):
        assert 0 < result[name] < 60_000, name
    assert "owners" in done.stdout, "GPU-hours were counted meanwhile"


def test_simulated_nodes_say_what_a_scheduler_would() -> None:
    """The view takes each report, and one device has one holder at all times."""
    fleet, node = Fleet(), SimulatedNode(7, devices=8, tenants=10)
    fleet.hello("a", NodeHello(boot=node.boot, version="1"), now_s=0.0)
    for report in (node.whole(), *(node.next(sequence) for sequence in range(1, 40))):
        read = message_of(text_of(report))
        assert isinstance(read, Report)
        assert not fleet.report("a", read, now_s=0.0, wall_s=0.0).again
    known = fleet.nodes["a"]
    assert known.tenants == node.tenants
    assert (len(known.devices), len(known.tenants)) == (8, 80)
    held = [each for each in known.tenants.values() if each.state == "holding"]
    assert len(held) == 8 and all(len(each.holders) == 1 for each in known.devices.values())
    assert sum(each.held_s for each in known.tenants.values()) > 0


@pytest.mark.promise("speed-10")
@pytest.mark.parametrize(
    "slow",
    [
        replace(GOOD, reports_per_s=999),
        replace(GOOD, accept_ms_p95=1000.1),
        replace(GOOD, reconnect_s=60.1),
        replace(GOOD, page_ms_p95=1000.1),
        replace(GOOD, page_ms_p95=None),
        replace(GOOD, update_ms_p95=500.1),
        replace(GOOD, rss_mib=501),
        replace(GOOD, push_cpu=0.0101),
        replace(GOOD, push_cpu=None),
    ],
)
def test_a_missed_bar_ends_with_status_1(slow: Result) -> None:
    """Each bar counts by itself; what nobody has measured misses its bar."""
    assert exit_status(bars_of(GOOD)) == 0
    assert exit_status(bars_of(slow)) == 1
