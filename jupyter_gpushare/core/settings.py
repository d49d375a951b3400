"""The scheduler's settings, written once: name, default, unit, range and help of each.

`SchedulerSettings` is the frozen value that the scheduler works with; it checks its ranges.
`SETTINGS` is the same table as data: traits, flags, the command
line and docs/settings.md come from it (configuration/values.py reads what people write).
A unit ends each name: `_s`, `_ms`, `_bytes`.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from .ids import Seconds
from .shares import classes, guarantees
from .shares.entries import EntryError, parse_caps, parse_weights

T = TypeVar("T")


class SettingsError(ValueError):
    """A setting is out of its range; the message says which, and what is allowed."""


class TurnTaking(enum.Enum):
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


class RestoreAhead(enum.Enum):
    """Whether memory of the next tenant comes back while another one still computes."""

    ON = "on"
    OFF = "off"


class JournalNames(enum.Enum):
    """How the journal names people and notebooks."""

    PSEUDONYMS = "pseudonyms"
    NAMES = "names"


class Visibility(enum.Enum):
    """What a user may know of the others who share the devices."""

    ANONYMOUS = "anonymous"
    USERS = "users"
    EVERYONE = "everyone"


RESERVE_BY_SIZE = -1
ENTRIES: dict[str, Callable[[str], object]] = {
    "weights": parse_weights,
    "allowed_classes": classes.parse,
    "requests": guarantees.parse,
    "limits": guarantees.parse,
    "hard_limits": guarantees.parse,
    "memory_caps": parse_caps,
    "user_memory_caps": parse_caps,
}
"""Settings with entries for users and groups, and what reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table."""

    name: str
    default: int | float | str | enum.Enum
    unit: str
    """In words, as in "3 seconds"; empty for what is not counted."""
    low: float
    high: float
    """The range of a number, ends included."""
    help: str
    """One or two sentences, for the command line and the page."""

    @property
    def choices(self) -> tuple[str, ...]:
        """What an enumeration may be; empty for numbers and text."""
        default = self.default
        return tuple(m.value for m in type(default)) if isinstance(default, enum.Enum) else ()

    @property
    def plain_default(self) -> int | float | str:
        """The default as JSON and traits have it."""
        default = self.default
        return cast("str", default.value) if isinstance(default, enum.Enum) else default


def setting(
    default: T,
    *,
    help: str,
    unit: str = "",
    low: float = -math.inf,
    high: float = math.inf,
) -> T:
    """A field of a settings dataclass, with what `table_of` says about it."""
    row = {"unit": unit, "low": low, "high": high, "help": help}
    return dataclasses.field(default=default, metadata=row)


def table_of(settings: type) -> tuple[Setting, ...]:
    """The rows of a dataclass whose fields are made by `setting`."""
    for field in dataclasses.fields(settings):
        if "help" not in field.metadata:
            raise TypeError(
                f"{settings.__name__}.{field.name} has no row in the table of settings. Write "
                f"`{field.name}: TYPE = setting(DEFAULT, unit=..., low=..., high=..., help=...)`."
            )
    return tuple(
        Setting(name=field.name, default=field.default, **field.metadata)
        for field in dataclasses.fields(settings)
    )


def check_ranges(settings: object, table: tuple[Setting, ...]) -> None:
    """Raises SettingsError for the first value that is outside its range."""
    for row in table:
        value = getattr(settings, row.name)
        if isinstance(value, int | float) and not row.low <= value <= row.high:
            raise SettingsError(
                f"{row.name} is {value}, which is outside {row.low} to {row.high} {row.unit}. "
                f"Give a value in that range."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """What an admin can change while the scheduler runs."""

    quantum_s: Seconds = setting(
        0.0,
        unit="seconds",
        low=0,
        high=86_400,
        help="How long each turn lasts while other users wait; 0: turns grow with the cell, from "
        "`quantum_min_s` to `quantum_max_s`.",
    )
    quantum_min_s: Seconds = setting(
        0.5,
        unit="seconds",
        low=0.01,
        high=86_400,
        help="How long a turn lasts at the beginning of a cell, while others wait.",
    )
    quantum_max_s: Seconds = setting(
        30.0,
        unit="seconds",
        low=0.01,
        high=86_400,
        help="A cell that has used the GPU for some time has turns of that length, up to this one. "
        "Among a user's own notebooks, what each has had counts half after this time.",
    )
    credit_s: Seconds = setting(
        2.0,
        unit="seconds",
        low=0,
        high=3_600,
        help="New cells of a user go before other users until they have used this much GPU time; "
        "it comes back at the user's share. Each notebook has as much for going before its user's "
        "other ones. 0: nobody goes first.",
    )
    weights: str = setting(
        "",
        help="Who gets how much, such as `ann=2, @staff=3`: a user by name, the members of a group "
        "by `@` and its name. Everybody else has 1.",
    )
    allowed_classes: str = setting(
        "",
        help="The highest class that a user or the members of a group may use, such as "
        "`ann=realtime, @guests=batch`. Everybody else has `interactive`. Lower classes are free "
        "for everybody.",
    )
    sharing: guarantees.Preset = setting(
        guarantees.Preset.BEST_EFFORT,
        help="`best-effort`: weights, requests and limits say who gets how much, and what nobody "
        "wants is free. `equal`: each of n users of a device has 1/n of it, also while others are "
        "idle. `fixed`: each has what `requests` says, no more and no less.",
    )
    requests: str = setting(
        "",
        help="The part of each device that a user or the members of a group are guaranteed, such "
        "as `ann=0.25, @staff=0.5`.",
    )
    limits: str = setting(
        "",
        help="The part of each device that a user or the members of a group have at most while "
        "others want it, such as `@guests=0.2`.",
    )
    hard_limits: str = setting(
        "",
        help="The part of each device that a user or the members of a group have at most, also "
        "while nobody else wants it.",
    )
    share_window_s: Seconds = setting(
        60.0,
        unit="seconds",
        low=1,
        high=86_400,
        help="Requests and limits count within a window of this length, which slides.",
    )
    starvation_s: Seconds = setting(
        600.0,
        unit="seconds",
        low=1,
        high=86_400,
        help="A `batch` tenant waits for no longer than this because of its class.",
    )
    swap_percent: float = setting(
        10.0,
        unit="percent",
        low=0.1,
        high=99,
        help="How much of a device's time memory may cost that moves for new cells.",
    )
    swap_wait_max_s: Seconds = setting(
        5.0,
        unit="seconds",
        low=0,
        high=3_600,
        help="A new cell that goes first waits for no longer than this because memory has to move.",
    )
    turns: TurnTaking = setting(
        TurnTaking.ON,
        help="`on`: tenants take turns on a device. `off`: all run at once, as without gpushare.",
    )
    idle_ms: int = setting(
        50,
        unit="milliseconds",
        low=1,
        high=3_600_000,
        help="A cell that uses no GPU for this long gives its turn back while others wait. While "
        "only notebooks of the same user wait, and no memory has to move, a fifth is enough.",
    )
    window_ms: int = setting(
        20,
        unit="milliseconds",
        low=1,
        high=10_000,
        help="How much GPU work a process may have queued, in time.",
    )
    drain_stall_ms: int = setting(
        200,
        unit="milliseconds",
        low=10,
        high=600_000,
        help="If a drain makes no progress for this long while a call of the same tenant waits, "
        "the scheduler takes the recall back.",
    )
    recall_retry_s: Seconds = setting(
        0.5,
        unit="seconds",
        low=0.01,
        high=3_600,
        help="How long after a drain stall the scheduler tries the recall again.",
    )
    overdue_s: Seconds = setting(
        30.0,
        unit="seconds",
        low=0.1,
        high=86_400,
        help="A process that does not answer a recall for this long is overdue.",
    )
    overdue_policy: OverduePolicy = setting(
        OverduePolicy.WARN,
        help="What happens to an overdue process: `warn` writes it to the log, `kill` ends it. "
        "Where the scheduler does not see the processes, it refuses `kill`.",
    )
    reconnect_s: int = setting(
        30,
        unit="seconds",
        low=0,
        high=86_400,
        help="How long a process looks for a lost scheduler before it follows `fallback`.",
    )
    fallback: Fallback = setting(
        Fallback.WAIT,
        help="What GPU calls do when the scheduler stays away: `wait` keeps looking for it, `run` "
        "lets them through unshared.",
    )
    reconnect_grace_s: Seconds = setting(
        2.0,
        unit="seconds",
        low=0,
        high=3_600,
        help="How long a scheduler that replaces a lost one waits for its clients before it "
        "grants turns.",
    )
    clients_max: int = setting(
        1024,
        unit="processes",
        low=1,
        high=100_000,
        help="How many processes may be connected at once.",
    )
    hold_max_s: Seconds = setting(
        600.0,
        unit="seconds",
        low=0,
        high=86_400,
        help="The longest time for which a user may keep a turn by hand (`%gpushare hold`); 0 "
        "switches holds off.",
    )
    visibility: Visibility = setting(
        Visibility.ANONYMOUS,
        help="What users see of the others who hold and wait: `anonymous` hides who they are, "
        "`users` shows their user names, `everyone` the names of their notebooks too.",
    )
    memory_mode: MemoryMode = setting(
        MemoryMode.SWAP,
        help="`swap`: device memory follows the turn; tenants without a turn make room. `off`: "
        "memory stays where it is.",
    )
    restore_ahead: RestoreAhead = setting(
        RestoreAhead.ON,
        help="`on`: parked memory of the tenant that is next comes back while another one still "
        "computes, into space that nobody with a turn uses, and the host has a copy of what would "
        "leave first. `off`: it moves with the turn.",
    )
    memory_caps: str = setting(
        "",
        help="How much memory each notebook of a user, or of the members of a group, may allocate "
        "on a device, such as `ann=20GiB, @guests=8GiB`. A notebook's own entry "
        "(`ann:train.ipynb=8GiB`) goes before these. A smaller `memory_cap_bytes` counts too.",
    )
    user_memory_caps: str = setting(
        "",
        help="How much memory all notebooks of a user together may allocate on a device; of a "
        "group: those of each member.",
    )
    device_reserve_bytes: int = setting(
        RESERVE_BY_SIZE,
        unit="bytes",
        low=RESERVE_BY_SIZE,
        high=2**62,
        help="How much of each device is kept for contexts and modules; -1: 2 %, at least 1 GiB, "
        "at most an eighth of the device. It grows with contexts that are to be expected, up to "
        "a sixteenth of the device. No new memory is given out there. Memory that was on the "
        "device before contexts grew may come back into it.",
    )
    device_bytes_max: int = setting(
        0,
        unit="bytes",
        low=0,
        high=2**62,
        help="Use no more than this of each device, as if it were smaller; 0: all of it.",
    )
    park_timeout_s: Seconds = setting(
        10.0,
        unit="seconds",
        low=0.1,
        high=3_600,
        help="A process that must release memory and makes no progress for this long is skipped.",
    )
    reclaim_s: Seconds = setting(
        5.0,
        unit="seconds",
        low=0,
        high=3_600,
        help="How long memory that should be free may be missing on a device before gpushare gives "
        "up on it.",
    )
    memory_wait_s: Seconds = setting(
        120.0,
        unit="seconds",
        low=0,
        high=86_400,
        help="How long a notebook may wait, without its turn, for memory that others have and that "
        "cannot be moved, before it is out of memory. 0: it does not wait.",
    )

    def __post_init__(self) -> None:
        check_ranges(self, SETTINGS)
        if self.quantum_min_s > self.quantum_max_s:
            raise SettingsError(
                f"quantum_min_s is {self.quantum_min_s:g}, and quantum_max_s is "
                f"{self.quantum_max_s:g}. Give a smallest quantum that is not above the largest."
            )
        for name, parse in ENTRIES.items():
            try:
                parse(getattr(self, name))
            except EntryError as error:
                raise SettingsError(f"{name}: {error}") from None
        try:
            guarantees.check(self.requests, self.limits, self.hard_limits, self.sharing)
        except EntryError as error:
            raise SettingsError(str(error)) from None

    @property
    def quantum_longest_s(self) -> Seconds:
        """No turn has a longer quantum."""
        return self.quantum_s or self.quantum_max_s

    def replace(self, **changes: object) -> SchedulerSettings:
        """A copy with some settings changed; raises SettingsError as the constructor does."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


SETTINGS = table_of(SchedulerSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """What only the start of a scheduler can set."""

    memory_cap_bytes: int = setting(
        0,
        unit="bytes",
        low=0,
        high=2**63,
        help="How much memory a notebook may allocate on a device. Its programs are told that the "
        "device has no more; 0: all of it.",
    )
    devices: str = setting(
        "",
        help="The devices to serve: indices, UUIDs or their beginnings, with commas between them. "
        "If it is empty, `CUDA_VISIBLE_DEVICES` says which.",
    )
    probe_period_s: Seconds = setting(
        1.0,
        unit="seconds",
        low=0.1,
        high=3_600,
        help="How often the scheduler asks NVML for the memory in use while there are clients.",
    )
    message_deadline_s: Seconds = setting(
        5.0,
        unit="seconds",
        low=0.01,
        high=3_600,
        help="How long a process may take to say who it is, to end a message that it has begun, "
        "and to read an answer over HTTP.",
    )
    journal_days: int = setting(
        7,
        unit="days",
        low=1,
        high=3_650,
        help="How long the scheduler keeps a file of its journal (`--journal`). It begins a new "
        "one each day.",
    )
    journal_names: JournalNames = setting(
        JournalNames.PSEUDONYMS,
        help="How the journal names people and notebooks: `pseudonyms` hides who they are, `names` "
        "writes their names.",
    )

    def __post_init__(self) -> None:
        check_ranges(self, START_SETTINGS)


START_SETTINGS = table_of(StartSettings)
