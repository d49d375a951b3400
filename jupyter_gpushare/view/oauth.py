"""Logging in by the hub's OAuth. Only this file of the view imports JupyterHub.

The hub says whose a token is; `HubTokens` keeps its answers, for browsers as for scripts
(docs/decisions/0012-hubauth-without-its-cache.md).
"""

from __future__ import annotations

import re
from typing import Any

from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated
from tornado.web import HTTPError, RequestHandler

from jupyter_gpushare.hub.auth import HubError, HubTokenRefused, HubTokens

from .callers import CallerRefused, Viewer, caller_of_token, is_opened
from .headers import PAGE_HEADERS

_WITHOUT_XSRF = ("no-cors", "websocket")
"""JupyterHub wants no XSRF token of requests in these modes, for the page that makes them would not
get the answer. A page of the same origin does: `fetch(url, {mode: "no-cors"})`. Ours uses neither.
"""


class _Auth(HubOAuth):  # type: ignore[misc]
    """JupyterHub's cookies, states and XSRF; what the hub says of a token comes from HubTokens."""

    tokens: HubTokens

    async def _user(self, token: str) -> dict[str, Any] | None:
        try:
            user = await self.tokens.owner_of(token)
        except HubTokenRefused:
            return None  # the cookie is old: its user logs in once more
        return {
            "kind": "user",
            "name": user.name,
            "admin": user.admin,
            "scopes": sorted(user.scopes),
        }

    def user_for_token(
        self, token: str, use_cache: bool = True, session_id: str = "", *, sync: bool = True
    ) -> Any:
        """Something to await. Nobody here asks otherwise: it would be in a thread of its own."""
        assert not sync
        return self._user(token)

    async def user_of(self, handler: RequestHandler) -> dict[str, Any] | None:
        """Raises CallerRefused."""
        if handler.request.headers.get("Sec-Fetch-Mode") in _WITHOUT_XSRF:
            return None
        try:
            user: dict[str, Any] | None = await self.get_user(handler, sync=False)
        except HubError as error:
            raise CallerRefused(error.status, str(error)) from error
        return user


class OAuthCallers:
    """Users of the hub: by the token in the header Authorization, else by the cookie."""

    def __init__(self, tokens: HubTokens) -> None:
        self._tokens = tokens
        self._auth = _Auth()
        self._auth.tokens = tokens

    async def caller(self, handler: RequestHandler) -> Viewer | None:
        authorization = handler.request.headers.get("Authorization")
        if authorization is not None:
            return await caller_of_token(self._tokens, authorization)
        user = await self._auth.user_of(handler)
        return None if user is None else Viewer(user["name"], user["admin"])

    def routes(self, prefix: str) -> list[tuple[Any, ...]]:
        arguments = {"auth": self._auth, "home": prefix}
        return [
            (f"{re.escape(prefix)}login", _LoginHandler, arguments),
            (f"{re.escape(prefix)}oauth_callback", _CallbackHandler, arguments),
        ]


class _Through(HubOAuthenticated, RequestHandler):  # type: ignore[misc]
    """What the two steps of logging in share."""

    def initialize(self, auth: _Auth, home: str) -> None:
        self.hub_auth = auth
        self._home = home

    def set_default_headers(self) -> None:
        for name, value in PAGE_HEADERS.items():
            self.set_header(name, value)

    async def prepare(self) -> None:
        """Else JupyterHub would look for the user in a thread, while everybody waits."""
        try:
            self.current_user = await self.hub_auth.user_of(self)
        except CallerRefused as error:
            raise HTTPError(error.status, str(error)) from error

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        said = error.log_message if isinstance(error, HTTPError) else None
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish(f"{said or 'Logging in has failed. Open the page once more.'}\n")


class _LoginHandler(_Through):
    """Sends people to the hub, which sends them back here, and then to the page."""

    def get(self) -> None:
        if self.current_user is None:
            if not is_opened(self.request):
                raise HTTPError(
                    403, "Nobody has logged in here. Open the page of the view in a browser."
                )
            self.redirect(self.get_login_url())
            return
        query = self.request.query
        self.redirect(f"{self._home}?{query}" if query else self._home)


class _CallbackHandler(_Through, HubOAuthCallbackHandler):  # type: ignore[misc]
    """JupyterHub's own."""
