"""Whose a token is: asked of a hub that the test plays."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jupyterhub.httpclient import JupyterHubHTTPClient
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RedirectHandler, RequestHandler

from jupyter_gpushare.hub.api import HubApi
from jupyter_gpushare.hub.auth import (
    FRESH_S,
    KEPT_S,
    QUESTIONS_MAX,
    REFUSED_S,
    HubTokenRefused,
    HubTokens,
    HubUnavailable,
    HubUser,
    hub_tokens,
    token_of,
)

ALICES, BOBS = "alices-token", "bobs-token"


def model(name: str, *scopes: str, kind: str = "user", **more: Any) -> dict[str, Any]:
    own = scopes or (f"custom:gpushare:use!user={name}",)
    return {"kind": kind, "name": name, "scopes": list(own), "groups": ["staff"], **more}


class Hub:
    """A hub as a dictionary, a clock that the test turns, and a count of questions."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {ALICES: model("alice"), BOBS: model("bob")}
        self.asked: list[str] = []
        self.there = True
        self.now_s = 1000.0
        self.tokens = HubTokens(self, clock_s=lambda: self.now_s)

    async def __call__(self, token: str) -> object:
        self.asked.append(token)
        await asyncio.sleep(0)
        if not self.there:
            raise ConnectionRefusedError("the hub is being restarted")
        if token not in self.models:
            return None
        return json.loads(json.dumps(self.models[token]))

    def owner_of(self, token: str) -> HubUser:
        return asyncio.run(self.tokens.owner_of(token))


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.mark.promise("hub-19")
def test_the_hub_says_whose_a_token_is(hub: Hub) -> None:
    """Name, groups and scopes are the hub's word; nobody is an administrator for that."""
    alice = hub.owner_of(ALICES)
    assert (alice.name, alice.groups, alice.admin) == ("alice", frozenset({"staff"}), False)
    assert hub.owner_of(BOBS).name == "bob"


@pytest.mark.promise("hub-13")
def test_only_the_scope_makes_an_administrator(hub: Hub) -> None:
    """The hub's own administrators are none here unless the token says so."""
    hub.models["root"] = model("root", "custom:gpushare:admin", "custom:gpushare:use")
    hub.models["boss"] = model("boss", "custom:gpushare:use!user=boss", admin=True)
    assert hub.owner_of("root").admin
    assert not hub.owner_of("boss").admin


@pytest.mark.promise("bad-input-38")
@pytest.mark.parametrize(
    "foreign",
    [
        model("alice", "read:users!user=alice"),
        model("alice", "access:services!service=other"),
        model("alice", "custom:gpushare:use!user=bob"),
        model("alice", "custom:gpushare:user"),
        model("culler", "custom:gpushare:use", kind="service"),
        model("", "custom:gpushare:use"),
        model("x" * 300, "custom:gpushare:use"),
        model("two\nlines", "custom:gpushare:use"),
        model("half a \ud800 character", "custom:gpushare:use"),
        {"kind": "user", "name": 7, "scopes": ["custom:gpushare:use"]},
        {"kind": "user", "name": "alice", "scopes": "custom:gpushare:use"},
    ],
)
def test_a_foreign_token(hub: Hub, foreign: dict[str, Any]) -> None:
    """A token that the hub knows but that was made for something else is refused."""
    hub.models["foreign"] = foreign
    with pytest.raises(HubTokenRefused, match=r"\. \w+") as refused:
        hub.owner_of("foreign")
    assert refused.value.status == 403


@pytest.mark.promise("bad-input-38")
def test_a_revoked_token(hub: Hub) -> None:
    """It is refused as soon as the hub's answer about it is not fresh any more."""
    hub.owner_of(ALICES)
    del hub.models[ALICES]
    hub.now_s += FRESH_S - 1
    assert hub.owner_of(ALICES).name == "alice"
    hub.now_s += 1
    with pytest.raises(HubTokenRefused, match="not any more"):
        hub.owner_of(ALICES)
    hub.there = False  # and the hub's going changes nothing about that
    hub.now_s += REFUSED_S
    with pytest.raises(HubTokenRefused):
        hub.owner_of(ALICES)


@pytest.mark.promise("bad-input-35")
def test_a_hub_that_is_being_restarted(hub: Hub) -> None:
    """Known tokens are good for five minutes after the hub's last word, unknown ones are not."""
    hub.owner_of(ALICES)
    hub.there = False
    hub.now_s += KEPT_S - 1
    assert hub.owner_of(ALICES).name == "alice"
    with pytest.raises(HubUnavailable, match="does not answer"):
        hub.owner_of(BOBS)
    hub.now_s += 1
    with pytest.raises(HubUnavailable):
        hub.owner_of(ALICES)
    hub.there = True
    assert hub.owner_of(ALICES).name == "alice"


def test_answers_are_kept(hub: Hub) -> None:
    """The hub is asked once, also about tokens that it does not know."""
    for _ in range(3):
        hub.owner_of(ALICES)
        with pytest.raises(HubTokenRefused):
            hub.owner_of("unknown")
    assert hub.asked == [ALICES, "unknown"]
    hub.models["unknown"] = model("carol")
    hub.now_s += REFUSED_S
    assert hub.owner_of("unknown").name == "carol"


def test_invented_tokens_push_out_nobody(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are tried, those of users are good while the hub restarts."""
    monkeypatch.setattr("jupyter_gpushare.hub.auth.TOKENS_KEPT_MAX", 3)
    hub.owner_of(ALICES)
    for number in range(5):
        with pytest.raises(HubTokenRefused):
            hub.owner_of(f"invented-{number}")
    hub.there = False
    hub.now_s += FRESH_S
    assert hub.owner_of(ALICES).name == "alice"


def test_questions_at_the_same_time_are_one(hub: Hub) -> None:
    """One who gives up while the hub is asked takes the answer from nobody."""

    async def ask() -> list[Any]:
        hasty, *patient = (asyncio.ensure_future(hub.tokens.owner_of(ALICES)) for _ in range(4))
        await asyncio.sleep(0)
        hasty.cancel()
        return await asyncio.gather(*patient)

    assert {user.name for user in asyncio.run(ask())} == {"alice"}
    assert hub.asked == [ALICES]


@pytest.mark.parametrize("token", ["", "two\r\nlines", "ü", "x" * 513, "\x00"])
def test_what_cannot_be_a_token(hub: Hub, token: str) -> None:
    """It is refused, and the hub is not troubled with anything that could break a header."""
    with pytest.raises(HubTokenRefused):
        hub.owner_of(token)
    assert not [asked for asked in hub.asked if asked]


def test_many_questions_wait_for_each_other() -> None:
    """However many tokens are shown at once, few questions are under way."""
    under_way = [0]

    async def hub(token: str) -> object:
        under_way.append(under_way[-1] + 1)
        await asyncio.sleep(0)
        under_way.append(under_way[-1] - 1)
        return model(token)

    async def all_at_once() -> list[HubUser]:
        tokens = HubTokens(hub)
        return await asyncio.gather(*(tokens.owner_of(f"t{n}") for n in range(3 * QUESTIONS_MAX)))

    assert len(asyncio.run(all_at_once())) == 3 * QUESTIONS_MAX
    assert max(under_way) == QUESTIONS_MAX


def test_a_hub_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as one that is not there."""
    monkeypatch.setattr("jupyter_gpushare.hub.auth.ANSWER_S_MAX", 0.01)

    async def hangs(token: str) -> object:
        await asyncio.Event().wait()
        return None

    with pytest.raises(HubUnavailable, match="does not answer"):
        asyncio.run(HubTokens(hangs).owner_of(ALICES))


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("token abc", "abc"),
        ("Bearer abc", "abc"),
        ("  TOKEN   abc ", "abc"),
        ("Basic abc", None),
        ("token ", None),
        ("abc", None),
        ("", None),
        (None, None),
    ],
)
def test_the_header(header: str | None, token: str | None) -> None:
    """Both ways of writing it that the hub itself knows, and no other."""
    assert token_of(header) == token


def test_only_a_process_of_a_hub_can_ask() -> None:
    """--hub without a hub says what is missing."""
    with pytest.raises(HubUnavailable, match="JUPYTERHUB_API_URL is not set"):
        hub_tokens({})
    assert hub_tokens({"JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api"})


class UserHandler(RequestHandler):
    """GET /hub/api/user as the hub answers it, or with `body` and `status`."""

    def initialize(self, body: bytes | None = None, status: int = 200) -> None:
        self.body = body
        self.set_status(status, "as the test says")

    def get(self) -> None:
        if self.request.headers.get("Authorization") != f"token {ALICES}":
            self.set_status(403)
            return
        self.write(model("alice") if self.body is None else self.body)


def over_http(action: Callable[[HubApi], Awaitable[Any]], *handlers: Any) -> Any:
    """`action` with a client of a hub that has these handlers, or that does not listen."""

    async def run() -> Any:
        sock, port = bind_unused_port()
        server = HTTPServer(Application(list(handlers)))
        if handlers:
            server.add_socket(sock)
        else:
            sock.close()
        try:
            return await action(HubApi(api_url=f"http://127.0.0.1:{port}/hub/api"))
        finally:
            await JupyterHubHTTPClient.loop_instance().close()
            server.stop()

    return asyncio.run(run())


def owner_over_http(token: str, *handlers: Any) -> HubUser:
    """The owner of `token` as a hub with these handlers says over HTTP."""
    user: HubUser = over_http(lambda api: HubTokens(api).owner_of(token), *handlers)
    return user


def test_over_http() -> None:
    """The token itself is the question, at the hub's own address."""
    assert owner_over_http(ALICES, ("/hub/api/user", UserHandler)).name == "alice"
    with pytest.raises(HubTokenRefused):
        owner_over_http(BOBS, ("/hub/api/user", UserHandler))


def test_a_redirect_is_no_answer() -> None:
    """The token goes nowhere else, and nobody else says whose it is."""
    with pytest.raises(HubUnavailable):
        owner_over_http(
            ALICES,
            ("/hub/api/user", RedirectHandler, {"url": "/elsewhere"}),
            ("/elsewhere", UserHandler),
        )


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"[" * 60_000], ids=len)
def test_nonsense_is_no_answer(body: bytes) -> None:
    """A proxy's error page says nothing about the token."""
    with pytest.raises(HubUnavailable):
        owner_over_http(ALICES, ("/hub/api/user", UserHandler, {"body": body}))


@pytest.mark.parametrize("status", [404, 500, 503, 520])
def test_another_status_is_no_answer(status: int) -> None:
    """A hub, or a proxy before it, that is in trouble says nothing about the token."""
    with pytest.raises(HubUnavailable):
        owner_over_http(ALICES, ("/hub/api/user", UserHandler, {"status": status}))


def test_only_our_own_rules_keep_an_answer() -> None:
    """HubAuth's cache, which knows none of them, stays empty."""

    async def ask_twice(api: HubApi) -> HubApi:
        assert await api(ALICES) == await api(ALICES) != await api(BOBS)
        return api

    api = over_http(ask_twice, ("/hub/api/user", UserHandler))
    assert len(api.cache) == 0


def test_nobody_listens() -> None:
    """A hub that is not there is told apart from one that refuses."""
    with pytest.raises(HubUnavailable):
        owner_over_http(ALICES)


def test_jupyterhub_is_for_schedulers_of_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --hub it is not imported; with it, its absence is said."""
    program = "import sys, jupyter_gpushare.scheduler.app; print('jupyterhub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"False\n"
    monkeypatch.setitem(sys.modules, "jupyter_gpushare.hub.api", None)
    with pytest.raises(HubUnavailable, match="Install `jupyterhub` where"):
        hub_tokens({"JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api"})
