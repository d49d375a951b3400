"""Which value of a setting counts, where several places give one. Pure.

From the weakest to the strongest: the default, the start of the scheduler (flags and configuration
files of Jupyter), the settings file, and what an admin has set while it runs. A new settings file
changes no value that was set live. `unset` and a restart take live values away.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..settings import ENTRIES, SETTINGS, SchedulerSettings, Setting, SettingsError
from ..shares.entries import EntryError, with_entries
from .checks import NOTEBOOKS_REMEDY, notebooks_told, notebooks_with_shares
from .values import find, parsed

Values = Mapping[str, object]
"""By the names of the rows, as the settings have them."""


class Origin(enum.Enum):
    """Where a value comes from, the weakest first."""

    DEFAULT = "default"
    START = "start"
    FILE = "file"
    LIVE = "set"


@dataclass(frozen=True, slots=True)
class Layers:
    """What each place gives. A layer is replaced as a whole; `settings` says what follows."""

    start: Values = field(default_factory=dict)
    file: Values = field(default_factory=dict)
    live: Values = field(default_factory=dict)

    def settings(self) -> SchedulerSettings:
        """The settings in force; raises SettingsError."""
        return SchedulerSettings().replace(**{**self.start, **self.file, **self.live})

    def with_file(self, values: Values) -> Layers:
        """The settings file has these now, and nothing else."""
        return dataclasses.replace(self, file=dict(values))

    def with_live(self, changes: Values) -> Layers:
        """An admin sets these, named and written as people do; raises SettingsError. Of a setting
        with entries, an object changes those that it names, and takes away those that are null."""
        texts = {name: self._changed(name, value) for name, value in changes.items()}
        changed = dataclasses.replace(self, live={**self.live, **read_values(texts)})
        if told := notebooks_told(notebooks_with_shares(_written(changes))):
            raise SettingsError(f"{told} {NOTEBOOKS_REMEDY}")
        for name in (name for name, value in changes.items() if isinstance(value, Mapping)):
            without, row = changed.without_live(name), find(name)
            if without.given(row)[0][1] == changed.live[row.name]:
                changed = without
        return changed

    def _changed(self, name: str, value: object) -> object:
        row = find(name)
        if row.name not in ENTRIES or not isinstance(value, Mapping):
            return value
        (_, text), *_ = self.given(row)
        try:
            return with_entries(str(text), value)
        except EntryError as error:
            raise SettingsError(f"{row.name}: {error}") from None

    def without_live(self, name: str) -> Layers:
        """What was set live counts no longer; raises SettingsError for an unknown name."""
        row = find(name)
        kept = {name: value for name, value in self.live.items() if name != row.name}
        return dataclasses.replace(self, live=kept)

    def given(self, row: Setting) -> list[tuple[Origin, object]]:
        """What each place gives for a setting, the strongest first."""
        layers = (
            (Origin.LIVE, self.live),
            (Origin.FILE, self.file),
            (Origin.START, self.start),
            (Origin.DEFAULT, {row.name: row.default}),
        )
        return [(origin, values[row.name]) for origin, values in layers if row.name in values]

    def explained(self) -> dict[str, dict[str, object]]:
        """By setting: its value, where it comes from, and what it shadows, as JSON."""
        return {row.name: _explained(self.given(row)) for row in SETTINGS}


def read_values(written: Values) -> dict[str, object]:
    """Values by the names of their rows; raises SettingsError for the first that is wrong, or for a
    setting that is named twice in different spellings."""
    values: dict[str, object] = {}
    for name, value in written.items():
        row = find(name)
        if row.name in values:
            raise SettingsError(f"{row.name} is given twice. Leave one of them out.")
        values[row.name] = parsed(row, value)
        SchedulerSettings().replace(**{row.name: values[row.name]})
    return values


def _written(changes: Values) -> dict[str, str]:
    """What somebody has written of entries, as texts, by the names of the rows."""
    texts = {}
    for name, value in changes.items():
        if isinstance(value, Mapping):
            entries = (f"{who}={each}" for who, each in value.items() if each is not None)
            texts[find(name).name] = ", ".join(entries)
        else:
            texts[find(name).name] = str(value)
    return texts


def _explained(given: list[tuple[Origin, object]]) -> dict[str, object]:
    (origin, value), *weaker = given
    return {
        "value": _plain(value),
        "from": origin.value,
        "shadowed": [{"value": _plain(each), "from": place.value} for place, each in weaker],
    }


def _plain(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else value
