"""The messages between a node's scheduler and the view, written and read. Pure.

They travel as JSON texts over one WebSocket that the node opens. Its first message is a `Hello`; a
`Report` follows whenever something has changed, once a second at most, and every `HEARTBEAT_S`
while nothing does. The view answers each with a `Seen`; the node sends the next report after it.

The name of a node is in no message: it comes from the credential that opened the WebSocket.
What comes from a node is believed of that node alone, and only within the bounds below.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

FORMAT = 1
"""Both sides say it; a view refuses a node that has another one."""
HEARTBEAT_S = 15.0
PERIOD_S = 1.0
"""Between reports, at least."""
MESSAGE_BYTES_MAX = 4 << 20
DEVICES_MAX = 64
TENANTS_MAX = 4096
ENTRIES_MAX = 4096
"""Of a list or an object within a row."""
TEXT_CHARACTERS_MAX = 400
NUMBER_MAX = 2.0**63
WAIT_BOUNDS_S = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of the classes of waits that nodes count; a last class has all longer ones."""


class ReportError(ValueError):
    """A message that cannot be believed: one sentence, for the node's log and the view's page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A tenant at a device: its holder, or one in its queue."""

    tenant: str
    for_s: float
    """For how long, when the report was made."""
    recalled: bool = False
    overdue: bool = False
    frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """Bytes are of the device's memory."""

    name: str
    bytes_total: int
    bytes_used: int
    bytes_usable: int
    """What tenants may have there together."""
    bytes_outside: int
    """On the device, and of no tenant nor its contexts: of programs outside the sharing."""
    mode: str
    lost: bool
    holders: tuple[Place, ...] = ()
    queue: tuple[Place, ...] = ()
    """In the order in which they will be served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """A kernel or a `run` command."""

    name: str
    owner: str
    groups: tuple[str, ...]
    """Of the hub, that its owner is in, as far as the scheduler knows."""
    kind: str
    state: str
    runs_as: str
    devices: tuple[str, ...]
    """That it has opened."""
    bytes_resident: int
    bytes_parked: int
    turns: int
    waits: int
    waited_s: float
    held_s: float
    """For how long it has had the turn since it was registered, with all its devices at once."""
    why: str = ""
    """Why it waits although its devices are free; empty: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """All waits for turns since the scheduler began, that ended with a turn."""

    counts: tuple[int, ...] = (0,) * (len(WAIT_BOUNDS_S) + 1)
    """By WAIT_BOUNDS_S; each is of its class alone."""
    sum_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """What is not of a device or a tenant."""

    version: str
    owners: str
    """`hub`: owners are names that the hub has given. `accounts`: they are accounts of the node."""
    platform: str = ""
    """machine, docker, slurm or kubernetes; empty where nobody has said so."""
    started_at: float = 0.0
    """Of the scheduler: seconds since 1970 by the clock of the node."""
    recovering: bool = False
    turns_on: bool = True
    bytes_host_available: int = 0
    """Of the host's memory, into which notebooks park."""
    problems: tuple[str, ...] = ()
    """What the node's own checks have found, a sentence each."""
    waits: Waits = field(default_factory=Waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHello:
    boot: str
    """Names one start of a scheduler: 32 hexadecimal digits, drawn anew each time."""
    version: str
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What has changed since the report before. Rows come whole; None stands for one gone."""

    boot: str
    sequence: int
    """Counts the reports of a WebSocket, from 0."""
    whole: bool
    """What is not in it does not exist. The first of a WebSocket is."""
    sent_at: float
    """Seconds since 1970 by the clock of the node."""
    node: NodeRow | None = None
    devices: Mapping[str, DeviceRow | None] = field(default_factory=dict)
    tenants: Mapping[str, TenantRow | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The view's answer to a Hello (with sequence -1) and to each Report."""

    sequence: int
    again: bool = False
    """The next report has to be whole."""


Message = NodeHello | Report | Seen
_TYPES: dict[str, type[NodeHello] | type[Report] | type[Seen]] = {
    "hello": NodeHello,
    "report": Report,
    "seen": Seen,
}
_NAMES = {message: name for name, message in _TYPES.items()}


def characters_of(row: DeviceRow | TenantRow) -> int:
    """About as many as the row has in a message. No row of few characters takes much memory."""
    if isinstance(row, TenantRow):
        texts: tuple[str, ...] = (row.name, row.owner, row.kind, row.state, row.runs_as, row.why)
        texts += row.groups + row.devices
        return 200 + sum(map(len, texts)) + 3 * len(texts)
    places = row.holders + row.queue
    here = sum([len(each.tenant) for each in places]) + 60 * len(places)
    return 150 + len(row.name) + len(row.mode) + here


# ---- written ----------------------------------------------------------------------------------


def text_of(message: Message) -> str:
    if isinstance(message, Report):
        return "".join(pieces_of(message))
    return _json({"type": _NAMES[type(message)], **_plain(message)})


def pieces_of(report: Report) -> Iterator[str]:
    """Its text, a row at a time: a thread that others wait for need not make all of it at once."""
    head = {each: _plain(getattr(report, each)) for each in _names_of(Report) if each not in _ROWS}
    yield _json({"type": _NAMES[Report], **head})[:-1]
    for name in _ROWS:
        yield f',"{name}":{{'
        rows: Mapping[str, Any] = getattr(report, name)
        for number, (key, row) in enumerate(rows.items()):
            yield f"{',' if number else ''}{_json(key)}:{_json(_plain(row))}"
        yield "}"
    yield "}"


_ROWS = ("devices", "tenants")
_json = json.JSONEncoder(separators=(",", ":")).encode


@functools.cache
def _names_of(row: Any) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(row))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    row: Any = type(value)
    return {name: _plain(getattr(value, name)) for name in _names_of(row)}


# ---- read -------------------------------------------------------------------------------------


def message_of(text: str | bytes) -> Message:
    """Raises ReportError for what is no message, or is out of bounds. What a newer node says
    besides is passed over."""
    if len(text) > MESSAGE_BYTES_MAX:
        raise ReportError(
            f"The message has more than {MESSAGE_BYTES_MAX} bytes. Look at what the scheduler of "
            f"this node reports."
        )
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _unreadable("it is no JSON") from error
    kind = found.get("type") if isinstance(found, dict) else None
    message = _TYPES.get(kind) if isinstance(kind, str) else None
    if message is None:
        raise _unreadable("it has no known type")
    return _READERS[message](found, message.__name__)  # type: ignore[no-any-return]


def _unreadable(why: str) -> ReportError:
    return ReportError(
        f"The message cannot be read: {why}. Use the same version of jupyter-gpushare on both "
        f"sides."
    )


def _no_constant(name: str) -> float:
    raise ValueError(name)


Read = Callable[[Any, str], Any]
Row = TypeVar("Row")


def printable(text: str) -> str:
    """As it may stand in a row, once it is short enough."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _text(value: Any, where: str) -> str:
    if type(value) is str and len(value) <= TEXT_CHARACTERS_MAX and value.isprintable():
        return value
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
        raise _unreadable(f"{where} is no text of at most {TEXT_CHARACTERS_MAX} characters")
    return printable(value)


_SHARED_MAX = 32_768
_SHARED_CHARACTERS_MAX = 128
"""So that nobody can make what is kept large."""
_shared: dict[Any, Any] = {}


def _once(value: Row) -> Row:
    """An equal one that was read before: what many rows say again is kept once."""
    if len(_shared) >= _SHARED_MAX:
        _shared.clear()
    return _shared.setdefault(value, value)  # type: ignore[no-any-return]


def _common(value: Any, where: str) -> str:
    """A text that many rows have."""
    text = _text(value, where)
    return _once(text) if len(text) <= _SHARED_CHARACTERS_MAX else text


def _integer(value: Any, where: str) -> int:
    if type(value) is not int or not -1 <= value < NUMBER_MAX:
        raise _unreadable(f"{where} is no number of bytes or things")
    return value


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not 0 <= value < NUMBER_MAX:
        raise _unreadable(f"{where} is no number of seconds")
    return float(value)


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _unreadable(f"{where} is neither true nor false")
    return value


def _list_of(read: Read, most: int = ENTRIES_MAX) -> Read:
    def read_list(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise _unreadable(f"{where} is no list of at most {most} entries")
        return tuple([read(each, where) for each in value])

    return read_list


def _common_list(most: int) -> Read:
    read_list = _list_of(_common, most)

    def read(value: Any, where: str) -> tuple[str, ...]:
        texts: tuple[str, ...] = read_list(value, where)
        few = len(texts) <= 8 and sum(map(len, texts)) <= _SHARED_CHARACTERS_MAX
        return _once(texts) if few else texts

    return read


def _rows_of(read: Read, most: int) -> Read:
    def read_rows(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > most:
            raise _unreadable(f"{where} has more than {most} rows, or none that can be told apart")
        rows = {}
        for key, each in value.items():
            rows[_text(key, where)] = None if each is None else read(each, where)
        return rows

    return read_rows


def _or_none(read: Read) -> Read:
    return lambda value, where: None if value is None else read(value, where)


def _waits(value: Any, where: str) -> tuple[int, ...]:
    counts: tuple[int, ...] = _list_of(_integer)(value, where)
    if len(counts) != len(WAIT_BOUNDS_S) + 1 or min(counts) < 0:
        raise _unreadable(f"{where} has not one number for each class")
    return counts


def _boot(value: Any, where: str) -> str:
    text = _text(value, where)
    if len(text) != 32 or not set(text) <= set("0123456789abcdef"):
        raise _unreadable(f"{where} is not 32 hexadecimal digits")
    return text


def _reader(row: type[Row], **reads: Read) -> Read:
    """Of an object with these fields; those that have a default need not be there."""
    needed = {
        each.name
        for each in dataclasses.fields(row)  # type: ignore[arg-type]
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    }
    assert {each.name for each in dataclasses.fields(row)} == set(reads)  # type: ignore[arg-type]

    pairs = tuple(reads.items())

    def read(value: Any, where: str) -> Row:
        if not isinstance(value, dict):
            raise _unreadable(f"{where} is no object")
        if not value.keys() >= needed:
            raise _unreadable(f"{where} has no {min(needed - value.keys())}")
        return row(**{name: each(value[name], name) for name, each in pairs if name in value})

    return read


_PLACES = _list_of(
    _reader(Place, tenant=_text, for_s=_number, recalled=_flag, overdue=_flag, frozen=_flag)
)
_DEVICE = _reader(
    DeviceRow,
    name=_common,
    bytes_total=_integer,
    bytes_used=_integer,
    bytes_usable=_integer,
    bytes_outside=_integer,
    mode=_common,
    lost=_flag,
    holders=_PLACES,
    queue=_PLACES,
)
_TENANT = _reader(
    TenantRow,
    name=_text,
    owner=_common,
    groups=_common_list(256),
    kind=_common,
    state=_common,
    runs_as=_common,
    devices=_common_list(DEVICES_MAX),
    bytes_resident=_integer,
    bytes_parked=_integer,
    turns=_integer,
    waits=_integer,
    waited_s=_number,
    held_s=_number,
    why=_text,
)
_NODE = _reader(
    NodeRow,
    version=_text,
    owners=_text,
    platform=_text,
    started_at=_number,
    recovering=_flag,
    turns_on=_flag,
    bytes_host_available=_integer,
    problems=_list_of(_text, 64),
    waits=_reader(Waits, counts=_waits, sum_s=_number),
)
_READERS: dict[type[Any], Read] = {
    NodeHello: _reader(NodeHello, boot=_boot, version=_text, format=_integer),
    Report: _reader(
        Report,
        boot=_boot,
        sequence=_integer,
        whole=_flag,
        sent_at=_number,
        node=_or_none(_NODE),
        devices=_rows_of(_DEVICE, DEVICES_MAX),
        tenants=_rows_of(_TENANT, TENANTS_MAX),
    ),
    Seen: _reader(Seen, sequence=_integer, again=_flag),
}
