"""What is given to `set`, as the scheduler wants it."""

from __future__ import annotations

import pytest

from jupyter_gpushare.cli.errors import UsageError
from jupyter_gpushare.cli.set import changes_of, rows_of
from jupyter_gpushare.core.configuration.values import settings_as_json
from jupyter_gpushare.core.settings import SchedulerSettings


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
    assert changes_of([name, text]) == {setting: value}


@pytest.mark.parametrize("text", ["4GB", "much", "4 GiB more"])
def test_what_is_no_size_is_said_so(text: str) -> None:
    """In a sentence with an example."""
    with pytest.raises(UsageError, match="Write it like 4GiB"):
        changes_of(["device-bytes-max", text])


@pytest.mark.parametrize("name", ["quantum_s", "quantum-s", "quantum"])
def test_every_spelling_of_a_name_is_the_same_setting(name: str) -> None:
    """With dashes, and without the unit; a bare number has the unit of the name."""
    assert changes_of([name, "5s"]) == changes_of([name, "5"]) == {"quantum_s": 5.0}


@pytest.mark.parametrize(
    ("name", "value", "sentences"),
    [
        ("quantm", "5s", "There is no setting 'quantm'. Did you mean quantum_s?"),
        ("colour", "red", r"There is no setting 'colour'. Settings are: quantum_s, quantum_min_s,"),
        ("quantum_s", "soon", "quantum_s cannot be 'soon'. Write it like 5s, 500ms, 2m or 1h."),
        ("idle_ms", "2.5", "idle_ms cannot be '2.5'. Give a whole number of milliseconds."),
        ("turns", "maybe", "turns cannot be 'maybe'. Give one of: on, off."),
        ("memory_cap", "4GiB", "memory_cap_bytes cannot be changed while the scheduler runs. Give"),
    ],
)
def test_what_is_wrong_and_what_to_do(name: str, value: str, sentences: str) -> None:
    """One sentence each, with the setting's own name and unit."""
    with pytest.raises(UsageError, match=f"^{sentences}"):
        changes_of([name, value])


def test_values_are_shown_as_they_can_be_written() -> None:
    """What `set` prints, it reads."""
    settings = settings_as_json(SchedulerSettings())
    assert changes_of([word for row in rows_of(settings) for word in row]) == settings
