"""Lines that the tests of stream-ordered memory run, and what they look at."""

from __future__ import annotations

from tests.hook.session import Session
from tests.support.sim import SimulatedMachine

OUT_OF_MEMORY, UNKNOWN = 2, 999
BUSY = "call('cuStreamQuery', c_void_p(s)) == 600"
SECOND = [
    "second = made('cuCtxCreate_v2', 0, 0)",
    "on = lambda context: call('cuCtxSetCurrent', c_void_p(context))",
    "assert second > 0 and on(CONTEXT) == 0",
]
"""Another context of the device."""
FILES = [
    "import os",
    "from pathlib import Path",
    "files = Path(os.environ['GPUSHARE_SIM_DIR'])",
    "def until(name):",
    "    while not (files / name).exists(): pass",
]
"""By which threads meet the simulated driver, and each other."""
OWN = "OWN = 2"
"""The thread's default stream."""


def same_without_the_hook(program: Session, *lines: str) -> list[str]:
    """What the lines print, which is what they print where memory does not move."""
    answers = program.run(*lines)
    assert answers == program.run(*lines, FAKE_SWAP="0")
    return answers


def faults(machine: SimulatedMachine) -> list[object]:
    """Work that touched memory that was not there."""
    return [record for record in machine.journal() if record.kind.name == "FAULT"]
