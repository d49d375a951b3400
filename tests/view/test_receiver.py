"""Nodes that report to the view over their WebSocket: good ones, and the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
from http import HTTPStatus
from pathlib import Path

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClosedError, websocket_connect

from jupyter_gpushare.reports.format import MESSAGE_BYTES_MAX, NodeHello, Seen, text_of
from jupyter_gpushare.view import receiver as receiver_module
from jupyter_gpushare.view.credentials import FileTokens, NodeRefused
from jupyter_gpushare.view.pace import Pace
from jupyter_gpushare.view.receiver import (
    ANOTHER_HAS_COME,
    CANNOT_BE_READ,
    CREDENTIAL_ENDED,
    HELLO_S_MAX,
    MESSAGES_AT_ONCE,
    TOO_FAST,
    cut,
)
from jupyter_gpushare.view.service import ViewError
from tests.reports.rows import BOOT, OTHER_BOOT, a_device, a_node, a_report, a_tenant
from tests.support.ports import free_ports
from tests.view.service import Closed, Node, Refused, RunningView, run, running_view


@pytest.mark.promise(
    "view-40", "A scheduler reports over one WebSocket, and what it says is there at once"
)
def test_a_node_reports(tmp_path: Path) -> None:
    """Hello, a whole report and a delta, each with its answer."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            node = await view.node("node-a", tenants={"t": a_tenant()})
            assert list(view.fleet.nodes["node-a"].tenants) == ["t"]
            assert await node.report(a_report(1, tenants={"t": None})) == Seen(sequence=1)
            assert view.fleet.nodes["node-a"].tenants == {}
            assert await node.report(a_report(3)) == Seen(sequence=3, again=True)
            assert view.fleet.nodes["node-a"].connected
            node.leave()
            await view.until(lambda: not view.fleet.nodes["node-a"].connected)

    run(scenario())


@pytest.mark.promise(
    "view-41", "The name of a node comes from its credential and from nothing that it says"
)
def test_the_name_is_the_credentials(tmp_path: Path) -> None:
    """A name in a message is passed over."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            node = await view.connect(view.token("node-a"))
            said = {**json.loads(text_of(NodeHello(boot=BOOT, version="1"))), "name": "node-b"}
            await node.send(json.dumps(said))
            assert list(view.fleet.nodes) == ["node-a"]

    run(scenario())


@pytest.mark.promise(
    "bad-input-77",
    "A wrong node token: 401 before the upgrade, with a sentence, and the view knows of no node",
)
def test_wrong_tokens(tmp_path: Path) -> None:
    """None, another one, one that was replaced, and one that is no token."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            old = view.token("node-a")
            view.token("node-a")
            for token in (None, "guessed", old, "x" * 20_000, "a\tb"):
                with pytest.raises(Refused) as refused:
                    await view.connect(token)
                assert refused.value.status == 401, token
                assert refused.value.message.endswith(".")
            assert view.fleet.nodes == {}

    run(scenario())


def test_refusals_are_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first one; whoever tries a thousand tokens does not fill a disk. No token is in it."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            for number in range(5):
                with pytest.raises(Refused):
                    await view.connect(f"guessed-{number}")
            (line,) = [each for each in caplog.messages if "was refused" in each]
            assert "(401)" in line and "guessed" not in line

    run(scenario())


def test_no_websocket(tmp_path: Path) -> None:
    """Whoever opens the address in a browser is told what it is."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            answer = await view.get("api/v1/reports", "admin")
            assert (answer.code, "Open the page" in answer.body.decode()) == (400, True)

    run(scenario())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two of 127.0.0.1, each signed by itself, with its key in the same file."""
    openssl = shutil.which("openssl")
    assert openssl, "the tests of TLS need the program openssl"
    folder = tmp_path_factory.mktemp("tls")
    made = [folder / "first.pem", folder / "second.pem"]
    for path in made:
        command = [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=view", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(path), "-out", f"{path}.crt"),
        ]
        subprocess.run(command, check=True, capture_output=True)
        path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return made


@pytest.mark.promise(
    "view-42", "Nodes report by TLS at a port of their own, and a new certificate counts"
)
def test_tls(tmp_path: Path, certificates: list[Path]) -> None:
    """Who believes the authority connects; after the certificate was replaced, the new one counts
    for whoever comes, and who is there stays. One that cannot be read changes nothing."""
    first, second = certificates
    cert = tmp_path / "cert.pem"
    shutil.copy(first, cert)
    (port,) = free_ports(1)

    async def connects(view: RunningView, authority: Path, token: str) -> bool:
        url = f"wss://127.0.0.1:{port}/api/v1/reports"
        headers = {"Authorization": f"Bearer {token}"}
        request = HTTPRequest(url, headers=headers, ca_certs=str(authority))
        try:
            await Node(await websocket_connect(request)).come()
        except ssl.SSLError:
            return False
        return True

    async def scenario() -> None:
        async with running_view(tmp_path, report_port=port, tls_cert=cert) as view:
            token = view.token("node-a")
            assert await connects(view, first, token)
            assert not await connects(view, second, token)
            cert.write_text("no certificate")
            with pytest.raises(ViewError, match=r"cannot be used: .*\. Give --tls-cert"):
                view.view._look_at_tls()
            assert await connects(view, first, token)
            shutil.copy(second, cert)
            view.view._look_at_tls()
            assert await connects(view, second, token)
            assert not await connects(view, first, token)
            assert view.fleet.nodes["node-a"].connected

    run(scenario())


def test_a_browser_does_not_report(tmp_path: Path) -> None:
    """Who names an origin is a page, of whatever site."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            with pytest.raises(Refused) as refused:
                await view.connect(view.token("a"), Origin=f"http://127.0.0.1:{view.view.port}")
            assert refused.value.status == 403

    run(scenario())


@pytest.mark.promise("bad-input-78", "A removed node token ends the connection that it has opened")
def test_a_token_that_is_removed(tmp_path: Path) -> None:
    """At the next look; others go on."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            node, other = await view.node("node-a"), await view.node("node-b")
            await view.view.receiver.recheck()
            assert (await node.report(a_report(1))).sequence == 1
            view.token("node-a")
            await view.view.receiver.recheck()
            closed = await node.ended()
            assert closed.code == CREDENTIAL_ENDED and "token" in closed.reason
            assert (await other.report(a_report(1))).sequence == 1

    run(scenario())


@pytest.mark.promise("bad-input-78")
def test_a_token_of_which_nobody_says_whose_it_is(tmp_path: Path) -> None:
    """It stays, and those of others are looked at all the same."""
    unsaid: set[str] = set()

    class Doubtful(FileTokens):
        async def name_of(self, token: str) -> str:
            if token in unsaid:
                raise NodeRefused(HTTPStatus.SERVICE_UNAVAILABLE, "Nobody says. Wait.")
            return await super().name_of(token)

    async def scenario() -> None:
        (tmp_path / "tokens").touch()
        credentials = Doubtful(tmp_path / "tokens")
        async with running_view(tmp_path, credentials=credentials) as view:
            token = view.token("node-a")
            node = await view.connect(token)
            await node.come()
            others = {f"other-{number}": await view.node(f"other-{number}") for number in range(9)}
            unsaid.add(token)
            for name in others:
                view.token(name)
            await view.view.receiver.recheck()
            for other in others.values():
                assert (await other.ended()).code == CREDENTIAL_ENDED
            assert (await node.report(a_report(1))).sequence == 1

    run(scenario())


@pytest.mark.promise("bad-input-51")
@pytest.mark.parametrize(
    "text",
    ["", "{}", "[[[[", b"\xff\xfe", '{"type": "report"}', text_of(Seen(sequence=1)), "null"],
)
def test_a_node_that_lies(tmp_path: Path, text: str | bytes) -> None:
    """Its connection ends with the reason, its row says so, and the others go on."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            node = await view.node("node-a", tenants={"t": a_tenant()})
            other = await view.node("node-b")
            with pytest.raises(Closed) as closed:
                await node.send(text)
            assert closed.value.code == CANNOT_BE_READ
            kept = view.fleet.nodes["node-a"]
            assert kept.fault.startswith(closed.value.reason[:80]) and list(kept.tenants) == ["t"]
            assert (await other.report(a_report(1))).sequence == 1
            again = await view.connect(view.token("node-a"))
            await again.come()
            assert kept.fault == ""

    run(scenario())


@pytest.mark.promise(
    "bad-input-79", "A node that sends 10 MB in one message: it loses its connection alone"
)
def test_ten_megabytes(tmp_path: Path) -> None:
    """The page says why, and another node does not notice."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            node, other = await view.node("node-a"), await view.node("node-b")
            with pytest.raises(Closed):
                await node.send("x" * (10 << 20))
            await view.until(lambda: not view.fleet.nodes["node-a"].connected)
            assert f"more than {MESSAGE_BYTES_MAX} bytes" in view.fleet.nodes["node-a"].fault
            assert (await other.report(a_report(1))).sequence == 1

    run(scenario())


@pytest.mark.promise("bad-input-80", "A node that reports without end is cut off, and no other is")
def test_too_many_messages(tmp_path: Path) -> None:
    """Also when it comes back each time: what it has sent counts on. Time stands still, so that a
    slow machine does not give it more."""

    async def scenario() -> None:
        async with running_view(tmp_path, clock_s=lambda: 0.0) as view:
            node, other = await view.node("node-a"), await view.node("node-b")
            token = view.token("node-a")
            with pytest.raises(Closed) as closed:
                for number in range(1, int(MESSAGES_AT_ONCE) * 50):
                    await node.report(a_report(number))
            assert closed.value.code == TOO_FAST
            assert "more than this view takes" in view.fleet.nodes["node-a"].fault
            with pytest.raises(Refused) as refused:
                for _ in range(int(MESSAGES_AT_ONCE) * 50):
                    await view.connect(token)
            assert refused.value.status == 429
            assert (await other.report(a_report(1))).sequence == 1

    run(scenario())


@pytest.mark.promise("bad-input-80")
def test_too_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of the largest size in a row are more than a node may send."""
    monkeypatch.setattr(receiver_module, "BYTES_AT_ONCE", 2_500.0)
    monkeypatch.setattr(receiver_module, "BYTES_PER_S", 0.001)

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            node = await view.node("node-a")
            devices = {f"{n}": a_device(name="x" * 300) for n in range(4)}
            with pytest.raises(Closed) as closed:
                for number in range(1, 9):
                    await node.report(a_report(number, devices=devices))
            assert closed.value.code == TOO_FAST

    run(scenario())


@pytest.mark.promise("bad-input-80")
def test_too_many_pings(tmp_path: Path) -> None:
    """They are answered, and so they count."""

    async def scenario() -> None:
        async with running_view(tmp_path, clock_s=lambda: 0.0) as view:
            node, other = await view.node("node-a"), await view.node("node-b")
            for _ in range(int(MESSAGES_AT_ONCE) * 10):
                with contextlib.suppress(WebSocketClosedError):
                    node.connection.ping(b"x")
            assert (await node.ended()).code == TOO_FAST
            assert (await other.report(a_report(1))).sequence == 1

    run(scenario())


def test_pace() -> None:
    """So many at once, then so many a second, however long nobody came."""
    pace = Pace(per_s=10.0, most=30.0, at_s=5.0)
    assert sum(pace.takes(1, 5.0) for _ in range(100)) == 30
    assert sum(pace.takes(1, 6.0) for _ in range(100)) == 10
    assert sum(pace.takes(1, 5.5) for _ in range(100)) == 0  # a clock that goes back gives nothing
    assert sum(pace.takes(1, 1e9) for _ in range(100)) == 30
    assert not pace.is_unspent(1e9) and pace.is_unspent(2e9)
    assert not pace.takes(31, 3e9)


@pytest.mark.promise(
    "bad-input-81", "A node that says nothing, or does not read: it holds nobody else up"
)
def test_no_hello(tmp_path: Path) -> None:
    """It has ten seconds."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            view.view.receiver.hello_s_max = 0.05
            silent = await view.connect(view.token("node-a"))
            closed = await silent.ended()
            assert (closed.code, "hello" in closed.reason) == (CANNOT_BE_READ, True)
            assert view.fleet.nodes == {}
            view.view.receiver.hello_s_max = HELLO_S_MAX
            good = await view.node("node-b")
            view.view.receiver._current["node-b"]._no_hello()  # its ten seconds are over
            assert (await good.report(a_report(1))).sequence == 1

    run(scenario())


@pytest.mark.promise("bad-input-81")
def test_a_node_that_does_not_read(tmp_path: Path) -> None:
    """Another one is answered meanwhile, and its messages are bounded as everybody's."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            deaf, other = await view.node("node-a"), await view.node("node-b")
            for number in range(1, 20):
                await deaf.push(a_report(number))
            assert (await other.report(a_report(1))).sequence == 1

    run(scenario())


@pytest.mark.promise("bad-input-75")
def test_two_schedulers_of_one_name(tmp_path: Path) -> None:
    """The one that came last stays; the other is told, and is told again when it comes back."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            first = await view.node("node-a", tenants={"of the first": a_tenant()})
            token = view.token("node-a")
            second = await view.connect(token)
            await second.come(OTHER_BOOT)
            assert (await first.ended()).code == ANOTHER_HAS_COME
            again = await view.connect(token)
            with pytest.raises(Closed) as closed:
                await again.hello(BOOT)
            assert closed.value.code == ANOTHER_HAS_COME
            assert "Another scheduler reports as node-a" in closed.value.reason
            assert (await second.report(a_report(1, boot=OTHER_BOOT))).sequence == 1
            node = view.fleet.nodes["node-a"]
            assert node.connected and node.tenants == {}
            assert node.is_in_conflict(view.view.state.clock_s())

    run(scenario())


@pytest.mark.promise(
    "view-43", "A scheduler whose connection broke comes back, and its old one is ended"
)
def test_the_same_scheduler_again(tmp_path: Path) -> None:
    """No conflict: it is the same start of the same scheduler. What the old connection still
    brings counts no more, and its end leaves the node connected."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            first = await view.node("node-a", tenants={"t": a_tenant()})
            second = await view.connect(view.token("node-a"))
            await second.come(tenants={"u": a_tenant()})
            await first.push(a_report(1, tenants={"u": None}))
            assert (await first.ended()).code == ANOTHER_HAS_COME
            assert (await second.report(a_report(1))).sequence == 1
            node = view.fleet.nodes["node-a"]
            assert node.connected and list(node.tenants) == ["u"]
            assert not node.is_in_conflict(view.view.state.clock_s())

    run(scenario())


@pytest.mark.promise("bad-input-74")
def test_a_replayed_report(tmp_path: Path) -> None:
    """One that is sent again ends the connection; one of another start likewise."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            node = await view.node("node-a", tenants={"t": a_tenant()})
            with pytest.raises(Closed, match="has come after report 0"):
                await node.report(a_report(0))
            node = await view.connect(view.token("node-a"))
            await node.come()
            with pytest.raises(Closed, match="another start"):
                await node.report(a_report(1, boot=OTHER_BOOT))
            node = await view.connect(view.token("node-a"))
            with pytest.raises(Closed, match="hello once"):
                await node.report(a_report(0))
            node = await view.connect(view.token("node-a"))
            await node.come()
            with pytest.raises(Closed, match="hello once"):
                await node.hello()

    run(scenario())


@pytest.mark.promise(
    "view-44", "A view that ends tells its nodes, and one that starts knows them in a moment"
)
def test_a_restart_of_the_view(tmp_path: Path) -> None:
    """They are closed as `going away`, and come back with a whole report."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            node = await view.node("node-a")
            token = view.token("node-b")
            waiting = asyncio.ensure_future(node.ended())
            await asyncio.sleep(0)
        assert (await waiting).code == 1001
        async with running_view(tmp_path) as view:
            node = await view.connect(token)
            assert (await node.hello()).again
            assert (await node.report(a_report(7, whole=True, node=a_node()))).again is False

    run(scenario())


def test_what_a_closing_frame_can_say() -> None:
    """Whole characters of 120 bytes."""
    assert cut("é" * 100) == "é" * 60
    assert cut("short. Do.") == "short. Do."


def test_nobody_is_kept_for_ever(tmp_path: Path) -> None:
    """How much a node has sent is forgotten when it is long ago."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            await view.node("node-a")
            receiver = view.view.receiver
            receiver.tidy()
            assert receiver._paces
            receiver._clock_s = lambda: 1e12
            receiver.tidy()
            assert not receiver._paces

    run(scenario())
