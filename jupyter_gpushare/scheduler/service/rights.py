"""Who may do what, over HTTP."""

from __future__ import annotations

import os
from http import HTTPStatus

from jupyter_gpushare.client.connection import user_name

from ..base.errors import RequestError
from ..identity.caller import Caller
from ..identity.tokens import key_of


def must_administer(caller: Caller, what_is_done: str) -> None:
    """Raises RequestError for everybody else."""
    if not caller.is_admin:
        raise RequestError(
            HTTPStatus.FORBIDDEN, f"{what_is_done} by {_who_administers(caller)} alone. Ask them."
        )


def _who_administers(caller: Caller) -> str:
    """In words; a hub may have named more people."""
    accounts = f"root and {user_name(os.getuid())}"
    return f"the hub's GPU administrators, {accounts}" if caller.hub_user else accounts


def may_act_on(caller: Caller, tenant_id: str) -> bool:
    """Whether the tenant is the caller's own; an administrator may act on those of others too. Else
    raises RequestError. The id names the owner, so that this works for tenants from before a
    restart too."""
    owner = key_of(tenant_id)
    if owner is None:
        raise RequestError(
            HTTPStatus.NOT_FOUND, f"There is no tenant {tenant_id!r}. Look at the status."
        )
    if caller.key != owner and not caller.is_admin:
        raise RequestError(
            HTTPStatus.FORBIDDEN, "This tenant is another user's. Act on your own tenants."
        )
    return caller.key == owner
