"""Source text of notebook cells that use the GPU, for kernels in tests, demo and benchmarks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import BUILTINS_PTX

_PROGRAM = Path(__file__).with_name("device_program.py")
_STAMPED = Path(__file__).with_name("stamped_program.py")
FILL_WORDS = 4096


def setup(ordinal: int = 0, *, stamped: bool = False) -> str:
    """The first cell: defines `gpu` and opens CUDA. `stamped` is for real devices, where
    `gpu.intervals()` tells what the simulated one's journal tells."""
    program, name = _PROGRAM.read_text(), "Gpu"
    if stamped:
        program += _STAMPED.read_text().replace("from __future__ import annotations\n", "")
        program = re.sub(r"^from tests\..*$", "", program, flags=re.M)
        name = "StampedGpu"
    return f"{program}\ngpu = {name}(open({str(BUILTINS_PTX)!r}, 'rb').read(), {ordinal})\n"


def spin(milliseconds: float, count: int = 1) -> str:
    """A cell that keeps the device busy with so many launches of that length."""
    return f"gpu.spin({milliseconds}, {count})"


def wait_for(path: Path) -> str:
    """A cell that goes on when this file is there."""
    return (
        f"import pathlib, time\n"
        f"while not pathlib.Path({str(path)!r}).exists():\n"
        f"    time.sleep(0.01)"
    )


def spin_until_interrupted(milliseconds: float) -> str:
    """A cell that waits for each launch before the next one, so that an interrupt ends it soon."""
    return f"while True:\n    gpu.spin({milliseconds})"


def keep_and_check(seed: int, words: int, kinds: Sequence[str] = ("",)) -> str:
    """A cell that keeps so much memory from its first run on, in equal parts of these kinds
    ("", "_pooled", "_mapped"), and looks at all of it in each."""
    part = words // len(kinds)
    makers = ", ".join(f"gpu.allocate{kind}" for kind in kinds)
    return (
        f"if 'kept' not in globals():\n"
        f"    kept = []\n"
        f"    for allocate in [{makers}]:\n"
        f"        kept.append(allocate({part}))\n"
        f"    for place, memory in enumerate(kept):\n"
        f"        gpu.write_blocks(memory, {seed} + 100 * place, {part})\n"
        f"gpu.spin(1)\n"
        f"for place, memory in enumerate(kept):\n"
        f"    gpu.check_blocks(memory, {seed} + 100 * place, {part})\n"
    )


def until_memory_follows(follows: bool) -> str:
    """A cell that waits until its process has heard whether its memory follows the turn: what it
    allocates before that is made by the old setting."""
    return (
        f"import ctypes, json, time\n"
        f"def memory_follows():\n"
        f"    text = ctypes.create_string_buffer(1 << 16)\n"
        f"    ctypes.CDLL(None).gpushare_describe(text, ctypes.c_size_t(len(text)))\n"
        f"    return json.loads(text.value)['memory_follows']\n"
        f"while memory_follows() is not {follows}:\n"
        f"    time.sleep(0.01)\n"
    )


def let_go() -> str:
    """A cell that frees what `keep_and_check` keeps, if there is any."""
    return (
        "if 'kept' in globals():\n"
        "    for memory in kept:\n"
        "        gpu.free(memory)\n"
        "    gpu.synchronize()\n"  # then pools give back what they keep
        "    del kept\n"
    )


def fill_and_check(value: int, milliseconds: float = 0, count: int = 1) -> str:
    """A cell whose result (a checksum) is wrong when anything touched its memory meanwhile."""
    return (
        f"memory = gpu.allocate({FILL_WORDS})\n"
        f"gpu.fill(memory, {value}, {FILL_WORDS})\n"
        f"gpu.spin({milliseconds}, {count})\n"
        f"total = gpu.checksum(memory, {FILL_WORDS})\n"
        f"gpu.free(memory)\n"
        f"assert total == {value} * {FILL_WORDS}**2 % 2**64, total\n"
        f"total\n"
    )
