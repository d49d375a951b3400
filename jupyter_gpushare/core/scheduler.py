"""The scheduler core: events and the time in, commands out.

`Scheduler.handle` is the only way to change it. It reads no clock and does no I/O, so the same core
runs in production, in tests and in simulation.

An event changes what is known of a client, a tenant or a device: words of clients are handled here,
all others in node_events.py. `turns.Turns.settle` then does what follows for turns, and
`residency.Residency.settle` what follows for memory. A drop or a stall may cross a recall: it
speaks of a turn that the client no longer has. Such words are stale, and are ignored. An event that
names an unknown tenant, client or device raises an error that says whose fault it is.

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
from collections.abc import Iterable, Iterator, Set

from . import events as ev
from .changes import TAIL, Alarm
from .commands import Command, RenewConnection, ReportFailure, TellSettings, WakeAt
from .errors import (
    CoreError,
    DuplicateClient,
    Fault,
    NeverSettles,
    TenantGone,
    TooManyClients,
    UnknownClient,
)
from .estimates import Estimate, Estimates
from .holds import Holds
from .ids import ClientId, DeviceId, Seconds, TenantId
from .invariants import check_invariants
from .needs import forget_waits, stand_still
from .node_events import NodeEvents, known_device, note_cell, note_cell_end
from .policy import deadline_of_tenant_s, deadline_of_waiters_s
from .records import Client, Grace, Tenant
from .remembered import remember, to_remember
from .residency import Residency
from .settings import SchedulerSettings
from .snapshot import Snapshot, Status
from .space.ahead import bus_is_used
from .state import State
from .told import Outbox, Teller
from .transitions import WITH_TURN, ClientTrigger
from .turns import Turns

EVENTS_MIN = 1000
EVENTS_PER_CLIENT = 4
"""So many events lie between two checkpoints at least. Saving costs more with more clients; this
spreads the cost, and bounds what has to be handled again."""
ROUNDS_MIN = 8
ROUNDS_PER_CLIENT = 4
"""Each round of settling ends a wait, a need or a silence of some client, and a client has few of
these at one moment."""
JUMP_S: Seconds = 1.0
"""A clock that has gone back by more, or beyond a deadline by more, has jumped."""
RECOVERY_OVER = "the wait for the clients of a scheduler before this one is over"
"""The cause of all that follows when it ends: the event that comes then did not cause these grants,
and other users are not to be told of it."""


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
        return [command for step in self.steps(event, now_s=now_s) for command in step]

    def steps(self, event: ev.Event, *, now_s: Seconds) -> Iterator[list[Command]]:
        """The same, for a caller who performs the commands of a step before it asks for the next.

        Where a grant depends on nothing else, it is a step of its own: the next cell begins while
        the look at memory, and at whom to tell of it, is still to come."""
        yield self._handle(event, now_s)
        if self._machine.is_unfinished:
            cause = event.cause or type(event).__name__
            yield self._handle(ev.ClockTicked(cause=cause), now_s)

    def _handle(self, event: ev.Event, now_s: Seconds) -> list[Command]:
        """One step: it changes everything that it should, or nothing."""
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


class Machine:
    """All devices of one node: what one event changes, and what follows from it.

    A machine that raises an error of ours is broken from then on: `Scheduler` puts another one in
    its place."""

    def __init__(
        self, settings: SchedulerSettings, *, recovering_until_s: Seconds | None = None
    ) -> None:
        recovery = None if recovering_until_s is None else Grace(recovering_until_s)
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
    def in_place_of(cls, broken: Machine, now_s: Seconds) -> Machine:
        """A machine that knows the devices and tenants of another one. It waits for their clients
        to connect again, and ignores what the connections of before still say."""
        before, now_s = broken._state, broken._own_time_s(now_s)
        until_s = now_s + before.settings.reconnect_grace_s
        machine = cls(before.settings, recovering_until_s=until_s)
        machine._gone_back_s = broken._gone_back_s
        machine._now_s = machine._state.accounts.now_s = now_s
        machine._turns.count_on_from(broken._turns)
        machine._closed_clients |= broken._closed_clients | before.clients.keys()
        for known in before.devices.values():
            machine._state.add_device(known.without_clients())
        for old in before.tenants.values():
            groups = before.accounts.owners[old.owner].groups
            machine._state.add_tenant(old.without_clients(), groups)
        for event in to_remember(before, now_s):
            remember(machine._state, event)
        machine._state.habits = before.habits
        return machine

    @property
    def settings(self) -> SchedulerSettings:
        """The settings in force."""
        return self._state.settings

    @property
    def somebody_waits(self) -> bool:
        """For a turn."""
        return bool(self._state.queue)

    @property
    def clients(self) -> Set[ClientId]:
        """Those that are connected."""
        return self._state.clients.keys()

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
        return self._status.take(self._own_time_s(now_s))

    def estimates(self, tenants: Iterable[TenantId], now_s: Seconds) -> dict[TenantId, Estimate]:
        """When the turns of these tenants will begin, of those that wait."""
        found = Estimates(self._state, self._own_time_s(now_s))
        queue = self._state.queue
        return {each: found.find(queue[each]) for each in tenants if each in queue}

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
        return to_remember(self._state, self._own_time_s(now_s))

    def story_of(self, event: ev.Event) -> str:
        """The latest story of the tenant of this event; empty for events of no tenant."""
        tenant_id: TenantId | None = getattr(event, "tenant", None)
        if isinstance(event, ev.ClientEvent) and event.client in self._state.clients:
            tenant_id = self._state.clients[event.client].tenant
        tenant = None if tenant_id is None else self._state.tenants.get(tenant_id)
        return "" if tenant is None else "; ".join(tenant.story)

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
            if isinstance(event, ev.ConnectionRenewed):
                self._renew_connection(event.client)
                return False
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
            case ev.ClientLost() | ev.ConnectionRenewed():
                self._client_lost(client)
                if isinstance(event, ev.ConnectionRenewed):
                    self._renew_connection(client.id)
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
        if len(self._state.clients) >= self.settings.clients_max:
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

    def _renew_connection(self, client: ClientId) -> None:
        self._closed_clients.add(client)
        self._outbox.put(RenewConnection(client=client))

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

    def _own_time_s(self, now_s: Seconds) -> Seconds:
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
        before_s, self._now_s = self._now_s, self._own_time_s(now_s)
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
