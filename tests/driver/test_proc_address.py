"""cuGetProcAddress: by name, version and flags, as runtimes and frameworks ask."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import pytest

from tests.driver.harness import Gpu, alone, raw

LEGACY, PER_THREAD = 1, 2
FOUND, NOT_FOUND, TOO_OLD = 0, 1, 2
CUDA_SUCCESS, INVALID_VALUE, ERROR_NOT_FOUND = 0, 1, 500


class Answer(NamedTuple):
    result: int
    address: int | None
    status: int


def ask(name: bytes | None, version: int, flags: int = 0) -> Answer:
    """cuGetProcAddress_v2."""
    address, status = ctypes.c_void_p(0xBAD), ctypes.c_int(-1)
    result = raw().cuGetProcAddress_v2(
        name, ctypes.byref(address), version, ctypes.c_uint64(flags), ctypes.byref(status)
    )
    return Answer(result, address.value, status.value)


def exported(name: str) -> int | None:
    return ctypes.cast(getattr(raw(), name), ctypes.c_void_p).value


@pytest.mark.promise(
    "simulated-27",
    "`cuGetProcAddress` and `cuGetProcAddress_v2` choose by name, version and per-thread-stream "
    "flag",
)
def test_known_names_are_found(gpu: Gpu) -> None:
    """A base name and a version that is new enough give a function that works."""
    found = ask(b"cuDriverGetVersion", 2020)
    assert (found.result, found.status) == (CUDA_SUCCESS, FOUND)
    assert found.address
    version, expected = ctypes.c_int(), ctypes.c_int()
    assert (
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(found.address)(ctypes.addressof(version))
        == 0
    )
    raw().cuDriverGetVersion(ctypes.byref(expected))
    assert version.value == expected.value


@pytest.mark.promise("simulated-27")
def test_unknown_names(gpu: Gpu) -> None:
    """For an unknown name the call succeeds: the pointer is NULL, and the status says why."""
    assert ask(b"cuNoSuchThing", 12000) == Answer(CUDA_SUCCESS, None, NOT_FOUND)
    assert ask(b"cuMemAll", 12000) == Answer(CUDA_SUCCESS, None, NOT_FOUND)


def test_names_are_base_names(gpu: Gpu) -> None:
    """Names with a version or a stream suffix are none that can be asked for."""
    for name in (b"cuMemAlloc_v2", b"cuLaunchKernel_ptsz", b"cuMemcpyHtoD_v2_ptds"):
        assert ask(name, 12000) == Answer(CUDA_SUCCESS, None, NOT_FOUND), name


@pytest.mark.promise("simulated-27")
def test_versions_that_are_too_old(gpu: Gpu) -> None:
    """A name that came after the version that is asked for is there, but not for that version."""
    assert ask(b"cuMemAllocAsync", 11000) == Answer(CUDA_SUCCESS, None, TOO_OLD)
    assert ask(b"cuMemAllocAsync", 11020).status == FOUND


@pytest.mark.promise("simulated-27")
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (b"cuMemPrefetchAsync", 8000, 12020),
        (b"cuMemAlloc", 2000, 3020),
        (b"cuCtxCreate", 3020, 13000),
        (b"cuStreamGetCaptureInfo", 10010, 12030),
        (b"cuDeviceGetUuid", 9020, 11040),
        (b"cuGetProcAddress", 11030, 12000),
    ],
)
def test_versions_of_one_name_differ(gpu: Gpu, name: bytes, old: int, new: int) -> None:
    """A name whose function has changed gives another function for another version."""
    first, second = ask(name, old), ask(name, new)
    assert (first.status, second.status) == (FOUND, FOUND)
    assert first.address != second.address


@pytest.mark.parametrize(
    ("name", "version", "symbol"),
    [
        (b"cuMemAlloc", 3020, "cuMemAlloc_v2"),
        (b"cuMemGetInfo", 12000, "cuMemGetInfo_v2"),
        (b"cuLaunchKernel", 4000, "cuLaunchKernel"),
        (b"cuCtxDestroy", 4000, "cuCtxDestroy_v2"),
        (b"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"),
        (b"cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
    ],
)
def test_exported_symbols_do_the_same(gpu: Gpu, name: bytes, version: int, symbol: str) -> None:
    """What cuGetProcAddress gives is the exported symbol of that version."""
    assert ask(name, version).address == exported(symbol)


@pytest.mark.promise("simulated-27")
@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        (b"cuLaunchKernel", "cuLaunchKernel_ptsz"),
        (b"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2_ptsz"),
        (b"cuMemcpyDtoH", "cuMemcpyDtoH_v2_ptds"),
        (b"cuStreamSynchronize", "cuStreamSynchronize_ptsz"),
        (b"cuGraphLaunch", "cuGraphLaunch_ptsz"),
    ],
)
def test_per_thread_variants(gpu: Gpu, name: bytes, symbol: str) -> None:
    """With the per-thread flag the variant for per-thread default streams is given."""
    plain, per_thread = ask(name, 12000, LEGACY), ask(name, 12000, PER_THREAD)
    assert (plain.status, per_thread.status) == (FOUND, FOUND)
    assert per_thread.address == exported(symbol) != plain.address
    assert ask(name, 12000, 0).address == plain.address


def test_names_without_per_thread_variant(gpu: Gpu) -> None:
    """A name that knows no streams gives the same function with either flag."""
    plain, per_thread = ask(b"cuMemAlloc", 12000, 0), ask(b"cuMemAlloc", 12000, PER_THREAD)
    assert plain == per_thread
    assert plain.status == FOUND


@alone
def test_unknown_flags(gpu: Gpu) -> None:
    """Flags that are none are an invalid value."""
    assert ask(b"cuMemAlloc", 12000, 0x40).result == INVALID_VALUE


def test_status_may_be_left_out(gpu: Gpu) -> None:
    """A caller that does not want the status passes NULL."""
    address = ctypes.c_void_p()
    answer = raw().cuGetProcAddress_v2(
        b"cuMemAlloc", ctypes.byref(address), 12000, ctypes.c_uint64(0), None
    )
    assert (answer, address.value) == (CUDA_SUCCESS, exported("cuMemAlloc_v2"))


def test_without_status_the_pointer_tells(gpu: Gpu) -> None:
    """Without a status the NULL pointer alone tells that a name is not there."""
    for name, version in ((b"cuNoSuchThing", 12000), (b"cuMemAllocAsync", 11000)):
        address = ctypes.c_void_p(0xBAD)
        answer = raw().cuGetProcAddress_v2(
            name, ctypes.byref(address), version, ctypes.c_uint64(0), None
        )
        assert (answer, address.value) == (CUDA_SUCCESS, None)


@pytest.mark.promise("simulated-27")
def test_first_version_of_the_call(gpu: Gpu) -> None:
    """cuGetProcAddress of CUDA 11.3 knows no status, and answers the same functions."""
    address = ctypes.c_void_p()
    answer = raw().cuGetProcAddress(
        b"cuLaunchKernel", ctypes.byref(address), 11030, ctypes.c_uint64(PER_THREAD)
    )
    assert (answer, address.value) == (CUDA_SUCCESS, exported("cuLaunchKernel_ptsz"))
    for name, version in ((b"cuNoSuchThing", 11030), (b"cuMemAllocAsync", 11000)):
        answer = raw().cuGetProcAddress(name, ctypes.byref(address), version, ctypes.c_uint64(0))
        assert answer == ERROR_NOT_FOUND


@alone
def test_it_answers_before_init() -> None:
    """cuGetProcAddress works before cuInit."""
    assert ask(b"cuInit", 12000).address == exported("cuInit")
