"""The scheduler's settings as traits, which are made from the table in core/settings.py."""

from __future__ import annotations

from typing import Any

from traitlets import TraitError, TraitType
from traitlets.config import Configurable

from jupyter_gpushare.core.configuration.values import ALL_SETTINGS, parsed
from jupyter_gpushare.core.settings import (
    SETTINGS,
    START_SETTINGS,
    SchedulerSettings,
    Setting,
    SettingsError,
    StartSettings,
)

from .base.sizes import check_sizes


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


def setting_traits() -> dict[str, Value]:
    """A trait for each row of the table, by its name."""
    return {row.name: Value(row) for row in ALL_SETTINGS}


def given_settings(app: Configurable) -> dict[str, Any]:
    """Of the core's settings, those that flags or configuration files give."""
    sections = [app.config.get(name, {}) for name in app.section_names()]
    names = {name for section in sections for name in section}
    return {row.name: getattr(app, row.name) for row in SETTINGS if row.name in names}


def start_settings_of(app: object) -> StartSettings:
    """What only this start can set; raises SettingsError."""
    settings = StartSettings(**{row.name: getattr(app, row.name) for row in START_SETTINGS})
    check_sizes(settings)
    return settings


def told_changes(app: Configurable, settings: SchedulerSettings) -> str:
    """`name=value` for each setting and each flag that is not as by default."""
    found = [(row.name, row.default, getattr(settings, row.name)) for row in SETTINGS]
    found += [
        (name, trait.default_value, getattr(app, name))
        for name, trait in app.class_own_traits(config=True).items()
        if not hasattr(settings, name)
    ]
    return ", ".join(
        f"{name}={getattr(value, 'value', value)}"
        for name, default, value in found
        if value != default
    )
