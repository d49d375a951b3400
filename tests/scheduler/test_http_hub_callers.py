"""HTTP where a hub has to be asked who calls: that takes a while, and what it says may change."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.scheduler.http import api as http_api
from jupyter_gpushare.scheduler.http.api import HTTPApi
from jupyter_gpushare.scheduler.http.event_stream import Follower, Followers
from jupyter_gpushare.scheduler.http.handover import Handover
from jupyter_gpushare.scheduler.identity.admission import Admission
from jupyter_gpushare.scheduler.identity.caller import Caller
from jupyter_gpushare.scheduler.identity.peer import Peer
from jupyter_gpushare.scheduler.identity.registrants import RegistrantWatch
from jupyter_gpushare.scheduler.service.looks import Looks
from tests.scheduler.test_other_users import Office
from tests.support.waits import WAIT_S_MAX


class SlowHub:
    """Says that it is alice, once it is let."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def caller(self, peer: Peer, authorization: str | None) -> Caller:
        self.is_asked.set()
        await self.may_answer.wait()
        return Caller(peer.uid, "alice")


def with_api(
    tmp_path: Path, office: Office, story: Callable[[Path, SlowHub], Awaitable[Any]]
) -> None:
    """Run the story beside an HTTP server over this office; all that it does is done at the end."""

    async def run() -> None:
        hub, followers = SlowHub(), Followers()
        api = HTTPApi(
            service=office.service,
            administration=office.administration,
            admission=Admission(signer=office.signer, tenants=office.tenants, serves_all=True),
            registrants=RegistrantWatch(),
            followers=followers,
            callers=hub,
            handover=Handover(end=lambda why: None, processes=lambda: 0, started_to_stay=True),
            answers=Looks(office.snapshot, share=0.5),
            news=Looks(office.snapshot, share=0.5),
        )
        path = tmp_path / "http.sock"
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
            sock.listen()
            sock.setblocking(False)
            api.start(sock)
            await asyncio.wait_for(story(path, hub), WAIT_S_MAX)
            await api.stop()

    asyncio.run(run())


def test_who_hangs_up_while_the_hub_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It registers nothing, and is no failure of ours."""
    office = Office()

    async def story(path: Path, hub: SlowHub) -> None:
        noticed = asyncio.Event()
        monkeypatch.setattr(
            http_api.TenantsHandler, "on_connection_close", lambda handler: noticed.set()
        )
        _, writer = await asyncio.open_unix_connection(path)
        body = b'{"name": "x", "kind": "kernel"}'
        head = f"POST /api/v1/tenants HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await hub.is_asked.wait()
        writer.close()
        await noticed.wait()
        hub.may_answer.set()

    with caplog.at_level(logging.ERROR):
        with_api(tmp_path, office, story)
    assert len(office.tenants) == 0
    assert caplog.text == ""


def test_a_stream_that_has_ended_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the time at which it would have had to show its token again."""
    office = Office()
    seen: list[weakref.ref[Follower]] = []

    def noted(*arguments: Any) -> Follower:
        follower = Follower(*arguments)
        seen.append(weakref.ref(follower))
        return follower

    async def story(path: Path, hub: SlowHub) -> None:
        hub.may_answer.set()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"data: ")
        (follower,) = seen
        writer.close()
        while follower():
            await asyncio.sleep(0.01)
            gc.collect()

    monkeypatch.setattr(http_api, "Follower", noted)
    with_api(tmp_path, office, story)


@pytest.mark.promise("bad-input-63")
def test_an_account_has_so_many_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more is closed unheard; when one ends there is room again. A connection carries one
    request, so that nobody's wait behind another's."""
    monkeypatch.setattr(http_api, "CONNECTIONS_PER_ACCOUNT_MAX", 2)
    request = b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n"

    async def story(path: Path, hub: SlowHub) -> None:
        hub.may_answer.set()
        first, second, third = [await asyncio.open_unix_connection(path) for _ in range(3)]
        assert await third[0].read() == b""
        first[1].write(2 * request)
        assert (await first[0].read()).count(b"HTTP/1.1 200") == 1
        fourth = await asyncio.open_unix_connection(path)
        for reader, writer in (second, fourth):
            writer.write(request)
            assert (await reader.read()).count(b"HTTP/1.1 200") == 1
        for _, writer in (first, second, third, fourth):
            writer.close()

    with_api(tmp_path, Office(), story)
