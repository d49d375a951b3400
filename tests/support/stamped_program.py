"""Follows device_program.py in kernels on a real GPU: there no journal tells when work was on the
device, so the device writes its own clock before and after it.

The stamps are launches on the same stream: the first one runs when the work may, and no launch of
another process is between the stamps unless the device was shared.
"""

from __future__ import annotations

import ctypes
import time

from cuda.bindings import driver as cu

from tests.support.device_program import Gpu, checked  # not in the kernel: see gpu_cells.setup

STAMP = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry stamp(.param .u64 out)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u64 %rd3, %globaltimer;
    st.global.u64 [%rd2], %rd3;
    ret;
}
"""
STAMPS_MAX = 65536


class StampedGpu(Gpu):
    """A Gpu that knows when its spins were on the device, on time.monotonic_ns()'s clock."""

    def __init__(self, module_text: bytes, ordinal: int = 0) -> None:
        super().__init__(module_text, ordinal)
        self._module = checked(cu.cuModuleLoadData(STAMP + b"\0"))
        self._stamp = checked(cu.cuModuleGetFunction(self._module, b"stamp"))
        self._room = self.allocate(2 * STAMPS_MAX)
        self._count = 0
        self._offset_ns = self._device_clock_ahead_ns()

    def launch_timed(self, nanoseconds: int) -> None:
        """One spin between two stamps."""
        self._write_stamp()
        super().launch_timed(nanoseconds)
        self._write_stamp()

    def intervals(self) -> list[tuple[int, int]]:
        """When the spins since the last call were on the device."""
        stamps = self._take_stamps()
        return [(start - self._offset_ns, end - self._offset_ns) for start, end in stamps]

    def _write_stamp(self) -> None:
        address = ctypes.c_uint64(int(self._room) + 8 * (self._count % STAMPS_MAX))
        self._count += 1
        checked(
            cu.cuLaunchKernel(
                self._stamp, 1, 1, 1, 1, 1, 1, 0, 0, ((address.value,), (ctypes.c_uint64,)), 0
            )
        )

    def _take_stamps(self) -> list[tuple[int, int]]:
        if self._count == 0:
            return []
        words = memoryview(self.read(self._room, 8 * self._count)).cast("Q").tolist()
        self._count = 0
        return list(zip(words[0::2], words[1::2], strict=True))

    def _device_clock_ahead_ns(self) -> int:
        """The device's clock less the host's, from the quickest of some round trips."""
        tries = []
        for _ in range(50):
            before_ns = time.monotonic_ns()
            self._write_stamp()
            self.synchronize()
            after_ns = time.monotonic_ns()
            (word,) = memoryview(self.read(self._room, 8)).cast("Q")
            self._count = 0
            tries.append((after_ns - before_ns, word - (before_ns + after_ns) // 2))
        return min(tries)[1]
