"""`jupyter gpushare release`, `interrupt`, `hold`, `evict` and `boost`: what can be done to a
notebook, by its user and by administrators."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.configuration.values import parsed
from jupyter_gpushare.core.settings import SETTINGS, SettingsError

from .errors import UsageError
from .naming import tenant_named
from .options import add_runtime_dir, client_of
from .text import duration

_HOLD_MAX = next(row for row in SETTINGS if row.name == "hold_max_s")
_VERBS: dict[str, tuple[str, Callable[[SchedulerClient, str], None], str]] = {
    "release": (
        "ask a notebook to give its turn to the next one",
        SchedulerClient.release_tenant,
        "gives its turn back.",
    ),
    "interrupt": (
        "end the GPU calls of a notebook that wait for a turn",
        SchedulerClient.interrupt_tenant,
        "waits no more: its waiting calls end with an error.",
    ),
    "evict": (
        "have a notebook give its turn back, and its memory leave the device until its next turn",
        SchedulerClient.evict_tenant,
        "gives its turn back and parks its memory until its next turn.",
    ),
    "boost": (
        "let a notebook have the next turn, once",
        SchedulerClient.boost_tenant,
        "has the next turn.",
    ),
}


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for verb, (help_, _, _) in _VERBS.items():
        _add(verbs, verb, help_).set_defaults(perform=perform, verb=verb)
    hold = _add(verbs, "hold", "keep the turn of a notebook: hold ann:train.ipynb 10m, hold … 0")
    hold.add_argument("time", metavar="TIME", help="how long, like 10m; 0 ends a hold")
    hold.set_defaults(perform=keep)


def _add(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], verb: str, help_: str
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(verb, help=help_)
    parser.add_argument(
        "notebook",
        metavar="NOTEBOOK",
        help="owner:notebook as `status` shows them (ann:train.ipynb); a beginning is enough",
    )
    add_runtime_dir(parser)
    return parser


def perform(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    tenant = tenant_named(client.status(), arguments.notebook)
    _, act, done = _VERBS[arguments.verb]
    act(client, tenant["id"])
    print(f"{tenant['owner']}:{tenant['name']} {done}")
    return 0


def keep(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    try:
        hold_s = parsed(_HOLD_MAX, arguments.time)
    except SettingsError:
        hold_s = None
    if not isinstance(hold_s, int | float) or hold_s < 0:
        raise UsageError(f"{arguments.time!r} is not a time. Write it like 10m, 90s or 0.")
    tenant = tenant_named(client.status(), arguments.notebook)
    held_s = client.hold_tenant(tenant["id"], hold_s)
    told = f"keeps its turn, or its next one, for {duration(held_s)}" if held_s else "keeps no turn"
    print(f"{tenant['owner']}:{tenant['name']} {told}.")
    return 0
