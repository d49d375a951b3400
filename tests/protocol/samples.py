"""Messages for tests: the golden ones of golden.json, and any ones for Hypothesis."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from jupyter_gpushare.protocol.fields import INTEGER_BYTES, Field, FieldKind, Message
from jupyter_gpushare.protocol.messages import MESSAGE_TYPES

GOLDEN = Path(__file__).with_name("golden.json")


@dataclass(frozen=True)
class Golden:
    """One message with the bytes that both codecs must make of it, and read as it."""

    what: str
    message: Message
    frame: bytes


def golden() -> list[Golden]:
    """All golden messages; the frames were written down once and are never computed again."""
    classes = {kind.__name__: kind for kind in MESSAGE_TYPES.values()}
    return [
        Golden(
            f"{entry['message']}-{entry['what']}",
            _message(classes[entry["message"]], entry["fields"]),
            bytes.fromhex(entry["frame"]),
        )
        for entry in json.loads(GOLDEN.read_text())
    ]


def _message(kind: type[Message], fields: dict[str, object]) -> Message:
    return kind(**{field.name: _value(field, fields[field.name]) for field in kind.FIELDS})


def _value(field: Field, value: object) -> object:
    if field.kind is FieldKind.UUID:
        return bytes.fromhex(str(value))
    return field.enum[str(value)] if field.enum is not None else value


def values(field: Field) -> st.SearchStrategy[object]:
    """Any value that the field takes and that comes back unchanged."""
    if field.kind is FieldKind.UUID:
        return st.binary(min_size=16, max_size=16)
    if field.kind is FieldKind.STR:
        text = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
        return text.filter(lambda value: len(value.encode()) <= field.bytes_max)
    if field.enum is not None:
        return st.sampled_from(list(field.enum))
    return st.integers(0, 256 ** INTEGER_BYTES[field.kind] - 1)


def messages() -> st.SearchStrategy[Message]:
    """Any message of any type."""
    return st.sampled_from(list(MESSAGE_TYPES.values())).flatmap(
        lambda kind: st.builds(kind, **{field.name: values(field) for field in kind.FIELDS})
    )


def damaged_streams(frames: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Streams of frames with a few bytes replaced, left out or added anywhere."""

    def damage(stream: bytes) -> st.SearchStrategy[bytes]:
        place = st.integers(0, len(stream))
        edit = st.tuples(place, st.integers(0, 3), st.binary(max_size=4))
        return st.lists(edit, min_size=1, max_size=4).map(lambda edits: _edited(stream, edits))

    return st.lists(frames, min_size=1, max_size=4).map(b"".join).flatmap(damage)


def _edited(stream: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for place, removed, added in edits:
        stream = stream[:place] + added + stream[place + removed :]
    return stream
