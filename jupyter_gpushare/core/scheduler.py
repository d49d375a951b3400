"""The scheduler core: events and the time in, commands out.

`Scheduler.handle` is the only way to change it. It reads no clock and does no I/O, so the same core
runs in production, in tests and in simulation.

An event changes everything that follows from it, or nothing. The machine is a function of the
events that it has handled. So when it fails, the scheduler restores the machine from a checkpoint
and has it handle the events since then once more. What the failed event said is lost, and somebody
has to say it again (decision 0010):

- A request is answered with the failure, and its caller may repeat it.
- A client connects again, and says what it has.
- Nobody can repeat a loss, a measurement or the time. For these, the scheduler starts anew from its
  clients, as after a restart: all of them connect again, and holders keep their turns.
"""

from __future__ import annotations

import pickle
import traceback

from . import events as ev
from .commands import Command, RenewConnection, ReportFailure
from .errors import CoreError, Fault
from .ids import Seconds
from .machine import Machine
from .settings import SchedulerSettings
from .snapshot import Snapshot

EVENTS_MIN = 1000
EVENTS_PER_CLIENT = 4
"""So many events lie between two checkpoints at least. Saving costs more with more clients; this
spreads the cost, and bounds what has to be handled again."""


class Scheduler:
    """All devices of one node."""

    def __init__(
        self, settings: SchedulerSettings, *, recovering_until_s: Seconds | None = None
    ) -> None:
        """With `recovering_until_s` it replaces one that was lost: until then (or until
        RecoveryComplete) only clients that still hold a turn have one."""
        self._machine = Machine(settings, recovering_until_s=recovering_until_s)
        self._save()

    @property
    def settings(self) -> SchedulerSettings:
        """The settings in force."""
        return self._machine.settings

    @property
    def somebody_waits(self) -> bool:
        """For a turn."""
        return self._machine.somebody_waits

    def handle(self, event: ev.Event, *, now_s: Seconds) -> list[Command]:
        """Take in what has happened; the answer is what to do about it, in this order.

        Raises errors of peers and requests; then nothing has changed. Errors of ours are among the
        answers (ReportFailure)."""
        try:
            return self._advance(event, now_s)
        except Exception as error:
            if isinstance(error, CoreError) and error.fault is not Fault.OURS:
                raise
            failure = self._undo(event, error)
        return [failure, *self._make_good(event, now_s)]

    def snapshot(self, now_s: Seconds) -> Snapshot:
        """A frozen copy of everything, for status."""
        return self._machine.snapshot(now_s)

    def check_invariants(self) -> None:
        """Raises AssertionError with the rule that does not hold."""
        self._machine.check_invariants()

    # ---- all or nothing ----------------------------------------------------------------------

    def _advance(self, event: ev.Event, now_s: Seconds) -> list[Command]:
        commands = self._machine.handle(event, now_s=now_s)
        self._since.append((event, now_s))
        if len(self._since) >= EVENTS_MIN + EVENTS_PER_CLIENT * len(self._machine.clients):
            self._save()
        return commands

    def _save(self) -> None:
        self._checkpoint = pickle.dumps(self._machine, pickle.HIGHEST_PROTOCOL)
        self._since: list[tuple[ev.Event, Seconds]] = []

    def _undo(self, event: ev.Event, error: Exception) -> ReportFailure:
        """The machine as it was before the event."""
        story = self._machine.story_of(event)
        self._machine = pickle.loads(self._checkpoint)
        for earlier, at_s in self._since:
            self._machine.handle(earlier, now_s=at_s)
        self._save()
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return ReportFailure(
            message=f"The scheduler failed at {event!r}, and has undone it. Report this with the "
            f"story of the tenant: {story or 'none'}\n{lines}",
            cause=event.cause or type(event).__name__,
        )

    # ---- what the event said is lost ---------------------------------------------------------

    def _make_good(self, event: ev.Event, now_s: Seconds) -> list[Command]:
        """Whoever said it says it again."""
        if isinstance(event, ev.RequestEvent):
            return []
        if not isinstance(event, ev.ClientEvent) or isinstance(event, ev.ClientLost):
            return self._start_anew(event, now_s)
        renewal = ev.ConnectionRenewed(client=event.client, cause="the scheduler failed")
        try:
            return self._advance(renewal, now_s)
        except Exception as error:  # noqa: BLE001 - it is reported
            return [self._undo(renewal, error), *self._start_anew(renewal, now_s)]

    def _start_anew(self, event: ev.Event, now_s: Seconds) -> list[Command]:
        """All clients connect again."""
        cause = "the scheduler starts anew"
        commands: list[Command] = [
            RenewConnection(client=client, cause=cause) for client in self._machine.clients
        ]
        self._machine = Machine.in_place_of(self._machine, now_s)
        self._save()
        try:
            commands += self._advance(event, now_s)
        except Exception as error:  # noqa: BLE001 - it is reported
            commands.append(self._undo(event, error))
        return commands + self._advance(ev.ClockTicked(cause=cause), now_s)
