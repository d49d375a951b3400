"""What one event changes, and what follows from it.

An event changes what is known of a client, a tenant or a device. `turns.Turns.settle` then does
what follows for turns, and `residency.Residency.settle` what follows for memory.

A drop or a stall may cross a recall: it speaks of a turn that the client no longer has. Such words
are stale, and the machine ignores them. An event that names an unknown tenant, client or device
raises an error that says whose fault it is.

A machine that raises an error of ours is broken from then on: `scheduler.Scheduler` puts another
one in its place.
"""

from __future__ import annotations

from collections.abc import Set

from . import events as ev
from .changes import Alarm
from .commands import CloseClient, Command, RenewConnection, TellSettings, WakeAt
from .errors import (
    DuplicateClient,
    NeverSettles,
    NoSuchDevice,
    TenantGone,
    TooManyClients,
    UnknownClient,
    UnknownDevice,
    UnknownTenant,
    WrongOwner,
)
from .holds import Holds
from .ids import ClientId, DeviceId, Seconds, TenantId
from .invariants import check_invariants
from .placement import placed
from .policy import deadline_of_tenant_s, deadline_of_waiters_s
from .residency import Residency
from .settings import SchedulerSettings, TurnTaking
from .snapshot import Snapshot, Status
from .state import Client, Device, State, Tenant
from .tell import Outbox, Teller
from .transitions import ASKED_BACK, ClientTrigger
from .turns import Turns

ROUNDS_MIN = 8
ROUNDS_PER_CLIENT = 4
"""Each round of settling ends a wait, a need or a silence of some client, and a client has few of
these at one moment."""
RECOVERY_OVER = "the wait for the clients of a scheduler before this one is over"
"""The cause of all that follows when it ends: the event that comes then did not cause these grants,
and other users are not to be told of it."""


class Machine:
    """All devices of one node."""

    def __init__(
        self, settings: SchedulerSettings, *, recovering_until_s: Seconds | None = None
    ) -> None:
        self._state = State(settings=settings, recovering_until_s=recovering_until_s)
        self._outbox = Outbox()
        self._holds = Holds(self._state, self._outbox)
        self._turns = Turns(self._state, self._outbox, self._holds)
        self._residency = Residency(self._state, self._outbox)
        self._teller = Teller(self._state, self._outbox)
        self._alarm = Alarm()
        self._status = Status(self._state)
        self._closed_clients: set[ClientId] = set()
        """Closed by us; what they still say is ignored until ClientLost comes."""
        self._now_s: Seconds = 0.0
        self._wake_at_s: Seconds | None = None

    @classmethod
    def in_place_of(cls, broken: Machine, now_s: Seconds) -> Machine:
        """A machine that knows the devices and tenants of another one. It waits for their clients
        to connect again, and ignores what the connections of before still say."""
        before = broken._state
        until_s = now_s + before.settings.reconnect_grace_s
        machine = cls(before.settings, recovering_until_s=until_s)
        machine._now_s = machine._state.accounts.now_s = now_s
        machine._turns.count_on_from(broken._turns)
        machine._closed_clients = broken._closed_clients | before.clients.keys()
        for known in before.devices.values():
            device = Device(
                known.id,
                known.name,
                known.bytes_total,
                lost=known.lost,
                mode=known.mode,
                uuid=known.uuid,
            )
            machine._state.add_device(device)
        for old in before.tenants.values():
            tenant = Tenant(old.id, old.name, old.owner, old.kind, old.cap_bytes)
            tenant.counters, tenant.story = old.counters, old.story
            tenant.boosted, tenant.placement = old.boosted, old.placement
            machine._state.add_tenant(tenant, before.accounts.owners[tenant.owner].groups)
        machine._state.accounts.take_over(before.accounts)
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
        self._now_s = self._state.accounts.now_s = max(self._now_s, now_s)
        cause = event.cause or type(event).__name__
        if isinstance(event, ev.ClientEvent):
            matters = self._handle_client_event(event)
        else:
            matters = self._handle_other_event(event)
        is_late = self._wake_at_s is not None and self._now_s >= self._wake_at_s
        self._stir_who_is_due()
        if not (matters or is_late):
            return self._outbox.take_all(cause)
        self._outbox.name_cause(cause)
        if self._turns.recovery_ends(self._now_s):
            cause = RECOVERY_OVER
        if is_late or not (
            isinstance(event, ev.MemoryReported) and self._settles_for_memory(event)
        ):
            self._settle()
            self._teller.tell_changes()
            self._state.touched.clear()
        self._ask_to_be_woken()
        return self._outbox.take_all(cause)

    def snapshot(self, now_s: Seconds) -> Snapshot:
        """A frozen copy of everything, for status."""
        return self._status.take(max(now_s, self._now_s))

    def check_invariants(self) -> None:
        """Raises AssertionError with the rule that does not hold."""
        check_invariants(self._state, now_s=self._now_s, wake_at_s=self._wake_at_s)

    def story_of(self, event: ev.Event) -> str:
        """The latest story of the tenant of this event; empty for events of no tenant."""
        tenant_id: TenantId | None = getattr(event, "tenant", None)
        if isinstance(event, ev.ClientEvent) and event.client in self._state.clients:
            tenant_id = self._state.clients[event.client].tenant
        tenant = None if tenant_id is None else self._state.tenants.get(tenant_id)
        return "" if tenant is None else "; ".join(tenant.story)

    def _settle(self) -> None:
        """Turns and memory, until neither asks for a look at the other."""
        self._turns.settle(self._now_s)
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
            self._device(event.device)  # raises before anything has changed
        self._note(tenant, event)
        if isinstance(event, ev.CellBegan | ev.CellEnded):
            if isinstance(event, ev.CellBegan) and not self._state.in_cell(tenant):
                self._state.cell_begins(tenant)
            client.in_cell = isinstance(event, ev.CellBegan)
            self._state.changes.of_look(tenant.id)
            return False
        self._state.touch(tenant)
        match event:
            case ev.ClientLost() | ev.ConnectionRenewed():
                self._client_lost(client)
                if isinstance(event, ev.ConnectionRenewed):
                    self._renew_connection(client.id)
            case ev.TurnRequested():
                client.unnamed_devices = False
                self._turns.ask(client, self._now_s)
            case ev.RequestWithdrawn():
                self._state.move_client(client, ClientTrigger.WITHDRAW)
            case ev.TurnDropped():
                self._residency.dropped(tenant, client, event.reason, self._now_s)
                if event.turn == client.turn:
                    self._turns.drop(client)
            case ev.DrainStalled() if event.turn == client.turn and client.state in ASKED_BACK:
                client.drain_stalled = True
                client.calls_wait_in_drain = event.calls_waiting > 0
            case ev.ClientFrozen():
                client.frozen = event.frozen
            case ev.HoldRequested():
                self._holds.hold(tenant, event.hold_s, self._now_s)
            case ev.TurnGivenAway():
                self._turns.release(tenant, self._now_s)
            case ev.MemoryNeeded() if event.device in client.devices:
                self._state.changes.of_memory(event.device)
                client.devices[event.device].needs(event.bytes_needed, event.need_id)
            case ev.SpaceRequested():
                self._residency.space_requested(client, event, self._now_s)
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
        self._note(tenant, event)
        self._state.touch(tenant)
        client = Client(
            id=event.client,
            tenant=event.tenant,
            pid=event.pid,
            process_name=event.process_name,
            unnamed_devices=event.waiting,
        )
        self._state.clients[client.id] = tenant.clients[client.id] = client
        self._tell_settings(client)
        if tenant.id in self._state.holds or tenant.id in self._state.holds_to_come:
            self._holds.tell_to(client, self._now_s)
        if event.held_turn is not None:
            self._turns.rejoin(client, event.held_turn)
        elif event.waiting:
            self._turns.ask(client, self._now_s)

    def _renew_connection(self, client: ClientId) -> None:
        self._closed_clients.add(client)
        self._outbox.put(RenewConnection(client=client))

    def _client_lost(self, client: Client) -> None:
        tenant = self._state.tenants[client.tenant]
        self._forget(client)
        self._teller.tell_memory_limits(tenant)

    def _forget(self, client: Client) -> None:
        self._residency.lost(client, self._now_s)
        self._turns.forget(client, self._now_s)
        self._teller.forget(client.id)

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
        if allocated != share.bytes_allocated:
            self._teller.tell_memory_limits(tenant)
        return matters

    def _settles_for_memory(self, event: ev.MemoryReported) -> bool:
        """Whether a look at this device is enough. It is where no tenant is skipped for its memory,
        and the look asks for no other turns."""
        client = self._state.clients.get(event.client)
        if client is None or event.device not in client.devices:
            return False
        if self._state.touched or self._state.obstacles:
            return False
        return not self._residency.settle(self._now_s, only=event.device)

    def _device_of_client(
        self, client: Client, event: ev.DeviceOpened | ev.DeviceClosed | ev.ContextFailed
    ) -> None:
        if isinstance(event, ev.DeviceOpened):
            self._residency.opened(client, self._device(event.device))
            client.unnamed_devices = False
            self._state.note_devices(client)
            return
        share = client.devices.get(event.device)
        if share is None:
            return  # it crossed a close
        match event:
            case ev.DeviceClosed():
                self._residency.closed(client, self._device(event.device))
                self._state.note_devices(client)
            case ev.ContextFailed():
                # Nothing of it runs there any more. For other devices its word is awaited: a grant
                # may be on its way to it.
                share.fail()
                self._state.changes.of_memory(event.device)
                self._state.note_devices(client)

    # ---- events of everybody -----------------------------------------------------------------

    def _handle_other_event(self, event: ev.Event) -> bool:
        """Whether anything may follow from it."""
        match event:
            case ev.DeviceFound():
                if event.device not in self._state.devices:
                    self._state.add_device(Device(event.device, event.name, event.bytes_total))
                device = self._device(event.device)
                self._state.changes.of_memory(device.id)
                device.name, device.bytes_total = event.name, event.bytes_total
                device.uuid = event.uuid
                self._device_is_lost(device, False)
            case ev.DeviceMemoryMeasured():
                device = self._device(event.device)
                self._residency.measured(device, event.bytes_used, self._now_s)
            case ev.DeviceLost():
                self._device_is_lost(self._device(event.device), True)
            case ev.DeviceWithdrawn():
                self._device_withdrawn(self._device(event.device))
            case ev.TenantRegistered():
                self._tenant_registered(event)
            case ev.TenantRemoved():
                self._tenant_removed(self._tenant(event.tenant))
            case ev.InterruptRequested():
                tenant = self._tenant(event.tenant)
                self._note(tenant, event)
                self._turns.cancel_waits(tenant)
            case ev.ReleaseRequested():
                tenant = self._tenant(event.tenant)
                self._note(tenant, event)
                self._turns.release(tenant, self._now_s)
            case ev.DeviceModeChanged():
                self._state.note_mode(self._named_device(event.device), event.mode)
            case ev.TenantHeld():
                tenant = self._tenant(event.tenant)
                self._note(tenant, event)
                self._holds.hold(tenant, event.hold_s, self._now_s)
            case ev.BoostRequested():
                tenant = self._tenant(event.tenant)
                self._note(tenant, event)
                self._state.boost(tenant)
            case ev.EvictRequested():
                tenant = self._tenant(event.tenant)
                self._note(tenant, event)
                self._turns.release(tenant, self._now_s)
                self._residency.evict(tenant)
            case ev.TenantBusy():
                tenant = self._tenant(event.tenant)
                self._note(tenant, event)
                self._turns.tenant_busy(tenant, event.busy)
            case ev.SettingsChanged():
                self._settings_changed(event.settings)
            case ev.RecoveryComplete():
                self._state.end_recovery()
            case ev.ClockTicked():
                pass  # the time itself is what it brings
        return True

    def _device_is_lost(self, device: Device, lost: bool) -> None:
        if device.lost == lost:
            return
        device.lost = lost
        device.memory.look_at_all()
        self._state.changes.of_memory(device.id)
        for client_id in sorted(device.memory.shares):
            client = self._state.clients[client_id]
            self._state.note_devices(client)
            self._state.touch(self._state.tenants[client.tenant])

    def _device_withdrawn(self, device: Device) -> None:
        """Forget it, unless a client has it open after all."""
        if device.memory.shares:
            return
        self._residency.withdrawn(device)
        self._state.remove_device(device)
        for tenant in self._state.tenants.values():
            if tenant.refused_for is not None and tenant.refused_for.device == device.id:
                self._state.note_refusal(tenant, None, self._now_s)

    def _tenant_registered(self, event: ev.TenantRegistered) -> None:
        known = self._state.tenants.get(event.tenant)
        if known is None:
            known = Tenant(event.tenant, event.name, event.owner, event.kind, event.cap_bytes)
            if event.need or event.need_devices:
                wish = event.need, event.need_devices, event.placed_on
                known.placement = placed(self._state, *wish)
            self._state.add_tenant(known, event.groups)
        elif known.owner != event.owner:
            raise WrongOwner(f"{event.tenant} belongs to somebody else. Use another id.")
        else:
            self._state.note_owner(event.owner, event.groups)
        self._note(known, event)
        known.name, known.kind, known.cap_bytes = event.name, event.kind, event.cap_bytes
        self._state.note_cap(known)
        self._teller.tell_memory_limits(known)

    def _tenant_removed(self, tenant: Tenant) -> None:
        for client in list(tenant.clients.values()):
            self._forget(client)
            self._closed_clients.add(client.id)
            self._outbox.put(CloseClient(client=client.id, tenant_name=tenant.name))
        self._state.remove_tenant(tenant)

    def _settings_changed(self, settings: SchedulerSettings) -> None:
        if settings == self.settings:
            return
        switched_off = self._state.turns_are_on and settings.turns is TurnTaking.OFF
        memory_moved = self._state.memory_moves
        self._state.settings = settings
        self._state.weigh_everybody()
        self._state.stir_everything()
        self._state.touched.update(self._state.tenants)
        if self._state.memory_moves and not memory_moved:
            self._residency.limits_begin()
        self._turns.quanta_have_changed()
        if switched_off:
            self._turns.turns_switched_off()
        self._holds.shorten(self._now_s)
        for client in self._state.clients.values():
            self._tell_settings(client)

    # ---- small parts -------------------------------------------------------------------------

    def _tell_settings(self, client: Client) -> None:
        self._outbox.put(TellSettings(client=client.id, settings=self.settings))

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
            self._outbox.put(WakeAt(at_s=deadline_s))

    def _stir_who_is_due(self) -> None:
        changes = self._state.changes
        for kind, owner in self._alarm.due(self._now_s):
            if kind == "device":
                changes.of_memory(DeviceId(owner))
                changes.devices_for_alarm[DeviceId(owner)] = None
            elif (tenant := self._state.tenants.get(TenantId(owner))) is not None:
                changes.of_tenant(tenant)

    def _note(self, tenant: Tenant, event: ev.Event) -> None:
        tenant.story.append(f"{self._now_s:.3f} s {type(event).__name__} {event.cause}".rstrip())

    def _tenant(self, tenant: TenantId) -> Tenant:
        try:
            return self._state.tenants[tenant]
        except KeyError:
            raise UnknownTenant(
                f"There is no kernel or command {tenant}. List them with jupyter gpushare status."
            ) from None

    def _named_device(self, device: DeviceId) -> Device:
        """A device that a person has named."""
        try:
            return self._state.devices[device]
        except KeyError:
            raise NoSuchDevice(
                f"There is no device {device}. List them with jupyter gpushare status."
            ) from None

    def _device(self, device: DeviceId) -> Device:
        try:
            return self._state.devices[device]
        except KeyError:
            raise UnknownDevice(
                f"The device {device} was never announced. Restart the scheduler."
            ) from None
