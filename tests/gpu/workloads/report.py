"""What every workload prints: one JSON line with a digest of its results and its times."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any


def digest(*arrays: Any) -> str:
    """SHA-256 over the raw bytes of host arrays (anything with `tobytes`), in order."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(array.tobytes())
    return sha.hexdigest()


def report(**values: Any) -> None:
    """Print the workload's one line of JSON, last."""
    print(json.dumps(values), flush=True)


def steps_from_argv(default: int) -> int:
    """How many steps to make: the first argument, or the default."""
    return int(sys.argv[1]) if len(sys.argv) > 1 else default


class Cells:
    """Tells the hook where cells begin and end, as the bootstrap of a notebook kernel does.

    Without the hook in the process (an unshared run) it does nothing."""

    def __init__(self) -> None:
        program = ctypes.CDLL(None)
        self._began: Callable[[], Any] = getattr(program, "gpushare_cell_began", lambda: None)
        self._ended: Callable[[], Any] = getattr(program, "gpushare_cell_ended", lambda: None)

    def run(self, work: Callable[[], Any]) -> float:
        """Run `work` as a cell; the seconds from its begin to its end."""
        began_s = time.perf_counter()
        self._began()
        try:
            work()
        finally:
            elapsed_s = time.perf_counter() - began_s
            self._ended()
        return elapsed_s
