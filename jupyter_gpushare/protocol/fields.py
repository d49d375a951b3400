"""What a message is made of: the words that messages.toml, the generator and the codec share."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar


class Kind(enum.Enum):
    """The type of a field on the wire; the value is its name in messages.toml."""

    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    UUID = "uuid"
    STR = "str"
    ENUM = "enum"


class Receiver(enum.Enum):
    """Which side a message is meant for."""

    SCHEDULER = "scheduler"
    HOOK = "hook"


UUID_BYTES = 16
STR_LENGTH_BYTES = 2

INTEGER_BYTES: dict[Kind, int] = {Kind.U8: 1, Kind.U16: 2, Kind.U32: 4, Kind.U64: 8, Kind.ENUM: 1}
"""Width of the kinds that are one little-endian unsigned integer."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message, in the order of the wire."""

    name: str
    kind: Kind
    bytes_max: int = 0
    """Only for STR: the most bytes of UTF-8."""
    enum: type[enum.IntEnum] | None = None
    """Only for ENUM."""


@dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages; the subclasses are generated."""

    TYPE: ClassVar[int]
    TO: ClassVar[Receiver]
    FIELDS: ClassVar[tuple[Field, ...]]
