"""As backing_session, with memory that the program makes and maps itself."""

from __future__ import annotations

import ctypes
from array import array
from ctypes import byref, c_int, c_size_t, c_uint64

from tests.hook.backing_session import *  # noqa: F403
from tests.hook.backing_session import call, made
from tests.hook.memory_session import MIB

GRANULE = 2 * MIB
READ, READ_WRITE = 1, 3


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location_type", c_int),
        ("location_id", c_int),
        ("win32", c_uint64),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location_type", c_int), ("location_id", c_int), ("flags", c_int))


def create(size: int, device: int = 0, **asked: int) -> int:
    wanted = Properties(type=1, location_type=1, location_id=device, **asked)
    return made("cuMemCreate", c_size_t(size), byref(wanted), c_uint64(0))


def release(handle: int) -> int:
    return call("cuMemRelease", c_uint64(handle))


def reserve(size: int) -> int:
    return made("cuMemAddressReserve", c_size_t(size), c_size_t(0), c_uint64(0), c_uint64(0))


def unreserve(address: int, size: int) -> int:
    return call("cuMemAddressFree", c_uint64(address), c_size_t(size))


def map_at(address: int, size: int, handle: int) -> int:
    where = (c_uint64(address), c_size_t(size), c_size_t(0))
    return call("cuMemMap", *where, c_uint64(handle), c_uint64(0))


def unmap(address: int, size: int) -> int:
    return call("cuMemUnmap", c_uint64(address), c_size_t(size))


def grant(address: int, size: int, flags: int = READ_WRITE, device: int = 0) -> int:
    access = Access(1, device, flags)
    where = (c_uint64(address), c_size_t(size))
    return call("cuMemSetAccess", *where, byref(access), c_size_t(1))


def access_at(address: int, device: int = 0) -> int:
    flags, location = c_uint64(99), (c_int * 2)(1, device)
    result = call("cuMemGetAccess", byref(flags), location, c_uint64(address))
    return -result if result else flags.value


def retain(address: int) -> int:
    return made("cuMemRetainAllocationHandle", ctypes.c_void_p(address))


def properties(handle: int) -> tuple[int, ...]:
    found = Properties()
    result = call("cuMemGetAllocationPropertiesFromHandle", byref(found), c_uint64(handle))
    kept = (found.location_id, found.handle_types, found.compression, found.rdma)
    return (-result,) if result else kept


def export(handle: int) -> int:
    """A descriptor; or the error, negative."""
    descriptor = c_int(-1)
    result = call(
        "cuMemExportToShareableHandle", byref(descriptor), c_uint64(handle), 1, c_uint64(0)
    )
    return -result if result else descriptor.value


def mapped(size: int, **asked: int) -> tuple[int, int]:
    """Handle and address of memory that can be used."""
    handle, address = create(size, **asked), reserve(size)
    assert handle > 0 and address > 0
    assert map_at(address, size, handle) == 0 and grant(address, size) == 0
    return handle, address


def numbers(size: int, seed: int = 1) -> bytes:
    """Bytes that differ from place to place."""
    first = seed * 1_000_003
    return array("Q", range(first, first + size // 8)).tobytes()
