"""Who asks, and what they may see: a user of the hub, by the cookie of their browser or a token."""

from __future__ import annotations

import hmac
import logging
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler

from jupyter_gpushare.hub.auth import HubError, HubTokens, token_of
from jupyter_gpushare.reports.node_tokens import read_regular

from .caller import Viewer as Viewer

log = logging.getLogger(__name__)

METRICS_TOKEN_CHARACTERS_MAX = 4096


class CallerRefused(Exception):
    """The message is a sentence for a person."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Viewers(Protocol):
    """Says who calls; None: nobody has logged in. Raises CallerRefused."""

    async def caller(self, handler: RequestHandler) -> Viewer | None: ...

    def routes(self, prefix: str) -> list[tuple[Any, ...]]:
        """Through which people log in. The page leads them to `login` below the prefix."""


def is_opened(request: HTTPServerRequest) -> bool:
    """By somebody at a browser, not by a script of a page: that would be led in circles. Programs
    and old browsers do not say."""
    return request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"


async def caller_of_token(tokens: HubTokens, authorization: str) -> Viewer:
    """Raises CallerRefused."""
    token = token_of(authorization)
    if token is None:
        raise CallerRefused(
            HTTPStatus.UNAUTHORIZED,
            "The header Authorization has no hub token. Send `Authorization: token …` with one of "
            "yours.",
        )
    try:
        user = await tokens.owner_of(token)
    except HubError as error:
        raise CallerRefused(error.status, str(error)) from error
    return Viewer(user.name, user.admin)


class MetricsToken:
    """The one token of Prometheus, which is no user of the hub. Its file is read each time: it may
    be replaced."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def fits(self, authorization: str | None) -> bool:
        shown = token_of(authorization)
        if self._path is None or shown is None:
            return False
        try:
            kept = read_regular(self._path, METRICS_TOKEN_CHARACTERS_MAX).strip()
        except OSError as error:
            log.warning("the file of the metrics token cannot be read: %s", error)
            return False
        return bool(kept) and hmac.compare_digest(kept, shown.encode("utf-8", "replace"))
