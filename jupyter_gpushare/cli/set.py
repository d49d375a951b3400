"""`jupyter gpushare set`: change settings of the running scheduler, or show them.

The names are the scheduler's own, as its status tells them: `quantum` is `quantum_s`, and so on.
"""

from __future__ import annotations

import argparse
from typing import Any

from .errors import UsageError
from .options import add_runtime_dir, client_of
from .text import bytes_of, seconds_of, table

_UNITS = {"_s": ("s", 1.0), "_ms": ("ms", 1000.0)}
_DESCRIPTION = """Change settings of the running scheduler; kernels follow at once. Without
arguments: show all of them. Durations are written like 5s, 500ms, 2m or 1h, sizes like 4GiB."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "set",
        help="change settings: set quantum 5s, set anti-thrash off, set idle 100ms",
        description=_DESCRIPTION,
    )
    parser.add_argument(
        "pairs", nargs="*", metavar="NAME VALUE", help="a setting and its new value"
    )
    add_runtime_dir(parser)
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    settings: dict[str, Any] = client.status()["settings"]
    changes = changes_of(arguments.pairs, settings)
    if changes:
        settings = client.change_settings(changes)
    rows = [[shown_name(name), shown_value(name, settings[name])] for name in changes or settings]
    print(table(["SETTING", "VALUE"], rows))
    return 0


def changes_of(pairs: list[str], settings: dict[str, Any]) -> dict[str, object]:
    """The arguments as the scheduler wants them, by what it has now. Pure."""
    if len(pairs) % 2:
        raise UsageError(f"{pairs[-1]!r} has no value. Write `set NAME VALUE`.")
    names = {shown_name(name): name for name in settings} | {name: name for name in settings}
    changes: dict[str, object] = {}
    for given, text in zip(pairs[::2], pairs[1::2], strict=True):
        name = names.get(given)
        if name is None:
            known = ", ".join(shown_name(name) for name in settings)
            raise UsageError(f"There is no setting {given!r}. Settings are: {known}.")
        changes[name] = _value(name, text, settings[name])
    return changes


def shown_name(name: str) -> str:
    """`quantum` for `quantum_s`, `anti-thrash` for `anti_thrash`."""
    suffix = _suffix(name)
    return (name.removesuffix(suffix) if suffix else name).replace("_", "-")


def shown_value(name: str, value: object) -> str:
    suffix = _suffix(name)
    if suffix and isinstance(value, int | float):
        return f"{value:g} {_UNITS[suffix][0]}"
    return str(value)


def _suffix(name: str) -> str | None:
    return next((suffix for suffix in ("_ms", "_s") if name.endswith(suffix)), None)


def _value(name: str, text: str, current: object) -> object:
    """A duration in the setting's own unit, a size, a whole number, or the word itself."""
    suffix = _suffix(name)
    if suffix:
        unit, per_second = _UNITS[suffix]
        number = round(seconds_of(text, bare_unit=unit) * per_second, 6)
        return int(number) if number == int(number) else number
    if "_bytes" in name:
        return bytes_of(text)
    if isinstance(current, int):
        if not (text.isascii() and text.isdigit()):
            raise UsageError(f"{shown_name(name)} cannot be {text!r}. Give a whole number.")
        return int(text)
    return text
