"""The C codec, under address and undefined-behaviour sanitizers, against the Python one.

tests/hook/codec_echo.c decodes what it is sent and encodes every message again, so equal bytes
mean an equal reading.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.protocol import codec
from jupyter_gpushare.protocol.fields import Message
from tests.hook.conftest import HERE, OUTPUT, SOURCE, newer, one_at_a_time, run
from tests.protocol.samples import Golden, damaged_streams, golden, messages
from tests.support.paths import HOOK_GENERATED, hook_source

NEED_MORE = 1
STATUS_OF_FAULT = {
    codec.WrongVersion: 2,
    codec.FrameTooLarge: 3,
    codec.UnknownMessage: 4,
    codec.BadBody: 5,
}


class EchoProgram:
    """The C codec in a process of its own."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def _ask(self, kind: bytes, number: int, data: bytes) -> tuple[int, bytes]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(struct.pack("<cII", kind, number, len(data)) + data)
        process.stdin.flush()
        head = process.stdout.read(5)
        assert len(head) == 5, process.stderr.read().decode()
        status, length = struct.unpack("<BI", head)
        return status, process.stdout.read(length)

    def decode(self, stream: bytes, piece_bytes: int = 0) -> tuple[int, bytes]:
        """The last status, and all messages encoded again; in pieces of so many bytes."""
        return self._ask(b"D", piece_bytes, stream)

    def set_text(self, text: bytes, array_bytes: int) -> bytes:
        """What codec_set_text puts into an array of this size."""
        return self._ask(b"T", array_bytes, text)[1]

    def close(self) -> int:
        """Ends the program; not 0 when a sanitizer found something (also a leak)."""
        self._process.communicate()
        return self._process.returncode


@pytest.fixture(scope="module")
def echo() -> Iterator[EchoProgram]:
    """The echo program, built with sanitizers."""
    program = OUTPUT / "codec_echo"
    sources = [HERE / "codec_echo.c", hook_source("codec.c")]
    with one_at_a_time("codec_echo"):
        if not newer(program, *sources, *SOURCE.glob("*/*.h"), *HOOK_GENERATED.glob("*.h")):
            options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-I", str(SOURCE)]
            options += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
            run("cc", *options, "-I", HOOK_GENERATED, "-o", program, *sources)
    echo_program = EchoProgram(program)
    yield echo_program
    assert echo_program.close() == 0


def python_reading(stream: bytes) -> tuple[int, bytes]:
    """What the Python codec makes of the stream, in the terms of the echo program."""
    decoder = codec.FrameDecoder()
    try:
        received, status = decoder.feed(stream), NEED_MORE
    except codec.ProtocolError as fault:
        received, status = list(fault.messages), STATUS_OF_FAULT[type(fault)]
    return status, b"".join(map(codec.encode, received))


@pytest.mark.promise("protocol-2")
@pytest.mark.parametrize("sample", golden(), ids=lambda sample: sample.what)
def test_golden_bytes(echo: EchoProgram, sample: Golden) -> None:
    """C reads each golden frame and writes the same bytes, in one piece and byte by byte."""
    assert echo.decode(sample.frame) == (NEED_MORE, sample.frame)
    assert echo.decode(sample.frame, piece_bytes=1) == (NEED_MORE, sample.frame)


@pytest.mark.promise("protocol-2")
@given(st.lists(messages(), max_size=5), st.integers(0, 50))
def test_round_trip(echo: EchoProgram, sent: list[Message], piece_bytes: int) -> None:
    """Python to C to Python gives equal messages, however the stream is cut."""
    status, answer = echo.decode(b"".join(map(codec.encode, sent)), piece_bytes)
    assert status == NEED_MORE
    assert codec.FrameDecoder().feed(answer) == sent


@pytest.mark.promise("protocol-4")
@pytest.mark.promise("protocol-3")
@settings(max_examples=150)
@given(
    st.binary(max_size=200) | damaged_streams(st.builds(codec.encode, messages())),
    st.integers(0, 50),
)
def test_both_codecs_agree_on_garbage(echo: EchoProgram, stream: bytes, piece_bytes: int) -> None:
    """Whatever bytes come, C and Python find the same messages and the same fault."""
    assert echo.decode(stream, piece_bytes) == python_reading(stream)


@pytest.mark.promise("protocol-1", "Frames are bounded")
@pytest.mark.promise("bad-input-11")
def test_a_claim_of_ten_megabytes(echo: EchoProgram) -> None:
    """A frame that claims 10 MB is refused at its header, whatever follows."""
    frame = struct.pack("<HHI", codec.PROTOCOL_VERSION, 8, 10 * 2**20) + bytes(10 * 2**20)
    status, answer = echo.decode(frame)
    assert (status, answer) == (STATUS_OF_FAULT[codec.FrameTooLarge], b"")


@given(st.binary(max_size=40), st.integers(1, 40))
def test_texts_are_cut_as_in_python(echo: EchoProgram, raw: bytes, array_bytes: int) -> None:
    """C cuts texts where Python does and puts `?` for the same bytes that are not UTF-8."""
    text = raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    assert echo.set_text(raw, array_bytes) == codec.cut_text(text, array_bytes - 1)
