"""The scheduler's configuration as traits, which are made from the table in core/settings.py."""

from __future__ import annotations

from typing import Any

from traitlets import TraitError, TraitType
from traitlets.config import Configurable

from jupyter_gpushare.core.setting_values import ALL_SETTINGS, parsed, spellings
from jupyter_gpushare.core.settings import (
    SETTINGS,
    START_SETTINGS,
    SchedulerSettings,
    Setting,
    SettingsError,
    StartSettings,
)


class Value(TraitType[Any, Any]):
    """The trait of a row of the table. It takes what a flag, a file or a program gives."""

    def __init__(self, row: Setting) -> None:
        super().__init__(row.default, help=help_of(row))
        self.row = row
        self.tag(config=True)

    def validate(self, obj: Any, value: Any) -> Any:
        if isinstance(value, type(self.row.default)) and self.row.choices:
            return value
        try:
            return parsed(self.row, value)
        except SettingsError as error:
            raise TraitError(str(error)) from error

    def from_string(self, s: str) -> str:
        """A flag's text; `validate` reads it."""
        return s

    def default_value_repr(self) -> str:
        return repr(self.row.plain_default)


def help_of(row: Setting) -> str:
    """The row's help with what a value may be."""
    if row.choices:
        return f"{row.help} One of: {', '.join(row.choices)}."
    return f"{row.help} ({row.low:g} to {row.high:g} {row.unit})" if row.unit else row.help


class SettingsConfig(Configurable):
    """Turns, memory and limits. What the page docs/settings.md lists as changeable can also be
    changed while the scheduler runs (`jupyter gpushare set`)."""

    locals().update({row.name: Value(row) for row in ALL_SETTINGS})

    def settings(self) -> SchedulerSettings:
        """The core's settings; raises SettingsError."""
        return SchedulerSettings(**{row.name: getattr(self, row.name) for row in SETTINGS})

    def start_settings(self) -> StartSettings:
        """What only this start can set; raises SettingsError."""
        return StartSettings(**{row.name: getattr(self, row.name) for row in START_SETTINGS})


ALIASES: dict[Any, str] = {spellings(row): f"SettingsConfig.{row.name}" for row in ALL_SETTINGS}
"""`--quantum_s=5`, and the other spellings of each name."""
