"""What reporting to the view costs a scheduler: processor time of its loop, counted.

The node has 8 devices with 10 tenants each, which work as those of bench_scheduler do
(tests/bench/mix.py). Each of them has changed whenever a report is made, and the reports go through
a real WebSocket to a view in another thread, whose time does not count.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from jupyter_gpushare.core.snapshot import Snapshot
from jupyter_gpushare.reports.format import PERIOD_S
from jupyter_gpushare.reports.waits import WaitCounter
from jupyter_gpushare.scheduler.identity.tenants import TenantBook
from jupyter_gpushare.scheduler.report.found import PluginProblems
from jupyter_gpushare.scheduler.report.node import NodeTeller
from jupyter_gpushare.scheduler.report.options import ReportOptions, url_of
from jupyter_gpushare.scheduler.report.sender import Reporter
from jupyter_gpushare.scheduler.service.looks import Looks
from tests.bench.mix import Mix
from tests.support.view_stand_in import ViewStandIn, token_file

DEVICES = 8
TENANTS = 80
REPORTS = 100
SHARE_BAR = 0.01
"""Of a core."""
BETWEEN_S = 0.005


class BusyNode:
    """A node of the mix. What it costs to be busy is `own_s`, and is nobody's report."""

    def __init__(self) -> None:
        settings = SchedulerSettings(memory_mode=MemoryMode.SWAP, quantum_s=2)
        self._scheduler = Scheduler(settings)
        self._mix = Mix(
            lambda event, now_s: self._scheduler.handle(event, now_s=now_s),
            tenants=TENANTS,
            devices=DEVICES,
        )
        self._numbers = itertools.count(1)
        self.own_s = 0.0

    def work(self) -> None:
        """For the time between two reports."""
        began_s = time.thread_time()
        until_s = self._mix.now_s + PERIOD_S
        while self._mix.now_s < until_s:
            self._mix.step()
        self.own_s += time.thread_time() - began_s

    def snapshot(self) -> Snapshot:
        found = self._scheduler.snapshot(self._mix.now_s)
        began_s = time.thread_time()
        number = next(self._numbers)
        changed = replace(
            found,
            devices=tuple(
                replace(each, bytes_used=each.bytes_used + number) for each in found.devices
            ),
            tenants=tuple(
                replace(each, counters=replace(each.counters, turns=number))
                for each in found.tenants
            ),
        )
        self.own_s += time.thread_time() - began_s
        return changed


def push_cost(reports: int = REPORTS) -> float:
    """The share of a core that one report a second costs."""
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as folder, ViewStandIn() as view:
        return asyncio.run(_cost(view, Path(folder), reports)) / PERIOD_S


async def _cost(view: ViewStandIn, folder: Path, reports: int) -> float:
    """Seconds of a report, once the first one has been made."""
    node = BusyNode()
    teller = NodeTeller(
        tenants=TenantBook(),
        groups_of=lambda tenant, owner: ("lab", "staff"),
        waits=WaitCounter(),
        plugin=PluginProblems(folder),
        version="bench",
        platform="machine",
        hub=True,
    )
    reporter = Reporter(
        ReportOptions(url_of(view.url), token_file(folder)),
        looks=Looks(node.snapshot, share=0.5),
        now=teller.now,
        version="bench",
        period_s=BETWEEN_S,
    )
    reporter.start()

    async def reported(count: int) -> None:
        while len(view.reports) < count:
            node.work()
            reporter.changed()
            seen = len(view.reports)
            while len(view.reports) == seen:
                await asyncio.sleep(BETWEEN_S)

    await reported(5)
    began, began_s, own_s = len(view.reports), time.thread_time(), node.own_s
    await reported(began + reports)
    spent_s = time.thread_time() - began_s - (node.own_s - own_s)
    made = view.reports[began:]
    await reporter.stop()
    assert min(len(each.tenants) for each in made) == TENANTS
    assert min(len(each.devices) for each in made) == DEVICES
    return spent_s / len(made)


if __name__ == "__main__":
    share = push_cost()
    print(f"a report costs {1000 * share:.2f} ms; once a second, {share:.2%} of a core")
    print(json.dumps({"push_share": round(share, 5)}))
