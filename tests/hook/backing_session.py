"""Runs in a child process under the hook, on the simulated GPU, with a context on device 0: short
names for what the tests of movable memory do. Handles and addresses are plain integers."""

from __future__ import annotations

import ctypes
import threading  # noqa: F401
import time  # noqa: F401
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

from tests.hook.memory_session import MIB, alloc, call, free, info, made  # noqa: F401
from tests.support.paths import BUILTINS_PTX

hook = ctypes.CDLL(None)

# By the numbers of CUpointer_attribute; those that are narrower than eight bytes.
NARROW = {2, 6, 8, 9, 10, 13, 15, 16, 21}
# Context, type, device pointer, host pointer, synchronous operations, managed, ordinal, old IPC,
# range, mapped, handle types, access, pool. The simulated GPU knows no others, and the buffer has
# another number each time.
ATTRIBUTES = (1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 16, 17)


def opened(device: int = 0) -> int:
    """The primary context of a device, current."""
    context = made("cuDevicePrimaryCtxRetain", device)
    assert context > 0 and call("cuCtxSetCurrent", c_void_p(context)) == 0
    return context


assert call("cuInit", 0) == 0
CONTEXT = opened()


def attribute(which: int, address: int) -> int:
    """The attribute's value, or the error, negative."""
    value = c_uint64(0)
    result = call("cuPointerGetAttribute", byref(value), which, c_uint64(address))
    return -result if result else value.value


def attributes(address: int, *which: int) -> list[int]:
    values = [c_uint64(2**64 - 1) for _ in which]
    data = (c_void_p * len(which))(*(ctypes.addressof(value) for value in values))
    asked = (c_int * len(which))(*which)
    result = call("cuPointerGetAttributes", len(which), asked, data, c_uint64(address))
    narrow = [2**32 - 1 if number in NARROW else 2**64 - 1 for number in which]
    return [v.value & mask for v, mask in zip(values, narrow, strict=True)] if not result else []


def address_range(address: int) -> tuple[int, int] | int:
    base, size = c_uint64(0), c_size_t(0)
    result = call("cuMemGetAddressRange_v2", byref(base), byref(size), c_uint64(address))
    return -result if result else (base.value, size.value)


def queries(address: int) -> list[object]:
    """All that can be asked of an address."""
    several = attributes(address, *ATTRIBUTES)
    return [address_range(address), [attribute(w, address) for w in ATTRIBUTES], several]


def park(device: int = 0) -> int:
    return int(hook.gpushare_fake_park(device))


def restore(device: int = 0) -> int:
    return int(hook.gpushare_fake_restore(device))


def sums(device: int = 0) -> tuple[int, int]:
    """Resident and parked, in granules of 2 MiB."""
    resident, parked = c_int(0), c_int(0)
    hook.gpushare_fake_sums(device, byref(resident), byref(parked))
    return resident.value, parked.value


def write(address: int, data: bytes) -> int:
    return call("cuMemcpyHtoD_v2", c_uint64(address), data, c_size_t(len(data)))


def read(address: int, size: int) -> bytes:
    data = ctypes.create_string_buffer(size)
    assert call("cuMemcpyDtoH_v2", data, c_uint64(address), c_size_t(size)) == 0
    return data.raw


def pitched(width: int, height: int, element: int = 4) -> tuple[int, int]:
    """Address (or the error, negative) and pitch."""
    pitch = c_size_t(0)
    sizes = (c_size_t(width), c_size_t(height), c_uint(element))
    return made("cuMemAllocPitch_v2", byref(pitch), *sizes), pitch.value


def stream_create() -> int:
    return made("cuStreamCreate", 1)


def launch(name: str, stream: int, *values: ctypes._SimpleCData[int]) -> int:
    """One of the built-in launches."""
    module = made("cuModuleLoadData", BUILTINS_PTX.read_bytes() + b"\0")
    function = made("cuModuleGetFunction", c_void_p(module), name.encode())
    pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    shape = (4, 1, 1, 64, 1, 1, 0)
    return call("cuLaunchKernel", c_void_p(function), *shape, c_void_p(stream), pointers, None)


def held(stream: int) -> ctypes.c_uint:
    """Work in the stream, which lasts until the value is 1."""
    host = made("cuMemHostAlloc", c_size_t(64), c_uint(2))
    device = made("cuMemHostGetDevicePointer_v2", c_void_p(host), 0)
    assert launch("poll_flag", stream, c_uint64(device)) == 0
    return c_uint.from_address(host)


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


def share(address: int) -> str:
    """The handle of an allocation, in hexadecimal; or the error, negative."""
    handle = IpcHandle()
    result = call("cuIpcGetMemHandle", byref(handle), c_uint64(address))
    return str(-result) if result else bytes(handle).hex()


def open_shared(handle: str, flags: int = 1) -> int:
    """The address; or the error, negative."""
    return made("cuIpcOpenMemHandle_v2", IpcHandle.from_buffer_copy(bytes.fromhex(handle)), flags)


def close_shared(address: int) -> int:
    return call("cuIpcCloseMemHandle", c_uint64(address))
