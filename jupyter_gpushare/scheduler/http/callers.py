"""Finds out who calls over HTTP: the account of the peer, or the user whom the hub names."""

from __future__ import annotations

from http import HTTPStatus
from typing import Protocol

from jupyter_gpushare.hub.auth import HubError, HubTokens, HubUnavailable, token_of

from ..base.errors import RequestError
from ..identity.caller import Caller
from ..identity.peer import Peer

RETRY_AFTER_S = 1
"""While the hub does not answer."""
STREAM_S_MAX = 300.0
"""A stream is asked for anew after this long where a token opened it, which may be revoked."""


class Callers(Protocol):
    """Says who the caller is; raises RequestError."""

    async def caller(self, peer: Peer, authorization: str | None) -> Caller: ...


class AccountCallers:
    """Without a hub: whose process it is. Nothing that is sent changes that."""

    async def caller(self, peer: Peer, authorization: str | None) -> Caller:
        return Caller(peer.uid, is_local=peer.is_local)


class HubCallers:
    """Under a hub: whose token it is. The accounts say little there: users may share one.

    Without a token only those who could read the scheduler's key anyway are somebody: root and the
    scheduler's own account in its own namespaces, that is the administrator at a terminal. Where
    `tokens_alone` count, at the socket that is mounted into containers, nobody is."""

    def __init__(self, tokens: HubTokens, *, tokens_alone: bool = False) -> None:
        self._tokens = tokens
        self._tokens_alone = tokens_alone

    async def caller(self, peer: Peer, authorization: str | None) -> Caller:
        account = Caller(peer.uid, is_local=peer.is_local)
        if authorization is None and account.is_admin and not self._tokens_alone:
            return account
        token = token_of(authorization)
        if token is None:
            raise RequestError(
                HTTPStatus.UNAUTHORIZED,
                "This scheduler belongs to a JupyterHub, and the request has no hub token. Send "
                "the one of your notebook server, which is in JUPYTERHUB_API_TOKEN there.",
            )
        try:
            user = await self._tokens.owner_of(token)
        except HubError as error:
            later_s = RETRY_AFTER_S if isinstance(error, HubUnavailable) else 0
            raise RequestError(error.status, str(error), retry_after_s=later_s) from error
        return Caller(peer.uid, user.name, user.admin, hub_groups=tuple(sorted(user.groups)))
