"""Asks the hub whose a token is, with JupyterHub's own client for services.

`auth.py` keeps the answers: docs/decisions/0012-hubauth-without-its-cache.md says why. Only this
file imports JupyterHub, which a scheduler without a hub does not need.
"""

from __future__ import annotations

from typing import Any

from jupyterhub import version_info
from jupyterhub.services.auth import HubAuth

_REDIRECTS = "allow_redirects" if version_info >= (6,) else "follow_redirects"
"""JupyterHub 6 asks with aiohttp, 5 with Tornado."""


class HubApi(HubAuth):  # type: ignore[misc]
    """HubAuth with its address and certificates. No answer and no token stays in it."""

    async def __call__(self, token: str) -> object:
        """The model of the token's user, None for a token that the hub does not know; raises
        OSError where no hub answers."""
        try:
            return await self.user_for_token(token, use_cache=False, sync=False)
        except Exception as error:  # a proxy's own status, 520 say, is an AttributeError there
            raise OSError(f"The hub does not answer at {self.api_url}: {error!r}") from error

    async def _api_request(self, method: str, url: str, /, **options: Any) -> Any:
        """A redirect would carry the token elsewhere, and the answer of there would count."""
        return await super()._api_request(method, url, **options, **{_REDIRECTS: False})
