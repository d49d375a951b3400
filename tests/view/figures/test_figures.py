"""GPU-hours and Prometheus' text, over HTTP: who may have them, and what is said to the others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpushare.reports.format import NodeRow
from jupyter_gpushare.view import figures
from jupyter_gpushare.view.usage import UsageLine
from jupyter_gpushare.view.usage_file import USAGE_FILE, UsageFile
from tests.reports.rows import a_report
from tests.view.figures.nodes import device, tenant
from tests.view.service import PREFIX, Refused, RunningView, run, running_view

NODE = NodeRow(version="1", owners="hub")


async def hours_of(view: RunningView, **held_s: float) -> None:
    """A node that has reported them."""
    rows = {name: tenant(name, groups=("ml",)) for name in held_s}
    node = await view.node("node-a", node=NODE, devices={"d": device()}, tenants=rows)
    await view.until(lambda: not view.fleet.changed)
    grown = {name: tenant(name, groups=("ml",), held_s=held) for name, held in held_s.items()}
    await node.report(a_report(1, tenants=grown))
    await view.until(lambda: not view.fleet.changed)


async def table(view: RunningView, query: str, caller: str | None) -> tuple[int, list[str]]:
    answer = await view.get(f"api/v1/usage.csv{query}", caller)
    return answer.code, [
        ",".join(line.split(",")[2:]) for line in answer.body.decode().splitlines()[1:]
    ]


@pytest.mark.promise(
    "view-15", "Administrators read the GPU-hours of all as CSV, and users their own"
)
def test_whose_hours_are_told(tmp_path: Path) -> None:
    """By owner and by group, after a restart too."""

    async def scenario() -> None:
        data = tmp_path / "data"
        async with running_view(tmp_path, data_dir=data) as view:
            await hours_of(view, alice=36.0, bob=18.0)
            assert await table(view, "", "admin") == (200, ["alice,,0.0100", "bob,,0.0050"])
        async with running_view(tmp_path, data_dir=data) as view:
            for query, caller, rows in (
                ("", "admin", ["alice,,0.0100", "bob,,0.0050"]),
                ("?by=group", "admin", ["ml,,0.0150"]),
                ("?per=day", "bob", ["bob,,0.0050"]),
                ("?by=group", "bob", ["ml,,0.0050"]),
                ("", "carol", []),
                ("?to=2020-01-01", "admin", []),
            ):
                assert await table(view, query, caller) == (200, rows)
            answer = await view.get("api/v1/usage.csv", "admin")
            assert answer.headers["Content-Type"] == "text/csv; charset=UTF-8"
            assert "attachment" in answer.headers["Content-Disposition"]
            assert answer.headers["Cache-Control"] == "no-store"

    run(scenario())


@pytest.mark.promise("view-15")
def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sentence for each."""

    async def refused(view: RunningView, query: str, caller: str | None) -> tuple[int, str]:
        answer = await view.get(f"api/v1/usage.csv{query}", caller)
        return answer.code, json.loads(answer.body)["message"]

    async def scenario() -> None:
        async with running_view(tmp_path, data_dir=tmp_path / "data") as view:
            assert (await refused(view, "", None))[0] == 403
            status, said = await refused(view, "?per=hour", "bob")
            assert (status, said) == (400, "per is neither day nor total. Give one of these.")
            (tmp_path / "data" / USAGE_FILE).unlink()
            status, said = await refused(view, "", "admin")
            assert status == 503 and said.startswith("The GPU-hours cannot be read now.")
            monkeypatch.setattr(figures, "TABLES_MAX", 0)
            status, said = await refused(view, "", "admin")
            assert status == 503 and said.startswith("Too many tables of GPU-hours")
            monkeypatch.undo()
            monkeypatch.setattr(figures, "TABLES_OF_A_CALLER_MAX", 0)
            status, said = await refused(view, "", "bob")
            assert status == 503 and said.startswith("Too many tables of GPU-hours")
        async with running_view(tmp_path) as view:
            status, said = await refused(view, "", "admin")
            assert status == 404 and "--data-dir" in said

    run(scenario())


@pytest.mark.promise("view-15")
def test_a_caller_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up, and another one is answered."""
    made = []

    class Watched(figures.Tables):
        def __init__(self, usage: UsageFile | None) -> None:
            super().__init__(usage)
            made.append(self)

    monkeypatch.setattr(figures, "Tables", Watched)
    monkeypatch.setattr(figures, "SEND_S_MAX", 0.2)
    monkeypatch.setattr(figures, "TABLES_OF_A_CALLER_MAX", 1)

    async def scenario() -> None:
        async with running_view(tmp_path, data_dir=tmp_path / "data") as view:
            (tables,) = made
            assert tables.usage is not None
            lines = [UsageLine(20_000, "hub", f"{n:0400}", "", "a") for n in range(30_000)]
            tables.usage.usage._lines.update(dict.fromkeys(lines, 1.0))
            _, writer = await asyncio.open_connection("127.0.0.1", view.view.port, limit=1024)
            path = f"{PREFIX}api/v1/usage.csv?from=2020-01-01"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Caller: admin\r\n\r\n".encode())
            await view.until(lambda: tables._asked.total() == 1)
            await view.until(lambda: tables._asked.total() == 0)
            writer.close()
            assert await table(view, "", "admin") == (200, [])

    run(scenario())


def series(body: bytes) -> dict[str, float]:
    families = text_string_to_metric_families(body.decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


@pytest.mark.promise(
    "view-16",
    "Prometheus reads the view with a token of its own; of the hub's users, administrators",
)
def test_who_reads_the_metrics(tmp_path: Path) -> None:
    """The token of the file is enough, and another one is not."""

    async def scenario() -> None:
        (tmp_path / "metrics").write_text("a-secret\n")
        options: dict[str, Any] = {"metrics_token_file": tmp_path / "metrics"}
        async with running_view(tmp_path, **options) as view:
            await view.node("node-a", node=NODE)
            for header, caller, status in (
                ("Bearer a-secret", None, 200),
                ("Bearer another", None, 403),
                ("", "admin", 200),
                ("", "bob", 403),
                ("", None, 403),
            ):
                said = {"Authorization": header} if header else {}
                answer = await view.get("metrics", caller, **said)
                assert answer.code == status
                assert (status == 200) == (b"gpushare_node_up" in answer.body)
            assert answer.headers["Content-Type"].startswith("application/json")

    run(scenario())


def test_many_who_read_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At one time, they are made once."""
    made = []
    text_of = figures.text_of

    def counting(collectors: Any) -> bytes:
        made.append(collectors)
        return text_of(collectors)

    monkeypatch.setattr(figures, "text_of", counting)
    monkeypatch.setattr(figures, "METRICS_EVERY_S", 3600.0)

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            await view.node("node-a", node=NODE)
            with pytest.raises(Refused):
                await view.connect("nobody's token")
            answers = await asyncio.gather(*(view.get("metrics", "admin") for _ in range(8)))
            assert {answer.code for answer in answers} == {200}
            found = series(answers[0].body)
            assert found["gpushare_node_reports_total"] == 1
            assert found["gpushare_view_nodes_refused_total"] == 1

    run(scenario())
    assert len(made) == 1
