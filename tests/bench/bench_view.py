"""What the view of all nodes takes: 1,000 nodes of 8 devices and 80 tenants each, that report for
ten minutes, while a browser looks at it.

The view is the real application in a process of its own, with its file of GPU-hours, and asked by a
stand-in for Prometheus each 15 s. The nodes are another process. One after the other:

- all nodes come, each with a whole report;
- `reports_per_s`: for some seconds each node reports as soon as the view has answered, five times a
  second at most; counted are the reports that the view takes in one second of its processor time,
  which is one core (`offered_per_s`: how many came in a second of the clock);
- for the rest of the time each node reports once a second. `accept_ms_p95`: from a node's sending
  to the view's answer. `page_ms_p95`: from the opening of the page, in a browser that has never
  seen it, until the row with a named holder is visible. `update_ms_p95`: from a node's sending,
  that another tenant holds its device, until that name is drawn in the page that is open;
- `reconnect_s`: the view ends, and starts again: from its start until the last node is back with
  its whole report.

`rss_mib` is the most that the view had. `push_cpu` is what reporting costs a node's scheduler, of a
core (tests/bench/push_cost.py). The last line is JSON; the status is 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from tests.bench.bars import Bar, exit_status
from tests.bench.push_cost import push_cost
from tests.bench.view_nodes import Counted, Sender, SimulatedNode
from tests.bench.view_process import PREFIX, prepare
from tests.bench.view_stand_in import page_is_built
from tests.browser.chromium import find_chromium
from tests.browser.conftest import FLAGS, VIEW
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.timeline import percentile

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REPORTS_PER_S_BAR = 1000.0
ACCEPT_MS_BAR = 1000.0
RECONNECT_S_BAR = 60.0
PAGE_MS_BAR = 1000.0
UPDATE_MS_BAR = 500.0
RSS_MIB_BAR = 500.0
PUSH_CPU_BAR = 0.01
FLOOD_PERIOD_S = 0.2
METRICS_EVERY_S = 15.0
READY_S_MAX = 600.0
ORDER_S_MAX = 900.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PROBE = "probe"
"""A node more, whose one tenant after the other is looked for."""
WATCH = """() => {
  const seen = window.gpushareBench = { wanted: null, at: null };
  const look = () => {
    if (!seen.wanted || seen.at || !document.body.innerText.includes(seen.wanted)) return;
    requestAnimationFrame(() => setTimeout(() => { seen.at ??= Date.now(); }));
  };
  new MutationObserver(look)
    .observe(document.body, { childList: true, characterData: true, subtree: true });
}"""
WANT = "name => { Object.assign(window.gpushareBench, { wanted: name, at: null }); }"
SEEN = "() => window.gpushareBench.at"


@dataclass(frozen=True)
class Scale:
    nodes: int = 1000
    devices: int = 8
    tenants: int = 10
    """Of each device."""
    seconds: float = 600.0
    flood_s: float = 20.0
    pages: int = 40
    updates: int = 100


@dataclass(frozen=True)
class Result:
    """The last line; None for what was not measured."""

    device: str
    nodes: int
    reports_per_s: float
    offered_per_s: float
    accept_ms_p95: float
    accept_load_per_s: float
    """So many reports a second came meanwhile."""
    reconnect_s: float
    page_ms_p95: float | None
    update_ms_p95: float | None
    rss_mib: float
    push_cpu: float | None
    page: str
    """`built`, or `stand-in` where the page was not."""


class ViewProcess:
    """The view; `restart` ends it and starts it again at the same port."""

    def __init__(self, folder: Path, nodes: list[str]) -> None:
        prepare(folder, nodes)
        self._folder = folder
        self.port = free_port()
        self.url = f"127.0.0.1:{self.port}{PREFIX}"
        self.rss_mib = 0.0
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.bench.view_process", self._folder, str(self.port)]
        self._process = subprocess.Popen(command, cwd=ROOT)
        until_s = time.monotonic() + READY_S_MAX
        while True:
            with contextlib.suppress(OSError):
                self.get("api/v1/nodes?limit=1")
                return
            assert self._process.poll() is None and time.monotonic() < until_s, "no view"
            time.sleep(0.05)

    def get(self, path: str, **headers: str) -> bytes:
        request = Request(f"http://{self.url}{path}", headers=headers)
        with urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
        return found

    def restart(self) -> float:
        """When it was started again."""
        self.end()
        began_s = time.time()
        self._start()
        return began_s

    def end(self) -> None:
        self.note_rss()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def cpu_s(self) -> float:
        fields = self._of_proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def note_rss(self) -> None:
        for line in self._of_proc("status").splitlines():
            if line.startswith("VmHWM:"):
                self.rss_mib = max(self.rss_mib, int(line.split()[1]) / 1024)

    def _of_proc(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()


class NodesProcess:
    """All nodes. One order at a time."""

    def __init__(self, view: ViewProcess, scale: Scale) -> None:
        numbers = [str(n) for n in (scale.nodes, scale.devices, scale.tenants)]
        url = f"ws://{view.url}api/v1/reports"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.view_nodes", url, *numbers],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, do: str, **order: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self._process.stdin.flush()

    def done(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the nodes have ended; look above for why"
        found: dict[str, float] = json.loads(line)
        return found

    def order(self, do: str, **order: float) -> dict[str, float]:
        self.begin(do, **order)
        return self.done()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class Probe:
    """A node of this process, in a thread of its own: each of its reports has another holder."""

    def __init__(self, view: ViewProcess) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="probe").start()
        self._node = SimulatedNode(99_999, 1, 4)
        self._node.name = PROBE
        self._url = f"ws://{view.url}api/v1/reports"
        self.counted = Counted()
        self._number = 0
        self._do(self._connect())

    def _do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(READY_S_MAX)

    async def _connect(self) -> None:
        self._sender = Sender(self._node, self._url, self)
        await self._sender.connect()

    def hands_over(self) -> tuple[str, float]:
        """The name of who holds now, and when that was sent."""
        self._number += 1
        name = f"{PROBE}-notebook-{self._number:06d}"
        for id, row in self._node.tenants.items():
            self._node.tenants[id] = replace(row, name=name)
        began_s = time.time()
        self._do(self._sender.report())
        return name, began_s

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


def measure(scale: Scale, folder: Path, browser: Browser | None) -> Result:
    names = [f"node{number:04d}" for number in range(scale.nodes)]
    view = ViewProcess(folder, [*names, PROBE])
    nodes = NodesProcess(view, scale)
    try:
        came = nodes.order("connect")
        print(f"  {scale.nodes} nodes have come in {came['connect_s']:.1f} s", flush=True)
        began_cpu_s = view.cpu_s()
        flood = nodes.order("report", seconds=scale.flood_s, period_s=FLOOD_PERIOD_S)
        per_cpu_s = flood["reports"] / (view.cpu_s() - began_cpu_s)
        print(f"  as fast as it goes: {flood}", flush=True)
        probe = Probe(view)
        left_s = scale.seconds - scale.flood_s
        nodes.begin("report", seconds=left_s, period_s=1.0)
        looks: list[list[float]] = [[], []]
        with asked_by_prometheus(view):
            until_s = time.monotonic() + left_s
            if browser is not None:
                looks = [pages(browser, view, probe, scale), updates(browser, view, probe, scale)]
            time.sleep(max(0.0, until_s - time.monotonic()))
            paced = nodes.done()
        print(f"  once a second: {paced}", flush=True)
        view.note_rss()
        probe.end()
        nodes.begin("come_back")
        began_s = view.restart()
        back = nodes.done()
        time.sleep(1.0)
        print(f"  GPU-hours: {view.get('api/v1/usage.csv').count(b'user')} owners", flush=True)
    finally:
        nodes.end()
        view.end()
    return Result(
        device="simulated nodes",
        nodes=scale.nodes,
        reports_per_s=round(per_cpu_s, 0),
        offered_per_s=round(flood["reports_per_s"], 0),
        accept_ms_p95=round(paced["accept_ms_p95"], 1),
        accept_load_per_s=round(paced["reports_per_s"], 0),
        reconnect_s=round(back["back_at"] - began_s, 1),
        page_ms_p95=round(percentile(looks[0], 95), 1) if looks[0] else None,
        update_ms_p95=round(percentile(looks[1], 95), 1) if looks[1] else None,
        rss_mib=round(view.rss_mib, 0),
        push_cpu=None,
        page="built" if page_is_built() else "stand-in",
    )


@contextlib.contextmanager
def asked_by_prometheus(view: ViewProcess) -> Iterator[None]:
    """As often as a Prometheus would."""
    ending = threading.Event()

    def ask() -> None:
        while not ending.wait(METRICS_EVERY_S):
            view.get("metrics", Authorization="Bearer prometheus")

    thread = threading.Thread(target=ask, name="prometheus")
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def pages(browser: Browser, view: ViewProcess, probe: Probe, scale: Scale) -> list[float]:
    """How long each took, from its opening until the holder is visible."""
    taken_ms = []
    for _ in range(scale.pages):
        name, _ = probe.hands_over()
        context = browser.new_context(viewport=VIEW)
        page = context.new_page()
        began_s = time.perf_counter()
        page.goto(f"http://{view.url}?find={PROBE}", wait_until="commit")
        page.get_by_text(name).first.wait_for(state="visible")
        taken_ms.append(1e3 * (time.perf_counter() - began_s))
        context.close()
    return taken_ms


def updates(browser: Browser, view: ViewProcess, probe: Probe, scale: Scale) -> list[float]:
    """How long each took, from the node's sending until its name was drawn."""
    context = browser.new_context(viewport=VIEW)
    page: Page = context.new_page()
    page.goto(f"http://{view.url}?find={PROBE}", wait_until="commit")
    page.get_by_text(PROBE).first.wait_for(state="visible")
    page.evaluate(WATCH)
    taken_ms = []
    for _ in range(scale.updates):
        page.evaluate(WANT, f"{PROBE}-notebook-{probe._number + 1:06d}")
        _, began_s = probe.hands_over()
        seen_ms = page.wait_for_function(SEEN).json_value()
        taken_ms.append(seen_ms - 1e3 * began_s)
        page.wait_for_timeout(1000)
    context.close()
    return taken_ms


def bars_of(result: Result) -> list[Bar]:
    """What the figures are held to; those that were not measured miss their bars."""

    def bar(
        name: str,
        value: float | None,
        unit: str = "",
        *,
        at_least: float = -inf,
        at_most: float = inf,
    ) -> Bar:
        number = nan if value is None else value
        return Bar(name, number, at_least=at_least, at_most=at_most, unit=unit)

    return [
        bar("reports, on one core", result.reports_per_s, "a second", at_least=REPORTS_PER_S_BAR),
        bar("a report taken, p95", result.accept_ms_p95, "ms", at_most=ACCEPT_MS_BAR),
        bar("all nodes back", result.reconnect_s, "s", at_most=RECONNECT_S_BAR),
        bar("the page with a holder, p95", result.page_ms_p95, "ms", at_most=PAGE_MS_BAR),
        bar("from a node to the page, p95", result.update_ms_p95, "ms", at_most=UPDATE_MS_BAR),
        bar("the view's memory", result.rss_mib, "MiB", at_most=RSS_MIB_BAR),
        bar("a node's push", result.push_cpu, "of a core", at_most=PUSH_CPU_BAR),
    ]


def main(argv: list[str] | None = None) -> int:
    usual = Scale()
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_view")
    for name, value in asdict(usual).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--no-browser", action="store_true", help="leave the page out")
    options = vars(parser.parse_args(argv))
    without_browser = options.pop("no_browser")
    scale = Scale(**options)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-bench-")))
        browser = None
        if not without_browser:
            from playwright.sync_api import sync_playwright

            chromium = find_chromium()
            launch: dict[str, Any] = {
                "executable_path": chromium.program,
                "env": dict(chromium.env),
            }
            playwright = stack.enter_context(sync_playwright())
            browser = playwright.chromium.launch(args=FLAGS, **launch)
            stack.callback(browser.close)
        result = measure(scale, folder, browser)
    result = replace(result, push_cpu=round(push_cost(), 5))
    print()
    status = exit_status(bars_of(result))
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
