"""The hub's scopes that this project adds, and what a token's scopes allow. Pure."""

from __future__ import annotations

from collections.abc import Collection

USE_SCOPE = "custom:gpushare:use"
ADMIN_SCOPE = "custom:gpushare:admin"
CUSTOM_SCOPES: dict[str, dict[str, object]] = {
    USE_SCOPE: {"description": "Register kernels for turns on the GPU, and see the queue"},
    ADMIN_SCOPE: {
        "description": "See and end everybody's turns on the GPU, and change its settings",
        "subscopes": [USE_SCOPE],
    },
}


def may_use(name: str, scopes: Collection[str]) -> bool:
    """Whether a token of user `name` with these scopes was made for the GPU."""
    return bool({USE_SCOPE, ADMIN_SCOPE, f"{USE_SCOPE}!user={name}"} & set(scopes))


def may_administer(scopes: Collection[str]) -> bool:
    """Only the scope counts: an administrator's notebook server does not have it, so that no code
    in a notebook acts for everybody."""
    return ADMIN_SCOPE in scopes
