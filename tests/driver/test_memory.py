"""Plain, pitched, pinned and managed memory."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, code, ok


@pytest.mark.promise("simulated-18", "Plain and pitched memory")
def test_allocations_are_apart_and_aligned(gpu: Gpu) -> None:
    """Allocations do not overlap and are aligned to 256 bytes at least."""
    pointers = sorted(gpu.allocate(1000) for _ in range(20))
    assert all(p % 256 == 0 for p in pointers)
    assert all(b - a >= 1000 for a, b in itertools.pairwise(pointers))


def test_zero_bytes_are_no_allocation(gpu: Gpu) -> None:
    """Allocating nothing is an invalid value."""
    assert code(cuda.cuMemAlloc(0)) is R.CUDA_ERROR_INVALID_VALUE


def test_freeing_null_is_allowed(gpu: Gpu) -> None:
    """cuMemFree(0) does nothing and succeeds."""
    ok(cuda.cuMemFree(0))


@pytest.mark.promise("simulated-18")
def test_double_free_is_refused(gpu: Gpu) -> None:
    """What was freed cannot be freed again."""
    pointer = ok(cuda.cuMemAlloc(MIB))
    ok(cuda.cuMemFree(pointer))
    assert code(cuda.cuMemFree(pointer)) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-8")
def test_foreign_pointers_cannot_be_freed(gpu: Gpu) -> None:
    """Neither an address inside an allocation nor one of the host is an allocation."""
    pointer = gpu.allocate(MIB)
    host = ctypes.create_string_buffer(64)
    assert code(cuda.cuMemFree(pointer + 256)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemFree(ctypes.addressof(host))) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemFree(0xDEAD0000)) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-35")
def test_more_than_the_device_has(gpu: Gpu) -> None:
    """Too large an allocation is out of memory, and nothing is broken by it."""
    _, total = ok(cuda.cuMemGetInfo())
    assert code(cuda.cuMemAlloc(2 * total)) is R.CUDA_ERROR_OUT_OF_MEMORY
    pointer = gpu.upload([7])
    assert gpu.download(pointer, 1).tolist() == [7]


def test_free_memory_follows_allocations(gpu: Gpu) -> None:
    """cuMemGetInfo shows an allocation while it lives."""
    before, _ = ok(cuda.cuMemGetInfo())
    pointer = ok(cuda.cuMemAlloc(256 * MIB))
    during, _ = ok(cuda.cuMemGetInfo())
    ok(cuda.cuMemFree(pointer))
    after, _ = ok(cuda.cuMemGetInfo())
    assert before - during == 256 * MIB
    assert after == before


def test_address_range_of_an_interior_pointer(gpu: Gpu) -> None:
    """An address inside an allocation leads to its base and to the size that was asked for."""
    pointer = gpu.allocate(3 * MIB + 100)
    base, size = ok(cuda.cuMemGetAddressRange(pointer + MIB))
    assert (int(base), size) == (pointer, 3 * MIB + 100)
    assert code(cuda.cuMemGetAddressRange(0xDEAD0000)) is R.CUDA_ERROR_NOT_FOUND


@pytest.mark.promise("simulated-18")
def test_pitch_holds_a_row(gpu: Gpu) -> None:
    """The pitch is aligned and not below the width; odd element sizes are refused."""
    pointer, pitch = ok(cuda.cuMemAllocPitch(1000, 20, 4))
    assert pitch >= 1000
    assert pitch % 256 == 0
    assert ok(cuda.cuMemGetAddressRange(pointer))[1] >= pitch * 19 + 1000
    ok(cuda.cuMemFree(pointer))
    assert code(cuda.cuMemAllocPitch(1000, 20, 3)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemAllocPitch(0, 20, 4)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemAllocPitch(1000, 0, 4)) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-19", "Pinned, registered and managed host memory")
def test_pinned_memory_is_seen_by_both_sides(gpu: Gpu) -> None:
    """A launch writes into pinned host memory through its device pointer."""
    host = ok(cuda.cuMemHostAlloc(4096, cuda.CU_MEMHOSTALLOC_DEVICEMAP))
    words = np.ctypeslib.as_array((ctypes.c_uint32 * 1024).from_address(int(host)))
    gpu.launch("fill", int(ok(cuda.cuMemHostGetDevicePointer(host, 0))), 5, 1024)
    ok(cuda.cuCtxSynchronize())
    assert (words == 5).all()
    ok(cuda.cuMemFreeHost(host))


def test_pinned_memory_is_freed_once(gpu: Gpu) -> None:
    """Freeing pinned memory twice, or memory that is not pinned, is refused."""
    host = ok(cuda.cuMemAllocHost(4096))
    ok(cuda.cuMemFreeHost(host))
    assert code(cuda.cuMemFreeHost(host)) is R.CUDA_ERROR_INVALID_VALUE
    pointer = gpu.allocate(MIB)
    assert code(cuda.cuMemFreeHost(pointer)) is R.CUDA_ERROR_INVALID_VALUE


def test_pinned_memory_knows_its_flags(gpu: Gpu) -> None:
    """The flags of a pinned allocation can be read back; unknown ones are refused."""
    host = ok(cuda.cuMemHostAlloc(4096, cuda.CU_MEMHOSTALLOC_PORTABLE))
    assert ok(cuda.cuMemHostGetFlags(host)) & cuda.CU_MEMHOSTALLOC_PORTABLE
    ok(cuda.cuMemFreeHost(host))
    assert code(cuda.cuMemHostAlloc(4096, 0x100)) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-19")
def test_host_memory_is_registered_once(gpu: Gpu) -> None:
    """Registering twice, and unregistering what is not registered, have codes of their own."""
    pages = mmap.mmap(-1, 1 << 16)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    ok(cuda.cuMemHostRegister(address, 1 << 16, cuda.CU_MEMHOSTREGISTER_DEVICEMAP))
    assert (
        code(cuda.cuMemHostRegister(address, 1 << 16, 0))
        is R.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    )
    gpu.launch("fill", int(ok(cuda.cuMemHostGetDevicePointer(address, 0))), 9, 1 << 14)
    ok(cuda.cuCtxSynchronize())
    assert np.frombuffer(pages, dtype=np.uint32).sum() == 9 << 14
    ok(cuda.cuMemHostUnregister(address))
    assert code(cuda.cuMemHostUnregister(address)) is R.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED


@pytest.mark.promise("simulated-19")
def test_managed_memory_is_one_address_for_both(gpu: Gpu) -> None:
    """The host fills managed memory, a launch reads it, the host reads what a launch wrote."""
    flags = cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
    pointer = int(ok(cuda.cuMemAllocManaged(MIB, flags)))
    words = np.ctypeslib.as_array((ctypes.c_uint32 * 1024).from_address(pointer))
    words[:] = np.arange(1024)
    out = gpu.allocate(8)
    gpu.launch("checksum", out, pointer, 1024)
    assert gpu.download(out, 1, np.uint64)[0] == sum(i * (2 * i + 1) for i in range(1024))
    gpu.launch("fill", pointer, 3, 1024)
    ok(cuda.cuCtxSynchronize())
    assert (words == 3).all()
    ok(cuda.cuMemFree(pointer))


@pytest.mark.parametrize("flags", [0, 8])
def test_managed_memory_needs_attachment_flags(gpu: Gpu, flags: int) -> None:
    """Managed memory is attached globally or to the host; other flags are refused."""
    assert code(cuda.cuMemAllocManaged(MIB, flags)) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.parametrize("size", [2**64 - 4096, 2**64 - 1])
def test_no_memory_is_larger_than_all_addresses(gpu: Gpu, size: int) -> None:
    """Documented: what cannot be had is refused, on the host and on the device."""
    for answer in (cuda.cuMemHostAlloc(size, 0), cuda.cuMemAllocHost(size), cuda.cuMemAlloc(size)):
        assert code(answer) is not R.CUDA_SUCCESS


@pytest.mark.parametrize(("width", "height"), [(2**64 - 1, 1), (1 << 40, 1 << 24)])
def test_no_pitched_memory_is_larger_than_all_addresses(gpu: Gpu, width: int, height: int) -> None:
    """Documented: what cannot be had is refused."""
    assert code(cuda.cuMemAllocPitch(width, height, 4)) is not R.CUDA_SUCCESS
