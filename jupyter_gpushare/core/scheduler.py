"""The scheduler core: events and the time in, commands out.

`Scheduler.handle` is the only way to change it. It reads no clock and does no I/O, so the same core
runs in production, in tests and in simulation.

An event changes what is known of a client, a tenant or a device: words of clients are handled here,
all others in node_events.py. `turns.Turns.settle` then does what follows for turns, and
`residency.Residency.settle` what follows for memory. A drop or a stall may cross a recall: it
speaks of a turn that the client no longer has. Such words are stale, and are ignored. An event that
names an unknown tenant, client or device raises an error that says whose fault it is.

A machine that fails in the middle of an event is thrown away, and another one starts from its
clients, as after a restart (decision 0038). All connect again with their turns and say what they
have, but for the client that said the event: it is not admitted for a while.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Iterator, Mapping, Set
from copy import copy
from dataclasses import replace
from typing import Any

from . import events as ev
from .changes import TAIL, Alarm
from .commands import Command, RefuseClient, RenewConnection, ReportFailure, TellSettings, WakeAt
from .errors import (
    CoreError,
    DuplicateClient,
    Fault,
    NeverSettles,
    RequestFailed,
    TenantGone,
    TooManyClients,
    UnknownClient,
)
from .holds import Holds
from .ids import ClientId, DeviceId, ProcessId, Seconds, TenantId
from .invariants import check_invariants
from .needs import forget_waits, stand_still
from .node_events import (
    NodeEvents,
    known_device,
    note_cell,
    note_cell_end,
    remember,
    to_remember,
)
from .policy import deadline_of_tenant_s, deadline_of_waiters_s
from .records import SOMEBODY, WORK_ENDS_S, Client, Device, Grace, Tenant
from .residency import Residency
from .settings import Fallback, SchedulerSettings
from .shown.waits import Estimate, find_estimate
from .snapshot import Snapshot, Status
from .space.ahead import bus_is_used
from .state import State
from .told import Outbox, Teller
from .transitions import WITH_TURN, ClientTrigger
from .turns import Turns

KEEP_EVERY_S: Seconds = 1.0
"""What owners owe is kept so often; later with more owners, for it costs more."""
BAR_S_MIN: Seconds = 10.0
BAR_S_MAX: Seconds = 600.0
"""For how long a client is not admitted the first time, and at most."""
ROUNDS_MIN = 8
ROUNDS_PER_CLIENT = 4
"""Each round of settling ends a wait, a need or a silence of some client, and a client has few of
these at one moment."""
JUMP_S: Seconds = 1.0
"""A clock that has gone back by more, or beyond a deadline by more, has jumped."""
RECOVERY_OVER = "the wait for the clients of a scheduler before this one is over"
"""The cause of all that follows when it ends: the event that comes then did not cause these grants,
and other users are not to be told of it."""

_ANEW = "the scheduler starts anew"
_ABOUT = ("owner", "device", "tenant", "settings")
"""What an event may be about; the first that it names counts."""
_Source = ProcessId | str


class Bars:
    """Sources of events at which the core has failed, and which are not heard for a while: a client
    at once, another one when it fails again within `BAR_S_MIN`. The time doubles with each failure,
    until there was none for `BAR_S_MAX`."""

    def __init__(self) -> None:
        self._of: dict[_Source, tuple[Seconds, Seconds]] = {}
        """When it ends, and how long it lasts; 0: the next failure counts."""

    def fails(self, source: _Source, now_s: Seconds) -> Seconds:
        """For how long the source is not heard from now on."""
        self._of = {each: bar for each, bar in self._of.items() if now_s < bar[0] + BAR_S_MAX}
        end_s, lasted_s = self._of.get(source, (-math.inf, 0.0))
        is_first = isinstance(source, str) and now_s >= end_s
        lasts_s = min(2 * lasted_s or (0.0 if is_first else BAR_S_MIN), BAR_S_MAX)
        self._of[source] = now_s + (lasts_s or BAR_S_MIN), lasts_s
        return lasts_s

    def of(self, source: _Source, now_s: Seconds) -> tuple[Seconds, Seconds]:
        """For how long it is still not heard, and how long that is in all."""
        end_s, lasts_s = self._of.get(source, (-math.inf, 0.0))
        return min(lasts_s, max(0.0, end_s - now_s)), lasts_s


class Scheduler:
    """All devices of one node."""

    def __init__(
        self, settings: SchedulerSettings, *, recovering_until_s: Seconds | None = None
    ) -> None:
        """With `recovering_until_s` it replaces one that was lost: until then (or until
        RecoveryComplete) only clients that still hold a turn have one."""
        recovery = Grace(recovering_until_s, {SOMEBODY}) if recovering_until_s is not None else None
        self._machine = Machine(settings, recovery)
        self._connections: dict[ClientId, ProcessId] = {}
        """All that have not been lost, also those that the machine has closed."""
        self._bars = Bars()
        self._settings = settings
        """As of the last event that has succeeded."""
        self._owners: list[ev.OwnerRemembered] = []
        self._kept_at_s = -math.inf
        """As of then, between two events."""

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
        return [command for step in self.steps(event, now_s=now_s) for command in step]

    def steps(self, event: ev.Event, *, now_s: Seconds) -> Iterator[list[Command]]:
        """The same, for a caller who performs the commands of a step before it asks for the next.

        Where a grant depends on nothing else, it is a step of its own: the next cell begins while
        the look at memory, and at whom to tell of it, is still to come."""
        source, own_s = self._source_of(event), self._machine.own_time_s(now_s)
        left_s, lasts_s = self._bars.of(source, own_s)
        if left_s and not isinstance(event, ev.ClientLost):
            yield self._hold_back(event, now_s + left_s, lasts_s)
            return
        before = self._machine.records_of(event)
        try:
            if not 0 <= now_s - self._kept_at_s < KEEP_EVERY_S * (1 + len(self._owners) / 100):
                self._owners, self._kept_at_s = self._machine.to_remember(now_s), now_s
            yield self._machine.handle(event, now_s=now_s)
            if self._machine.is_unfinished:
                cause = event.cause or type(event).__name__
                yield self._machine.handle(ev.ClockTicked(cause=cause), now_s=now_s)
            self._settings = self._machine.settings
            return
        except Exception as error:
            if isinstance(error, CoreError) and error.fault is not Fault.OURS:
                raise
            failure = error
        for table, key, record in before:
            table.pop(key, None) if record is None else table.update({key: record})
        yield self._start_anew(event, source, failure, now_s)
        if then := self._still_to_handle(event, source, own_s):
            try:
                yield from self.steps(then, now_s=now_s)
            except CoreError:
                return  # the broken machine has come so far that nothing is left of it

    def snapshot(self, now_s: Seconds) -> Snapshot:
        """A frozen copy of everything, for status."""
        return self._machine.snapshot(now_s)

    def estimates(self, tenants: Iterable[TenantId], now_s: Seconds) -> dict[TenantId, Estimate]:
        """When the turns of these tenants will begin, of those that wait. It costs what is in
        front of them, so a status has it for those alone whom it tells."""
        return self._machine.estimates(tenants, now_s)

    def to_remember(self, now_s: Seconds) -> list[ev.OwnerRemembered]:
        """What another scheduler has to be told of owners, should it come after this one."""
        return self._machine.to_remember(now_s)

    def check_invariants(self) -> None:
        """Raises AssertionError with the rule that does not hold."""
        self._machine.check_invariants()

    # ---- after a failure ---------------------------------------------------------------------

    def _source_of(self, event: ev.Event) -> _Source:
        """The process that says it, if one does; else what kind of event it is, and about what. A
        connection is known from its first word to its loss."""
        process, known = None, self._connections
        if isinstance(event, ev.ClientJoined):
            process = known.setdefault(event.client, (event.tenant, event.pid))
        elif isinstance(event, ev.ClientEvent):
            is_lost = isinstance(event, ev.ClientLost)
            process = known.pop(event.client, None) if is_lost else known.get(event.client)
        about = (getattr(event, each, None) for each in _ABOUT)
        return process or f"{type(event).__name__} {next(filter(None, about), '')}"

    def _hold_back(self, event: ev.Event, until_s: Seconds, lasts_s: Seconds) -> list[Command]:
        """The answer to a source that is not heard."""
        if isinstance(event, ev.RequestEvent):
            raise RequestFailed("The scheduler fails at this request. Report the scheduler's log.")
        if isinstance(event, ev.ClientJoined):
            return self._refuse(event.client, until_s, lasts_s)
        return [WakeAt(at_s=until_s, cause=_ANEW)] if isinstance(event, ev.ClockTicked) else []

    def _refuse(self, client: ClientId, until_s: Seconds, lasts_s: Seconds) -> list[Command]:
        """Its calls wait, also where the settings let calls through without a scheduler."""
        settings = self._settings.replace(fallback=Fallback.WAIT)
        return [
            TellSettings(client=client, settings=settings, cause=_ANEW),
            RefuseClient(client=client, until_s=until_s, lasts_s=lasts_s, cause=_ANEW),
        ]

    def _start_anew(
        self, event: ev.Event, source: _Source, error: Exception, now_s: Seconds
    ) -> list[Command]:
        """Another machine goes on."""
        broken = self._machine
        lasts_s = self._bars.fails(source, broken.own_time_s(now_s))
        what = f"at {event!r}, and does not hear {source} for {lasts_s:.0f} s"
        commands: list[Command] = [_report(what, broken.story_of(event), error)]
        others = {each: process for each, process in self._connections.items() if process != source}
        refused = self._connections.keys() - others.keys()
        for client in refused:
            commands += self._refuse(client, now_s + lasts_s, lasts_s)
        unknown = {event.client} if isinstance(event, ev.ClientEvent) else set()
        for client in (*others, *(unknown - self._connections.keys())):
            commands.append(RenewConnection(client=client, cause=_ANEW))
        self._machine = Machine.in_place_of(broken, self._settings, self._owners, now_s)
        works = broken.have_turn(refused) or getattr(event, "held_turn", None) is not None
        return commands + self._machine.begin(self._connections, self._bars, works)

    def _still_to_handle(self, event: ev.Event, source: _Source, own_s: Seconds) -> ev.Event | None:
        """What nobody can say again is handled once more, or else its device is paused."""
        if isinstance(event, ev.ClientEvent | ev.RequestEvent):
            return None
        if self._bars.of(source, own_s) == (0, 0):
            return event
        if (device := getattr(event, "device", None)) is None:
            return None
        return ev.DeviceModeChanged(device=device, mode=ev.DeviceMode.PAUSED, cause=_ANEW)


def _report(what: str, story: str, error: Exception) -> ReportFailure:
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return ReportFailure(
        message=f"The scheduler failed {what}. It starts anew from its clients. Report this with "
        f"the story of the tenant: {story or 'none'}\n{lines}",
        cause=_ANEW,
    )


class Machine:
    """All devices of one node: what one event changes, and what follows from it.

    A machine that raises an error of ours is broken from then on: `Scheduler` puts another one in
    its place."""

    def __init__(self, settings: SchedulerSettings, recovery: Grace | None = None) -> None:
        self._state = State(settings=settings, recovery=recovery)
        self._outbox = Outbox()
        self._holds = Holds(self._state, self._outbox)
        self._turns = Turns(self._state, self._outbox, self._holds)
        self._residency = Residency(self._state, self._outbox)
        self._teller = Teller(self._state, self._outbox)
        self._alarm = Alarm()
        self._status = Status(self._state)
        self._closed_clients: set[ClientId] = set()
        """Closed by us; what they still say is ignored until ClientLost comes."""
        self._node = NodeEvents(
            self._state,
            self._outbox,
            holds=self._holds,
            turns=self._turns,
            residency=self._residency,
            teller=self._teller,
            closed_clients=self._closed_clients,
        )
        self._now_s: Seconds = 0.0
        self._gone_back_s: Seconds = 0.0
        """By so much the clock has gone back, all in all."""
        self._wake_at_s: Seconds | None = None
        self.is_unfinished = False
        """The last event was answered with its grants alone. The next one brings the rest; until
        then memory has not been looked at, and nobody is told of the change."""

    @classmethod
    def in_place_of(
        cls,
        broken: Machine,
        settings: SchedulerSettings,
        owners: Iterable[ev.OwnerRemembered],
        now_s: Seconds,
    ) -> Machine:
        """A machine that knows the devices, tenants, owners and holds of another one. Each at which
        it fails is reported instead. Who holds a turn from before may keep it."""
        before, now_s = broken._state, broken.own_time_s(now_s)
        left_s = {id: hold.until_s - now_s for id, hold in before.holds.items()}
        holds = {**before.holds_to_come, **left_s}
        records = [*before.devices.values(), *before.tenants.values(), *owners, *holds.items()]
        grace = before.recovery or Grace(now_s)
        until_s = max(grace.until_s, now_s + max(settings.reconnect_grace_s, WORK_ENDS_S))
        while True:
            machine = cls(settings, replace(grace, until_s=until_s, unnamed=set()))
            machine._gone_back_s = broken._gone_back_s
            machine._now_s = machine._state.accounts.now_s = now_s
            machine._turns.last_turn = broken._turns.last_turn
            try:
                for record in records:
                    machine._take_over(record, before)
                return machine
            except Exception as error:  # noqa: BLE001 - it is reported
                what = f"at {getattr(record, 'id', record)}, and forgets it"
                records[records.index(record)] = _report(what, "", error)

    def _take_over(self, record: Any, before: State) -> None:
        state = self._state
        match record:
            case Device():
                state.add_device(record.without_clients())
            case Tenant():
                owner = before.accounts.owners.get(record.owner)
                state.add_tenant(record.without_clients(), None if owner is None else owner.groups)
            case ev.OwnerRemembered():
                remember(state, record)
            case ReportFailure():
                self._outbox.put(record)
            case (id, hold_s) if id in state.tenants:
                self._holds.keep(state.tenants[id], hold_s, self._now_s)

    def begin(self, before: Mapping[ClientId, ProcessId], bars: Bars, works: bool) -> list[Command]:
        """Wait for the processes of these connections to connect again; where one that is refused
        works, until that has ended. What is still said on these connections is ignored."""
        recovery, here = self._state.recovery, {*self._state.tenants, SOMEBODY[0]}
        assert recovery is not None
        known = {each for each in recovery.awaited | {*before.values()} if each[0] in here}
        if works or not known >= {*before.values()}:
            recovery.work_ends_s = self._now_s + WORK_ENDS_S
        recovery.awaited = {each for each in known if not bars.of(each, self._now_s)[0]}
        self._turns.recovery_ends(self._now_s)
        self._closed_clients |= before.keys()
        self._outbox.cause = _ANEW
        self._ask_to_be_woken()
        return self._outbox.take_all()

    @property
    def settings(self) -> SchedulerSettings:
        """The settings in force."""
        return self._state.settings

    @property
    def somebody_waits(self) -> bool:
        """For a turn."""
        return bool(self._state.queue)

    def handle(self, event: ev.Event, *, now_s: Seconds) -> list[Command]:
        """Take in what has happened; the answer is what to do about it, in this order.

        An error of a peer or a request is raised before anything has changed."""
        before_s = self._now_s
        jumped = self._goes_on_to(now_s)
        self._outbox.cause = event.cause or type(event).__name__
        if isinstance(event, ev.ClientEvent):
            matters = self._handle_client_event(event)
        else:
            matters = self._node.handle(event, self._now_s)
        is_late = self._wake_at_s is not None and self._now_s >= self._wake_at_s
        self._stir_who_is_due()
        if not (matters or is_late or jumped):
            return self._outbox.take_all()
        if self._turns.recovery_ends(self._now_s):
            self._outbox.cause = RECOVERY_OVER
        is_rest = self.is_unfinished and type(event) is ev.ClockTicked and before_s == self._now_s
        if is_late or not (
            isinstance(event, ev.MemoryReported) and self._settles_for_memory(event)
        ):
            if is_late or not is_rest:
                self._turns.settle(self._now_s)
            self.is_unfinished = not (is_rest or is_late or jumped) and self._grants_come_first()
            if self.is_unfinished:
                return self._outbox.take_all()
            self._settle_memory()
            self._teller.tell_changes()
            self._state.touched.clear()
        self._ask_to_be_woken()
        return self._outbox.take_all()

    def snapshot(self, now_s: Seconds) -> Snapshot:
        """A frozen copy of everything, for status."""
        return self._status.take(self.own_time_s(now_s))

    def estimates(self, tenants: Iterable[TenantId], now_s: Seconds) -> dict[TenantId, Estimate]:
        """When the turns of these tenants will begin, of those that wait."""
        state, now_s = self._state, self.own_time_s(now_s)
        queue = state.queue
        return {each: find_estimate(state, queue[each], now_s) for each in tenants if each in queue}

    def check_invariants(self) -> None:
        """Raises AssertionError with the rule that does not hold."""
        check_invariants(
            self._state,
            now_s=self._now_s,
            wake_at_s=self._wake_at_s,
            is_unfinished=self.is_unfinished,
        )

    def to_remember(self, now_s: Seconds) -> list[ev.OwnerRemembered]:
        """Of owners; nothing is changed."""
        return to_remember(self._state, self.own_time_s(now_s))

    def story_of(self, event: ev.Event) -> str:
        """The latest story of the tenant of this event; empty for events of no tenant."""
        tenant_id: TenantId | None = getattr(event, "tenant", None)
        if isinstance(event, ev.ClientEvent) and event.client in self._state.clients:
            tenant_id = self._state.clients[event.client].tenant
        tenant = None if tenant_id is None else self._state.tenants.get(tenant_id)
        return "" if tenant is None else "; ".join(tenant.story)

    def records_of(self, event: ev.Event) -> list[tuple[dict[Any, Any], Any, Any]]:
        """What a request is about, as it is now: a table, a key and what stands there."""
        if not isinstance(event, ev.RequestEvent):
            return []
        state, keys = self._state, [getattr(event, each, None) for each in _ABOUT]
        if isinstance(event, ev.SettingsChanged):  # it may shorten each of these
            keys += [*state.holds, *state.holds_to_come]
        tables: Any = (state.devices, state.tenants, state.holds, state.holds_to_come)
        tables += (state.accounts.owners,)
        return [(each, key, copy(each.get(key))) for each in tables for key in keys]

    def have_turn(self, clients: Set[ClientId]) -> bool:
        """Whether one of them has a turn."""
        here = self._state.clients
        return any(here[each].turn is not None for each in clients & here.keys())

    def _grants_come_first(self) -> bool:
        """Whether somebody has just got a turn that no look at memory could delay."""
        granted = self._outbox.granted()
        return bool(granted) and self._residency.may_wait(granted)

    def _settle_memory(self) -> None:
        """Memory and turns, until neither asks for a look at the other."""
        self._residency.look_ahead(self._state.changes.to_tell.lines)
        rounds_max = ROUNDS_MIN + ROUNDS_PER_CLIENT * len(self._state.clients)
        for _ in range(rounds_max):
            if not self._residency.settle(self._now_s):
                return
            self._turns.settle(self._now_s)
        raise NeverSettles(f"Turns and memory are not settled after {rounds_max} rounds.")

    # ---- events of one client ----------------------------------------------------------------

    def _handle_client_event(self, event: ev.ClientEvent) -> bool:
        """Whether anything may follow from it, for this client or for others."""
        if event.client in self._closed_clients:
            if isinstance(event, ev.ClientLost):
                self._closed_clients.remove(event.client)
            return False
        if isinstance(event, ev.ClientJoined):
            self._client_joined(event)
            return True
        client = self._state.clients.get(event.client)
        if client is None:
            if isinstance(event, ev.ClientLost | ev.ClientFrozen):
                return False  # the process and its connection may both report the end
            raise UnknownClient(f"Client {event.client} is not here. Drop it: {event!r}")
        tenant = self._state.tenants[client.tenant]
        if isinstance(event, ev.MemoryReported):
            return self._memory_reported(tenant, client, event)
        if isinstance(event, ev.DeviceOpened):
            known_device(self._state, event.device)  # raises before anything has changed
        self._state.note(tenant, event, self._now_s)
        if isinstance(event, (ev.CellBegan, ev.CellEnded)):
            return note_cell(self._state, tenant, client, begins=isinstance(event, ev.CellBegan))
        self._state.touch(tenant)
        match event:
            case ev.ClientLost():
                self._client_lost(client)
            case ev.TurnRequested():
                self._turns.ask(client, self._now_s)
            case ev.RequestWithdrawn():
                self._state.move_client(client, ClientTrigger.WITHDRAW)
            case ev.TurnDropped():
                self._residency.dropped(tenant, client, event.reason, self._now_s)
                if event.turn == client.turn:
                    self._turns.drop(client)
            case ev.DrainStalled() if event.turn == client.turn and client.state in WITH_TURN:
                self._turns.stalled(tenant, client, event.calls_waiting > 0, self._now_s)
            case ev.ClientFrozen():
                client.frozen = event.frozen
            case ev.BusUsed():
                bus_is_used(self._state, client, self._now_s)
            case ev.HoldRequested():
                self._holds.hold(tenant, event.hold_s, self._now_s)
            case ev.TurnGivenAway():
                self._turns.release(tenant, self._now_s)
            case ev.MemoryNeeded() if event.device in client.devices:
                self._state.changes.of_memory(event.device)
                client.devices[event.device].note_need(event.bytes_needed, event.need_id)
            case ev.SpaceRequested():
                self._residency.space.requested(client, event, self._now_s)
            case ev.DeviceOpened() | ev.DeviceClosed() | ev.ContextFailed():
                self._device_of_client(client, event)
                self._teller.tell_memory_limits(tenant)
        return True

    def _client_joined(self, event: ev.ClientJoined) -> None:
        if event.client in self._state.clients:
            raise DuplicateClient(f"Client {event.client} is here already. Count ids up.")
        tenant = self._state.tenants.get(event.tenant)
        if tenant is None:
            raise TenantGone("The kernel of this process is not registered. Restart the kernel.")
        was_here = sum(each.pid == event.pid for each in tenant.clients.values())
        if len(self._state.clients) - was_here >= self.settings.clients_max:
            raise TooManyClients(
                f"{self.settings.clients_max} processes use this scheduler already. "
                f"Shut down idle kernels, or have clients_max raised."
            )
        self._state.note(tenant, event, self._now_s)
        self._state.touch(tenant)
        client = Client(
            id=event.client,
            tenant=event.tenant,
            pid=event.pid,
            process_name=event.process_name,
        )
        self._state.clients[client.id] = tenant.clients[client.id] = client
        self._outbox.put(TellSettings(client=client.id, settings=self.settings))
        if tenant.id in self._state.holds or tenant.id in self._state.holds_to_come:
            self._holds.tell_to(client, self._now_s)
        if event.held_turn is not None:
            self._turns.rejoin(client, event.held_turn, self._now_s)
        if self._state.recovery is not None:
            self._state.recovery.awaited.discard((event.tenant, event.pid))

    def _client_lost(self, client: Client) -> None:
        tenant = self._state.tenants[client.tenant]
        had_cell = self._state.in_cell(tenant)
        self._node.forget(client, self._now_s)
        if had_cell and not self._state.in_cell(tenant):
            note_cell_end(self._state, tenant)
        if not tenant.clients:
            forget_waits(tenant)
        self._teller.tell_memory_limits(tenant)

    def _memory_reported(self, tenant: Tenant, client: Client, event: ev.MemoryReported) -> bool:
        """The most frequent event by far. It concerns the tenant's turn when the last of its memory
        has come back, or the first has gone, or when it moves again after a long time."""
        share = client.devices.get(event.device)
        if share is None:
            return False  # it crossed a close
        allocated, parked = share.bytes_allocated, share.bytes_parked
        matters = self._residency.reported(client, share, event, self._now_s)
        moves_again = tenant.turn is not None and not tenant.turn.restores
        if (parked > 0) != (share.bytes_parked > 0) or (
            parked > share.bytes_parked and moves_again
        ):
            self._state.touch(tenant)
        if share.bytes_parked and tenant.id in self._state.queue and not tenant.waits_with_parked:
            tenant.waits_with_parked = True
            self._state.changes.of_line(event.device)
        if allocated != share.bytes_allocated:
            self._teller.tell_memory_limits(tenant)
        return matters

    def _settles_for_memory(self, event: ev.MemoryReported) -> bool:
        """Whether a look at this device is enough. It is where no tenant is skipped for its memory,
        no turn ends for somebody as soon as there is memory, and the look asks for no other turns.
        """
        client = self._state.clients.get(event.client)
        if client is None or event.device not in client.devices:
            return False
        if self._state.touched or self._state.obstacles:
            return False
        if event.device in self._state.changes.pressed:
            return False
        return not self._residency.settle(self._now_s, only=event.device)

    def _device_of_client(
        self, client: Client, event: ev.DeviceOpened | ev.DeviceClosed | ev.ContextFailed
    ) -> None:
        if isinstance(event, ev.DeviceOpened):
            self._residency.opened(client, known_device(self._state, event.device))
            self._state.note_devices(client)
            self._turns.names_device(client, self._now_s)
            return
        share = client.devices.get(event.device)
        if share is None:
            return  # it crossed a close
        match event:
            case ev.DeviceClosed():
                self._residency.closed(client, known_device(self._state, event.device))
                self._state.note_devices(client)
            case ev.ContextFailed():
                # Nothing of it runs there any more. For other devices its word is awaited: a grant
                # may be on its way to it.
                share.fail()
                self._state.changes.of_memory(event.device)
                self._state.note_devices(client)

    # ---- time --------------------------------------------------------------------------------

    def own_time_s(self, now_s: Seconds) -> Seconds:
        """Of this clock, that never goes back."""
        return max(self._now_s, now_s + self._gone_back_s)

    def _goes_on_to(self, now_s: Seconds) -> bool:
        """It is later now. Whether the clock has gone back instead: then time goes on from where it
        was. Where it has gone far beyond the next deadline, the clock has jumped, or we stood
        still: nobody is charged for that."""
        accounts, lines = self._state.accounts, self._state.lines
        gone_back_s = self._now_s - (now_s + self._gone_back_s)
        jumped = gone_back_s > JUMP_S
        if jumped:
            self._gone_back_s += gone_back_s
            self._wake_at_s = None  # it is told anew, by the clock of now
        before_s, self._now_s = self._now_s, self.own_time_s(now_s)
        if self._wake_at_s is not None and self._now_s > self._wake_at_s + JUMP_S:
            accounts.now_s = max(before_s, self._wake_at_s + JUMP_S)
            lines.charge_everything()
            accounts.now_s = self._now_s
            accounts.skip_time()
            for device in lines.of:  # moments that hang on use are later by that
                self._state.changes.of_line(device, TAIL)
            stand_still(self._state, max(self._wake_at_s, before_s), self._now_s)
        accounts.now_s = self._now_s
        return jumped

    # ---- deadlines ---------------------------------------------------------------------------

    def _ask_to_be_woken(self) -> None:
        """Deadlines lie ahead (what is due has been done), so one told before is still to come."""
        state, changes = self._state, self._state.changes
        for tenant in changes.for_alarm.values():
            self._alarm.set(("tenant", tenant.id), deadline_of_tenant_s(state, tenant))
        for device_id in changes.devices_for_alarm:
            device = state.devices.get(device_id)
            self._alarm.set(("device", device_id), None if device is None else device.memory.due_s)
        changes.for_alarm.clear()
        changes.devices_for_alarm.clear()
        waiters_s, others_s = deadline_of_waiters_s(state), self._alarm.next_s()
        deadline_s = min((each for each in (waiters_s, others_s) if each is not None), default=None)
        if deadline_s == self._wake_at_s:
            return
        self._wake_at_s = deadline_s
        if deadline_s is not None:
            self._outbox.put(WakeAt(at_s=deadline_s - self._gone_back_s))

    def _stir_who_is_due(self) -> None:
        changes = self._state.changes
        for kind, owner in self._alarm.due(self._now_s):
            if kind == "device":
                changes.of_memory(DeviceId(owner))
                changes.devices_for_alarm[DeviceId(owner)] = None
            elif (tenant := self._state.tenants.get(TenantId(owner))) is not None:
                changes.of_tenant(tenant)
