"""`jupyter gpushare set`: change settings of the running scheduler, or show them."""

from __future__ import annotations

import argparse
import enum
import textwrap
from collections.abc import Mapping
from typing import Any

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.configuration.checks import unseen_told
from jupyter_gpushare.core.configuration.values import find, parsed, shown
from jupyter_gpushare.core.settings import ENTRIES, SETTINGS, SettingsError

from .errors import UsageError
from .options import add_runtime_dir, client_of
from .text import table

_DESCRIPTION = """Change settings of the running scheduler; kernels follow at once. Without
arguments, show all settings. Durations are written like 5s, 500ms, 2m or 1h, sizes like 4GiB."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "set",
        help="change settings: set quantum_s 5s, set turns off, set idle_ms 100ms",
        description=_DESCRIPTION,
        epilog=explained(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "pairs", nargs="*", metavar="NAME VALUE", help="a setting and its new value"
    )
    add_runtime_dir(parser)
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    changes = changes_of(arguments.pairs)
    settings = client.change_settings(changes) if changes else client.status()["settings"]
    print(table(["SETTING", "VALUE"], rows_of({n: settings[n] for n in changes or settings})))
    if changes.keys() & ENTRIES.keys():
        warn_of_unseen(client)
    return 0


def warn_of_unseen(client: SchedulerClient) -> None:
    """Say which users and groups settings name that nobody has seen."""
    if unseen := unseen_told(client.explain_settings().get("unseen", {})):
        print(unseen)


def changes_of(pairs: list[str]) -> dict[str, object]:
    """The arguments as the scheduler wants them. Pure."""
    if len(pairs) % 2:
        raise UsageError(f"{pairs[-1]!r} has no value. Write `set NAME VALUE`.")
    changes: dict[str, object] = {}
    for given, text in zip(pairs[::2], pairs[1::2], strict=True):
        try:
            row = find(given)
            value = parsed(row, text)
        except SettingsError as error:
            raise UsageError(str(error)) from error
        changes[row.name] = value.value if isinstance(value, enum.Enum) else value
    return changes


def rows_of(settings: Mapping[str, Any]) -> list[list[str]]:
    """Names and values with their units. Pure."""
    rows = {row.name: row for row in SETTINGS}
    return [
        [name, shown(rows[name], value) if name in rows else str(value)]
        for name, value in settings.items()
    ]


def explained() -> str:
    """Each setting with its default and what it means. Pure."""
    parts = ["settings:"]
    for row in SETTINGS:
        parts.append(f"  {row.name} ({shown(row, row.plain_default)})")
        parts.append(textwrap.fill(row.help, 78, initial_indent="    ", subsequent_indent="    "))
    return "\n".join(parts)
