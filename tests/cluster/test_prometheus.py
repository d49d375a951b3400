"""A real Prometheus scrapes a real view, fires our alerts by our rules, and answers each query of
our dashboard; promtool finds the text, the rules and their tests right."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from jupyter_gpushare.reports.format import NodeRow, Place, TenantRow, Waits
from jupyter_gpushare.view.metrics import NAMES
from tests.cluster.prometheus import Prometheus, program, promtool, running_prometheus
from tests.reports.rows import a_report
from tests.view.figures.nodes import device, tenant
from tests.view.figures.test_deployed import RULES, RULES_TEST, alerts, queries
from tests.view.service import PREFIX, Closed, Node, RunningView, running_view

TOKEN = "the-token-of-prometheus"
WAIT_S = 60.0
REPORT_EVERY_S = 0.2

pytestmark = [
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.timeout(300),
]


class ReportingView:
    """In a thread of its own: two nodes that report at all times, one that has lost a device, one
    that is refused, and one whose token nobody knows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.port = 0
        self.token = folder / "metrics-token"
        self.failed: BaseException | None = None

    def __enter__(self) -> ReportingView:
        self._thread.start()
        assert self._ready.wait(WAIT_S) and self.port, "the view has not come up"
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(WAIT_S)
        assert self.failed is None, self.failed

    async def _run(self) -> None:
        self.token.write_text(TOKEN)
        try:
            async with running_view(
                self._folder, metrics_token_file=self.token, data_dir=self._folder / "data"
            ) as view:
                nodes = [
                    await view.node(name, node=_row(name, 0), sent_at=time.time()) for name in "ab"
                ]
                self.port = view.view.port
                self._ready.set()
                await asyncio.gather(
                    *(self._reports(node, name) for name, node in zip("ab", nodes, strict=True)),
                    self._is_refused(view),
                )
        except BaseException as error:
            self.failed = error
            raise
        finally:
            self._ready.set()

    async def _reports(self, node: Node, name: str) -> None:
        for number in itertools.count(1):
            if self._ending.is_set():
                return
            waiting = replace(device(), holders=(_place("t"),), queue=(_place("u"),))
            await node.report(
                a_report(
                    number,
                    sent_at=time.time(),
                    node=_row(name, number),
                    devices={"d": replace(waiting, lost=name == "b")},
                    tenants=_tenants(number),
                )
            )
            await asyncio.sleep(REPORT_EVERY_S)

    async def _is_refused(self, view: RunningView) -> None:
        token = view.token("c")
        while not self._ending.is_set():
            for shown in (token, "nobody's"):
                with contextlib.suppress(Exception):
                    node = await view.connect(shown)
                    with contextlib.suppress(Closed):
                        await node.send("no report")
            await asyncio.sleep(1.0)


def _row(name: str, number: int) -> NodeRow:
    waits = Waits(counts=(0, 0, number, 0, number, 0, 0, 0, 0, 0, 0, 0), sum_s=2.0 * number)
    version = "0.1.0" if name == "a" else "0.0.9"
    return NodeRow(version=version, owners="hub", waits=waits, bytes_host_available=1 << 30)


def _place(id: str) -> Place:
    return Place(tenant=id, for_s=7.0)


def _tenants(number: int) -> dict[str, TenantRow | None]:
    return {"t": tenant(held_s=0.1 * number), "u": tenant("bob", bytes_parked=1 << 20)}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReportingView]:
    program("prometheus")
    with ReportingView(tmp_path_factory.mktemp("view")) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(
    view: ReportingView, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """With our rules, but that nothing is waited for: the alerts fire within seconds."""
    folder = tmp_path_factory.mktemp("prometheus")
    rules = folder / "rules.yaml"
    text = RULES.read_text()
    for rule in alerts():
        text = text.replace(f"for: {rule.get('for')}\n", "for: 0s\n")
    rules.write_text(text)
    target = f"127.0.0.1:{view.port}"
    with running_prometheus(folder, target=target, rules=rules, token=view.token) as running:
        yield running


def answered(prometheus: Prometheus, query: str) -> list[dict[str, Any]]:
    """As soon as there is data: rates need two scrapes."""
    until_s = time.monotonic() + WAIT_S
    query = query.replace("$node", ".*").replace("$__rate_interval", "5s")
    while not (found := prometheus.found(query)) and time.monotonic() < until_s:
        time.sleep(0.2)
    return found


@pytest.mark.promise(
    "view-10", "A real Prometheus scrapes the view, and answers each query of the dashboard"
)
def test_the_dashboard_is_answered(prometheus: Prometheus) -> None:
    """With numbers: a quantile of nothing would be none."""
    for title, query in queries():
        number = f"({query}) > 0" if "histogram_quantile" in query else query
        assert answered(prometheus, number), f"{title}: {query}"


@pytest.mark.promise("view-10")
def test_everything_is_scraped(prometheus: Prometheus) -> None:
    """Each figure that is documented is there, and the target is up."""
    for name in NAMES:
        assert answered(prometheus, name), name
    assert [each["value"][1] for each in answered(prometheus, 'up{job="gpushare-view"}')] == ["1"]
    assert answered(prometheus, "sum(rate(gpushare_node_reports_total[10s])) > 1")


@pytest.mark.promise("view-10")
def test_alerts_fire(prometheus: Prometheus) -> None:
    """Those of what is wrong with these nodes, with the names of the nodes in them."""
    wanted = {"GPUShareDeviceLost", "GPUShareVersionsDiffer", "GPUShareReportsRefused"}
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        firing = {
            each["labels"]["alertname"]: each for each in prometheus.asked("alerts")["alerts"]
        }
        if wanted <= firing.keys():
            break
        time.sleep(0.2)
    assert firing.keys() == wanted
    assert firing["GPUShareDeviceLost"]["annotations"]["summary"] == "Device d of node b is lost."


@pytest.mark.promise("view-10")
def test_promtool_finds_the_text_right(view: ReportingView) -> None:
    """Names, kinds and units are as Prometheus' conventions have them."""
    request = Request(
        f"http://127.0.0.1:{view.port}{PREFIX}metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urlopen(request, timeout=30) as answer:
        text = answer.read()
    assert b"gpushare_node_up" in text
    assert promtool("check", "metrics", text=text) == ""


@pytest.mark.promise(
    "packaging-1", "promtool finds the alert rules right, and runs a test of each of them"
)
def test_promtool_finds_the_rules_right() -> None:
    """A rule that does not fire, or fires too soon, fails here."""
    assert "SUCCESS" in promtool("check", "rules", RULES)
    assert "SUCCESS" in promtool("test", "rules", RULES_TEST)
