"""Runs in a child process under the hook: short names for the calls that the memory tests make.
Handles and addresses are plain integers."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p

MIB = 1 << 20
POINTER = c_uint64(0)

cuda = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> int:
    return int(getattr(cuda, name)(*arguments))


def made(name: str, *arguments: object) -> int:
    """Calls a function that hands out something, and returns it; or the error, negative."""
    handle = c_uint64(0)
    result = call(name, byref(handle), *arguments)
    return handle.value if result == 0 else -result


def alloc(size: int) -> int:
    return made("cuMemAlloc_v2", c_size_t(size))


def free(address: int) -> int:
    return call("cuMemFree_v2", c_uint64(address))


def create(size: int) -> int:
    return made("cuMemCreate", c_size_t(size), location(0), c_uint64(0))


def release(handle: int) -> int:
    return call("cuMemRelease", c_uint64(handle))


def map_at(address: int, size: int, handle: int) -> int:
    where = (c_uint64(address), c_size_t(size), c_size_t(0))
    return call("cuMemMap", *where, c_uint64(handle), c_uint64(0))


def unmap(address: int, size: int) -> int:
    return call("cuMemUnmap", c_uint64(address), c_size_t(size))


class Array(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = (
        ("Width", c_size_t),
        ("Height", c_size_t),
        ("Format", ctypes.c_uint),
        ("NumChannels", ctypes.c_uint),
    )


class Array3D(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = (
        ("Width", c_size_t),
        ("Height", c_size_t),
        ("Depth", c_size_t),
        ("Format", ctypes.c_uint),
        ("NumChannels", ctypes.c_uint),
        ("Flags", ctypes.c_uint),
    )


FLOAT, UINT8, SPARSE = 0x20, 1, 0x40


class Process(ctypes.Structure):
    """nvmlProcessInfo_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", c_uint64),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def info() -> tuple[int, int]:
    free_bytes, total_bytes = c_size_t(0), c_size_t(0)
    assert call("cuMemGetInfo_v2", byref(free_bytes), byref(total_bytes)) == 0
    return free_bytes.value // MIB, total_bytes.value // MIB


def location(device: int, where: int = 1) -> ctypes.Array[ctypes.c_int]:
    """CUmemAllocationProp and CUmemPoolProps: type, handle types, then location type and id."""
    return (ctypes.c_int * 64)(1, 0, where, device)


def stream() -> c_void_p:
    return c_void_p(0x77)


def streams_and_captures() -> tuple[int, int]:
    """What the hook knows of."""
    streams, captures = ctypes.c_int(0), ctypes.c_int(0)
    ctypes.CDLL(None).gpushare_fake_streams(byref(streams), byref(captures))
    return streams.value, captures.value


def captures() -> int:
    return streams_and_captures()[1]
