"""The scheduler's configuration as traitlets, and the settings of the core made from it.

The ranges are the core's (core/settings.py); here are only names, units and help texts.
"""

from __future__ import annotations

import math

from traitlets import Enum, Float, Integer, Unicode
from traitlets.config import Configurable

from jupyter_gpushare.core.settings import (
    AntiThrash,
    Fallback,
    MemoryMode,
    OverduePolicy,
    SchedulerSettings,
    SettingsError,
    Visibility,
)

_DEFAULTS = SchedulerSettings()
_Choice = AntiThrash | Fallback | MemoryMode | OverduePolicy | Visibility
_ENUMS: dict[str, type[_Choice]] = {
    "anti_thrash": AntiThrash,
    "fallback": Fallback,
    "memory_mode": MemoryMode,
    "overdue_policy": OverduePolicy,
    "visibility": Visibility,
}
NAMES = tuple(SchedulerSettings.__dataclass_fields__)


class SettingsConfig(Configurable):
    """Turns, windows and limits. All but the fixed ones can be changed while it runs
    (`jupyter gpushare set`)."""

    quantum_s = Float(
        _DEFAULTS.quantum_s, help="How long a turn lasts while others wait, in seconds."
    ).tag(config=True)
    anti_thrash = Enum(
        [v.value for v in AntiThrash],
        default_value=_DEFAULTS.anti_thrash.value,
        help="on: tenants take turns on a device. off: all run at once.",
    ).tag(config=True)
    idle_ms = Integer(
        _DEFAULTS.idle_ms,
        help="Inside a cell: give the turn back after so many milliseconds without GPU work, "
        "while others wait.",
    ).tag(config=True)
    window_ms = Integer(
        _DEFAULTS.window_ms,
        help="How much queued GPU work a process may have in flight, in milliseconds.",
    ).tag(config=True)
    drain_stall_ms = Integer(
        _DEFAULTS.drain_stall_ms,
        help="A drain that makes no progress for so many milliseconds, while a call of the same "
        "tenant waits, takes the recall back.",
    ).tag(config=True)
    recall_retry_s = Float(
        _DEFAULTS.recall_retry_s, help="How long after a drain stall the recall is tried again."
    ).tag(config=True)
    overdue_s = Float(
        _DEFAULTS.overdue_s, help="After how many seconds an unanswered recall is overdue."
    ).tag(config=True)
    overdue_policy = Enum(
        [v.value for v in OverduePolicy],
        default_value=_DEFAULTS.overdue_policy.value,
        help="What happens to a process that is overdue: warn (log it) or kill.",
    ).tag(config=True)
    reconnect_s = Integer(
        _DEFAULTS.reconnect_s,
        help="How many seconds a process looks for a lost scheduler before it follows fallback.",
    ).tag(config=True)
    fallback = Enum(
        [v.value for v in Fallback],
        default_value=_DEFAULTS.fallback.value,
        help="What GPU calls do when the scheduler stays away: wait, or run unshared.",
    ).tag(config=True)
    reconnect_grace_s = Float(
        _DEFAULTS.reconnect_grace_s,
        help="How many seconds a scheduler that replaces a lost one waits for its clients before "
        "it grants.",
    ).tag(config=True)
    clients_max = Integer(
        _DEFAULTS.clients_max, help="How many processes may be connected at once."
    ).tag(config=True)
    hold_max_s = Float(
        _DEFAULTS.hold_max_s,
        help="For how many seconds a user may keep a turn by hand at most; 0: not at all.",
    ).tag(config=True)
    visibility = Enum(
        [v.value for v in Visibility],
        default_value=_DEFAULTS.visibility.value,
        help="What users see of who holds and who waits: anonymous, or everyone's names.",
    ).tag(config=True)
    memory_mode = Enum(
        [v.value for v in MemoryMode],
        default_value=_DEFAULTS.memory_mode.value,
        help="swap: device memory follows the turn. off: it stays where it is.",
    ).tag(config=True)
    device_reserve_bytes = Integer(
        _DEFAULTS.device_reserve_bytes,
        help="How much of each device is kept for contexts and modules: no new memory is given "
        "out there, but what was on the device before they grew may come back beside them; -1: "
        "2 %, at least 1 GiB, at most an eighth.",
    ).tag(config=True)
    device_bytes_max = Integer(
        _DEFAULTS.device_bytes_max,
        help="Use no more than this of each device, as if it were smaller; 0: all of it.",
    ).tag(config=True)
    park_timeout_s = Float(
        _DEFAULTS.park_timeout_s,
        help="A process that was to release memory and makes no progress for so many seconds is "
        "passed over.",
    ).tag(config=True)
    reclaim_s = Float(
        _DEFAULTS.reclaim_s,
        help="For how many seconds memory may be short on a device although nobody has it, until "
        "that is believed.",
    ).tag(config=True)
    memory_cap_bytes = Integer(
        0,
        min=0,
        max=2**63,
        help="How much device memory a tenant may allocate on a device; 0: no cap.",
    ).tag(config=True)
    probe_period_s = Float(
        1.0, min=0.1, help="How often NVML is asked for used memory while there are clients."
    ).tag(config=True)
    message_deadline_s = Float(
        5.0,
        min=0.01,
        help="How long a process may take to say who it is, and to end a message it has begun.",
    ).tag(config=True)
    devices = Unicode(
        "",
        help="The devices to serve: indices, UUIDs or their beginnings, comma-separated, as in "
        "CUDA_VISIBLE_DEVICES, which counts where this is empty.",
    ).tag(config=True)

    def settings(self) -> SchedulerSettings:
        """The core's settings; raises SettingsError."""
        return changed_settings(SchedulerSettings(), {n: getattr(self, n) for n in NAMES})


def changed_settings(current: SchedulerSettings, changes: dict[str, object]) -> SchedulerSettings:
    """`current` with changes as JSON or traitlets have them; raises SettingsError."""
    return current.replace(**{name: _parsed(name, value) for name, value in changes.items()})


def settings_as_json(settings: SchedulerSettings) -> dict[str, object]:
    """The settings by name, enumerations by their values."""
    values = {name: getattr(settings, name) for name in NAMES}
    return {name: v.value if name in _ENUMS else v for name, v in values.items()}


def _parsed(name: str, value: object) -> object:
    if name not in NAMES:
        raise SettingsError(f"There is no setting {name!r}. Settings are: {', '.join(NAMES)}.")
    if name in _ENUMS:
        allowed = [member.value for member in _ENUMS[name]]
        if value not in allowed:
            raise SettingsError(f"{name} cannot be {value!r}. Give one of: {', '.join(allowed)}.")
        return _ENUMS[name](value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{name} cannot be {value!r}. Give a number.")
    if not _is_finite(value):
        raise SettingsError(f"{name} cannot be {str(value)[:20]}. Give a finite number.")
    if isinstance(getattr(_DEFAULTS, name), int) and value != int(value):
        raise SettingsError(f"{name} cannot be {value!r}. Give a whole number.")
    return type(getattr(_DEFAULTS, name))(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no floating one comes near
        return False
