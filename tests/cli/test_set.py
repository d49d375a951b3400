"""What is given to `set`, as the scheduler wants it."""

from __future__ import annotations

import pytest

from jupyter_gpushare.cli.errors import UsageError
from jupyter_gpushare.cli.set import changes_of
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.scheduler.config import settings_as_json

SETTINGS = settings_as_json(SchedulerSettings())


@pytest.mark.parametrize(
    ("name", "text", "setting", "value"),
    [
        ("memory-mode", "swap", "memory_mode", "swap"),
        ("device-bytes-max", "4GiB", "device_bytes_max", 4 << 30),
        ("device-bytes-max", "1.5 gib", "device_bytes_max", 3 << 29),
        ("device-bytes-max", "4096", "device_bytes_max", 4096),
        ("device-reserve-bytes", "-1", "device_reserve_bytes", -1),
        ("device-reserve-bytes", "512MiB", "device_reserve_bytes", 512 << 20),
        ("park-timeout", "500ms", "park_timeout_s", 0.5),
        ("reclaim", "2s", "reclaim_s", 2),
    ],
)
def test_settings_of_memory_are_given_by_name(
    name: str, text: str, setting: str, value: object
) -> None:
    """Sizes have units, times have units, and -1 is a number."""
    assert changes_of([name, text], SETTINGS) == {setting: value}


@pytest.mark.parametrize("text", ["4GB", "-2", "much", "4 GiB more"])
def test_what_is_no_size_is_said_so(text: str) -> None:
    """In a sentence with an example."""
    with pytest.raises(UsageError, match="Write it like 4GiB"):
        changes_of(["device-bytes-max", text], SETTINGS)
