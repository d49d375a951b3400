"""`jupyter gpushare audit`: what administrators have done."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .options import add_runtime_dir, client_of
from .text import table

_COUNT = 20


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("audit", help="show what administrators have done, the newest last")
    parser.add_argument(
        "-n", "--count", type=int, default=_COUNT, metavar="N", help=f"how many (default {_COUNT})"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON for each")
    add_runtime_dir(parser)
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    entries = client_of(arguments).audit(max(0, arguments.count))
    if arguments.json:
        for entry in entries:
            print(json.dumps(entry))
        return 0
    print(rendered(entries))
    return 0


def rendered(entries: Sequence[Mapping[str, Any]]) -> str:
    """As a person reads them. Pure."""
    if not entries:
        return "Nothing has been done yet."
    rows = [
        [entry["at"], entry["who"], entry["verb"], _on(entry), entry["result"]] for entry in entries
    ]
    return table(["WHEN", "WHO", "VERB", "ON", "RESULT"], rows)


def _on(entry: Mapping[str, Any]) -> str:
    details = " ".join(f"{name}={value}" for name, value in entry["what"].items())
    return " ".join(part for part in (entry["on"], details) if part) or "-"
