"""The Python codec: golden bytes, limits, faults."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.protocol import codec
from jupyter_gpushare.protocol.fields import Message, Side
from jupyter_gpushare.protocol.messages import (
    BODY_BYTES_MAX,
    MESSAGE_TYPES,
    PROTOCOL_VERSION,
    CellBegan,
    Contention,
    DropReason,
    Hello,
    RefusalCode,
    Settings,
    TurnDropped,
    TurnRequested,
    WaitCancelled,
)

from .samples import Golden, damaged_streams, golden, messages


def header(version: int = PROTOCOL_VERSION, number: int = 8, body_bytes: int = 0) -> bytes:
    return b"".join(
        value.to_bytes(width, "little")
        for value, width in ((version, 2), (number, 2), (body_bytes, 4))
    )


@pytest.mark.promise("protocol-2", "C and Python agree on golden bytes")
@pytest.mark.parametrize("sample", golden(), ids=lambda sample: sample.what)
def test_golden_bytes(sample: Golden) -> None:
    """Each golden message is encoded to, and decoded from, the bytes that were written down."""
    assert codec.encode(sample.message) == sample.frame
    assert codec.FrameDecoder().feed(sample.frame) == [sample.message]


@pytest.mark.promise("protocol-2")
def test_every_message_is_golden() -> None:
    """No message of the schema lacks golden bytes."""
    assert {type(sample.message) for sample in golden()} == set(MESSAGE_TYPES.values())


@pytest.mark.promise("protocol-2")
def test_a_frame_by_hand() -> None:
    """The layout is the documented one, checked against bytes put together by hand."""
    message = TurnRequested(request_id=0x0102, cause="é")
    assert codec.encode(message) == (
        b"\x02\x00"  # version
        b"\x04\x00"  # type
        b"\x0c\x00\x00\x00"  # bytes of the body
        b"\x02\x01\x00\x00\x00\x00\x00\x00"  # request_id
        b"\x02\x00\xc3\xa9"  # cause
    )


@pytest.mark.promise("protocol-3")
@given(st.lists(messages(), max_size=5), st.data())
def test_any_split_gives_the_same_messages(sent: list[Message], data: st.DataObject) -> None:
    """However a stream is cut into pieces, the same messages come out."""
    stream = b"".join(map(codec.encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = codec.FrameDecoder()
    received = [
        message
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for message in decoder.feed(stream[start:end])
    ]
    assert received == sent
    assert decoder.bytes_waiting == 0


def test_every_position_of_a_split() -> None:
    """A frame that is cut in two at any byte is decoded with the second half, not before."""
    for sample in golden():
        for cut in range(len(sample.frame)):
            decoder = codec.FrameDecoder()
            assert decoder.feed(sample.frame[:cut]) == []
            assert decoder.feed(sample.frame[cut:]) == [sample.message]


@pytest.mark.promise("protocol-3", "Both codecs survive fuzzing, and agree")
@given(st.binary(max_size=200) | damaged_streams(st.builds(codec.encode, messages())))
def test_garbage_is_a_fault_or_nothing(stream: bytes) -> None:
    """Whatever bytes come, the decoder answers with messages or a ProtocolError, and what it
    accepted it would send in the same way."""
    decoder = codec.FrameDecoder()
    try:
        received = decoder.feed(stream)
    except codec.ProtocolError as fault:
        received = list(fault.messages)
    assert decoder.bytes_waiting <= codec.FRAME_BYTES_MAX
    assert stream.startswith(b"".join(map(codec.encode, received)))


@pytest.mark.promise(
    "protocol-4",
    "It is versioned: another version is told from any other at once, and refused",
)
@pytest.mark.promise("protocol-1")
@pytest.mark.parametrize(
    ("stream", "fault", "refusal"),
    [
        (header(version=1)[:2], codec.WrongVersion, RefusalCode.WRONG_VERSION),
        (b"GET / HTTP/1.1\r\n", codec.WrongVersion, RefusalCode.WRONG_VERSION),
        (header(body_bytes=10 * 2**20), codec.FrameTooLarge, RefusalCode.BAD_PROTOCOL),
        (header(body_bytes=BODY_BYTES_MAX + 1), codec.FrameTooLarge, RefusalCode.BAD_PROTOCOL),
        (header(number=999), codec.UnknownMessage, RefusalCode.BAD_PROTOCOL),
        (header(number=0), codec.UnknownMessage, RefusalCode.BAD_PROTOCOL),
        (header(body_bytes=1) + b"x", codec.BadBody, RefusalCode.BAD_PROTOCOL),
        (header(number=4, body_bytes=9) + bytes(9), codec.BadBody, RefusalCode.BAD_PROTOCOL),
    ],
)
def test_faults_have_names(
    stream: bytes, fault: type[codec.ProtocolError], refusal: RefusalCode
) -> None:
    """Each kind of fault has its own error, which knows the refusal code for the peer."""
    with pytest.raises(fault) as raised:
        codec.FrameDecoder().feed(stream)
    assert raised.value.refusal is refusal
    assert raised.value.messages == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"\x02\x00a\x00", "zero byte"),
        (b"\x02\x00\xc3(", "not UTF-8"),
        (b"\x41\x00" + b"a" * 65, "too long"),
    ],
)
def test_bad_texts(text: bytes, what: str) -> None:
    """A text with a zero byte, broken UTF-8 or too many bytes is the peer's fault."""
    body = bytes(8) + text
    with pytest.raises(codec.BadBody, match=what):
        codec.FrameDecoder().feed(header(number=TurnRequested.TYPE, body_bytes=len(body)) + body)


def test_a_value_that_an_enumeration_lacks() -> None:
    """An unknown enumeration value is the peer's fault."""
    frame = bytearray(
        codec.encode(
            TurnDropped(turn_id=1, reason=DropReason.IDLE, closed_at_ns=2, drained_at_ns=3)
        )
    )
    frame[codec.HEADER_BYTES + 8] = 200
    with pytest.raises(codec.BadBody, match="no meaning for 200"):
        codec.FrameDecoder().feed(frame)


def test_a_fault_is_for_ever() -> None:
    """After a fault the decoder takes nothing more, keeps nothing, and repeats the fault."""
    decoder = codec.FrameDecoder()
    good = codec.encode(CellBegan())
    with pytest.raises(codec.UnknownMessage) as first:
        decoder.feed(good + header(number=999) + good)
    assert first.value.messages == (CellBegan(),)
    with pytest.raises(codec.UnknownMessage):
        decoder.feed(good)
    assert decoder.bytes_waiting == 0


def test_messages_for_the_other_side() -> None:
    """A decoder that knows its side refuses what is meant for the other one."""
    frame = codec.encode(Contention(waiters=1, tenants=2, idle_ms=0))
    assert codec.FrameDecoder(Side.HOOK).feed(frame)
    with pytest.raises(codec.UnknownMessage):
        codec.FrameDecoder(Side.SCHEDULER).feed(frame)


@given(st.text(st.characters(codec=None)), st.integers(0, 40))
def test_texts_are_cut_at_a_character(text: str, bytes_max: int) -> None:
    """A cut text is valid UTF-8 without zeros, as long as can be, and a beginning of the text."""
    cut = codec.cut_text(text, bytes_max)
    kept = cut.decode("utf-8")
    whole = text.partition("\0")[0].encode("utf-8", "replace")
    assert whole.startswith(cut)
    assert len(cut) <= bytes_max
    next_character = whole.decode()[len(kept) : len(kept) + 1]
    assert not next_character or len(cut) + len(next_character.encode()) > bytes_max


@pytest.mark.promise("protocol-1")
@pytest.mark.parametrize(
    "message",
    [
        Contention(waiters=-1, tenants=0, idle_ms=0),
        Contention(waiters=2**32, tenants=0, idle_ms=0),
        WaitCancelled(cause=b"bytes"),  # type: ignore[arg-type]
        TurnDropped(turn_id=1, reason=9, closed_at_ns=0, drained_at_ns=0),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_sent_is_our_fault(message: Message) -> None:
    """A value that does not fit is an UnencodableMessage, which is no ProtocolError."""
    with pytest.raises(codec.UnencodableMessage):
        codec.encode(message)
    assert not issubclass(codec.UnencodableMessage, codec.ProtocolError)


def test_settings_carry_every_hook_setting() -> None:
    """The Settings message has the settings that concern the hook, and the Hello its version."""
    assert {field.name for field in Settings.FIELDS} == {
        "turns",
        "idle_ms",
        "window_ms",
        "drain_stall_ms",
        "reconnect_s",
        "fallback",
        "memory_mode",
        "reclaim_ms",
    }
    assert "hook_version" in {field.name for field in Hello.FIELDS}
