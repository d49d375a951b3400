"""The one loop around the core: the only place that calls `handle` and the only one with a clock.

Events are put into the inbox by anybody on the event loop's thread; commands are performed at
once, in their order, before the next event is looked at. What cannot be performed comes back as an
event, never as a change of state here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from jupyter_gpushare.core.commands import (
    CloseClient,
    Command,
    KillClient,
    MeasureDevice,
    ReportOverdue,
    ReportSilent,
    WakeAt,
)
from jupyter_gpushare.core.errors import CoreError, Fault
from jupyter_gpushare.core.events import ClientLost, ClockTicked, Event
from jupyter_gpushare.core.ids import ClientId, DeviceId, Seconds
from jupyter_gpushare.core.snapshot import Snapshot

log = logging.getLogger(__name__)


class Core(Protocol):
    """What the driver needs of the scheduler core."""

    def handle(self, event: Event, *, now_s: Seconds) -> list[Command]: ...

    def snapshot(self, now_s: Seconds) -> Snapshot: ...


class Links(Protocol):
    """The way to the clients; translate.py has the real one."""

    def deliver(self, command: Command) -> ClientId | None:
        """Send what the command says; names the client when it cannot be reached any more."""

    def close(self, client: ClientId, message: str) -> None:
        """End the connection, and show the message to the user."""

    def kill(self, client: ClientId) -> None:
        """End the process behind the connection."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Monotonic time and a way to be called; an asyncio loop is one."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer: ...


class Record(Protocol):
    """Keeps what happened, for replay; journal.py has the real one."""

    def write(self, event: Event, commands: list[Command], *, now_s: Seconds) -> None: ...


class Driver:
    """`check` raises when the core's state is not sound; it is called after each event, and so is
    `changed`. `measure` has a device's memory looked at soon."""

    def __init__(
        self,
        *,
        scheduler: Core,
        clock: Clock,
        links: Links,
        journal: Record | None = None,
        check: Callable[[], None] | None = None,
        changed: Callable[[], None] = lambda: None,
        measure: Callable[[DeviceId], None] = lambda device: None,
    ) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.links = links
        self._journal = journal
        self._check = check
        self._changed = changed
        self._measure = measure
        self._inbox: deque[Event] = deque()
        self._running = False
        self._timer: Timer | None = None

    def submit(self, event: Event) -> None:
        """Handle the event now, or after the one that is being handled."""
        self._inbox.append(event)
        if not self._running:
            self._run_pending()

    def _run_pending(self) -> None:
        self._running = True
        try:
            while self._inbox:
                self._run_one(self._inbox.popleft())
        finally:
            self._running = False

    def _run_one(self, event: Event) -> None:
        now_s = self.clock.time()
        try:
            commands = self.scheduler.handle(event, now_s=now_s)
        except CoreError as error:
            self._blame(event, error)
            return
        for command in commands:
            self._perform(command)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s -> %s", event, commands or "nothing")
        if self._journal:
            self._journal.write(event, commands, now_s=now_s)
        if self._check:
            self._check()
        self._changed()

    def _perform(self, command: Command) -> None:
        match command:
            case WakeAt(at_s=at_s):
                self._wake_at(at_s)
            case CloseClient(client=client, message=message):
                self.links.close(client, message)
            case KillClient(client=client):
                log.warning("client %s does not answer and is killed (%s)", client, command.cause)
                self.links.kill(client)
            case MeasureDevice(device=device):
                self._measure(device)
            case ReportOverdue(message=message) | ReportSilent(message=message):
                log.warning("%s", message)
            case _:
                unreachable = self.links.deliver(command)
                if unreachable is not None:
                    self._inbox.append(ClientLost(client=unreachable, cause="send failed"))

    def _blame(self, event: Event, error: CoreError) -> None:
        """Whoever broke the rules bears it: a client its connection, we an entry in the log."""
        if error.fault is Fault.PEER:
            client: ClientId = event.client  # type: ignore[attr-defined]
            log.warning("client %s loses its connection: %s", client, error)
            self.links.close(client, str(error))
        elif error.fault is Fault.REQUEST:
            log.info("%s: %s", event, error)
        else:
            log.error("the core failed at %s", event, exc_info=error)

    def _wake_at(self, at_s: Seconds) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.clock.call_at(at_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.submit(ClockTicked(cause="time came"))

    def snapshot(self) -> Snapshot:
        """The core's state at this moment."""
        return self.scheduler.snapshot(self.clock.time())

    def stop(self) -> None:
        """No wake-up any more."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
