"""The page and the events of the view over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.view import follow, pages
from jupyter_gpushare.view.cut import OTHER
from tests.view.fleets import device, node_row, reports, small_fleet
from tests.view.service import RunningView, run, running_view


def fill(view: RunningView) -> None:
    known = small_fleet().nodes
    for name, node in known.items():
        now_s = view.view.state.clock_s()
        reports(view.fleet, name, node.devices, node.tenants, now_s=now_s, row=node.row)


class Stream:
    """A connection to `api/v1/events`, read by hand: it can be left at any time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @staticmethod
    async def open(view: RunningView, query: str, caller: str) -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", view.view.port)
        path = view.url(f"api/v1/events?{query}").partition(str(view.view.port))[2]
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Caller: {caller}\r\n\r\n".encode())
        return Stream(reader, writer)

    async def next(self) -> Any:
        """The data of the next event; None at the end."""
        async for line in self.reader:
            if line.startswith(b"data: "):
                return json.loads(line[6:])
        return None


@pytest.mark.promise("view-36")
def test_events_are_told_over_http(tmp_path: Path) -> None:
    """The first at once, each as its caller may see it; who leaves is forgotten, and the view's end
    ends the streams."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            fill(view)
            admin = await Stream.open(view, "find=node&summary=1", "admin")
            alice = await Stream.open(view, "open=node-a", "alice")
            told, seen = await admin.next(), await alice.next()
            assert told["nodes"][0]["holders"] == ["alice: train.ipynb"]
            assert told["summary"]["caller"] == {"name": "admin", "is_admin": True}
            assert seen["node"]["devices"]["a0"]["queue"][0]["name"] == OTHER
            now_s = view.view.state.clock_s()
            reports(view.fleet, "node-d", {"d": device()}, {}, now_s=now_s)
            assert ((await admin.next())["total"], (await alice.next())["total"]) == (4, 4)
            alice.writer.close()
            await view.until(lambda: len(view.view.state.followers) == 1)
        assert await admin.next() is None
        admin.writer.close()

    run(scenario())


@pytest.mark.promise("view-38")
def test_too_many_followers_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 503 and a sentence; the browser comes again later."""
    monkeypatch.setattr(follow, "FOLLOWERS_PER_CALLER_MAX", 1)

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            first = await Stream.open(view, "", "alice")
            assert (await first.next())["total"] == 0
            refused = await view.get("api/v1/events", "alice")
            assert refused.code == 503
            assert "Close some" in json.loads(refused.body)["message"]
            first.writer.close()

    run(scenario())


@pytest.mark.promise("view-38")
def test_a_program_that_takes_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is closed, and the view goes on."""
    monkeypatch.setattr(follow, "SEND_S_MAX", 0.2)

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            loop = asyncio.get_running_loop()
            stuck = socket.create_connection(("127.0.0.1", view.view.port))
            path = view.url("api/v1/events").partition(str(view.view.port))[2]
            stuck.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Caller: admin\r\n\r\n".encode())
            await view.until(lambda: len(view.view.state.followers) == 1)
            followers, number = view.view.state.followers, 0
            while len(followers):
                number += 1
                row = node_row(problems=tuple(f"{number} {'x' * 390}" for _ in range(64)))
                for name in range(100):
                    reports(view.fleet, f"n{name}", {}, {}, now_s=loop.time(), row=row)
                await asyncio.sleep(0.05)
            assert (await view.get("api/v1/summary", "admin")).code == 200
            stuck.close()

    run(scenario())


def test_what_cannot_be_asked_is_told(tmp_path: Path) -> None:
    """With 400 and a sentence by the answers; the page shows what it can."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            for route in ("nodes", "tenants", "events"):
                answer = await view.get(f"api/v1/{route}?limit=many", "admin")
                assert answer.code == 400, route
                assert "limit is not a whole number" in json.loads(answer.body)["message"]
            if pages.SCRIPT.exists():
                page = (await view.get("?sort=evil&state=live&find=" + "x" * 300, "admin")).body
                assert first_of(page)["asked"] == {"sort": "problems", "state": "live"}

    run(scenario())


def first_of(page: bytes) -> Any:
    found = re.search(r'id="first">(.*?)</script>', page.decode(), re.S)
    assert found is not None
    return json.loads(found[1])


def test_a_page_that_was_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Says so, and what to do; the answers are there."""
    monkeypatch.setattr(pages, "SCRIPT", tmp_path / "page.js")

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            page = await view.get("", "admin")
            assert (page.code, page.body.decode()) == (503, pages.NOT_BUILT)
            assert (await view.get("api/v1/nodes", "admin")).code == 200

    run(scenario())
