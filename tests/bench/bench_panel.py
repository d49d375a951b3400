"""How long a change takes from the scheduler to the screen: JupyterLab in a real Chromium, the real
server extension and scheduler, and 50 tenants in one queue, each of which changes its memory once a
second.

Once a second the turn goes on to the next. Measured is the time from the moment in which its
client sends that it has dropped the turn until the frame in which the panel names another holder
is drawn. `long_tasks` counts every task of the page of more than 50 ms meanwhile, whoever caused
it: no more than these can be the panel's. The last line is JSON; the status is 1 where a bar is
missed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpushare.protocol.messages import TurnGranted
from tests.bench.bars import Bar, exit_status
from tests.browser.chromium import find_chromium
from tests.browser.conftest import FLAGS, VIEW
from tests.browser.jupyter import PANEL, JupyterProcess
from tests.browser.panel import open_lab
from tests.support.hook_client import DEVICE, ScriptedClient, memory_reported
from tests.support.kernels import kernel_env
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.timeline import percentile

if TYPE_CHECKING:
    from playwright.sync_api import Page

PANEL_MS_P95_BAR = 300.0
LONG_TASKS_BAR = 0.0
BUNDLE_KB_BAR = 250.0
TENANTS = 50
CHANGES = 60
WARM_UP = 5
"""Changes that are not counted: the browser compiles what it runs often."""
MIB = 1 << 20
WATCH = """panel => {
  const seen = window.gpushareBench = { holders: [], longTasks: 0 };
  new PerformanceObserver(list => { seen.longTasks += list.getEntries().length; })
    .observe({ type: 'longtask' });
  let last = '';
  new MutationObserver(() => {
    const name = panel.querySelector('.jp-gpushare-Holder .jp-gpushare-TenantName')?.textContent;
    if (!name || name === last) return;
    last = name;
    requestAnimationFrame(() => setTimeout(() => seen.holders.push([name, Date.now()])));
  }).observe(panel, { childList: true, characterData: true, subtree: true });
}"""
IS_ANOTHER = """before => {
  const last = window.gpushareBench.holders.at(-1);
  return last && last[0] !== before ? last : null;
}"""
LONG_TASKS = "() => window.gpushareBench.longTasks"


@dataclass(frozen=True)
class Result:
    """The last line."""

    panel_ms_p50: float
    panel_ms_p95: float
    panel_ms_max: float
    long_tasks: int
    bundle_kb: float
    changes: int
    tenants: int


class Tenants:
    """In one queue, each with a name of its own. One thread at a time speaks for them."""

    def __init__(self, scheduler: SchedulerUnderTest, stack: contextlib.ExitStack) -> None:
        self._clients: dict[str, ScriptedClient] = {}
        self._turn = threading.Lock()
        self._ending = threading.Event()
        for number in range(TENANTS):
            name = f"notebook-{number}"
            client = stack.enter_context(contextlib.closing(scheduler.joined(name)))
            self._clients[name] = client
        self._holder = next(iter(self._clients))
        self._turn_id = self._clients[self._holder].take_turn().turn_id
        for name, client in self._clients.items():
            if name != self._holder:
                client.ask()

    @property
    def holder(self) -> str:
        return self._holder

    def hand_over(self) -> float:
        """When, in seconds since the epoch. The old holder waits again."""
        with self._turn:
            at_s = time.time()
            self._clients[self._holder].drop(self._turn_id)
            self._clients[self._holder].ask()
        return at_s

    def has_it(self, name: str) -> None:
        """As the screen says."""
        with self._turn:
            self._turn_id = self._clients[name].expect(TurnGranted).turn_id
            self._holder = name

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Each tells of other memory once a second."""
        thread = threading.Thread(target=self._change, name="tenants")
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def _change(self) -> None:
        for second in itertools.count():
            for client in self._clients.values():
                with self._turn:
                    client.send(memory_reported(DEVICE, (1 + second % 64) * MIB))
                if self._ending.wait(1 / TENANTS):
                    return


def measure(folder: Path, page: Page, changes: int) -> Result:
    """With a scheduler and a JupyterLab of its own."""
    with contextlib.ExitStack() as stack:
        options = ["--GPUShareScheduler.memory_mode=off"]
        scheduler = stack.enter_context(running_scheduler(folder / "run", *options, check=False))
        scheduler.client.change_settings({"quantum_s": 600, "idle_ms": 600_000})
        tenants = Tenants(scheduler, stack)
        jupyter = stack.enter_context(
            JupyterProcess(
                folder / "jupyter", "jupyter_gpushare", kernel_env(os.environ, folder / "run")
            )
        )
        panel = open_lab(page, jupyter)
        panel.holder.filter(has_text=tenants.holder).wait_for()
        panel.root.evaluate(WATCH)
        taken_ms: list[float] = []
        long_tasks = 0
        with tenants.changing():
            for change in range(WARM_UP + changes):
                if change == WARM_UP:
                    long_tasks = page.evaluate(LONG_TASKS)
                at_s = tenants.hand_over()
                shown = page.wait_for_function(IS_ANOTHER, arg=tenants.holder).json_value()
                tenants.has_it(shown[0])
                if change >= WARM_UP:
                    taken_ms.append(shown[1] - 1e3 * at_s)
                page.wait_for_timeout(max(0.0, 1e3 * (at_s + 1 - time.time())))
        return Result(
            panel_ms_p50=round(percentile(taken_ms, 50), 1),
            panel_ms_p95=round(percentile(taken_ms, 95), 1),
            panel_ms_max=round(max(taken_ms), 1),
            long_tasks=page.evaluate(LONG_TASKS) - long_tasks,
            bundle_kb=bundle_kb(),
            changes=changes,
            tenants=TENANTS,
        )


def bundle_kb() -> float:
    """All of the panel's scripts."""
    return round(sum(file.stat().st_size for file in PANEL.glob("static/*.js")) / 1000, 1)


def bars_of(result: Result) -> list[Bar]:
    """What the figures are held to."""
    return [
        Bar("change to screen, p95", result.panel_ms_p95, at_most=PANEL_MS_P95_BAR, unit="ms"),
        Bar("long tasks", result.long_tasks, at_most=LONG_TASKS_BAR),
        Bar("the panel's scripts", result.bundle_kb, at_most=BUNDLE_KB_BAR, unit="kB"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_panel")
    parser.add_argument("--changes", type=int, default=CHANGES)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = find_chromium()
    launch: dict[str, Any] = {"executable_path": chromium.program, "env": dict(chromium.env)}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(args=FLAGS, **launch)
        page = browser.new_page(viewport=VIEW)
        result = measure(Path(folder), page, options.changes)
        browser.close()
    status = exit_status(bars_of(result))
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
