"""Reports go to a view, and whatever the view does, they go on or wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
import ssl
import subprocess
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.core.snapshot import Snapshot
from jupyter_gpushare.reports.delta import Now
from jupyter_gpushare.reports.format import TENANTS_MAX
from jupyter_gpushare.scheduler.report import link, sender
from jupyter_gpushare.scheduler.report.options import ReportOptions, url_of
from jupyter_gpushare.scheduler.report.sender import Reporter
from jupyter_gpushare.scheduler.report.standing import (
    FIRST_S,
    LONGEST_S,
    QUIET_S,
    Backoff,
    Failure,
    Reporting,
)
from jupyter_gpushare.scheduler.service.looks import Look, Looks
from tests.reports.test_delta import device, now, tenant
from tests.support.view_stand_in import TOKEN, ViewStandIn, token_file
from tests.support.waits import WAIT_S_MAX, in_vain


class Desk:
    """A node whose state the test changes, and its reporter."""

    def __init__(
        self, view: ViewStandIn, folder: Path, *, platform: str = "", **options: Any
    ) -> None:
        self.view = view
        self.token_file = token_file(folder)
        self.state = now(device(), tenant())
        ca_file = options.pop("ca_file", None)
        self.reporter = Reporter(
            ReportOptions(url_of(view.url), self.token_file, ca_file, platform),
            looks=Looks(self._snapshot, share=0.5),
            now=lambda look: replace(self.state, snapshot=look.snapshot),
            version="1",
            **{"period_s": 0.01, "heartbeat_s": 0.2, **options},
        )

    def _snapshot(self) -> Snapshot:
        return self.state.snapshot

    def be(self, state: Now) -> None:
        self.state = state
        self.reporter.changed()

    @contextlib.asynccontextmanager
    async def reporting(self) -> AsyncIterator[Reporter]:
        self.reporter.start()
        try:
            yield self.reporter
        finally:
            await self.reporter.stop()

    async def eventually(self, holds: Callable[[], object]) -> None:
        until_s = time.monotonic() + WAIT_S_MAX
        while True:
            with contextlib.suppress(KeyError, IndexError):
                if holds():
                    return
            assert time.monotonic() < until_s, in_vain(str(self.reporter.as_json()))
            await asyncio.sleep(0.005)

    @property
    def why(self) -> str:
        return str(self.reporter.as_json()["why"])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again soon."""
    monkeypatch.setattr("jupyter_gpushare.scheduler.report.standing.FIRST_S", 0.02)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 2 * WAIT_S_MAX))  # type: ignore[arg-type]


@pytest.mark.promise(
    "scheduler-64", "A scheduler reports to the view what has changed, and that it is there"
)
def test_reports(tmp_path: Path) -> None:
    """Whole at first, then what has changed, and a heartbeat while nothing does."""

    async def story() -> None:
        with ViewStandIn() as view:
            desk = Desk(view, tmp_path)
            async with desk.reporting():
                await desk.eventually(lambda: view.node.tenants["a"].name == "notebook a")
                await desk.eventually(lambda: desk.reporter.as_json()["ok"])
                assert desk.reporter.as_json() | {"since": 0} == {
                    "to": url_of(view.url),
                    "ok": True,
                    "since": 0,
                    "why": "",
                }
                desk.be(now(device(bytes_used=5), tenant("b")))
                await desk.eventually(lambda: view.node.tenants.keys() == {"b"})
                reports = len(view.reports)
                await desk.eventually(lambda: len(view.reports) > reports)
                last = view.reports[-1]
                assert (last.whole, last.node, last.devices, last.tenants) == (False, None, {}, {})
        assert len(view.hellos) == 1
        assert [each.sequence for each in view.reports] == list(range(len(view.reports)))

    play(story)


def test_at_most_one_report_in_each_period(tmp_path: Path) -> None:
    """However much changes; the last state arrives."""

    async def story() -> None:
        with ViewStandIn() as view:
            desk = Desk(view, tmp_path, period_s=0.2)
            async with desk.reporting():
                await desk.eventually(lambda: view.node.tenants)
                began_s, reports = time.monotonic(), len(view.reports)
                for number in range(1, 51):
                    desk.be(now(device(bytes_used=number), tenant()))
                    await asyncio.sleep(0.01)
                await desk.eventually(lambda: view.node.devices["A"].bytes_used == 50)
                passed_s = time.monotonic() - began_s
                # One of them may have been on its way when the time began.
                assert len(view.reports) - reports <= passed_s / 0.2 + 2

    play(story)


@pytest.mark.promise("scheduler-55")
def test_a_view_that_comes_back(tmp_path: Path) -> None:
    """It is noticed at once, and told everything, by the same boot."""

    async def story() -> None:
        view = ViewStandIn()
        desk = Desk(view, tmp_path, heartbeat_s=1000.0)
        async with desk.reporting():
            with view:
                await desk.eventually(lambda: desk.reporter.as_json()["ok"])
                boot = view.hellos[0].boot
            await desk.eventually(lambda: not desk.reporter.as_json()["ok"])
            assert "connects again" in desk.why or "cannot be reached" in desk.why
            with view:
                await desk.eventually(lambda: view.node.tenants)
                assert view.hellos[0].boot == boot and view.reports[0].whole
                await desk.eventually(lambda: desk.reporter.as_json()["ok"])

    play(story)


@pytest.mark.promise(
    "bad-input-57", "A view that refuses, hangs, lies or sends 10 MB harms no scheduler"
)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("silent", "has not answered for 0.2 s. Look into its log"),
        ("nonsense", "is no view, or one of another version. Correct --report-to"),
        ("much", "has ended the connection. This node connects again"),
        ("page", "is no view, or one of another version"),
        ("order", "answers out of order. Use one version"),
        ("chatter", "is no view, or one of another version"),
        ("pings", "is no view, or one of another version"),
        ("hang up", "has ended the connection"),
        ("4400", "cannot believe what this node reports (because\N{REPLACEMENT CHARACTER} of it)"),
        ("4409", "Another scheduler reports to"),
        ("4429", "has too much to do"),
    ],
)
def test_a_bad_view(
    fault: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is said why, logged once and tried again; a view that is good again has it all."""
    monkeypatch.setattr(link, "ANSWER_S_MAX", 0.2)
    caplog.set_level(logging.INFO)

    async def story() -> None:
        with ViewStandIn() as view:
            desk = Desk(view, tmp_path)
            async with desk.reporting():
                await desk.eventually(lambda: view.node.tenants)
                view.fault = fault
                await desk.eventually(lambda: view.faults_met >= 3)
                await desk.eventually(lambda: words in desk.why)
                assert desk.reporter.as_json()["ok"] is False
                view.fault = ""
                reports = len(view.reports)
                await desk.eventually(lambda: any(each.whole for each in view.reports[reports:]))
                await desk.eventually(lambda: desk.reporter.as_json()["ok"])

    play(story)
    ours = [each for each in caplog.records if each.name.startswith("jupyter_gpushare")]
    assert [each.getMessage() for each in ours if words in each.getMessage()][1:] == []
    assert not any(each.exc_info for each in caplog.records), caplog.text


@pytest.mark.promise("bad-input-57")
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "does not know this node's token. Make one with `jupyter gpushare view token`"),
        (403, "does not let this node report"),
        (404, "There is no view at"),
        (503, "says 503 and opens no connection"),
        (302, "says 302 and opens no connection"),
    ],
)
def test_a_view_that_refuses(
    status: int, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The sentence is logged once, however often it is tried."""

    async def story() -> None:
        with ViewStandIn() as view:
            view.status = status
            desk = Desk(view, tmp_path)
            async with desk.reporting():
                await desk.eventually(lambda: len(view.shown_tokens) >= 3)
                await desk.eventually(lambda: words in desk.why)
                view.status = 0
                await desk.eventually(lambda: view.node.tenants)

    play(story)
    assert caplog.text.count(words) == 1
    assert TOKEN not in caplog.text


@pytest.mark.promise("bad-input-57")
def test_a_refusal_that_is_large(tmp_path: Path) -> None:
    """Nothing of it is kept."""
    size = 64 << 20

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % size)
        with contextlib.suppress(OSError):
            for _ in range(size >> 16):
                writer.write(bytes(1 << 16))
                await writer.drain()
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(Failure, match="does not know this node's token"):
                await link.Link(f"ws://127.0.0.1:{port}/", lambda: None).connect("t", None)

    tracemalloc.start()
    try:
        play(story)
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()


def test_a_pod_whose_token_is_refused(tmp_path: Path) -> None:
    """Nobody can make it another one: the view has to be told of its service account."""

    async def story() -> None:
        with ViewStandIn() as view:
            view.status = 401
            desk = Desk(view, tmp_path, platform="kubernetes")
            async with desk.reporting():
                await desk.eventually(lambda: "--service-account, and look" in desk.why)

    play(story)


@pytest.mark.promise(
    "scheduler-65", "A node's token is read anew for each connection, and none lasts an hour"
)
def test_a_token_that_is_renewed(tmp_path: Path) -> None:
    """The next connection shows what the file has then; one that cannot be read is told."""

    async def story() -> None:
        with ViewStandIn() as view:
            desk = Desk(view, tmp_path, connection_s=(0.1, 0.2))
            view.tokens["another"] = "node"
            async with desk.reporting():
                await desk.eventually(lambda: len(view.hellos) >= 2 and view.reports)
                assert view.reports[-1].boot == view.hellos[0].boot
                token_file(tmp_path, "another")
                await desk.eventually(lambda: view.shown_tokens[-1] == "another")
                desk.token_file.unlink()
                await desk.eventually(lambda: "cannot be read: No such file" in desk.why)
                token_file(tmp_path, "another")
                await desk.eventually(lambda: desk.reporter.as_json()["ok"])

    play(story)
    assert max(sender.CONNECTION_S) < 3600


def test_nobody_there(tmp_path: Path) -> None:
    """It is said so, and a view that comes is found."""

    async def story() -> None:
        view = ViewStandIn()
        desk = Desk(view, tmp_path)
        async with desk.reporting():
            await desk.eventually(lambda: "cannot be reached: Connection refused" in desk.why)
            with view:
                await desk.eventually(lambda: view.node.tenants)

    play(story)


@pytest.mark.promise("server-5")
def test_a_large_node_keeps_the_loop_for_a_moment_alone(tmp_path: Path) -> None:
    """Of 4,096 tenants, a report has some; others have the loop between two pieces of its text."""

    async def story() -> None:
        with ViewStandIn() as view:
            desk = Desk(view, tmp_path)
            tenants = [tenant(f"t{number}") for number in range(TENANTS_MAX)]
            desk.state = now(device(), *tenants)
            async with desk.reporting():
                await desk.eventually(lambda: len(view.node.tenants) == TENANTS_MAX)
            assert len(view.reports) >= TENANTS_MAX // 400

    play(story)


def test_a_mistake_of_ours_ends_nothing(tmp_path: Path) -> None:
    """It is logged, and tried again."""

    async def story() -> None:
        with ViewStandIn() as view:
            desk = Desk(view, tmp_path)
            right = desk.reporter._now
            failures: list[Look] = []

            def wrong(look: Look) -> Now:
                failures.append(look)
                raise RuntimeError("a mistake")

            desk.reporter._now = wrong
            async with desk.reporting():
                await desk.eventually(lambda: len(failures) >= 2)
                await desk.eventually(lambda: "a mistake of its own" in desk.why)
                desk.reporter._now = right
                await desk.eventually(lambda: view.node.tenants)

    play(story)


def test_a_name_server_that_hangs_keeps_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the loop nor the end of the process."""
    asked, answered = threading.Event(), threading.Event()

    def hangs(*_: object, **__: object) -> Any:
        asked.set()
        answered.wait(WAIT_S_MAX)
        raise OSError("nobody answers")

    monkeypatch.setattr(link.socket, "getaddrinfo", hangs)

    async def story() -> None:
        desk = Desk(ViewStandIn(), tmp_path)
        async with desk.reporting():
            await desk.eventually(asked.is_set)

    play(story)
    assert not answered.is_set()
    answered.set()


# ---- TLS ----


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    path = folder / "view.pem"
    openssl = shutil.which("openssl")
    assert openssl, "the tests of TLS need the program openssl"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=view", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
    )
    return path


@pytest.mark.promise("scheduler-66", "Outside loopback a scheduler reports by TLS alone")
@pytest.mark.parametrize("is_named", [True, False], ids=["--report-ca", "unknown"])
def test_tls(certificate: Path, tmp_path: Path, is_named: bool) -> None:
    """The authority that is named is believed, and nobody else is sent a token."""

    async def story() -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
        with ViewStandIn(tls=tls) as view:
            desk = Desk(view, tmp_path, ca_file=certificate if is_named else None)
            async with desk.reporting():
                if is_named:
                    await desk.eventually(lambda: view.node.tenants)
                else:
                    await desk.eventually(lambda: "is not trusted: self" in desk.why)
                    assert "--report-ca" in desk.why
                    assert view.shown_tokens == []

    play(story)


# ---- when, and what is told ----


@pytest.mark.promise(
    "scheduler-67", "After a failure the view is asked again ever later, 30 s apart at most"
)
def test_the_pauses() -> None:
    """They double, each with a part that is drawn; after what worked they begin anew."""
    backoff = Backoff(lambda: 1.0)
    pauses = [backoff.next_s() for _ in range(3)]
    assert pauses[1:] == [2 * pauses[0], 4 * pauses[0]]
    for _ in range(2000):
        assert backoff.next_s() <= LONGEST_S
    assert backoff.next_s() == LONGEST_S
    backoff.worked()
    assert backoff.next_s() == pauses[0]
    drawn = Backoff(random.Random(1).random)
    assert len({drawn.next_s() for _ in range(50)}) == 50
    assert FIRST_S > 0


def test_what_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A kind of failure once, and once more after an hour without it."""
    caplog.set_level(logging.INFO)
    standing = Reporting("wss://view", since=0.0)
    for wall_s in range(10):
        standing.failed(Failure("a", f"Wrong {wall_s}."), wall_s)
        standing.failed(Failure("b", "Bad."), wall_s)
    assert [each.getMessage() for each in caplog.records] == [
        "nothing is reported: Wrong 0.",
        "nothing is reported: Bad.",
    ]
    assert standing.as_json() == {"to": "wss://view", "ok": False, "since": 0, "why": "Bad."}
    standing.succeeded(20.0)
    assert standing.as_json() == {"to": "wss://view", "ok": True, "since": 20, "why": ""}
    standing.failed(Failure("a", "Wrong."), 30.0)
    assert standing.as_json()["since"] == 30
    assert len(caplog.records) == 3
    standing.failed(Failure("a", "Wrong."), 31.0 + QUIET_S)
    assert len(caplog.records) == 4
