"""As mapping_session, with stream-ordered memory and its pools."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from tests.hook.mapping_session import *  # noqa: F403
from tests.hook.mapping_session import READ_WRITE, Access, call, made

SEGMENT = 32 << 20
ALL = 2**64 - 1

# CUmemPool_attribute.
FOLLOWS_EVENTS, OPPORTUNISTIC, INTERNAL, THRESHOLD = 1, 2, 3, 4
RESERVED, RESERVED_HIGH, USED, USED_HIGH = 5, 6, 7, 8


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location_type", c_int),
        ("location_id", c_int),
        ("win32", c_uint64),
        ("max_size", c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


def pool_create(device: int = 0, **asked: int) -> int:
    wanted = PoolProperties(**{"type": 1, "location_type": 1, "location_id": device, **asked})
    return made("cuMemPoolCreate", byref(wanted))


def pool_destroy(pool: int) -> int:
    return call("cuMemPoolDestroy", c_void_p(pool))


def default_pool(device: int = 0) -> int:
    return made("cuDeviceGetDefaultMemPool", device)


def take(size: int, stream: int = 0, pool: int = 0) -> int:
    """The address, from the device's pool where none is named; or the error, negative."""
    if pool:
        where = (c_void_p(pool), c_void_p(stream))
        return made("cuMemAllocFromPoolAsync", c_size_t(size), *where)
    return made("cuMemAllocAsync", c_size_t(size), c_void_p(stream))


def give(address: int, stream: int = 0) -> int:
    return call("cuMemFreeAsync", c_uint64(address), c_void_p(stream))


def wait(stream: int = 0) -> int:
    return call("cuStreamSynchronize", c_void_p(stream))


def recorded(stream: int) -> int:
    """An event behind what is in the stream."""
    event = made("cuEventCreate", 0)
    assert call("cuEventRecord", c_void_p(event), c_void_p(stream)) == 0
    return event


def waits_for(stream: int, event: int) -> int:
    return call("cuStreamWaitEvent", c_void_p(stream), c_void_p(event), 0)


def pool_attribute(pool: int, which: int) -> int:
    value = c_uint64(0)
    result = call("cuMemPoolGetAttribute", c_void_p(pool), which, byref(value))
    return -result if result else value.value


def set_pool_attribute(pool: int, which: int, value: int) -> int:
    return call("cuMemPoolSetAttribute", c_void_p(pool), which, byref(c_uint64(value)))


def keep(pool: int, threshold: int = ALL) -> int:
    return set_pool_attribute(pool, THRESHOLD, threshold)


def trim(pool: int, keeping: int = 0) -> int:
    return call("cuMemPoolTrimTo", c_void_p(pool), c_size_t(keeping))


def figures(pool: int) -> list[int]:
    """Reserved, the most of it, used, the most of it."""
    return [pool_attribute(pool, which) for which in (RESERVED, RESERVED_HIGH, USED, USED_HIGH)]


def pool_grant(pool: int, device: int, flags: int = READ_WRITE) -> int:
    access = Access(1, device, flags)
    return call("cuMemPoolSetAccess", c_void_p(pool), byref(access), c_size_t(1))


def pool_access(pool: int, device: int) -> int:
    flags, location = c_int(99), (c_int * 2)(1, device)
    result = call("cuMemPoolGetAccess", byref(flags), c_void_p(pool), location)
    return -result if result else flags.value
