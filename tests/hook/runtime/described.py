"""What a shell program's hook says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.hook.runtime.process import GpuProcess
from tests.support.waits import line_of, wait_until


def described(shell: GpuProcess) -> dict[str, Any]:
    shell.say("0 describe")
    answer: dict[str, Any] = json.loads(shell.expect("description ").partition(" ")[2])
    shell.expect("0 describe 0")
    return answer


def described_when(shell: GpuProcess, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first description for which this holds: what the scheduler sends, or a connection that
    begins, has its effect a moment later."""

    def found() -> list[dict[str, Any]]:
        now = described(shell)
        return [now] if holds(now) else []

    return wait_until(found, line_of(holds))[0]
