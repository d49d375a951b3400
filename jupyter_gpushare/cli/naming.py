"""How people name notebooks and devices in a terminal. Pure: a status and a name in, the one that
is meant out; UsageError where there is none, or several."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jupyter_gpushare.core.shares.entries import is_tenant, name_of_tenant

from .errors import UsageError

ALL = "all"
_SHOWN_MAX = 5


def tenant_named(status: dict[str, Any], given: str) -> dict[str, Any]:
    """A tenant by `owner:notebook`, by its notebook alone or by its id; what no other one begins
    with is enough (`ann:tr`)."""
    tenants = status["tenants"]
    found = [each for each in tenants if given in (each["id"], each["name"], full_name(each))]
    if not found:
        found = [each for each in tenants if _begins(each, given)]
    if not found:
        raise UsageError(
            f"No notebook is called {given!r}. Look at `jupyter gpushare status`, and write it "
            f"like ann:train.ipynb."
        )
    if len(found) > 1:
        names = _listed(f"{full_name(each)} ({each['id']})" for each in found)
        raise UsageError(f"{given!r} may be {names}. Write more of the name, or the id.")
    (tenant,) = found
    if tenant["id"].startswith("other-"):
        raise UsageError(f"{given!r} is another user's notebook. Ask an administrator.")
    return tenant  # type: ignore[no-any-return]


def notebook_named(status: dict[str, Any], given: str) -> str:
    """The name of entries: that of a user or a group as it is; of a notebook, in full if one runs
    whose name begins so. One that does not run may have entries too."""
    if not is_tenant(given):
        return given
    tenants = status["tenants"]
    names = {full_name(each) for each in tenants if _begins(each, given)}
    if given in names or not names:
        return given
    if len(names) > 1:
        raise UsageError(f"{given!r} may be {_listed(sorted(names))}. Write more of the name.")
    return names.pop()


def devices_named(status: dict[str, Any], given: str) -> list[dict[str, Any]]:
    """`all`, or one by its number in the status, by its UUID or a beginning of that, or by its
    name."""
    devices: list[dict[str, Any]] = status["devices"]
    if given == ALL and devices:
        return devices
    if given.isascii() and given.isdigit() and int(given) < len(devices):
        return [devices[int(given)]]
    wanted = given.lower().removeprefix("gpu-").removeprefix("mig-").replace("-", "")
    tests: tuple[Callable[[dict[str, Any]], bool], ...] = (
        lambda each: given == each["name"],
        lambda each: len(wanted) >= 4 and each["id"].startswith(wanted),
        lambda each: bool(given) and each["name"].lower().startswith(given.lower()),
    )
    for fits in tests:
        found = [each for each in devices if fits(each)]
        if len(found) == 1:
            return found
        if found:
            names = _listed(f"{each['name']} ({uuid.UUID(each['id'])})" for each in found)
            raise UsageError(f"{given!r} may be {names}. Write the UUID, or the number.")
    raise UsageError(
        f"There is no device {given!r}. Give a number, a UUID or a name that `jupyter gpushare "
        f"status` shows, or `all`."
    )


def full_name(tenant: Mapping[str, Any]) -> str:
    """As entries of settings have it."""
    return name_of_tenant(tenant["owner"], tenant["name"])


def _begins(tenant: dict[str, Any], given: str) -> bool:
    """Of both parts the beginning is enough; names may have colons themselves."""
    if not given:
        return False
    if tenant["name"].startswith(given) or full_name(tenant).startswith(given):
        return True
    colons = [place for place, sign in enumerate(given) if sign == ":"]
    return any(
        tenant["owner"].startswith(given[:place]) and tenant["name"].startswith(given[place + 1 :])
        for place in colons
        if place
    )


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - _SHOWN_MAX
    return ", ".join(names[:_SHOWN_MAX]) + (f" or {more} more" if more > 0 else "")
