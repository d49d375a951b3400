"""What GPU cells do, by way of cuda-python's driver bindings: alike on a real and a simulated GPU.

Runs inside kernels, as the text of their first cell (`gpu_cells.setup`), so it imports nothing of
this repository. It is a framework in small: one context, one module, launches, copies.
"""

from __future__ import annotations

import array
import ctypes
from typing import Any

from cuda.bindings import driver as cu


def checked(answer: tuple[Any, ...]) -> Any:
    """What frameworks do with an error: make an exception of it."""
    error, *values = answer
    if error != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA error: {error.name}")
    return values[0] if len(values) == 1 else values


BLOCK_WORDS = 4 << 20
MAPPED_UNIT = 2 << 20


def block_value(seed: int, block: int) -> int:
    """What each word of a block holds."""
    return (seed * 2654435761 ^ block * 2246822519) & 0xFFFFFFFF


class Gpu:
    """One device, its primary context and the built-in launches."""

    def __init__(self, module_text: bytes, ordinal: int = 0) -> None:
        checked(cu.cuInit(0))
        self.device = checked(cu.cuDeviceGet(ordinal))
        self.name = checked(cu.cuDeviceGetName(96, self.device)).split(b"\0")[0].decode()
        self.context = checked(cu.cuDevicePrimaryCtxRetain(self.device))
        checked(cu.cuCtxSetCurrent(self.context))
        self.module = checked(cu.cuModuleLoadData(module_text + b"\0"))
        self._functions: dict[str, Any] = {}
        self.mapped: dict[int, int] = {}

    def launch(self, name: str, *arguments: tuple[Any, Any], threads: int = 1) -> None:
        """Each argument is a value and its ctypes type (None for what cuda-python wraps)."""
        if name not in self._functions:
            self._functions[name] = checked(cu.cuModuleGetFunction(self.module, name.encode()))
        values = tuple(value for value, _ in arguments)
        kinds = tuple(kind for _, kind in arguments)
        checked(
            cu.cuLaunchKernel(
                self._functions[name], 1, 1, 1, threads, 1, 1, 0, 0, (values, kinds), 0
            )
        )

    def synchronize(self) -> None:
        checked(cu.cuCtxSynchronize())

    def launch_timed(self, nanoseconds: int) -> None:
        """One launch that takes that long."""
        self.launch("spin", (nanoseconds, ctypes.c_uint64))

    def spin(self, milliseconds: float, count: int = 1) -> None:
        """Keep the device busy with so many launches of that length, and wait for the last."""
        for _ in range(count):
            self.launch_timed(int(milliseconds * 1e6))
        self.synchronize()

    def allocate(self, length: int) -> Any:
        """Room for `length` 32-bit words."""
        return checked(cu.cuMemAlloc(4 * length))

    def allocate_pooled(self, length: int) -> Any:
        """The same from the device's pool, in stream order."""
        return checked(cu.cuMemAllocAsync(4 * length, 0))

    def allocate_mapped(self, length: int) -> Any:
        """The same in memory that the program makes and maps itself."""
        size = -(-4 * length // MAPPED_UNIT) * MAPPED_UNIT
        wanted, access = cu.CUmemAllocationProp(), cu.CUmemAccessDesc()
        wanted.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = int(self.device)
        access.location = wanted.location
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        handle = checked(cu.cuMemCreate(size, wanted, 0))
        address = checked(cu.cuMemAddressReserve(size, 0, 0, 0))
        checked(cu.cuMemMap(address, size, 0, handle, 0))
        checked(cu.cuMemSetAccess(address, size, [access], 1))
        checked(cu.cuMemRelease(handle))  # the mapping keeps it
        self.mapped[int(address)] = size
        return address

    def free(self, memory: Any) -> None:
        size = self.mapped.pop(int(memory), 0)
        if size == 0:
            checked(cu.cuMemFree(memory))
            return
        checked(cu.cuCtxSynchronize())
        checked(cu.cuMemUnmap(memory, size))
        checked(cu.cuMemAddressFree(memory, size))

    def fill(self, memory: Any, value: int, length: int) -> None:
        self.launch(
            "fill",
            (memory, None),
            (value, ctypes.c_uint32),
            (length, ctypes.c_uint64),
            threads=32,
        )

    def axpy(self, y: Any, x: Any, factor: float, length: int) -> None:
        self.launch(
            "axpy",
            (y, None),
            (x, None),
            (factor, ctypes.c_float),
            (length, ctypes.c_uint64),
            threads=32,
        )

    def checksum(self, memory: Any, length: int, threads: int = 32) -> int:
        """The sum over i of word[i] * (2 i + 1), modulo 2**64."""
        total = checked(cu.cuMemAlloc(8))
        try:
            self.launch(
                "checksum",
                (total, None),
                (memory, None),
                (length, ctypes.c_uint64),
                threads=threads,
            )
            return int.from_bytes(self.read(total, 8), "little")
        finally:
            checked(cu.cuMemFree(total))

    def write_blocks(self, memory: Any, seed: int, length: int) -> None:
        """Give each block of that memory a value of its own."""
        for first in range(0, length, BLOCK_WORDS):
            count = min(BLOCK_WORDS, length - first)
            value = block_value(seed, first // BLOCK_WORDS)
            self.launch(
                "fill",
                (int(memory) + 4 * first, ctypes.c_void_p),
                (value, ctypes.c_uint32),
                (count, ctypes.c_uint64),
                threads=1024,
            )
        self.synchronize()

    def check_blocks(self, memory: Any, seed: int, length: int) -> None:
        """Whether all of it is there, in its place; a launch on the device looks."""
        expected = 0
        for first in range(0, length, BLOCK_WORDS):
            last = min(length, first + BLOCK_WORDS)
            expected += block_value(seed, first // BLOCK_WORDS) * (last**2 - first**2)
        found = self.checksum(memory, length, threads=1024)
        if found != expected % 2**64:
            raise AssertionError(f"checksum {found}, expected {expected % 2**64}")

    def write(self, memory: Any, words: list[int]) -> None:
        data = array.array("I", words).tobytes()
        checked(cu.cuMemcpyHtoD(memory, data, len(data)))

    def read(self, memory: Any, size: int) -> bytes:
        data = bytearray(size)
        checked(cu.cuMemcpyDtoH(data, memory, size))
        return bytes(data)
