"""What descriptors keep: measured on an H200 (driver 580.159.04)."""

from __future__ import annotations

import ctypes
import os

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, alone, ok, raw
from tests.driver.test_mapped_handles import supports
from tests.driver.test_mapped_memory import Mapper, properties
from tests.driver.test_shared_memory import POSIX, exported

SIZE = 64 * MIB


def free_bytes() -> int:
    return int(ok(cuda.cuMemGetInfo())[0])


def dma_buf(address: int, size: int, kind: int = 1) -> tuple[R, int]:
    fd = ctypes.c_int(-1)
    wanted = (ctypes.c_uint64(address), ctypes.c_size_t(size), kind, ctypes.c_uint64(0))
    return R(raw().cuMemGetHandleForAddressRange(ctypes.byref(fd), *wanted)), fd.value


@pytest.mark.promise("simulated-7", "Descriptors keep memory, as the driver's do")
@alone
def test_an_exported_descriptor_keeps_memory(gpu: Gpu) -> None:
    """Also where no handle is left; an import of it takes no more, and gives none back."""
    before, wanted = free_bytes(), properties(gpu)
    wanted.requestedHandleTypes = POSIX
    chunk = ok(cuda.cuMemCreate(SIZE, wanted, 0))
    fd, taken = exported(chunk), []
    taken.append(before - free_bytes())
    ok(cuda.cuMemRelease(chunk))
    taken.append(before - free_bytes())
    again = ok(cuda.cuMemImportFromShareableHandle(fd, POSIX))
    taken.append(before - free_bytes())
    ok(cuda.cuMemRelease(again))
    taken.append(before - free_bytes())
    os.close(fd)
    taken.append(before - free_bytes())
    assert taken == [SIZE, SIZE, SIZE, SIZE, 0]


@alone
def test_a_copy_of_a_descriptor_keeps_memory_too(gpu: Gpu) -> None:
    """Documented: it is the same for the operating system."""
    before, wanted = free_bytes(), properties(gpu)
    wanted.requestedHandleTypes = POSIX
    chunk = ok(cuda.cuMemCreate(SIZE, wanted, 0))
    fd = exported(chunk)
    copy = os.dup(fd)
    ok(cuda.cuMemRelease(chunk))
    os.close(fd)
    assert before - free_bytes() == SIZE
    os.close(copy)
    assert before - free_bytes() == 0


@pytest.mark.promise("simulated-7")
@alone
def test_a_dma_buf_keeps_memory(gpu: Gpu) -> None:
    """It hinders neither the unmap nor the release, but the device has nothing back."""
    if not supports(gpu, "DMA_BUF_SUPPORTED"):
        return
    mapper, before, wanted = Mapper(gpu), free_bytes(), properties(gpu)
    wanted.allocFlags.gpuDirectRDMACapable = 1
    chunk = ok(cuda.cuMemCreate(SIZE, wanted, 0))
    address = mapper.reserve(SIZE // mapper.granule)
    ok(cuda.cuMemMap(address, SIZE, 0, chunk, 0))
    mapper.grant(address, SIZE // mapper.granule)
    answer, fd = dma_buf(address, SIZE)
    assert answer is R.CUDA_SUCCESS
    ok(cuda.cuMemUnmap(address, SIZE))
    ok(cuda.cuMemRelease(chunk))
    assert before - free_bytes() == SIZE
    os.close(fd)
    assert before - free_bytes() == 0


@alone
def test_what_has_dma_bufs(gpu: Gpu) -> None:
    """Plain memory and a page of it, mapped memory, also over two chunks, and memory of pools.
    Documented: not what is no device memory, nor pages in part, nor other kinds of handles."""
    if not supports(gpu, "DMA_BUF_SUPPORTED"):
        return
    mapper, plain = Mapper(gpu), gpu.allocate(2 * MIB)
    address = mapper.reserve(4)
    for place in (address, address + mapper.granule):
        mapper.map(place, mapper.create())
    mapper.grant(address, 2)
    pooled = int(ok(cuda.cuMemAllocAsync(2 * MIB, 0)))
    ok(cuda.cuCtxSynchronize())
    places = [(plain, 2 * MIB), (plain, 4096), (address, mapper.granule)]
    places += [(address, 2 * mapper.granule), (pooled, 2 * MIB)]
    for place, size in places:
        answer, fd = dma_buf(place, size)
        assert answer is R.CUDA_SUCCESS
        os.close(fd)
    host = int(ok(cuda.cuMemHostAlloc(4096, 0)))
    nowhere = address + 2 * mapper.granule
    for place, size in ((plain + 1, 4096), (plain, 100), (plain, 0), (host, 4096), (nowhere, 4096)):
        assert dma_buf(place, size)[0] is R.CUDA_ERROR_INVALID_VALUE
    assert dma_buf(plain, 4096, kind=2)[0] is R.CUDA_ERROR_INVALID_VALUE
    for place in (plain, 4096):  # what ends beyond all addresses is not small, nor nothing
        assert dma_buf(place, 2**64 - 4096)[0] is R.CUDA_ERROR_INVALID_VALUE
