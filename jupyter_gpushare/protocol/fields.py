"""What a message is made of: the words that messages.toml, the generator and the codec share."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar


class FieldKind(enum.Enum):
    """The type of a field on the wire; the value is its name in messages.toml."""

    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    UUID = "uuid"
    STR = "str"
    ENUM = "enum"


class Side(enum.Enum):
    """Which side a message is meant for."""

    SCHEDULER = "scheduler"
    HOOK = "hook"


UUID_BYTES = 16
STR_LENGTH_BYTES = 2

INTEGER_BYTES: dict[FieldKind, int] = {
    FieldKind.U8: 1,
    FieldKind.U16: 2,
    FieldKind.U32: 4,
    FieldKind.U64: 8,
    FieldKind.ENUM: 1,
}
"""Width of the kinds that are one little-endian unsigned integer."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message, in the order of the wire."""

    name: str
    kind: FieldKind
    bytes_max: int = 0
    """Only for STR: the most bytes of UTF-8."""
    enum: type[enum.IntEnum] | None = None
    """Only for ENUM."""


@dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages; the subclasses are generated."""

    TYPE: ClassVar[int]
    TO: ClassVar[Side]
    FIELDS: ClassVar[tuple[Field, ...]]
