"""Sizes that lack their unit: `20` for 20 GiB. Nobody can work with so few bytes. Pure."""

from __future__ import annotations

from jupyter_gpushare.core.settings import (
    SETTINGS,
    START_SETTINGS,
    SchedulerSettings,
    SettingsError,
    StartSettings,
)
from jupyter_gpushare.core.shares.entries import parse_caps

SMALLEST_BYTES = 1 << 20
CAPS = ("memory_caps", "user_memory_caps")


def check_sizes(settings: SchedulerSettings | StartSettings) -> None:
    """Raises SettingsError for a size above 0 and below 1 MiB. 0 keeps its meaning."""
    if isinstance(settings, SchedulerSettings):
        for name in CAPS:
            for who, cap_bytes in parse_caps(getattr(settings, name)).items():
                _check(f"{name}: The cap of {who}", cap_bytes)
    rows = SETTINGS if isinstance(settings, SchedulerSettings) else START_SETTINGS
    for row in rows:
        if row.unit == "bytes":
            _check(row.name, getattr(settings, row.name))


def _check(what: str, size_bytes: int) -> None:
    if 0 < size_bytes < SMALLEST_BYTES:
        raise SettingsError(f"{what} is {size_bytes} bytes, less than 1 MiB. Write a unit: 20GiB.")
