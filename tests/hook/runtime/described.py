"""What a shell program's hook says of itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.hook.runtime.process import ANSWER_S_MAX, GpuProcess


def described(shell: GpuProcess) -> dict[str, Any]:
    shell.say("0 describe")
    answer: dict[str, Any] = json.loads(shell.expect("description ").partition(" ")[2])
    shell.expect("0 describe 0")
    return answer


def described_when(
    shell: GpuProcess, holds: Callable[[dict[str, Any]], bool], *, within_s: float = ANSWER_S_MAX
) -> dict[str, Any]:
    """The first description for which this holds: what the scheduler sends, or a connection that
    begins, has its effect a moment later."""
    until_s = time.monotonic() + within_s
    while not holds(now := described(shell)):
        if time.monotonic() > until_s:
            raise TimeoutError(f"still {now}")
        time.sleep(0.002)
    return now
