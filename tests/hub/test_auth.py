"""Whose a token is: asked of a hub that the test plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from jupyter_gpushare.hub.auth import (
    FRESH_S,
    KEPT_S,
    REFUSED_S,
    Answer,
    HubApi,
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

    async def __call__(self, token: str) -> Answer:
        self.asked.append(token)
        await asyncio.sleep(0)
        if not self.there:
            raise ConnectionRefusedError("the hub is being restarted")
        if token not in self.models:
            return 403, b'{"message": "Forbidden"}'
        return 200, json.dumps(self.models[token]).encode()

    def owner_of(self, token: str) -> HubUser:
        return asyncio.run(self.tokens.owner_of(token))


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.mark.promise("Owners are what the hub says...")
def test_the_hub_says_whose_a_token_is(hub: Hub) -> None:
    """Name, groups and scopes are the hub's word; nobody is an administrator for that."""
    alice = hub.owner_of(ALICES)
    assert (alice.name, alice.groups, alice.admin) == ("alice", frozenset({"staff"}), False)
    assert hub.owner_of(BOBS).name == "bob"


@pytest.mark.promise("Roles have least privilege: the service...")
def test_only_the_scope_makes_an_administrator(hub: Hub) -> None:
    """The hub's own administrators are none here unless the token says so."""
    hub.models["root"] = model("root", "custom:gpushare:admin", "custom:gpushare:use")
    hub.models["boss"] = model("boss", "custom:gpushare:use!user=boss", admin=True)
    assert hub.owner_of("root").admin
    assert not hub.owner_of("boss").admin


@pytest.mark.promise("A revoked or foreign hub token...")
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


@pytest.mark.promise("A revoked or foreign hub token...")
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


@pytest.mark.promise("A hub that restarts: servers and...")
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


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"[" * 60_000], ids=len)
def test_nonsense_is_no_answer(body: bytes) -> None:
    """A proxy's error page says nothing about the token."""

    async def nonsense(token: str) -> Answer:
        return 200, body

    with pytest.raises(HubUnavailable):
        asyncio.run(HubTokens(nonsense).owner_of(ALICES))


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
    """GET /hub/api/user as the hub answers it."""

    def get(self) -> None:
        if self.request.headers.get("Authorization") != f"token {ALICES}":
            self.set_status(403)
            return
        self.write(model("alice"))


def over_http(action: Callable[[str], Awaitable[Any]]) -> Any:
    """`action` with the address of a hub's API that listens."""

    async def run() -> Any:
        sock, port = bind_unused_port()
        server = HTTPServer(Application([("/hub/api/user", UserHandler)]))
        server.add_socket(sock)
        try:
            return await action(f"http://127.0.0.1:{port}/hub/api")
        finally:
            server.stop()

    return asyncio.run(run())


def test_over_http() -> None:
    """The token itself is the question, at the hub's own address."""
    alice = over_http(lambda url: HubTokens(HubApi(url)).owner_of(ALICES))
    assert alice.name == "alice"
    with pytest.raises(HubTokenRefused):
        over_http(lambda url: HubTokens(HubApi(url)).owner_of(BOBS))


def test_nobody_listens() -> None:
    """A hub that is not there is told apart from one that refuses."""
    sock, port = bind_unused_port()
    sock.close()
    with pytest.raises(HubUnavailable):
        asyncio.run(HubTokens(HubApi(f"http://127.0.0.1:{port}/hub/api")).owner_of(ALICES))
