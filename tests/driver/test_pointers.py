"""What the driver knows about an address."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUpointer_attribute as Attribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, code, ok
from tests.driver.test_mapped_memory import Mapper


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
