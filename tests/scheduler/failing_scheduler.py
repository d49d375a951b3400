"""A scheduler with bugs. Its core fails at each `CellEnded`, at interrupts and when it first learns
of a tenant by its token; the way to the core fails at each `RequestWithdrawn`."""

from __future__ import annotations

from jupyter_gpushare.cli.main import main
from jupyter_gpushare.core import events
from jupyter_gpushare.core.commands import Command
from jupyter_gpushare.core.scheduler import Machine
from jupyter_gpushare.protocol.fields import Message
from jupyter_gpushare.protocol.messages import RequestWithdrawn
from jupyter_gpushare.scheduler.hook.translate import Inbound

_handle = Machine.handle
_received = Inbound.received
_to_fail = {"known by its token"}


def _handle_or_fail(machine: Machine, event: events.Event, *, now_s: float) -> list[Command]:
    commands = _handle(machine, event, now_s=now_s)
    if isinstance(event, events.CellEnded | events.InterruptRequested):
        raise KeyError("a bug of the test's")
    if event.cause in _to_fail:
        _to_fail.remove(event.cause)
        raise KeyError("a bug of the test's")
    return commands


def _received_or_fail(inbound: Inbound, client: int, message: Message) -> None:
    if isinstance(message, RequestWithdrawn):
        raise KeyError("a bug of the test's")
    _received(inbound, client, message)


def command_line_with_bugs() -> object:
    """In a process of a nursery."""
    Machine.handle = _handle_or_fail  # type: ignore[method-assign]
    Inbound.received = _received_or_fail  # type: ignore[method-assign]
    return main()
