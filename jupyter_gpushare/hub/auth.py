"""Asks the hub for the owner of a hub token; the bearer's own word never counts.

An answer is used for `FRESH_S` without asking again, so that a revoked token is refused soon; while
the hub does not answer (it is being restarted) for `KEPT_S` at most.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from .scopes import may_administer, may_use

log = logging.getLogger(__name__)

FRESH_S = 30.0
KEPT_S = 300.0
REFUSED_S = 5.0
"""So long a refusal is remembered: somebody who tries again and again does not trouble the hub."""
ANSWER_S_MAX = 2.0
"""Less than a kernel waits for the scheduler when it starts: a hub that hangs is as one that is not
there, and what it last said counts."""
QUESTIONS_MAX = 10
"""So many questions are under way at once; others wait, `ANSWER_S_MAX` in all."""
TOKENS_KEPT_MAX = 4096
TOKEN_CHARACTERS_MAX = 512
NAME_CHARACTERS_MAX = 255

Ask = Callable[[str], Awaitable[object]]
"""The hub's JSON about a token's user, None for a token that it does not know; raises OSError where
no hub answers."""


class HubError(Exception):
    """Base of the two below; the message is fit for a person."""

    status: HTTPStatus


class HubTokenRefused(HubError):
    """The hub does not know the token, or it was not made for the GPU."""

    status = HTTPStatus.FORBIDDEN


class HubUnavailable(HubError):
    """The hub does not say whose the token is."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


@dataclass(frozen=True, slots=True)
class HubUser:
    """Who the hub says the bearer of a token is. `admin`: may act on everybody's tenants."""

    name: str
    groups: frozenset[str]
    admin: bool
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class _KnownUser:
    asked_s: float
    found: HubUser | HubTokenRefused


class HubTokens:
    """The hub's answers about tokens. Tokens themselves are not kept, only their digests."""

    def __init__(self, ask: Ask, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock_s = clock_s
        self._users: OrderedDict[bytes, _KnownUser] = OrderedDict()
        self._refused: OrderedDict[bytes, _KnownUser] = OrderedDict()
        self._questions = asyncio.Semaphore(QUESTIONS_MAX)
        self._asking: dict[bytes, asyncio.Task[HubUser | HubTokenRefused]] = {}

    async def owner_of(self, token: str) -> HubUser:
        """The token's owner; raises HubTokenRefused or HubUnavailable."""
        if not (token.isascii() and token.isprintable() and len(token) <= TOKEN_CHARACTERS_MAX):
            raise _not_known()
        key = hashlib.sha256(token.encode()).digest()
        known = self._known(key)
        if known is not None and self._age_s(known) < _fresh_for_s(known):
            return _user_or_raise(known.found)
        task = self._asking.get(key)
        if task is None:
            # A caller that hangs up meanwhile does not take the answer away from the others.
            task = self._asking[key] = asyncio.ensure_future(self._ask_hub(key, token))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return _user_or_raise(await asyncio.shield(task))

    async def _ask_hub(self, key: bytes, token: str) -> HubUser | HubTokenRefused:
        try:
            found = _read(await asyncio.wait_for(self._answer(token), ANSWER_S_MAX))
        except (OSError, asyncio.TimeoutError, HubUnavailable) as error:
            return self._kept(key, error)
        self._users.pop(key, None)
        self._refused.pop(key, None)
        # Apart, so that nobody who shows thousands of invented tokens makes us forget the users'.
        kept = self._users if isinstance(found, HubUser) else self._refused
        kept[key] = _KnownUser(self._clock_s(), found)
        if len(kept) > TOKENS_KEPT_MAX:
            kept.popitem(last=False)
        return found

    async def _answer(self, token: str) -> object:
        async with self._questions:
            return await self._ask(token)

    def _known(self, key: bytes) -> _KnownUser | None:
        return self._users.get(key) or self._refused.get(key)

    def _kept(self, key: bytes, error: Exception) -> HubUser | HubTokenRefused:
        """What the hub said when it last answered, unless that is too long ago."""
        known = self._known(key)
        if known is not None and self._age_s(known) < KEPT_S:
            return known.found
        log.warning("the hub does not answer: %r", error)
        raise HubUnavailable(
            "JupyterHub does not answer, so nobody can say whose this token is. Try again when "
            "the hub is back."
        ) from error

    def _age_s(self, known: _KnownUser) -> float:
        return self._clock_s() - known.asked_s


def hub_tokens(environ: Mapping[str, str] | None = None) -> HubTokens:
    """For a process that the hub started; raises HubUnavailable for another one."""
    env = os.environ if environ is None else environ
    api_url = env.get("JUPYTERHUB_API_URL")
    if not api_url:
        raise HubUnavailable(
            "JUPYTERHUB_API_URL is not set, so there is no hub to ask. Let JupyterHub start this "
            "process as a service, or leave --hub out."
        )
    try:
        from .api import HubApi
    except ImportError as error:
        raise HubUnavailable(
            f"JupyterHub's Python package cannot be imported: {error}. Install `jupyterhub` where "
            f"the scheduler runs."
        ) from error
    return HubTokens(HubApi(api_url=api_url))


def token_of(header: str | None) -> str | None:
    """The token in an Authorization header; None where there is none."""
    kind, _, token = (header or "").strip().partition(" ")
    return token.strip() or None if kind.lower() in ("token", "bearer") else None


def _fresh_for_s(known: _KnownUser) -> float:
    return FRESH_S if isinstance(known.found, HubUser) else REFUSED_S


def _user_or_raise(found: HubUser | HubTokenRefused) -> HubUser:
    if isinstance(found, HubUser):
        return found
    # A fresh one each time: an exception that is raised twice grows a traceback of both.
    raise HubTokenRefused(str(found))


def _read(model: object) -> HubUser | HubTokenRefused:
    """The hub's answer to "whose token is this?"; raises HubUnavailable for no answer to that."""
    if model is None:
        return _not_known()
    if not isinstance(model, dict):
        raise HubUnavailable("The hub's answer does not tell of a user. Look into its log.")
    name, scopes = model.get("name"), frozenset(_texts(model.get("scopes")))
    if model.get("kind") != "user" or not isinstance(name, str):
        return HubTokenRefused(
            "This token belongs to a service of the hub, not to a user. Show a user's token."
        )
    if not (0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()):
        return HubTokenRefused("The hub gives this token's user no usable name. Ask its admin.")
    if not may_use(name, scopes):
        return HubTokenRefused(
            "This token was made for something else than the GPU. Use the token of a notebook "
            "server, and restart a server that was started before the hub knew of "
            "jupyter-gpushare."
        )
    return HubUser(name, frozenset(_texts(model.get("groups"))), may_administer(scopes), scopes)


def _texts(value: object) -> list[str]:
    return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []


def _not_known() -> HubTokenRefused:
    return HubTokenRefused(
        "The hub does not know this token, or not any more. Restart your server from the hub's "
        "control panel, so that it gets a fresh one."
    )
