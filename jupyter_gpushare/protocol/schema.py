"""Reads and checks messages.toml. Only the generator needs it; nothing at run time does."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .fields import INTEGER_BYTES, STR_LENGTH_BYTES, UUID_BYTES, FieldKind, Side

_toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ENUM_VALUE_MAX = 31
"""The C codec keeps the values that an enum has in one 32-bit mask."""

_CLASS_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]*")


class SchemaError(ValueError):
    """messages.toml breaks one of its own rules; the message says where."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field as the schema gives it."""

    name: str
    kind: FieldKind
    bytes_max: int = 0
    enum_name: str = ""

    @property
    def wire_bytes_max(self) -> int:
        """The most bytes that the field takes on the wire."""
        if self.kind is FieldKind.STR:
            return STR_LENGTH_BYTES + self.bytes_max
        return UUID_BYTES if self.kind is FieldKind.UUID else INTEGER_BYTES[self.kind]

    @property
    def type_text(self) -> str:
        """The field's type as messages.toml writes it."""
        if self.kind is FieldKind.STR:
            return f"str:{self.bytes_max}"
        return f"enum:{self.enum_name}" if self.kind is FieldKind.ENUM else self.kind.value


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """One message as the schema gives it."""

    name: str
    type: int
    to: Side
    doc: str
    fields: tuple[FieldSpec, ...]


@dataclass(frozen=True, slots=True)
class EnumSpec:
    """One enumeration; `values` keeps the order of the file."""

    name: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """All of messages.toml, checked."""

    protocol_version: int
    body_bytes_max: int
    enums: tuple[EnumSpec, ...]
    messages: tuple[MessageSpec, ...]


def load(path: Path) -> Schema:
    """Read the schema; raises SchemaError with the name of what is wrong."""
    with path.open("rb") as file:
        return parse(_toml.load(file))


def parse(table: dict[str, Any]) -> Schema:
    """Check an already parsed table."""
    enums = tuple(_enum(name, values) for name, values in table["enums"].items())
    enum_names = {enum.name for enum in enums}
    messages = tuple(_message(name, m, enum_names) for name, m in table["messages"].items())
    schema = Schema(table["protocol_version"], table["body_bytes_max"], enums, messages)
    _check_numbers(schema)
    return schema


def _enum(name: str, values: dict[str, int]) -> EnumSpec:
    if not _CLASS_NAME.fullmatch(name) or not values:
        raise SchemaError(f"enum {name!r} needs a CamelCase name and at least one value.")
    for member, value in values.items():
        if not _FIELD_NAME.fullmatch(member) or not 0 <= value <= ENUM_VALUE_MAX:
            raise SchemaError(f"{name}.{member} = {value} is not a name and 0..{ENUM_VALUE_MAX}.")
    if len(set(values.values())) != len(values):
        raise SchemaError(f"enum {name} uses a value twice.")
    return EnumSpec(name, tuple(values.items()))


def _message(name: str, table: dict[str, Any], enum_names: set[str]) -> MessageSpec:
    if not _CLASS_NAME.fullmatch(name) or not table["doc"]:
        raise SchemaError(f"message {name!r} needs a CamelCase name and a doc.")
    fields = tuple(_field(name, text, enum_names) for text in table["fields"])
    if len({field.name for field in fields}) != len(fields):
        raise SchemaError(f"message {name} has two fields of one name.")
    return MessageSpec(name, table["type"], Side(table["to"]), table["doc"], fields)


def _field(message: str, text: str, enum_names: set[str]) -> FieldSpec:
    name, _, type_text = text.partition(" ")
    kind_text, _, argument = type_text.partition(":")
    if not _FIELD_NAME.fullmatch(name):
        raise SchemaError(f"{message}: {name!r} is not a field name.")
    try:
        kind = FieldKind(kind_text)
    except ValueError:
        raise SchemaError(f"{message}.{name}: {kind_text!r} is not a field type.") from None
    if kind is FieldKind.STR:
        return FieldSpec(name, kind, bytes_max=int(argument))
    if kind is FieldKind.ENUM:
        if argument not in enum_names:
            raise SchemaError(f"{message}.{name}: there is no enum {argument!r}.")
        return FieldSpec(name, kind, enum_name=argument)
    return FieldSpec(name, kind)


def _check_numbers(schema: Schema) -> None:
    types = [message.type for message in schema.messages]
    if len(set(types)) != len(types) or not all(0 < number < 2**16 for number in types):
        raise SchemaError("message types must be different, and between 1 and 65535.")
    for message in schema.messages:
        body_bytes = sum(field.wire_bytes_max for field in message.fields)
        if body_bytes > schema.body_bytes_max:
            raise SchemaError(f"{message.name} may take {body_bytes} bytes; the limit is smaller.")
