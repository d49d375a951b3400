"""Events that no client sends: of devices, of tenants, of settings and of the time; and what people
ask for, in their notebooks or as administrators."""

from __future__ import annotations

from . import events as ev
from .commands import CancelWait, CloseClient, TellSettings
from .errors import NoSuchDevice, UnknownDevice, UnknownTenant, WrongOwner
from .holds import Holds
from .ids import ClientId, DeviceId, Seconds, TenantId
from .needs import cell_ends, forget_waits_in_vain
from .order.precedence import note_work_that_waits
from .placement import needed_now, placed
from .records import Client, Device, PastCell, Tenant
from .residency import Residency
from .settings import OverduePolicy, SchedulerSettings, TurnTaking
from .state import State
from .told import Outbox, Teller
from .turns import Turns

_OfTenant = (
    ev.InterruptRequested
    | ev.ReleaseRequested
    | ev.TenantHeld
    | ev.BoostRequested
    | ev.EvictRequested
    | ev.TenantBusy
)


class NodeEvents:
    """Notes what they say; what follows from it, turns and memory find when they are settled."""

    def __init__(
        self,
        state: State,
        outbox: Outbox,
        *,
        holds: Holds,
        turns: Turns,
        residency: Residency,
        teller: Teller,
        closed_clients: set[ClientId],
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._holds = holds
        self._turns = turns
        self._residency = residency
        self._teller = teller
        self._closed_clients = closed_clients
        """Closed by us; what they still say is ignored until ClientLost comes."""
        self._now_s: Seconds = 0.0
        """Of the event that is being handled."""

    def handle(self, event: ev.Event, now_s: Seconds) -> bool:
        """Whether anything may follow from it."""
        self._now_s = now_s
        match event:
            case ev.DeviceFound():
                if event.device not in self._state.devices:
                    self._state.add_device(Device(event.device, event.name, event.bytes_total))
                device = known_device(self._state, event.device)
                self._state.changes.of_memory(device.id)
                device.name, device.bytes_total = event.name, event.bytes_total
                device.uuid = event.uuid
                self._device_is_lost(device, False)
            case ev.DeviceMemoryMeasured():
                device = known_device(self._state, event.device)
                self._residency.measured(device, event, self._now_s)
            case ev.DeviceLost():
                self._device_is_lost(known_device(self._state, event.device), True)
            case ev.DeviceWithdrawn():
                self._device_withdrawn(known_device(self._state, event.device))
            case ev.OwnerRemembered():
                remember(self._state, event)
            case ev.TenantRegistered():
                self._tenant_registered(event)
            case ev.TenantRemoved():
                self._tenant_removed(self._tenant(event.tenant))
            case ev.InterruptRequested():
                self._cancel_waits(self._noted(event))
            case ev.ReleaseRequested():
                self._turns.release(self._noted(event), self._now_s)
            case ev.DeviceModeChanged():
                self._state.note_mode(
                    known_device(self._state, event.device, named=True), event.mode
                )
            case ev.TenantHeld():
                tenant = self._noted(event)
                self._holds.hold(tenant, event.hold_s, self._now_s, by_admin=event.by_admin)
            case ev.ClassAsked():
                tenant = self._tenant(event.tenant)
                self._state.ask_class(tenant, event.asked_class)
                self._state.note(tenant, event, self._now_s)
            case ev.NeedAsked():
                tenant = self._tenant(event.tenant)
                wish = event.need, event.need_devices
                self._state.place(tenant, needed_now(self._state, tenant, *wish))
                self._state.note(tenant, event, self._now_s)
            case ev.BoostRequested():
                self._state.boost(self._noted(event))
            case ev.EvictRequested():
                tenant = self._noted(event)
                self._turns.release(tenant, self._now_s)
                self._residency.evict(tenant)
            case ev.TenantBusy():
                tenant = self._noted(event)
                with_cell = self._state.in_cell(tenant)
                self._turns.tenant_busy(tenant, event.busy)
                if with_cell and not self._state.in_cell(tenant):
                    note_cell_end(self._state, tenant)
            case ev.SettingsChanged():
                self._settings_changed(event.settings)
            case ev.RecoveryComplete():
                self._turns.everybody_is_back(event.in_time, self._now_s)
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

    def _cancel_waits(self, tenant: Tenant) -> None:
        """Fail the calls that wait. Each process is told: calls may wait without our knowing, and a
        process that a signal has interrupted expects this word of the same interrupt."""
        for client in tenant.clients.values():
            self._outbox.put(CancelWait(client=client.id))

    def _device_withdrawn(self, device: Device) -> None:
        """Forget it, unless a client has it open after all."""
        if device.memory.shares:
            return
        self._residency.space.refuse_all(device)
        self._state.remove_device(device)
        for tenant in self._state.tenants.values():
            forget_waits_in_vain(tenant, device.id)
            if tenant.refused_for is not None and tenant.refused_for.device == device.id:
                self._state.note_refusal(tenant, None, self._now_s)

    def _tenant_registered(self, event: ev.TenantRegistered) -> None:
        known = self._state.tenants.get(event.tenant)
        if known is None:
            known = Tenant(event.tenant, event.name, event.owner, event.kind, event.cap_bytes)
            known.asked_class = event.asked_class
            if event.need or event.need_devices or event.placed_on:
                wish = event.need, event.need_devices, event.placed_on
                known.placement = placed(self._state, *wish)
            self._state.add_tenant(known, event.groups)
        elif known.owner != event.owner:
            raise WrongOwner(f"{event.tenant} belongs to somebody else. Use another id.")
        else:
            self._state.note_owner(event.owner, event.groups)
        self._state.note(known, event, self._now_s)
        known.name, known.kind, known.own_cap_bytes = event.name, event.kind, event.cap_bytes
        self._state.classify(known)
        self._state.note_cap(known)
        self._teller.tell_memory_limits(known)

    def _tenant_removed(self, tenant: Tenant) -> None:
        for client in list(tenant.clients.values()):
            self.forget(client, self._now_s)
            self._closed_clients.add(client.id)
            self._outbox.put(CloseClient(client=client.id, tenant_name=tenant.name))
        self._state.remove_tenant(tenant)
        left = (each for each in self._state.tenants.values() if each.owner == tenant.owner)
        if (sibling := next(left, None)) is not None:
            self._teller.tell_memory_limits(sibling)

    def _settings_changed(self, settings: SchedulerSettings) -> None:
        if settings == self._state.settings:
            return
        switched_off = self._state.turns_are_on and settings.turns is TurnTaking.OFF
        memory_moved = self._state.memory_moves
        before, self._state.settings = self._state.settings, settings
        self._state.weigh_everybody()
        caps = (settings.memory_caps, settings.user_memory_caps)
        if caps != (before.memory_caps, before.user_memory_caps):
            for tenant in self._state.tenants.values():
                self._state.note_cap(tenant)
                self._teller.tell_memory_limits(tenant)
        self._state.stir_everything()
        self._state.touched.update(self._state.tenants)
        if self._state.memory_moves and not memory_moved:
            self._residency.limits_begin()
        self._turns.quanta_have_changed()
        kills = settings.overdue_policy is OverduePolicy.KILL
        if kills and before.overdue_policy is not OverduePolicy.KILL:
            self._turns.report_anew()
        if switched_off:
            self._turns.turns_switched_off()
        self._holds.shorten(self._now_s)
        for client in self._state.clients.values():
            self._outbox.put(TellSettings(client=client.id, settings=settings))

    def forget(self, client: Client, now_s: Seconds) -> None:
        """The client is gone."""
        self._residency.lost(client, now_s)
        self._turns.forget(client, now_s)
        self._teller.forget(client.id)

    def _noted(self, event: _OfTenant) -> Tenant:
        """The tenant, in whose story the event stands from now on."""
        tenant = self._tenant(event.tenant)
        self._state.note(tenant, event, self._now_s)
        return tenant

    def _tenant(self, tenant: TenantId) -> Tenant:
        if (found := self._state.tenants.get(tenant)) is None:
            raise UnknownTenant(
                f"There is no kernel or command {tenant}. List them with jupyter gpushare status."
            )
        return found


def note_cell(state: State, tenant: Tenant, client: Client, *, begins: bool) -> bool:
    """A cell begins or ends in the process. The tenant has one as long as any process has.
    Answers whether turns are to be looked at."""
    had_one, had_come = state.in_cell(tenant), tenant.came
    if begins and not had_one:
        state.work_begins(tenant)
    client.in_cell = begins
    state.changes.of_look(tenant.id)
    if begins:
        return not had_one and note_work_that_waits(state, tenant)
    if had_one and not state.in_cell(tenant):
        note_cell_end(state, tenant)
    return tenant.came != had_come and tenant.id in state.queue


def note_cell_end(state: State, tenant: Tenant) -> None:
    """Its length is remembered, if it has used a device. The next call of its tenant is new."""
    if not tenant.came:
        tenant.came = True
        state.lines.wait_changed(tenant)
    cell_ends(state, tenant)
    used_s = state.cell_used_s(tenant)
    if used_s > 0 and tenant.wanted_devices:
        tenant.last_cells_s.append(used_s)
        state.cells.append(PastCell(used_s, tenant.wanted_devices, state.accounts.now_s))


def known_device(state: State, device: DeviceId, *, named: bool = False) -> Device:
    """A device that has been announced; one that a person has `named` need not have been."""
    if (found := state.devices.get(device)) is not None:
        return found
    if named:
        raise NoSuchDevice(f"There is no device {device}. List them with jupyter gpushare status.")
    raise UnknownDevice(f"The device {device} was never announced. Restart the scheduler.")


def remember(state: State, event: ev.OwnerRemembered) -> None:
    """Of a scheduler before this one: what an owner owes, its credits, and what its tenants have
    had of late. Virtual times do not outlive it (decision 0014, "Over a restart")."""
    state.note_owner(event.owner, None)
    state.accounts.remember(event.owner, event.credit_s, dict(event.debts))
    used = {(tenant, device): used_s for tenant, device, used_s in event.used}
    state.accounts.recent.remember(event.owner, used, state.accounts.now_s)


def to_remember(state: State, now_s: Seconds) -> list[ev.OwnerRemembered]:
    """Of the owners that owe something at this time, have not all of their credit, or have had
    something of late. Nothing is changed."""
    accounts, most_s = state.lines.accounts_at(now_s), state.settings.credit_s
    debts = accounts.debts()
    used = accounts.recent.to_remember(now_s)
    found = []
    for name in accounts.owners:
        accounts.fill_credit(name, state.devices, most_s)
        left_s, owed = accounts.owners[name].credit_s, debts.get(name, {})
        if owed or left_s < most_s or name in used:
            had = tuple((*who, used_s) for who, used_s in used.get(name, {}).items())
            debt = tuple(owed.items())
            found.append(ev.OwnerRemembered(owner=name, credit_s=left_s, debts=debt, used=had))
    return found
