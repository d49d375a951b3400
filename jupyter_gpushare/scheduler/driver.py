"""The one loop around the core: the only place that calls `handle` and the only one with a clock.

Events are put into the inbox by anybody on the event loop's thread; commands are performed at
once, in their order, before the next event is looked at. What cannot be performed comes back as an
event, never as a change of state here. A failure of ours is logged, and the loop goes on.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from jupyter_gpushare.core.commands import (
    CloseClient,
    Command,
    KillClient,
    MeasureDevice,
    RefuseClient,
    RenewConnection,
    ReportFailure,
    ReportOverdue,
    ReportSilent,
    WakeAt,
)
from jupyter_gpushare.core.errors import CoreError, Fault, RequestFailed
from jupyter_gpushare.core.events import ClientEvent, ClientLost, ClockTicked, Event, RequestEvent
from jupyter_gpushare.core.ids import ClientId, DeviceId, Seconds, TenantId
from jupyter_gpushare.core.shown.waits import Estimate
from jupyter_gpushare.core.snapshot import Snapshot

from .base.wording import report_of, why_closed, why_refused
from .journal import Journal

log = logging.getLogger(__name__)

_FAILED = (
    "The scheduler failed at this request, and has changed nothing. Try again; if it fails again, "
    "report the scheduler's log."
)


class Core(Protocol):
    """What the driver needs of the scheduler core."""

    def steps(self, event: Event, *, now_s: Seconds) -> Iterable[list[Command]]: ...

    def snapshot(self, now_s: Seconds) -> Snapshot: ...

    def estimates(
        self, tenants: Iterable[TenantId], now_s: Seconds
    ) -> dict[TenantId, Estimate]: ...


class Links(Protocol):
    """The way to the clients; translate.py has the real one."""

    def deliver(self, command: Command) -> ClientId | None:
        """Send what the command says; names the client when it cannot be reached any more."""

    def close(self, client: ClientId, message: str) -> None:
        """End the connection, and show the message to the user."""

    def renew(self, client: ClientId) -> None:
        """End the connection without a word, so that the process connects again."""

    def kill(self, client: ClientId) -> None:
        """End the process behind the connection."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Monotonic time and a way to be called; an asyncio loop is one."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer: ...


class Driver:
    """`check` raises when the core's state is not sound; it is called after each event, and so is
    `changed`. `measure` has a device's memory looked at soon."""

    def __init__(
        self,
        *,
        scheduler: Core,
        clock: Clock,
        links: Links,
        journal: Journal | None = None,
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
        """Handle the event now, or after the one that is being handled. What goes wrong never
        reaches the caller: it may be the connection of an innocent client."""
        self._inbox.append(event)
        if not self._running:
            self._run_pending()

    def request(self, event: RequestEvent) -> None:
        """Handle the event for a caller who awaits an answer. Raises CoreError with a sentence for
        that caller; the event has changed nothing then."""
        assert not self._running, "a request comes from outside, not from a command"
        self._inbox.append(event)
        refusal = self._run_pending()
        if refusal is not None:
            raise refusal

    def _run_pending(self) -> CoreError | None:
        """Answers with the error of the first event."""
        errors: list[CoreError | None] = []
        self._running = True
        try:
            while self._inbox:
                errors.append(self._run_one(self._inbox.popleft()))
        finally:
            self._running = False
        return errors[0]

    def _run_one(self, event: Event) -> CoreError | None:
        now_s = self.clock.time()
        commands: list[Command] = []
        try:
            for step in self.scheduler.steps(event, now_s=now_s):
                for command in step:
                    self._perform(command)
                commands += step
        except CoreError as error:
            self._blame(event, error)
            return error
        except Exception:
            log.exception("the core failed at %s, and could not start anew", event)
            return RequestFailed(_FAILED)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s -> %s", event, commands or "nothing")
        if self._journal:
            self._journal.write(event, commands, now_s=now_s)
        if self._check:
            self._check()
        self._changed()
        failed = any(isinstance(command, ReportFailure) for command in commands)
        return RequestFailed(_FAILED) if failed else None

    def _perform(self, command: Command) -> None:
        try:
            self._do(command)
        except Exception:
            log.exception("%s could not be performed", command)
            client: ClientId | None = getattr(command, "client", None)
            if client is not None:
                self.links.renew(client)  # it did not hear what it has to know

    def _do(self, command: Command) -> None:
        match command:
            case WakeAt(at_s=at_s):
                self._wake_at(at_s)
            case CloseClient(client=client):
                self.links.close(client, why_closed(command))
            case RefuseClient(client=client):
                until_wall_s = command.until_s + time.time() - self.clock.time()
                self.links.close(client, why_refused(command, until_wall_s))
            case RenewConnection(client=client):
                self.links.renew(client)
            case KillClient(client=client):
                log.warning("client %s does not answer and is killed", client)
                self.links.kill(client)
            case MeasureDevice(device=device):
                self._measure(device)
            case ReportFailure(message=message):
                log.error("%s", message)
            case ReportOverdue() | ReportSilent():
                log.warning("%s", report_of(command))
            case _:
                unreachable = self.links.deliver(command)
                if unreachable is not None:
                    self._inbox.append(ClientLost(client=unreachable, cause="send failed"))

    def _blame(self, event: Event, error: CoreError) -> None:
        """A client that broke the rules loses its connection. A request that cannot be met is
        answered by whoever made it (`request`)."""
        if error.fault is Fault.PEER and isinstance(event, ClientEvent):
            log.warning("client %s loses its connection: %s", event.client, error)
            self.links.close(event.client, str(error))
        else:
            log.info("%s: %s", event, error)

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

    def estimates(self, tenants: Iterable[TenantId]) -> dict[TenantId, Estimate]:
        """When the turns of those of these begin that wait now."""
        return self.scheduler.estimates(tenants, self.clock.time())

    def stop(self) -> None:
        """No wake-up any more."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
