"""Roles: users and their servers may use the GPU, named administrators may manage it. Pure.

All that is here adds to what the administrator has configured, and adds nothing twice. The managed
service itself gets no rights at all: it asks the hub about a token with that very token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from .scopes import ADMIN_SCOPE, USE_SCOPE

ADMIN_ROLE = "gpushare-admin"
OWN_USE = f"{USE_SCOPE}!user"
"""Which the hub turns into the user's own name."""
SERVER_SCOPES = ("users:activity!user", "access:servers!server")
"""What the hub gives a notebook server's token where nobody has changed that role."""
USER_SCOPES = ("self",)

Role = dict[str, Any]
TokenScopes = Callable[[Any], Any]


def with_our_roles(
    roles: Iterable[Role],
    *,
    user_role_too: bool,
    user_scopes: Collection[str] = (OWN_USE,),
    admin_users: Collection[str],
    admin_groups: Collection[str],
) -> list[Role]:
    """The administrator's roles and ours. `user_role_too` is for hubs that have no other way of
    adding `user_scopes` to what every user may do."""
    found = [dict(role) for role in roles]
    _grant(found, "server", SERVER_SCOPES, OWN_USE)
    if user_role_too or _defines_scopes(found, "user"):
        _grant(found, "user", USER_SCOPES, *user_scopes)
    admins = _grant(found, ADMIN_ROLE, (), ADMIN_SCOPE)
    for key, members in (("users", admin_users), ("groups", admin_groups)):
        # A hub whose authenticator manages roles refuses a role that names members.
        if together := _united(admins.get(key) or (), sorted(members)):
            admins[key] = together
    return found


def with_our_scope(scopes: Iterable[str] | TokenScopes | None) -> list[str] | TokenScopes | None:
    """`Spawner.server_token_scopes` with ours; None and nothing mean the role `server`."""
    if callable(scopes):
        return scopes if getattr(scopes, _MARK, False) else _chained(scopes)
    return _united(scopes, (OWN_USE,)) if scopes else None


_MARK = "_adds_gpushare"


def _chained(scopes: TokenScopes) -> TokenScopes:
    async def server_token_scopes(spawner: Any) -> list[str]:
        asked = scopes(spawner)
        found = list(await asked if hasattr(asked, "__await__") else asked)
        return _united(found, (OWN_USE,)) if found else []

    setattr(server_token_scopes, _MARK, True)
    return server_token_scopes


def _grant(roles: list[Role], name: str, default: Iterable[str], *scopes: str) -> Role:
    role = next((r for r in roles if r.get("name") == name), None)
    if role is None:
        roles.append(role := {"name": name})
    role["scopes"] = _united(role.get("scopes", default), scopes)
    return role


def _defines_scopes(roles: list[Role], name: str) -> bool:
    return any(role.get("name") == name and "scopes" in role for role in roles)


def _united(first: Iterable[str], second: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*first, *second]))
