"""What the driver knows about an address."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUdevice_attribute
from cuda.bindings.driver import CUpointer_attribute as Attribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, attribute_number, code, ok, raw
from tests.driver.test_mapped_memory import Mapper, properties
from tests.driver.test_shared_memory import POSIX, Sharer


def ask(which: Attribute, pointer: int) -> Any:
    return ok(cuda.cuPointerGetAttribute(which, pointer))


def test_device_memory(gpu: Gpu) -> None:
    """A device pointer knows its type, context, device and range."""
    pointer = gpu.allocate(MIB)
    inside = pointer + 4096
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside)) == 2
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_CONTEXT, inside)) == int(gpu.context)
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside)) == int(gpu.device)
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside)) == inside
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside)) == pointer
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside)) == MIB
    assert not ask(Attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, inside)


def test_pinned_memory(gpu: Gpu) -> None:
    """A pinned host pointer is host memory that has a device pointer."""
    host = int(ok(cuda.cuMemHostAlloc(4096, cuda.CU_MEMHOSTALLOC_DEVICEMAP)))
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host)) == 1
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_HOST_POINTER, host)) == host
    device = int(ask(Attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER, host))
    assert device == int(ok(cuda.cuMemHostGetDevicePointer(host, 0)))
    ok(cuda.cuMemFreeHost(host))


def test_managed_memory(gpu: Gpu) -> None:
    """Managed memory says that it is."""
    flags = cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
    pointer = ok(cuda.cuMemAllocManaged(4096, flags))
    assert ask(Attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, int(pointer))
    ok(cuda.cuMemFree(pointer))


def test_mapped_memory_has_no_context(gpu: Gpu) -> None:
    """Mapped memory is device memory that belongs to no context."""
    mapper = Mapper(gpu)
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)) == 2
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_CONTEXT, address)) == 0
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)) == int(gpu.device)
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address)


def test_addresses_that_the_driver_does_not_know(gpu: Gpu) -> None:
    """Ordinary host memory and freed memory have no attributes."""
    host = ctypes.create_string_buffer(64)
    pointer = ok(cuda.cuMemAlloc(64 * MIB))
    ok(cuda.cuMemFree(pointer))
    for address in (ctypes.addressof(host), int(pointer)):
        asked = cuda.cuPointerGetAttribute(Attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
        assert code(asked) is R.CUDA_ERROR_INVALID_VALUE


def test_several_attributes_at_once(gpu: Gpu) -> None:
    """cuPointerGetAttributes answers for unknown addresses too: with zeros."""
    wanted = [
        Attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute.CU_POINTER_ATTRIBUTE_CONTEXT,
        Attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ]
    pointer = gpu.allocate(MIB)
    known = ok(cuda.cuPointerGetAttributes(len(wanted), wanted, pointer))
    assert [int(value) for value in known] == [2, int(gpu.context), MIB]
    host = ctypes.create_string_buffer(64)
    unknown = ok(cuda.cuPointerGetAttributes(len(wanted), wanted, ctypes.addressof(host)))
    assert [int(value) for value in unknown] == [0, 0, 0]


def test_mapped_memory_knows_its_reservation(gpu: Gpu) -> None:
    """Documented: start and size are those of the reserved addresses; the mapping's own are told by
    cuMemGetAddressRange and by attributes of their own."""
    mapper = Mapper(gpu)
    address, chunk = mapper.reserve(4), mapper.create()
    place = address + 2 * mapper.granule
    mapper.map(place, chunk)
    mapper.grant(place)
    inside = place + 4096
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside)) == address
    assert int(ask(Attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside)) == 4 * mapper.granule
    assert ask(Attribute.CU_POINTER_ATTRIBUTE_MAPPED, inside)
    base, size = ok(cuda.cuMemGetAddressRange(inside))
    assert (int(base), size) == (place, mapper.granule)
    assert attribute_number(Attribute.CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside) == place
    assert attribute_number(Attribute.CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside) == mapper.granule
    mapper.unmap(place)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address, 4)


def test_both_mappings_of_a_chunk_are_one_block(gpu: Gpu) -> None:
    """Documented: the block id belongs to the memory, not to an address."""
    mapper = Mapper(gpu)
    addresses, chunks = [mapper.reserve() for _ in range(3)], [mapper.create(), mapper.create()]
    for address, chunk in zip(addresses, (chunks[0], chunks[0], chunks[1]), strict=True):
        mapper.map(address, chunk)
        mapper.grant(address)
    block = Attribute.CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
    first, second, other = (attribute_number(block, address) for address in addresses)
    assert first == second
    assert first != other
    for address in addresses:
        mapper.unmap(address)
        mapper.free(address)
    for chunk in chunks:
        ok(cuda.cuMemRelease(chunk))


def test_handle_types_that_may_be_exported(gpu: Gpu) -> None:
    """Documented: an address tells for what its memory was created."""
    allowed = Attribute.CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
    for mapper, expected in ((Mapper(gpu), 0), (Sharer(gpu), int(POSIX))):
        address, chunk = mapper.reserve(), mapper.create()
        mapper.map(address, chunk)
        mapper.grant(address)
        assert int(ask(allowed, address)) == expected
        mapper.unmap(address)
        ok(cuda.cuMemRelease(chunk))
        mapper.free(address)


def marked(pointer: int, value: int) -> R:
    mark = ctypes.c_uint32(value)
    which = int(Attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return R(raw().cuPointerSetAttribute(ctypes.byref(mark), which, ctypes.c_uint64(pointer)))


def test_synchronous_operations_are_a_mark_of_the_memory(gpu: Gpu) -> None:
    """Documented: what registers memory for RDMA sets the mark; it is read at any address of the
    allocation, and can be taken off. (Of mapped memory it is an open question.)"""
    pointer, other = gpu.allocate(64 * MIB), gpu.allocate(64 * MIB)
    mark = Attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    assert not ask(mark, pointer)
    assert marked(pointer, 1) is R.CUDA_SUCCESS
    assert ask(mark, pointer)
    assert ask(mark, pointer + 32 * MIB)
    assert not ask(mark, other)
    assert marked(pointer, 0) is R.CUDA_SUCCESS
    assert not ask(mark, pointer)


def test_descriptors_of_address_ranges(gpu: Gpu) -> None:
    """Documented: there are dma-buf descriptors where the device's attribute says so. Elsewhere the
    call fails, and the memory stays as it is."""
    which = CUdevice_attribute.CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
    pointer, fd = gpu.upload([3] * (MIB // 2)), ctypes.c_int(-1)
    arguments = (ctypes.c_uint64(pointer), ctypes.c_size_t(2 * MIB), 1, ctypes.c_uint64(0))
    answer = R(raw().cuMemGetHandleForAddressRange(ctypes.byref(fd), *arguments))
    if ok(cuda.cuDeviceGetAttribute(which, gpu.device)):
        assert answer is R.CUDA_SUCCESS
        os.close(fd.value)
    else:
        assert answer is not R.CUDA_SUCCESS
        assert fd.value == -1
    assert gpu.download(pointer, 4).tolist() == [3] * 4


def test_tokens_for_other_devices_mark_memory(gpu: Gpu) -> None:
    """Measured on an H200 (driver 580.159.04), like the rest of this file from here on: who asks
    for the tokens of plain memory, or of mapped memory for RDMA, has it marked."""
    mapper, wanted = Mapper(gpu), properties(gpu)
    wanted.allocFlags.gpuDirectRDMACapable = 1
    address, chunk = mapper.reserve(), ok(cuda.cuMemCreate(mapper.granule, wanted, 0))
    mapper.map(address, chunk)
    mapper.grant(address)
    mark = Attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    for pointer in (gpu.allocate(2 * MIB), address):
        assert not ask(mark, pointer)
        tokens, which = (ctypes.c_uint8 * 16)(), int(Attribute.CU_POINTER_ATTRIBUTE_P2P_TOKENS)
        assert raw().cuPointerGetAttribute(tokens, which, ctypes.c_uint64(pointer)) == 0
        assert ask(mark, pointer)
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address)


def test_managed_memory_has_the_mark(gpu: Gpu) -> None:
    pointer = int(ok(cuda.cuMemAllocManaged(4096, cuda.CUmemAttach_flags(1))))
    assert ask(Attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer)
    ok(cuda.cuMemFree(pointer))


def test_addresses_without_access(gpu: Gpu) -> None:
    """Where something is mapped they have attributes, but no range; else they have neither."""
    mapper = Mapper(gpu)
    address, chunk = mapper.reserve(4), mapper.create()
    mapper.map(address, chunk)
    start, nowhere = Attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + mapper.granule
    assert int(ask(start, address)) == address
    assert code(cuda.cuPointerGetAttribute(start, nowhere)) is R.CUDA_ERROR_INVALID_VALUE
    for place in (address, nowhere):
        assert code(cuda.cuMemGetAddressRange(place)) is R.CUDA_ERROR_NOT_FOUND
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address, 4)
