"""What our memory handles say, and the packets that importers and exporters exchange: all of it
comes from outside, so nothing that is not whole is believed."""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_uint8, c_uint32, c_uint64

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hook.runtime.pure import Pure

FOREIGN, OURS, DAMAGED = 0, 1, 2
GRANULE = 2 << 20
BATCH_MAX = 253
BLOCK_BYTES_MAX = 1 << 46
anything = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
words = st.integers(0, 2**64 - 1)
tokens = st.binary(min_size=16, max_size=16)


class Handle(ctypes.Structure):
    """struct ipc_handle."""

    _fields_ = (
        ("server", c_uint64),
        ("token", c_uint8 * 16),
        ("block", c_uint64),
        ("offset", c_uint64),
        ("bytes", c_uint64),
    )


class Batch(ctypes.Structure):
    """struct ipc_batch."""

    _fields_ = (
        ("magic", c_uint64),
        ("status", c_uint32),
        ("pieces", c_uint32),
        ("bytes", c_uint64),
        ("device_uuid", c_uint8 * 16),
        ("first", c_uint32),
        ("count", c_uint32),
        ("piece_bytes", c_uint64 * BATCH_MAX),
    )


class Progress(ctypes.Structure):
    """struct ipc_progress."""

    _fields_ = (
        ("pieces", c_uint32),
        ("pieces_heard", c_uint32),
        ("bytes", c_uint64),
        ("bytes_heard", c_uint64),
    )


def handle_of(server: int, token: bytes, block: int, offset: int, size: int) -> Handle:
    return Handle(server, (c_uint8 * 16)(*token), block, offset, size)


def encoded(pure: Pure, handle: Handle) -> bytes:
    out = (c_uint8 * 64)()
    pure.library.ih_encode(ctypes.byref(handle), out)
    return bytes(out)


def decoded(pure: Pure, data: bytes) -> tuple[int, Handle]:
    handle = Handle()
    return int(pure.library.ih_decode(data, ctypes.byref(handle))), handle


@anything
@given(words, tokens, words, st.integers(0, 2**45), st.integers(1, 2**45))
def test_a_handle_says_what_was_put_in(
    pure: Pure, server: int, token: bytes, block: int, offset: int, size: int
) -> None:
    """All of it comes back, and the same allocation has the same bytes each time."""
    handle = handle_of(server, token, block, offset, size)
    data = encoded(pure, handle)
    assert data == encoded(pure, handle)
    kind, found = decoded(pure, data)
    assert kind == OURS
    assert bytes(found) == bytes(handle)


@anything
@given(st.binary(min_size=64, max_size=64))
def test_other_handles_are_the_drivers(pure: Pure, data: bytes) -> None:
    """Whatever does not begin with our word is not ours."""
    assert decoded(pure, data)[0] == FOREIGN
    assert decoded(pure, b"gpushare" + data[8:])[0] == DAMAGED


@pytest.mark.promise("backing-47")
@anything
@given(st.integers(64, 511))
def test_one_bit_is_enough_to_refuse(pure: Pure, bit: int) -> None:
    """A handle that was changed anywhere is damaged."""
    data = bytearray(encoded(pure, handle_of(1, b"t" * 16, 2, 3, 4)))
    data[bit // 8] ^= 1 << bit % 8
    assert decoded(pure, bytes(data))[0] == DAMAGED


def test_sizes_that_no_block_has(pure: Pure) -> None:
    """Nothing that could overflow a sum, and no empty allocation."""
    for offset, size in ((0, 0), (BLOCK_BYTES_MAX, 1), (0, BLOCK_BYTES_MAX), (2**64 - 1, 2)):
        data = encoded(pure, handle_of(1, bytes(16), 2, offset, size))
        assert decoded(pure, data)[0] == DAMAGED


def test_names_of_servers_fit_an_address(pure: Pure) -> None:
    """Each number has a name of its own, of 32 characters."""
    names = set()
    for server in (0, 1, 0x0123456789ABCDEF, 2**64 - 1):
        name = ctypes.create_string_buffer(64)
        pure.library.ih_server_name.restype = c_size_t
        length = pure.library.ih_server_name(c_uint64(server), name)
        assert name.raw[:length].decode() == f"gpushare-memory-{server:016x}"
        names.add(name.raw[:length])
    assert len(names) == 4


@pytest.mark.promise("backing-47")
@anything
@given(tokens, st.binary(max_size=40))
def test_requests_need_the_token(pure: Pure, token: bytes, nonsense: bytes) -> None:
    """Only the whole request, with the right token, is one."""
    packet, block = ctypes.create_string_buffer(33), c_uint64(0)
    handle = handle_of(1, token, 77, 0, 1)
    pure.library.ih_request(ctypes.byref(handle), packet)
    check = pure.library.ih_request_check
    assert check(packet, c_size_t(32), token, ctypes.byref(block)) and block.value == 77
    for size in (0, 31, 33):
        assert not check(packet, c_size_t(size), token, ctypes.byref(block))
    wrong = bytes([token[0] ^ 1]) + token[1:]
    assert not check(packet, c_size_t(32), wrong, ctypes.byref(block))
    assert not check(nonsense, c_size_t(len(nonsense)), token, ctypes.byref(block))


class Reply:
    """The packets of a block, as an importer checks them."""

    def __init__(self, pure: Pure, sizes: list[int]) -> None:
        self.library = pure.library
        self.library.ih_batch_bytes.restype = c_size_t
        self.sizes = sizes
        self.progress = Progress()
        self.handle = handle_of(1, bytes(16), 2, 0, sum(sizes))

    def batch(self, first: int) -> Batch:
        batch = Batch()
        self.library.ih_batch_begin(ctypes.byref(batch), 0)
        batch.pieces, batch.bytes, batch.first = len(self.sizes), sum(self.sizes), first
        for size in self.sizes[first : first + BATCH_MAX]:
            batch.piece_bytes[batch.count] = size
            batch.count += 1
        return batch

    def takes(self, batch: Batch, *, size: int | None = None, fds: int | None = None) -> bool:
        length = self.library.ih_batch_bytes(ctypes.byref(batch)) if size is None else size
        count = batch.count if fds is None else fds
        return bool(
            self.library.ih_batch_check(
                ctypes.byref(batch),
                c_size_t(length),
                c_size_t(count),
                ctypes.byref(self.handle),
                ctypes.byref(self.progress),
            )
        )


def test_a_block_in_several_packets(pure: Pure) -> None:
    """Each takes up where the one before it ended, until all of the block is there."""
    reply = Reply(pure, [GRANULE * (1 + i % 3) for i in range(600)])
    for first in (0, BATCH_MAX, 2 * BATCH_MAX):
        assert reply.progress.pieces_heard == first
        assert reply.takes(reply.batch(first))
    assert reply.progress.pieces_heard == 600
    assert reply.progress.bytes_heard == sum(reply.sizes)
    assert not reply.takes(reply.batch(0))


@pytest.mark.promise("backing-47")
def test_packets_that_are_not_believed(pure: Pure) -> None:
    """Descriptors or bytes that lack, sizes that do not add up, the wrong order, another block, and
    a block in which the handle's allocation cannot lie."""
    sizes = [GRANULE] * 300

    def spoilt(**changes: int) -> bool:
        reply = Reply(pure, sizes)
        batch = reply.batch(0)
        for name, value in changes.items():
            setattr(batch, name, value)
        return reply.takes(batch)

    assert spoilt()
    assert not spoilt(magic=1) and not spoilt(status=1) and not spoilt(first=1)
    assert not spoilt(count=0) and not spoilt(count=BATCH_MAX + 1) and not spoilt(pieces=0)
    assert not spoilt(pieces=2**32 - 1) and not spoilt(bytes=2**64 - GRANULE)
    assert not spoilt(bytes=GRANULE) and not spoilt(bytes=sum(sizes) - GRANULE)
    for changed in (0, 1, GRANULE // 2, 301 * GRANULE, 2**64 - GRANULE):
        reply = Reply(pure, sizes)
        batch = reply.batch(0)
        batch.piece_bytes[5] = changed
        assert not reply.takes(batch)
    reply = Reply(pure, sizes)
    assert not reply.takes(reply.batch(0), fds=BATCH_MAX - 1)
    assert not reply.takes(reply.batch(0), size=47) and not reply.takes(reply.batch(0), size=100)
    assert reply.takes(reply.batch(0))
    again, other = reply.batch(0), reply.batch(BATCH_MAX)
    other.bytes += GRANULE
    assert not reply.takes(again) and not reply.takes(other)
    reply = Reply(pure, sizes)
    reply.handle.offset = GRANULE
    assert not reply.takes(reply.batch(0))


def test_a_last_packet_that_leaves_a_hole(pure: Pure) -> None:
    """All pieces are heard of and do not make up the block."""
    reply = Reply(pure, [GRANULE, GRANULE])
    batch = reply.batch(0)
    batch.bytes += GRANULE
    assert not reply.takes(batch)


@pytest.mark.promise("backing-47")
@anything
@given(st.binary(max_size=16))
def test_what_importers_say_later(pure: Pure, nonsense: bytes) -> None:
    """Two words, each of eight bytes; anything else is none."""
    pure.library.ih_word.restype = c_uint64
    words = [int(pure.library.ih_word(number)).to_bytes(8, "little") for number in (1, 2)]
    assert len(set(words)) == 2
    for number, word in enumerate(words, start=1):
        assert pure.library.ih_word_of(word, c_size_t(8)) == number
        for size in (0, 7, 9):
            assert pure.library.ih_word_of(word + b"x", c_size_t(size)) == 0
    if nonsense not in words:
        assert pure.library.ih_word_of(nonsense, c_size_t(len(nonsense))) == 0


def test_a_block_that_is_on_its_way(pure: Pure) -> None:
    """The packet that says so is not taken for one with descriptors, nor the other way round."""
    reply = Reply(pure, [GRANULE])
    waits = Batch()
    pure.library.ih_batch_begin(ctypes.byref(waits), 2)
    assert pure.library.ih_batch_waits(ctypes.byref(waits))
    assert not reply.takes(waits)
    assert not pure.library.ih_batch_waits(ctypes.byref(reply.batch(0)))
    waits.count = 1
    assert not pure.library.ih_batch_waits(ctypes.byref(waits))
