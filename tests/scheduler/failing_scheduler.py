"""A scheduler whose core has a bug: it fails at each `CellEnded`, and at interrupts."""

from __future__ import annotations

import sys

from jupyter_gpushare.cli.main import main
from jupyter_gpushare.core import events
from jupyter_gpushare.core.commands import Command
from jupyter_gpushare.core.machine import Machine

_handle = Machine.handle


def _handle_or_fail(machine: Machine, event: events.Event, *, now_s: float) -> list[Command]:
    commands = _handle(machine, event, now_s=now_s)
    if isinstance(event, events.CellEnded | events.InterruptRequested):
        raise KeyError("a bug of the test's")
    return commands


Machine.handle = _handle_or_fail  # type: ignore[method-assign]
sys.exit(main())
