"""Copies between two devices, neither of which has access to the other's memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import Gpu, code, ok
from tests.driver.test_mapped_memory import Mapper
from tests.driver.test_shared_memory import POSIX, Sharer, exported

WORDS = 1024
BYTES = 4 * WORDS

Copy = Callable[["Pair", int, int], tuple[Any, ...]]
# Each copies from its second address, on device 0, to its first one, on device 1.
PLAIN_CALLS: dict[str, Copy] = {
    "cuMemcpy": lambda _, to, source: cuda.cuMemcpy(to, source, BYTES),
    "cuMemcpyAsync": lambda _, to, source: cuda.cuMemcpyAsync(to, source, BYTES, 0),
    "cuMemcpyDtoD": lambda _, to, source: cuda.cuMemcpyDtoD(to, source, BYTES),
    "cuMemcpyDtoDAsync": lambda _, to, source: cuda.cuMemcpyDtoDAsync(to, source, BYTES, 0),
}
PEER_CALLS: dict[str, Copy] = {
    "cuMemcpyPeer": lambda pair, to, source: cuda.cuMemcpyPeer(
        to, pair.gpus[1].context, source, pair.gpus[0].context, BYTES
    ),
    "cuMemcpyPeerAsync": lambda pair, to, source: cuda.cuMemcpyPeerAsync(
        to, pair.gpus[1].context, source, pair.gpus[0].context, BYTES, 0
    ),
}


class Pair:
    """Two devices, their primary contexts, and what a case mapped on them."""

    def __init__(self, first: Gpu) -> None:
        self.gpus = (first, Gpu(1))
        self._mapped: list[tuple[Mapper, int, Any]] = []
        self._pooled: list[tuple[int, int]] = []

    def use(self, device: int) -> None:
        """Makes the device's context the current one."""
        ok(cuda.cuCtxSetCurrent(self.gpus[device].context))

    def plain(self, device: int) -> int:
        self.use(device)
        return self.gpus[device].allocate(BYTES)

    def pooled(self, device: int) -> int:
        self.use(device)
        pointer = int(ok(cuda.cuMemAllocAsync(BYTES, 0)))
        ok(cuda.cuCtxSynchronize())
        self._pooled.append((device, pointer))
        return pointer

    def mapped(self, device: int) -> int:
        """Memory to which its own device alone has access."""
        return self._map(Mapper(self.gpus[device]))

    def imported(self, device: int) -> int:
        """The same, by way of a descriptor, as from another process."""
        sharer = Sharer(self.gpus[device])
        chunk = sharer.create()
        fd = exported(chunk)
        again = ok(cuda.cuMemImportFromShareableHandle(fd, POSIX))
        os.close(fd)
        ok(cuda.cuMemRelease(chunk))
        return self._map(sharer, again)

    def _map(self, mapper: Mapper, chunk: Any = None) -> int:
        chunk = chunk or mapper.create()
        address = mapper.reserve()
        self._mapped.append((mapper, address, chunk))
        mapper.map(address, chunk)
        mapper.grant(address)
        return address

    def write(self, device: int, address: int, value: int) -> None:
        self.use(device)
        ok(cuda.cuMemsetD32(address, value, WORDS))
        ok(cuda.cuCtxSynchronize())

    def values(self, device: int, address: int) -> set[int]:
        self.use(device)
        ok(cuda.cuCtxSynchronize())
        return set(self.gpus[device].download(address, WORDS, np.uint32).tolist())

    def clean_up(self) -> None:
        for device, pointer in self._pooled:
            self.use(device)
            ok(cuda.cuMemFree(pointer))
        self.gpus[1].clean_up()
        for mapper, address, chunk in self._mapped:
            mapper.unmap(address)
            ok(cuda.cuMemRelease(chunk))
            mapper.free(address)
        ok(cuda.cuCtxSetCurrent(self.gpus[0].context))
        ok(cuda.cuDevicePrimaryCtxRelease(self.gpus[1].device))


@pytest.fixture
def pair(gpu: Gpu) -> Iterator[Pair]:
    if ok(cuda.cuDeviceGetCount()) < 2:
        pytest.skip("needs two devices")
    opened = Pair(gpu)
    yield opened
    opened.clean_up()


@pytest.mark.promise("simulated-4")
@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("call", [*PLAIN_CALLS, *PEER_CALLS])
def test_every_call_copies_plain_memory(pair: Pair, call: str, current: int) -> None:
    """What cuMemAlloc gave is copied from one device to the other, whichever is current."""
    source, to = pair.plain(0), pair.plain(1)
    pair.write(0, source, 71)
    pair.write(1, to, 1)
    pair.use(current)
    ok((PLAIN_CALLS | PEER_CALLS)[call](pair, to, source))
    assert (pair.values(0, source), pair.values(1, to)) == ({71}, {71})


KINDS: dict[str, Callable[[Pair, int], int]] = {
    "mapped": Pair.mapped,
    "imported": Pair.imported,
    "pooled": Pair.pooled,
}


@pytest.mark.promise(
    "simulated-47",
    "Mapped, shared and stream-ordered memory to which a device has no access is copied there by "
    "the calls alone that name both contexts",
)
@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("call", PLAIN_CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_plain_calls_need_access(pair: Pair, kind: str, call: str, current: int) -> None:
    """Memory that only its own device may touch is an invalid value to them, and stays as it is:
    mapped memory, such that came by a descriptor too, and memory of a pool."""
    source, to = KINDS[kind](pair, 0), KINDS[kind](pair, 1)
    pair.write(0, source, 72)
    pair.write(1, to, 1)
    pair.use(current)
    assert code(PLAIN_CALLS[call](pair, to, source)) is R.CUDA_ERROR_INVALID_VALUE
    assert (pair.values(0, source), pair.values(1, to)) == ({72}, {1})


@pytest.mark.promise("simulated-47")
@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("call", PEER_CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_peer_calls_need_no_access(pair: Pair, kind: str, call: str, current: int) -> None:
    """The calls that name both contexts copy it, whichever is current."""
    source, to = KINDS[kind](pair, 0), KINDS[kind](pair, 1)
    pair.write(0, source, 73)
    pair.write(1, to, 1)
    pair.use(current)
    ok(PEER_CALLS[call](pair, to, source))
    assert (pair.values(0, source), pair.values(1, to)) == ({73}, {73})


@pytest.mark.promise("simulated-47")
@pytest.mark.parametrize("kind", KINDS)
def test_the_host_and_another_device(pair: Pair, kind: str) -> None:
    """In the context of another device, copies from and to the host need access just the same;
    plain memory they reach."""
    plain, other = pair.plain(1), KINDS[kind](pair, 1)
    for address in (plain, other):
        pair.write(1, address, 74)
    words = np.zeros(WORDS, dtype=np.uint32)
    pair.use(0)
    assert code(cuda.cuMemcpyDtoH(words, other, BYTES)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemcpyHtoD(other, words, BYTES)) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemcpyDtoH(words, plain, BYTES))
    assert set(words.tolist()) == {74}
    ok(cuda.cuMemcpyHtoD(plain, words + 1, BYTES))
    assert (pair.values(1, plain), pair.values(1, other)) == ({75}, {74})


def test_access_to_a_pool_is_given_per_device(pair: Pair) -> None:
    """Documented: a pool's memory is reached from another device once the pool says so, and until
    it says otherwise."""
    pointer = pair.pooled(0)
    pair.write(0, pointer, 71)
    pool = ok(cuda.cuDeviceGetDefaultMemPool(pair.gpus[0].device))
    access = cuda.CUmemAccessDesc()
    access.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = int(pair.gpus[1].device)
    for flags in (3, 0):
        access.flags = cuda.CUmemAccess_flags(flags)
        ok(cuda.cuMemPoolSetAccess(pool, [access], 1))
        assert int(ok(cuda.cuMemPoolGetAccess(pool, access.location))) == flags
        if flags == 3:
            pair.use(1)
            out = pair.gpus[1].allocate(8)
            pair.gpus[1].launch("checksum", out, pointer, WORDS)
            assert pair.gpus[1].download(out, 1, np.uint64)[0] == 71 * WORDS * WORDS
