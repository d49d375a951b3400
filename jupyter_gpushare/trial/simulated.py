"""A small client of the simulated GPU, for the notebooks of `jupyter gpushare try`.

`jupyter gpushare try` copies it beside them. It speaks to the driver as CUDA programs do, so what
happens to its calls happens to those of PyTorch too. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CUDAError(RuntimeError):
    """The driver has answered with an error."""


class Gpu:
    """The first device, its primary context, and work for it."""

    def __init__(self, ptx: bytes) -> None:
        """`ptx` is the text of the built-in kernels. Raises CUDAError, or OSError where there is no
        driver."""
        self._worked_s = 0.0
        self._driver = ctypes.CDLL("libcuda.so.1")
        device, context, self._module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuModuleLoadData", ctypes.byref(self._module), ctypes.c_char_p(ptx))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Prints how long the block took, and how much of that was its own work."""
        began_s, worked_s = time.monotonic(), self._worked_s
        yield
        took_s = time.monotonic() - began_s
        print(f"{took_s:.2f} s; {self._worked_s - worked_s:.2f} s of it work")

    def spin(self, seconds: float) -> None:
        """Works for so long on the device, and waits until it has."""
        self._launch("spin", ctypes.c_uint64(int(seconds * 1e9)))
        self._call("cuCtxSynchronize")
        self._worked_s += seconds

    def allocate(self, size: int) -> int:
        """The address of so many bytes of device memory."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def fill(self, address: int, value: int, size: int) -> None:
        """Writes one byte everywhere, and waits until it is there."""
        memory, byte = ctypes.c_uint64(address), ctypes.c_ubyte(value)
        self._call("cuMemsetD8_v2", memory, byte, ctypes.c_size_t(size))
        self._call("cuCtxSynchronize")

    def read(self, address: int, size: int) -> bytes:
        """A copy of the bytes there."""
        data = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def _launch(self, kernel: str, argument: ctypes.c_uint64) -> None:
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        one, none = ctypes.c_uint(1), ctypes.c_uint(0)
        shape = (one, one, one, one, one, one)
        self._call("cuLaunchKernel", function, *shape, none, None, arguments, None)

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(ctypes.c_int(result), ctypes.byref(text))
            raise CUDAError(f"{name}: {(text.value or b'an unknown error').decode()}")


gpu = Gpu(Path(os.environ["GPUSHARE_TRY_PTX"]).read_bytes())
