"""Which node a token is of: by a file, and by the API server of a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from jupyter_gpushare.cli.main import make_parser
from jupyter_gpushare.reports.node_tokens import TokensError, new_token
from jupyter_gpushare.view import token_reviews
from jupyter_gpushare.view.callers import MetricsToken
from jupyter_gpushare.view.credentials import EitherOf, FileTokens, NodeRefused
from jupyter_gpushare.view.service import credentials_of, options_for
from jupyter_gpushare.view.token_reviews import (
    KEPT_S,
    QUESTIONS_MAX,
    ApiServer,
    TokenReviews,
    api_server,
)
from tests.view.fake_api_server import ACCOUNT, OURS, FakeApiServer
from tests.view.service import Refused, run, running_view

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJub2RlIn0.c2lnbmF0dXJl"


async def refusal(credentials: object, token: str) -> tuple[int, str]:
    with pytest.raises(NodeRefused) as refused:
        await credentials.name_of(token)  # type: ignore[attr-defined]
    assert str(refused.value).endswith(".")
    return refused.value.status, str(refused.value)


# ---- a file ----------------------------------------------------------------------------------


def test_a_pipe_is_no_file_of_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for who would write it: it is refused at once, whoever has put it there."""
    path = tmp_path / "tokens"
    new_token(path, "node-a")
    tokens = FileTokens(path)
    path.unlink()
    os.mkfifo(path)
    status, said = asyncio.run(asyncio.wait_for(refusal(tokens, "a token"), 10))
    assert status == 503 and "is not a regular file" in said
    with pytest.raises(TokensError, match="is not a regular file"):
        FileTokens(path)
    assert not MetricsToken(path).fits("Bearer a-secret")
    assert "is not a regular file" in caplog.text


@pytest.mark.promise("bad-input-53")
def test_the_file_is_read_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new line counts at once, a removed one no more; while there is no file nobody can say."""

    async def scenario() -> None:
        path = tmp_path / "tokens"
        with pytest.raises(TokensError):
            FileTokens(path)
        old = new_token(path, "node-a")
        tokens = FileTokens(path)
        assert await tokens.name_of(old) == "node-a"
        new = new_token(path, "node-a")
        assert await tokens.name_of(new) == "node-a"
        assert (await refusal(tokens, old))[0] == 401
        path.write_text("what is this?\n" + path.read_text())
        assert await tokens.name_of(new) == "node-a"
        assert "no node token can be read in line 1" in caplog.text
        path.unlink()
        assert (await refusal(tokens, new))[0] == 503

    run(scenario())


def test_what_is_no_token(tmp_path: Path) -> None:
    """Refused before anybody is asked."""

    async def scenario() -> None:
        for token in ("ä", "a\nb", "x" * 20_000):
            assert (await refusal(EitherOf([]), token))[0] == 401
        status, said = await refusal(EitherOf([]), "fine")
        assert status == 401 and "no tokens of this kind" in said

    run(scenario())


# ---- Kubernetes ------------------------------------------------------------------------------


class Cluster:
    """A fake API server, and what the view makes of its answers."""

    def __init__(self, folder: Path) -> None:
        self.server = FakeApiServer()
        self.server.start()
        self.now_s = 0.0
        self.token_file = folder / "token"
        self.token_file.write_text(f"{OURS}\n")
        self.reviews = TokenReviews(
            ApiServer(url=self.server.url, token_file=self.token_file),
            [ACCOUNT],
            clock_s=lambda: self.now_s,
        )

    async def name(self, token: str = JWT) -> str:
        return await self.reviews.name_of(token)

    async def refusal(self, token: str = JWT) -> tuple[int, str]:
        return await refusal(self.reviews, token)


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    found = Cluster(folder)
    try:
        yield found
    finally:
        found.server.stop()


@pytest.mark.promise(
    "kubernetes-22", "The view learns from the API server which node a token is of"
)
def test_a_token_that_names_its_node(tmp_path: Path) -> None:
    """Kubernetes 1.30 and newer: one question."""

    async def scenario() -> None:
        async with cluster(tmp_path) as c:
            c.server.knows(JWT, pod_name="sched-x", pod_uid="u", node_name="gpu-1", node_uid="v")
            assert await c.name() == "gpu-1"
            assert c.server.asked == {"POST": 1}

    run(scenario())


@pytest.mark.promise("kubernetes-22")
def test_a_token_that_names_its_pod(tmp_path: Path) -> None:
    """Before 1.30 the pod says the node, if it is the very pod, with the same account."""

    async def scenario() -> None:
        async with cluster(tmp_path) as c:
            c.server.knows(JWT, pod_name="sched-x", pod_uid="pod-uid")
            assert "pod that is gone" in (await c.refusal())[1]
            for node, uid, account, says in (
                ("gpu-1", "another", ACCOUNT, "earlier pod"),
                ("gpu-1", "pod-uid", "gpushare:other", "another account"),
                (None, "pod-uid", ACCOUNT, "on no node"),
                ("not a name", "pod-uid", ACCOUNT, "on no node"),
            ):
                c.now_s += 100
                c.server.has_pod("sched-x", node=node, uid=uid, account=account)
                status, said = await c.refusal()
                assert (status, says in said) == (403, True), said
            c.now_s += 100
            c.server.has_pod("sched-x", node="gpu-1")
            assert await c.name() == "gpu-1"

    run(scenario())


@pytest.mark.promise("bad-input-77")
@pytest.mark.parametrize(
    ("prepare", "status", "says"),
    [
        (lambda s: None, 401, "does not know this token"),
        (lambda s: s.knows(JWT, audiences=("https://kubernetes",), node_name="n"), 401, "audience"),
        (lambda s: s.knows(JWT, account="jupyter:hub", node_name="n"), 403, "may not report"),
        (lambda s: s.knows(JWT), 403, "bound to no pod"),
        (lambda s: s.knows(JWT, pod_name="../../nodes/x"), 403, "bound to no pod"),
        (lambda s: s.knows(JWT, node_name="a b"), 403, "on no node"),
    ],
)
def test_tokens_of_others(
    tmp_path: Path, prepare: Callable[[FakeApiServer], None], status: int, says: str
) -> None:
    """Invented, of another audience, of another account, of no pod."""

    async def scenario() -> None:
        async with cluster(tmp_path) as c:
            prepare(c.server)
            found, said = await c.refusal()
            assert (found, says in said) == (status, True), said

    run(scenario())


def test_a_user_who_is_called_like_the_account(tmp_path: Path) -> None:
    """Only a service account is one."""

    async def scenario() -> None:
        async with cluster(tmp_path) as c:
            c.server.knows(JWT, node_name="gpu-1")
            c.server.reviews[JWT]["user"]["username"] = ACCOUNT
            assert (await c.refusal())[0] == 403

    run(scenario())


@pytest.mark.promise("bad-input-73", "A node token of a pod that is gone: refused within a minute")
def test_answers_are_kept_for_a_minute(tmp_path: Path) -> None:
    """No longer; a refusal for seconds, and no token's answer is another's."""

    async def scenario() -> None:
        async with cluster(tmp_path) as c:
            c.server.knows(JWT, node_name="gpu-1")
            assert [await c.name(), await c.name()] == ["gpu-1", "gpu-1"]
            assert c.server.asked == {"POST": 1}
            assert (await c.refusal(JWT + "x"))[0] == 401
            del c.server.reviews[JWT]
            c.now_s += KEPT_S - 1
            assert await c.name() == "gpu-1"
            c.now_s += 2
            assert (await c.refusal())[0] == 401
            asked = c.server.asked["POST"]
            assert (await c.refusal())[0] == 401
            assert c.server.asked["POST"] == asked
            c.server.knows(JWT, node_name="gpu-2")
            c.now_s += 10
            assert await c.name() == "gpu-2"

    run(scenario())


@pytest.mark.promise(
    "kubernetes-23", "While the API server does not answer, nodes are told to come again"
)
@pytest.mark.parametrize("raw", [None, b"", b"[]", b"{", b'{"status": []}', b"[" * 100_000])
def test_an_api_server_that_fails(tmp_path: Path, raw: bytes | None) -> None:
    """503, of which nothing is kept: the next question is asked. An answer that says nothing is a
    refusal at most."""

    async def scenario() -> None:
        async with cluster(tmp_path) as c:
            c.server.knows(JWT, node_name="gpu-1")
            c.server.fails_with, c.server.raw = 403, raw
            assert (await c.refusal())[0] in ((401,) if raw == b'{"status": []}' else (503,))
            c.server.fails_with, c.server.raw = 0, None
            c.now_s += 10
            assert await c.name() == "gpu-1"

    run(scenario())


@pytest.mark.promise("kubernetes-23")
def test_too_many_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody shows invented tokens faster than the API server answers: nobody waits for ever."""
    monkeypatch.setattr(token_reviews, "WAIT_S_MAX", 0.01)

    async def scenario() -> None:
        async with cluster(tmp_path) as c:
            c.server.knows(JWT, node_name="gpu-1")
            for _ in range(QUESTIONS_MAX):
                await c.reviews._questions.acquire()
            assert (await asyncio.wait_for(c.refusal(), 30))[0] == 503
            for _ in range(QUESTIONS_MAX):
                c.reviews._questions.release()
            monkeypatch.setattr(token_reviews, "WAIT_S_MAX", 15.0)
            assert await c.name() == "gpu-1"

    run(scenario())


@pytest.mark.promise("kubernetes-23")
def test_no_api_server(tmp_path: Path) -> None:
    """Nobody listens; our own token is missing; our token has been replaced."""

    async def scenario() -> None:
        async with cluster(tmp_path) as c:
            c.server.knows(JWT, node_name="gpu-1")
            c.token_file.unlink()
            assert (await c.refusal())[0] == 503
            c.token_file.write_text("an old one")
            assert (await c.refusal())[0] == 503
            c.token_file.write_text(OURS)
            assert await c.name() == "gpu-1"
            c.server.stop()
            await asyncio.sleep(0)
            assert (await c.refusal(JWT + "x"))[0] == 503

    run(scenario())


@pytest.mark.promise("kubernetes-22")
def test_a_node_of_kubernetes_reports(tmp_path: Path) -> None:
    """Beside one with a token of the file; while the API server is down the handshake is a 503."""

    async def scenario() -> None:
        (tmp_path / "tokens").touch()
        async with cluster(tmp_path) as c:
            c.server.knows(JWT, node_name="gpu-1")
            both = EitherOf([c.reviews, FileTokens(tmp_path / "tokens")])
            async with running_view(tmp_path, credentials=both) as view:
                await view.node("of-the-file")
                node = await view.connect(JWT)
                await node.come()
                assert set(view.fleet.nodes) == {"of-the-file", "gpu-1"}
                c.server.fails_with = 500
                with pytest.raises(Refused) as refused:
                    await view.connect(JWT + "x")
                assert refused.value.status == 503
                c.now_s += KEPT_S + 1
                await view.view.receiver.recheck()
                assert view.fleet.nodes["gpu-1"].connected
                c.server.fails_with = 0
                del c.server.reviews[JWT]
                await view.view.receiver.recheck()
                await view.until(lambda: not view.fleet.nodes["gpu-1"].connected)
                assert view.fleet.nodes["of-the-file"].connected

    run(scenario())


def test_an_api_server_that_is_named(tmp_path: Path) -> None:
    """A view that is no pod asks the server that it was told of, with the token of the file."""
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    flags = [
        *("view", "--kubernetes", "--service-account=jhub:gpushare"),
        *("--api-server=https://k:6443/", f"--api-token-file={token}", f"--api-ca={authority}"),
    ]
    options = options_for(make_parser().parse_args(flags), {})
    assert options.api_server == ApiServer(
        url="https://k:6443", token_file=token, ca_file=authority
    )
    assert credentials_of(options) is not None


def test_where_the_api_server_is(tmp_path: Path) -> None:
    """As each pod is told; outside of one there is none."""
    (tmp_path / "token").write_text("t")
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    found = api_server(inside, tmp_path)
    assert found is not None
    assert (found.url, found.ca_file) == ("https://10.0.0.1:443", tmp_path / "ca.crt")
    six = api_server({"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path)
    assert six is not None and six.url == "https://[fd00::1]:443"
    assert api_server({}, tmp_path) is None
    assert api_server(inside, tmp_path / "none") is None
