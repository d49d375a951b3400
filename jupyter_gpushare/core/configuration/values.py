"""How people name settings and write values: one way for flags, files, `set` and the API. Pure.

A setting's name is that of its row (`quantum_s`). Dashes stand for underscores, and the unit may be
left out (`quantum`). A number is in the setting's own unit; a text may name another: `5s`, `4GiB`.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..settings import (
    SETTINGS,
    START_SETTINGS,
    SchedulerSettings,
    Setting,
    SettingsError,
    StartSettings,
)

ALL_SETTINGS = (*SETTINGS, *START_SETTINGS)
_LIVE = {row.name: row for row in SETTINGS}
_QUANTITY = re.compile(r"(?P<number>-?(\d+(\.\d*)?|\.\d+))\s*(?P<unit>[a-z]*)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_UNITS: dict[str, dict[str, float]] = {
    "seconds": _SECONDS,
    "milliseconds": {unit: 1000 * factor for unit, factor in _SECONDS.items()},
    "bytes": {unit: float(factor) for unit, factor in _BYTES.items()},
}
_EXAMPLES = {
    "seconds": "Write it like 5s, 500ms, 2m or 1h.",
    "milliseconds": "Write it like 50ms or 2s.",
    "bytes": "Write it like 4GiB or 512MiB.",
    "percent": "Write it like 10.",
}
_UNIT_ENDINGS = {"seconds": "_s", "milliseconds": "_ms", "bytes": "_bytes"}
_START_HINT = (
    "Give it to the scheduler when it starts: `jupyter gpushare scheduler --{0}=…`, or "
    '`c.GPUShare.settings = {{"{0}": …}}` under a hub.'
)


def spellings(row: Setting) -> tuple[str, ...]:
    """The setting's name, and the other ways in which it may be written."""
    short = row.name.removesuffix(_UNIT_ENDINGS.get(row.unit, ""))
    names = (row.name, row.name.replace("_", "-"), short.replace("_", "-"))
    return tuple(dict.fromkeys(names))


def find(given: str, rows: Iterable[Setting] = SETTINGS) -> Setting:
    """The setting of that name among those that can be changed; raises SettingsError."""
    rows = tuple(rows)
    for row in rows:
        if _means(given, row):
            return row
    for row in ALL_SETTINGS:
        if _means(given, row):
            raise SettingsError(
                f"{row.name} cannot be changed while the scheduler runs. "
                + _START_HINT.format(row.name)
            )
    raise SettingsError(f"There is no setting {given!r}. {suggestion(given, rows)}")


def _means(given: str, row: Setting) -> bool:
    return given.replace("_", "-") in (each.replace("_", "-") for each in spellings(row))


def suggestion(given: str, rows: Iterable[Setting] = ALL_SETTINGS) -> str:
    """What a name that does not exist was probably meant to be; else all the names."""
    names = {spelling: row.name for row in rows for spelling in spellings(row)}
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.7)
    if near:
        return f"Did you mean {names[near[0]]}?"
    return f"Settings are: {', '.join(dict.fromkeys(names.values()))}."


def parsed(row: Setting, value: object) -> int | float | str | enum.Enum:
    """The value as the setting has it; raises SettingsError. Ranges are checked by the settings."""
    if row.choices:
        if value not in row.choices:
            allowed = ", ".join(row.choices)
            raise SettingsError(f"{row.name} cannot be {value!r}. Give one of: {allowed}.")
        return type(row.default)(value)
    if isinstance(row.default, str):
        if not isinstance(value, str):
            raise SettingsError(f"{row.name} cannot be {value!r}. Give a text.")
        return value
    number = _number(row, value)
    if isinstance(row.default, int):
        if number != int(number):
            raise SettingsError(
                f"{row.name} cannot be {value!r}. Give a whole number of {row.unit}."
            )
        return int(number)
    return float(number)


def _number(row: Setting, value: object) -> int | float:
    if isinstance(value, str):
        value = _read(row, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{row.name} cannot be {value!r}. Give a number of {row.unit}.")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # a whole number that no floating one comes near
        finite = False
    if not finite:
        raise SettingsError(f"{row.name} cannot be {str(value)[:20]}. Give a finite number.")
    return value


def _read(row: Setting, text: str) -> int | float:
    """A text with or without a unit, in the setting's own."""
    units = _UNITS.get(row.unit, {})
    found = _QUANTITY.fullmatch(text.strip().lower())
    if found is None or (found["unit"] and found["unit"] not in units):
        example = _EXAMPLES.get(row.unit, f"Give a whole number of {row.unit}.")
        raise SettingsError(f"{row.name} cannot be {text[:40]!r}. {example}")
    number = float(found["number"]) * units.get(found["unit"], 1)
    if not math.isfinite(number):
        return number
    return int(number) if number == int(number) else round(number, 6)


def shown(row: Setting, value: object) -> str:
    """The value with its unit, as `parsed` reads it again."""
    if row.unit not in ("seconds", "milliseconds") or not isinstance(value, int | float):
        return str(value)
    milliseconds = value * 1000 if row.unit == "seconds" else value
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds / size:g}{unit}"
    return f"{value:g}s" if row.unit == "seconds" else f"{value:g}ms"


def changed_settings(current: SchedulerSettings, changes: dict[str, object]) -> SchedulerSettings:
    """`current` with changes by name, as JSON or a person writes them; raises SettingsError."""
    return current.replace(
        **{row.name: parsed(row, value) for row, value in _rows_of(changes).items()}
    )


def _rows_of(changes: dict[str, object]) -> dict[Setting, object]:
    return {find(name): value for name, value in changes.items()}


def check_together(changes: Mapping[str, object]) -> None:
    """Raises SettingsError for what the start of a scheduler would refuse."""
    rows = {find(name, ALL_SETTINGS): value for name, value in changes.items()}
    values: dict[str, Any] = {row.name: parsed(row, value) for row, value in rows.items()}
    SchedulerSettings().replace(**{n: v for n, v in values.items() if n in _LIVE})
    dataclasses.replace(StartSettings(), **{n: v for n, v in values.items() if n not in _LIVE})


def settings_as_json(settings: SchedulerSettings) -> dict[str, object]:
    """The settings by name, enumerations by their values."""
    values = {name: getattr(settings, name) for name in _LIVE}
    return {n: v.value if isinstance(v, enum.Enum) else v for n, v in values.items()}
