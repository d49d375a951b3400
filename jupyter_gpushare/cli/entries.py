"""`jupyter gpushare cap` and `limit`: how much memory a user, a group or a notebook may have, and
which part of the GPU's time a user or a group. Each changes one entry of a setting, live; the
others stay."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.shares.entries import EntryError, is_tenant, parse_caps

from .errors import UsageError
from .naming import full_name, notebook_named
from .options import add_runtime_dir, client_of
from .set import warn_of_unseen
from .text import size

UNSET = "unset"
_KINDS = ("request", "limit", "hard-limit")


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    cap = verbs.add_parser(
        "cap",
        help="cap the memory of a user or a notebook: cap ann 20GiB, cap ann:train.ipynb 8GiB",
    )
    cap.add_argument(
        "who",
        metavar="WHO",
        help="a user (ann), a group (@staff) or a notebook (ann:train.ipynb); of a notebook that "
        "runs, a beginning is enough",
    )
    cap.add_argument("size", metavar="SIZE", help=f"like 20GiB, on each GPU; {UNSET}: no cap")
    add_runtime_dir(cap)
    cap.set_defaults(perform=set_cap)
    limit = verbs.add_parser(
        "limit",
        help="say which part of the GPU's time a user has: limit ann --limit 0.5",
    )
    limit.add_argument("who", metavar="WHO", help="a user (ann) or a group (@staff)")
    for kind in _KINDS:
        help_ = f"a part such as 0.25, as the setting {_setting(kind)} has it; {UNSET}: none"
        limit.add_argument(f"--{kind}", metavar="PART", help=help_)
    add_runtime_dir(limit)
    limit.set_defaults(perform=set_limits)


def _setting(kind: str) -> str:
    return f"{kind.replace('-', '_')}s"


def set_cap(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    status = client.status()
    who = notebook_named(status, arguments.who)
    setting = "memory_caps" if is_tenant(who) else "user_memory_caps"
    if arguments.size != UNSET:
        try:
            cap_bytes = parse_caps(f"{who}={arguments.size}")[who]
        except (EntryError, KeyError) as error:
            raise UsageError(str(error) or f"{who!r} is no name. Write it like ann.") from error
    _change(client, {setting: {who: arguments.size}})
    if arguments.size == UNSET:
        print(f"{who} has no cap of its own any more.")
    else:
        print(f"{who} may allocate {size(cap_bytes)} on each GPU.")
        for name, held_bytes in held_by(who, status).items():
            if held_bytes > cap_bytes:
                print(
                    f"It has {size(held_bytes)} on {name}. It keeps that, and gets no more until "
                    f"it has freed enough."
                )
    _tell_of_nobody(who, status)
    warn_of_unseen(client)
    return 0


def set_limits(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    given = {kind: getattr(arguments, kind.replace("-", "_")) for kind in _KINDS}
    if not any(given.values()):
        raise UsageError("There is nothing to change. Give --request, --limit or --hard-limit.")
    who = arguments.who
    changes = {_setting(kind): {who: part} for kind, part in given.items() if part}
    _change(client, changes)
    for kind, part in given.items():
        if part:
            told = "none of its own any more" if part == UNSET else f"{part} of each GPU's time"
            print(f"{kind} of {who}: {told}")
    warn_of_unseen(client)
    return 0


def _change(client: SchedulerClient, changes: Mapping[str, Mapping[str, str]]) -> None:
    client.change_settings(
        {
            setting: {who: None if value == UNSET else value for who, value in entries.items()}
            for setting, entries in changes.items()
        }
    )


def _tell_of_nobody(who: str, status: Mapping[str, Any]) -> None:
    """The name of a notebook may be a mistake."""
    called_so = (who in (each["owner"], full_name(each)) for each in status["tenants"])
    if is_tenant(who) and not any(called_so):
        print(f"No notebook is called {who} now. The entry waits for one.")


def held_by(who: str, status: Mapping[str, Any]) -> dict[str, int]:
    """What a user or a notebook has allocated, by the names of devices; nothing of groups. Where
    several notebooks share a name, each has the cap, and the largest counts. Pure."""
    names = {device["id"]: device["name"] for device in status["devices"]}
    most: Counter[str] = Counter()
    for tenant in status["tenants"]:
        if who not in (tenant["owner"], full_name(tenant)):
            continue
        own: Counter[str] = Counter()
        for client in tenant["clients"]:
            for device in client["devices"]:
                own[device["device"]] += device["bytes_allocated"]
        most = most | own if is_tenant(who) else most + own
    return {names[device]: held for device, held in most.items() if device in names}
