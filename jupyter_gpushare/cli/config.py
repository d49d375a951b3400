"""`jupyter gpushare config`: where each setting of the running scheduler comes from; and
`jupyter gpushare unset`, which takes back what was set while it runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from jupyter_gpushare.core.configuration.checks import unseen_told
from jupyter_gpushare.core.configuration.values import find, shown
from jupyter_gpushare.core.settings import SETTINGS, SettingsError

from .errors import UsageError
from .options import add_runtime_dir, client_of
from .set import rows_of
from .text import table

_DESCRIPTION = """Show each setting of the running scheduler, where its value comes from, and which
values of other places it shadows. From the weakest to the strongest: default, start (flags and
configuration files), file (--settings-file), set (`jupyter gpushare set`)."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    config = verbs.add_parser(
        "config", help="show where each setting comes from", description=_DESCRIPTION
    )
    config.add_argument("--show", action="store_true", help="show them as a table (the default)")
    config.add_argument("--json", action="store_true", help="show them as JSON")
    add_runtime_dir(config)
    config.set_defaults(perform=show)
    unset = verbs.add_parser(
        "unset", help="take back what was set while the scheduler runs: unset quantum_s"
    )
    unset.add_argument("names", nargs="+", metavar="NAME", help="a setting")
    add_runtime_dir(unset)
    unset.set_defaults(perform=take_back)


def show(arguments: argparse.Namespace) -> int:
    explained = client_of(arguments).explain_settings()
    print(json.dumps(explained, indent=2) if arguments.json else rendered(explained))
    return 0


def take_back(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    try:
        names = [find(name).name for name in arguments.names]
    except SettingsError as error:
        raise UsageError(str(error)) from error
    settings: Mapping[str, Any] = {}
    for name in names:
        settings = client.unset_setting(name)
    print(table(["SETTING", "VALUE"], rows_of({name: settings[name] for name in names})))
    return 0


def rendered(explained: Mapping[str, Any]) -> str:
    """As a person reads it. Pure."""
    rows = [[name, *_cells(name, each)] for name, each in explained["settings"].items()]
    parts = [table(["SETTING", "VALUE", "FROM", "SHADOWED"], rows)]
    if file := explained["file"]:
        parts.append(f"settings file: {file['path']}")
        if file["refused"]:
            parts.append(f"It is refused, and the last good settings stay. {file['refused']}")
    if unseen := unseen_told(explained.get("unseen", {})):
        parts.append(unseen)
    return "\n".join(parts)


def _cells(name: str, each: Mapping[str, Any]) -> list[str]:
    shadowed = (f"{_shown(name, one['value'])} ({one['from']})" for one in each["shadowed"])
    return [_shown(name, each["value"]), each["from"], ", ".join(shadowed)]


def _shown(name: str, value: object) -> str:
    """An older command line may not know the setting."""
    row = next((row for row in SETTINGS if row.name == name), None)
    return str(value) if row is None else shown(row, value)
