"""Pools that several processes have.

"Documented": the expectation is what the driver API's reference says, not measured on a device."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Any

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUpointer_attribute as Attribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, alone, code, ok
from tests.driver.test_pool_memory import create_pool
from tests.driver.test_shared_memory import FABRIC, POSIX
from tests.support.paths import ROOT

SIZE = 4 * MIB
IMPORTER = """
import os, sys
from cuda.bindings import driver as cuda
from tests.driver.harness import Gpu, driver_under_test, ok
from tests.driver.test_pool_sharing import imported
with driver_under_test():
    gpu = Gpu()
    fd, data = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
    pool, pointer = imported(fd, data)
    os.close(fd)
    print(*set(gpu.download(pointer, 1000).tolist()), flush=True)
    gpu.launch("fill", pointer, int(sys.stdin.readline()), 1000)
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuMemPoolDestroy(pool))
"""


def shared_pool(gpu: Gpu) -> Any:
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = int(gpu.device)
    wanted.handleTypes = POSIX
    return ok(cuda.cuMemPoolCreate(wanted))


def export_pool(pool: Any) -> int:
    return int(ok(cuda.cuMemPoolExportToShareableHandle(pool, POSIX, 0)))


def export_pointer(pointer: int) -> bytes:
    data = ok(cuda.cuMemPoolExportPointer(pointer))
    return ctypes.string_at(data.getPtr(), 64)


def imported(fd: int, data: bytes) -> tuple[Any, int]:
    pool = ok(cuda.cuMemPoolImportFromShareableHandle(fd, POSIX, 0))
    shared = cuda.CUmemPoolPtrExportData()
    ctypes.memmove(shared.getPtr(), data, 64)
    return pool, int(ok(cuda.cuMemPoolImportPointer(pool, shared)))


@pytest.mark.promise("simulated-26", "Pools and their memory are shared with other processes")
@alone
def test_two_processes_have_memory_of_one_pool(gpu: Gpu) -> None:
    """Documented: a pool goes by its descriptor, an allocation of it by its data."""
    pool = shared_pool(gpu)
    pointer = int(ok(cuda.cuMemAllocFromPoolAsync(SIZE, pool, 0)))
    gpu.launch("fill", pointer, 41, 1000)
    ok(cuda.cuCtxSynchronize())
    fd = export_pool(pool)
    data = export_pointer(pointer).hex()
    with subprocess.Popen(
        [sys.executable, "-c", IMPORTER, str(fd), data],
        cwd=ROOT,
        pass_fds=(fd,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "41\n"
        other.communicate("42\n")
    assert other.returncode == 0
    os.close(fd)
    assert set(gpu.download(pointer, 1000).tolist()) == {42}
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuMemPoolDestroy(pool))


@pytest.mark.promise("simulated-26")
@alone
def test_imported_pools_give_no_memory(gpu: Gpu) -> None:
    """Documented: nothing is allocated from them, nor are they a device's current pool."""
    pool = shared_pool(gpu)
    fd = export_pool(pool)
    again = ok(cuda.cuMemPoolImportFromShareableHandle(fd, POSIX, 0))
    os.close(fd)
    assert code(cuda.cuMemAllocFromPoolAsync(MIB, again, 0)) is not R.CUDA_SUCCESS
    assert code(cuda.cuDeviceSetMemPool(gpu.device, again)) is not R.CUDA_SUCCESS
    ok(cuda.cuMemPoolDestroy(again))
    ok(cuda.cuMemPoolDestroy(pool))


@alone
def test_pools_that_were_not_made_for_it_are_not_exported(gpu: Gpu) -> None:
    """Documented: neither they nor their memory; and no other kind of handle than was asked for."""
    pool, shared = create_pool(gpu), shared_pool(gpu)
    default = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))
    pointer = int(ok(cuda.cuMemAllocFromPoolAsync(SIZE, pool, 0)))
    ok(cuda.cuCtxSynchronize())
    refusals = (
        cuda.cuMemPoolExportToShareableHandle(pool, POSIX, 0),
        cuda.cuMemPoolExportToShareableHandle(default, POSIX, 0),
        cuda.cuMemPoolExportToShareableHandle(shared, FABRIC, 0),
        cuda.cuMemPoolExportToShareableHandle(shared, POSIX, 1),
        cuda.cuMemPoolExportPointer(pointer),
    )
    assert R.CUDA_SUCCESS not in [code(refusal) for refusal in refusals]
    ok(cuda.cuMemFree(pointer))


def test_pool_memory_knows_its_pool(gpu: Gpu) -> None:
    """Documented: an address leads to its pool; plain memory has none, and is the one kind of
    memory that the older calls share (cuIpcGetMemHandle)."""
    pool, plain = create_pool(gpu), gpu.allocate(MIB)
    pointer = int(ok(cuda.cuMemAllocFromPoolAsync(SIZE, pool, 0)))
    ok(cuda.cuCtxSynchronize())
    of_pool, ipc = (
        Attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        Attribute.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
    )
    assert int(ok(cuda.cuPointerGetAttribute(of_pool, pointer + 4096))) == int(pool)
    assert int(ok(cuda.cuPointerGetAttribute(of_pool, plain))) == 0
    assert not ok(cuda.cuPointerGetAttribute(ipc, pointer))
    assert ok(cuda.cuPointerGetAttribute(ipc, plain))
    assert code(cuda.cuIpcGetMemHandle(pointer)) is not R.CUDA_SUCCESS
    base, size = ok(cuda.cuMemGetAddressRange(pointer + 4096))
    assert (int(base), size) == (pointer, SIZE)
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuMemPoolDestroy(pool))
