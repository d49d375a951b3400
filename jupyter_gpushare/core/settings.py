"""The scheduler's settings, as one frozen value. Checked here, and only here."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

from .ids import Seconds


class SettingsError(ValueError):
    """A setting is out of its range; the message says which, and what is allowed."""


class AntiThrash(enum.Enum):
    """Whether tenants take turns on a device (`on`) or all run at once (`off`)."""

    ON = "on"
    OFF = "off"


class Fallback(enum.Enum):
    """What a gated call does when the scheduler stays away."""

    WAIT = "wait"
    RUN = "run"


class OverduePolicy(enum.Enum):
    """What happens to a client that does not answer a recall."""

    WARN = "warn"
    KILL = "kill"


class MemoryMode(enum.Enum):
    """Whether device memory follows the turn (`swap`) or stays where it is (`off`)."""

    SWAP = "swap"
    OFF = "off"


class Visibility(enum.Enum):
    """What a user may know of the others who share the devices."""

    ANONYMOUS = "anonymous"
    EVERYONE = "everyone"


RESERVE_BY_SIZE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """All times in the unit that the name says; ranges are in `_RANGES`."""

    quantum_s: Seconds = 10.0
    """How long a turn lasts while others wait."""
    anti_thrash: AntiThrash = AntiThrash.ON
    """`on`: tenants take turns. `off`: all run at once, as without us."""
    idle_ms: int = 50
    """Inside a cell: give the turn back after this long without GPU work, while others wait."""
    window_ms: int = 20
    """How much queued GPU work a client may have in flight, in time."""
    drain_stall_ms: int = 200
    """A drain without progress for this long, while a call waits, takes the recall back."""
    recall_retry_s: Seconds = 0.5
    """How long after a drain stall the recall is tried again."""
    overdue_s: Seconds = 30.0
    """A recalled client that has not answered for this long is overdue."""
    overdue_policy: OverduePolicy = OverduePolicy.WARN
    """What happens to an overdue client: `warn` says so in the log, `kill` ends its process."""
    reconnect_s: int = 30
    """How long a hook looks for a lost scheduler before it follows `fallback`."""
    fallback: Fallback = Fallback.WAIT
    """What gated calls do then: `wait` goes on looking, `run` lets them through."""
    reconnect_grace_s: Seconds = 2.0
    """How long a scheduler that replaces a lost one waits for clients before it grants."""
    clients_max: int = 1024
    """How many processes may be connected at once."""
    hold_max_s: Seconds = 600.0
    """How long a user may keep a turn by hand (`%gpushare hold`) at most; 0: not at all."""
    visibility: Visibility = Visibility.ANONYMOUS
    """Who holds and waits, to other users: `anonymous` hides names, `everyone` shows them."""
    memory_mode: MemoryMode = MemoryMode.SWAP
    """`swap`: memory of those who have no turn makes room for who has it. `off`: it stays."""
    device_reserve_bytes: int = RESERVE_BY_SIZE
    """Of each device, for what no budget covers; -1: 2 %, at least 1 GiB, at most an eighth."""
    device_bytes_max: int = 0
    """Use no more than this of each device, as if it were smaller; 0: all of it."""
    park_timeout_s: Seconds = 10.0
    """A process that was to release memory and makes no progress for this long is passed over."""
    reclaim_s: Seconds = 5.0
    """How long memory may be short on a device although nobody has it, until that is believed."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingsError(
                    f"{name} is {value}, which is outside {low} to {high}. "
                    f"Give a value in that range."
                )

    def replace(self, **changes: object) -> SchedulerSettings:
        """A copy with some settings changed; raises SettingsError as the constructor does."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


_RANGES: dict[str, tuple[float, float]] = {
    "quantum_s": (0.01, 86_400),
    "idle_ms": (1, 3_600_000),
    "window_ms": (1, 10_000),
    "drain_stall_ms": (10, 600_000),
    "recall_retry_s": (0.01, 3_600),
    "overdue_s": (0.1, 86_400),
    "reconnect_s": (0, 86_400),
    "reconnect_grace_s": (0, 3_600),
    "clients_max": (1, 100_000),
    "hold_max_s": (0, 86_400),
    "device_reserve_bytes": (RESERVE_BY_SIZE, 2**62),
    "device_bytes_max": (0, 2**62),
    "park_timeout_s": (0.1, 3_600),
    "reclaim_s": (0, 3_600),
}
