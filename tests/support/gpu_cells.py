"""Source text of notebook cells that use the GPU, for kernels in tests, demo and benchmarks."""

from __future__ import annotations

from pathlib import Path

from tests.support.paths import BUILTINS_PTX

_PROGRAM = Path(__file__).with_name("device_program.py")
FILL_WORDS = 4096


def setup(ordinal: int = 0) -> str:
    """The first cell: defines `gpu`, opens CUDA and launches nothing."""
    return (
        f"{_PROGRAM.read_text()}\n"
        f"gpu = Gpu(open({str(BUILTINS_PTX)!r}, 'rb').read(), {ordinal})\n"
        f"gpu.name\n"
    )


def spin(milliseconds: float) -> str:
    """A cell with one launch of that length."""
    return f"gpu.spin({milliseconds})"


def training_loop(count: int, milliseconds: float) -> str:
    """A cell that queues many launches and then waits for them."""
    return f"gpu.spin_many({count}, {milliseconds})"


def fill_and_check(value: int, milliseconds: float = 0) -> str:
    """A cell whose result (a checksum) is wrong when anything touched its memory meanwhile."""
    return (
        f"memory = gpu.allocate({FILL_WORDS})\n"
        f"gpu.fill(memory, {value}, {FILL_WORDS})\n"
        f"gpu.spin({milliseconds})\n"
        f"total = gpu.checksum(memory, {FILL_WORDS})\n"
        f"gpu.free(memory)\n"
        f"assert total == {value} * {FILL_WORDS}**2 % 2**64, total\n"
        f"total\n"
    )
