"""The table of settings: written once, checked there."""

from __future__ import annotations

import dataclasses
import enum

import pytest

from jupyter_gpushare.core.configuration.values import ALL_SETTINGS, spellings
from jupyter_gpushare.core.settings import (
    SETTINGS,
    SchedulerSettings,
    Setting,
    SettingsError,
    table_of,
)

NUMBERS = [row for row in SETTINGS if isinstance(row.default, int | float)]


@pytest.mark.promise(
    "demo-3",
    "Settings are one table with ranges, from which their page and flags come; a value "
    "outside its range is refused with a sentence",
)
@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
def test_a_row_says_what_a_setting_is(row: Setting) -> None:
    """Each has a help text, a range or choices, and a unit that fits its name."""
    assert row.help.endswith(".")
    assert bool(row.choices) == isinstance(row.default, enum.Enum)
    units = {"_ms": "milliseconds", "_s": "seconds", "_bytes": "bytes"}
    ending = next((ending for ending in units if row.name.endswith(ending)), None)
    if ending is not None:
        assert row.unit == units[ending]
    assert row.choices or row.unit or isinstance(row.default, str)


@pytest.mark.promise("demo-3")
@pytest.mark.parametrize("row", NUMBERS, ids=lambda row: row.name)
def test_a_number_outside_its_range_is_refused(row: Setting) -> None:
    """The sentence names the setting and the range; the ends of the range are allowed."""
    settings = SchedulerSettings(quantum_min_s=0.01, quantum_max_s=86_400)
    for allowed in (row.low, row.high):
        assert getattr(settings.replace(**{row.name: allowed}), row.name) == allowed
    for outside in (row.low - 1, row.high * 2):
        with pytest.raises(SettingsError, match=rf"^{row.name} is .+ outside {row.low} to"):
            settings.replace(**{row.name: outside})


def test_a_field_without_a_row_is_said_in_one_sentence() -> None:
    """Who adds a setting and forgets its row reads what to write."""

    @dataclasses.dataclass
    class Half:
        patience_s: float = 3.0

    with pytest.raises(TypeError, match=r"Half.patience_s has no row .* Write `patience_s: TYPE ="):
        table_of(Half)


@pytest.mark.parametrize("row", ALL_SETTINGS, ids=lambda row: row.name)
def test_no_two_settings_share_a_spelling(row: Setting) -> None:
    """Each name that a person may write means one setting."""
    for other in ALL_SETTINGS:
        assert other is row or not set(spellings(row)) & set(spellings(other))
