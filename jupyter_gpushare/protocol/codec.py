"""Messages to bytes and back, without a socket. hook/src/agent/codec.c is its twin in C.

Receiving is strict and bounded: the first fault ends the stream (`ProtocolError`, the peer's
fault). Sending never makes a frame that a receiver would refuse; a message that cannot be sent
raises `UnencodableMessage` (our fault).
"""

from __future__ import annotations

import struct
from typing import ClassVar, Final, TypeVar

from .fields import INTEGER_BYTES, STR_LENGTH_BYTES, UUID_BYTES, Field, FieldKind, Message, Side
from .messages import BODY_BYTES_MAX, MESSAGE_TYPES, PROTOCOL_VERSION, RefusalCode

T = TypeVar("T")

_HEADER: Final = struct.Struct("<HHI")
_VERSION_BYTES: Final = 2
HEADER_BYTES: Final = _HEADER.size
FRAME_BYTES_MAX: Final = HEADER_BYTES + BODY_BYTES_MAX


class UnencodableMessage(ValueError):
    """Our fault: a field has a value that its type on the wire cannot hold."""


class ProtocolError(Exception):
    """The peer's fault: it has sent something else than a frame. Close this peer alone.

    `messages` are those that came whole before the fault, in the same call of `feed`.
    """

    refusal: ClassVar[RefusalCode] = RefusalCode.BAD_PROTOCOL

    def __init__(self, text: str, messages: tuple[Message, ...] = ()) -> None:
        super().__init__(text)
        self.messages = messages


class WrongVersion(ProtocolError):
    """The peer speaks another version of the protocol."""

    refusal = RefusalCode.WRONG_VERSION


class FrameTooLarge(ProtocolError):
    """The peer announces a body that no message has."""


class UnknownMessage(ProtocolError):
    """The peer sends a type that does not exist, or that is not for this side."""


class BadBody(ProtocolError):
    """The body is not what the message's fields say."""


def encode(message: Message) -> bytes:
    """The message as one frame. Texts that are too long are cut at the end of a character."""
    body = b"".join(_encode_field(field, getattr(message, field.name)) for field in message.FIELDS)
    return _HEADER.pack(PROTOCOL_VERSION, message.TYPE, len(body)) + body


def cut_text(text: str, bytes_max: int) -> bytes:
    """The text as it goes on the wire: up to its first zero, `?` for lone surrogates, cut."""
    raw = text.partition("\0")[0].encode("utf-8", "replace")
    if len(raw) <= bytes_max:
        return raw
    end = bytes_max
    while end and raw[end] & 0xC0 == 0x80:
        end -= 1
    return raw[:end]


class FrameDecoder:
    """Takes bytes as they come and gives whole messages, one at a time or all at once.

    After `feed`, and after `next_message` has given None, it holds at most one incomplete frame
    (`FRAME_BYTES_MAX`). After a fault every call raises the same fault again.
    """

    def __init__(self, receiver: Side | None = None) -> None:
        """With `receiver`, messages for the other side are unknown messages."""
        self._receiver = receiver
        self._buffer = bytearray()
        self._fault: ProtocolError | None = None

    @property
    def bytes_waiting(self) -> int:
        """How many bytes are here that no message has been made of."""
        return len(self._buffer)

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes in; `next_message` looks at them."""
        if self._fault is None:
            self._buffer += data

    def next_message(self) -> Message | None:
        """The next message, None while it is incomplete; raises ProtocolError at the first fault.

        Its cost does not depend on how many messages follow."""
        if self._fault is not None:
            raise type(self._fault)(str(self._fault))
        try:
            frame = self._next_frame()
            if frame is None:
                return None
            kind, end = frame
            message = _decode_body(kind, bytes(self._buffer[HEADER_BYTES:end]))
        except ProtocolError as fault:
            self._fault = fault
            self._buffer.clear()
            raise
        del self._buffer[:end]
        return message

    def feed(self, data: bytes | bytearray | memoryview) -> list[Message]:
        """The messages that are complete now; raises ProtocolError at the first fault."""
        self.receive(data)
        messages: list[Message] = []
        try:
            while (message := self.next_message()) is not None:
                messages.append(message)
        except ProtocolError as fault:
            fault.messages = tuple(messages)
            raise
        return messages

    def _next_frame(self) -> tuple[type[Message], int] | None:
        """The first frame's type and end; None while bytes are missing."""
        available = len(self._buffer)
        if available < _VERSION_BYTES:
            return None
        version = int.from_bytes(self._buffer[:_VERSION_BYTES], "little")
        if version != PROTOCOL_VERSION:
            raise WrongVersion(
                f"The peer speaks version {version} of the protocol, this side {PROTOCOL_VERSION}. "
                f"Restart the kernel and the scheduler after an upgrade."
            )
        if available < HEADER_BYTES:
            return None
        _, number, body_bytes = _HEADER.unpack_from(self._buffer)
        if body_bytes > BODY_BYTES_MAX:
            raise FrameTooLarge(
                f"The peer announces a body of {body_bytes} bytes; {BODY_BYTES_MAX} are allowed. "
                f"Let only the gpushare hook speak on this socket."
            )
        kind = MESSAGE_TYPES.get(number)
        if kind is None or self._receiver not in (None, kind.TO):
            raise UnknownMessage(
                f"The peer sent message type {number}, which is not for this side. "
                f"Let only the gpushare hook speak on this socket."
            )
        if available < HEADER_BYTES + body_bytes:
            return None
        return kind, HEADER_BYTES + body_bytes


def _encode_field(field: Field, value: object) -> bytes:
    try:
        if field.kind is FieldKind.STR:
            raw = cut_text(_expect(value, str), field.bytes_max)
            return len(raw).to_bytes(STR_LENGTH_BYTES, "little") + raw
        if field.kind is FieldKind.UUID:
            uuid = _expect(value, bytes)
            if len(uuid) != UUID_BYTES:
                raise ValueError(f"{len(uuid)} bytes are not a UUID")
            return uuid
        number = _expect(value, int)
        if field.enum is not None:
            number = field.enum(number)
        return number.to_bytes(INTEGER_BYTES[field.kind], "little")
    except (TypeError, ValueError, OverflowError) as error:
        raise UnencodableMessage(
            f"The field {field.name} cannot hold {value!r} ({error}). "
            f"Give a value that fits {field.kind.value}."
        ) from error


def _expect(value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} is needed")
    return value


def _decode_body(kind: type[Message], body: bytes) -> Message:
    values: dict[str, object] = {}
    at = 0
    for field in kind.FIELDS:
        values[field.name], at = _decode_field(kind, field, body, at)
    if at != len(body):
        raise _bad_body(kind, f"has {len(body) - at} bytes too many")
    return kind(**values)


def _decode_field(kind: type[Message], field: Field, body: bytes, at: int) -> tuple[object, int]:
    if field.kind is FieldKind.STR:
        length, at = _take(kind, field, body, at, STR_LENGTH_BYTES)
        if int.from_bytes(length, "little") > field.bytes_max:
            raise _bad_body(kind, f"has too long a text in {field.name}")
        raw, at = _take(kind, field, body, at, int.from_bytes(length, "little"))
        return _decode_text(kind, field, raw), at
    if field.kind is FieldKind.UUID:
        return _take(kind, field, body, at, UUID_BYTES)
    raw, at = _take(kind, field, body, at, INTEGER_BYTES[field.kind])
    number = int.from_bytes(raw, "little")
    if field.enum is None:
        return number, at
    try:
        return field.enum(number), at
    except ValueError:
        raise _bad_body(kind, f"has no meaning for {number} in {field.name}") from None


def _take(
    kind: type[Message], field: Field, body: bytes, at: int, length: int
) -> tuple[bytes, int]:
    if at + length > len(body):
        raise _bad_body(kind, f"ends before {field.name}")
    return body[at : at + length], at + length


def _decode_text(kind: type[Message], field: Field, raw: bytes) -> str:
    if b"\0" in raw:
        raise _bad_body(kind, f"has a zero byte in {field.name}")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _bad_body(kind, f"has a text that is not UTF-8 in {field.name}") from None


def _bad_body(kind: type[Message], what: str) -> BadBody:
    return BadBody(
        f"The peer's {kind.__name__} {what}. Let only the gpushare hook speak on this socket."
    )
