"""What a status page may know: a frozen copy of the scheduler's state at one moment.

The HTTP side decides which caller may see what of it. `dataclasses.asdict` makes plain
data of it; every value is a str, int, float, bool, None, tuple or dict of these.

Who keeps a record of turns follows what has moved (shown/moves.py), for a snapshot costs more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .ids import ClientId, DeviceId, Seconds, TenantId, TurnId
from .limits import entitlement
from .needs import is_waiting, left_s
from .policy import turn_ends_s, waits_for_its_memory
from .records import Client, Device, Placement, Tenant
from .settings import SchedulerSettings
from .shares.guarantees import Entitlement, Usage
from .space.obstacles import obstacle_to_tell
from .space.requests import Obstacle
from .state import State
from .transitions import TenantState


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderSnapshot:
    """A tenant that has a turn on a device."""

    tenant: TenantId
    name: str
    turn: TurnId
    held_for_s: Seconds
    recalled: bool
    """It has been asked to give the turn back."""
    overdue: bool
    """It was asked, and has not answered for `overdue_s`."""
    frozen: bool
    """A process with the turn was stopped from outside, and cannot give it back."""
    hold_left_s: Seconds = 0.0
    """For how much longer its user keeps it by hand; 0: not at all."""
    turn_left_s: Seconds | None = None
    """What is left of its quantum; None while nobody waits, or while its memory is coming back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiterSnapshot:
    """A tenant in the queue of a device."""

    tenant: TenantId
    name: str
    waited_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSnapshot:
    """A device, who has it and who wants it."""

    id: DeviceId
    name: str
    bytes_total: int
    bytes_used: int
    """As NVML counts: everybody's, also what is not under our hook."""
    bytes_allocated: int
    """As the clients report: what is under our hook, also what of it is in host memory."""
    bytes_foreign: int
    """On the device, and allocated by no client: by programs that are not under our hook, for CUDA
    contexts, and by processes that have just ended."""
    bytes_reserved: int
    """For what no budget covers; what was there before contexts grew may come back into it."""
    bytes_usable: int
    """The bytes that tenants may have on the device together."""
    bytes_staying: int
    """How much of their memory stays there, whichever tenant has the turn."""
    lost: bool
    mode: str
    """A value of `events.DeviceMode`."""
    bytes_contexts: int
    """Of the foreign bytes, what CUDA contexts of clients take, as far as that can be told."""
    holders: tuple[HolderSnapshot, ...]
    """One, unless `turns` is off or was a moment ago."""
    queue: tuple[WaiterSnapshot, ...]
    """In the order in which they will be served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDeviceSnapshot:
    """A device that a client has opened."""

    device: DeviceId
    bytes_allocated: int
    bytes_parked: int
    """Of these, in host memory."""
    bytes_fixed: int
    """Of the rest, what cannot be moved."""
    failed: bool
    """A context of the client has a sticky error here; only a restart of the process cures it."""
    bytes_context: int = 0
    """What its CUDA contexts take there, as far as that can be told. No budget covers it."""
    silent: bool = False
    """It was asked to release memory, and has made no progress for `park_timeout_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantMemorySnapshot:
    """What a tenant has on a device, all its processes together."""

    device: DeviceId
    bytes_resident: int
    bytes_parked: int
    bytes_fixed: int
    bytes_staying: int
    """Of what is on the device, what stays there, whoever has the turn."""
    cap_bytes: int
    bytes_context: int = 0
    """What its CUDA contexts take besides, as far as that can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSnapshot:
    """One process of a tenant."""

    id: ClientId
    pid: int
    process_name: str
    state: str
    """A value of `transitions.ClientState`."""
    in_cell: bool
    overdue: bool
    frozen: bool
    """Its process was stopped from outside."""
    devices: tuple[ClientDeviceSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCounters:
    """What a tenant has had so far."""

    turns: int = 0
    waits: int = 0
    """Turns that it had to wait for (and got)."""
    waited_s_total: Seconds = 0.0
    held_s_total: Seconds = 0.0
    drain_stalls: int = 0
    recalls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSnapshot:
    """A kernel or a `run` command."""

    id: TenantId
    name: str
    owner: str
    kind: str
    state: str
    """A value of `transitions.TenantState`."""
    cap_bytes: int
    clients: tuple[ClientSnapshot, ...]
    counters: TenantCounters
    """Turns and waits that are under way are counted up to this moment."""
    memory: tuple[TenantMemorySnapshot, ...] = ()
    obstacle: Obstacle | None = None
    """Why it has no turn although its devices are free, or why it was refused memory lately."""
    hold_left_s: Seconds = 0.0
    """For how much longer its user keeps its present turn by hand; 0: not at all."""
    hold_to_come_s: Seconds = 0.0
    """For how long its user will keep the next turn by hand; 0: not at all."""
    boosted: bool = False
    """An admin lets it be served next."""
    placement: Placement | None = None
    """What became of its wish for a place; None if it has said none."""
    asked_class: str = ""
    """As it asked when it was registered; empty: for none."""
    runs_as: str = ""
    """A value of `classes.TenantClass`."""
    hold_refused: bool = False
    """Its user wanted to keep its turn by hand, or did so, but is in debt."""
    memory_wait_left_s: Seconds | None = None
    """For how much longer it waits for memory that others cannot move; None: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSnapshot:
    """What an owner may have of a device, and what it has had within the window."""

    owner: str
    device: DeviceId
    request: float
    limit: float
    hard_limit: float
    had: float
    """As a part of the window."""
    violations: int
    """In so many windows it had less than its request, although it wanted the device throughout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything at one moment."""

    at_s: Seconds
    recovering: bool
    """The scheduler was restarted and still waits for its clients before it grants."""
    devices: tuple[DeviceSnapshot, ...]
    tenants: tuple[TenantSnapshot, ...]
    settings: SchedulerSettings
    shares: tuple[ShareSnapshot, ...] = ()
    """Of owners with guarantees or limits."""


# ---- how it is taken --------------------------------------------------------------------------

REFUSAL_SHOWN_S = 600.0
"""How long the status says why a tenant was out of memory: its user may look late."""


class Status:
    """Takes snapshots. What is shown of a tenant is made anew when it has changed, or with time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._shown: dict[TenantId, TenantSnapshot] | None = None
        """What the last snapshot had; None before the first one."""
        self._orders: dict[TenantId, int] = {}
        """Of each tenant that is shown, its `order`."""
        self._moving: dict[TenantId, Tenant] = {}
        """Those who wait, have a turn or were refused memory: their times change."""

    def take(self, now_s: Seconds) -> Snapshot:
        """A frozen copy of the state; times are as of `now_s`."""
        state = self._state
        return Snapshot(
            at_s=now_s,
            recovering=state.recovery is not None,
            devices=tuple(_device(state, device, now_s) for device in state.devices.values()),
            tenants=tuple(self._tenants(now_s)),
            settings=state.settings,
            shares=tuple(_shares(state, now_s)),
        )

    def _tenants(self, now_s: Seconds) -> Collection[TenantSnapshot]:
        state, changed = self._state, self._state.changes.to_show
        if self._shown is None:
            self._shown = {}
            changed.update(dict.fromkeys(state.tenants))
        shown = self._shown
        for tenant_id, tenant in self._moving.items():
            if tenant_id not in changed:
                before = shown[tenant_id]
                shown[tenant_id] = _tenant(state, tenant, now_s, before.clients, before.memory)
        for tenant_id in changed:
            self._moving.pop(tenant_id, None)
            now = state.tenants.get(tenant_id)
            if now is None or self._orders.get(tenant_id) != now.order:
                # A tenant that was registered anew has come last.
                shown.pop(tenant_id, None)
                self._orders.pop(tenant_id, None)
        tenants = (state.tenants[each] for each in changed if each in state.tenants)
        for tenant in sorted(tenants, key=lambda each: each.order):
            clients = tuple(_client(client) for client in tenant.clients.values())
            shown[tenant.id] = _tenant(state, tenant, now_s, clients, tuple(_memory(tenant)))
            self._orders[tenant.id] = tenant.order
            waits = tenant.id in state.queue or bool(tenant.space_waits) or is_waiting(tenant)
            if tenant.turn or tenant.refused_for or waits:
                self._moving[tenant.id] = tenant
        changed.clear()
        return shown.values()


def _turn_left_s(state: State, holder: Tenant, now_s: Seconds) -> Seconds | None:
    if holder.turn is None or waits_for_its_memory(state, holder, now_s):
        return None
    ends_s = turn_ends_s(state, holder, holder.turn)
    return None if ends_s is None else max(0.0, ends_s - now_s)


def _device(state: State, device: Device, now_s: Seconds) -> DeviceSnapshot:
    return DeviceSnapshot(
        id=device.id,
        name=device.name,
        bytes_total=device.bytes_total,
        bytes_used=device.bytes_used,
        bytes_allocated=device.memory.bytes_allocated,
        bytes_foreign=device.memory.bytes_foreign + device.memory.bytes_ghost,
        bytes_reserved=state.reserve_bytes(device),
        bytes_usable=max(0, state.usable_bytes(device)),
        bytes_staying=device.memory.totals.bytes_staying,
        lost=device.lost,
        mode=device.mode.value,
        bytes_contexts=device.memory.bytes_of_contexts,
        holders=tuple(
            HolderSnapshot(
                tenant=holder.id,
                name=holder.name,
                turn=holder.turn.id,
                held_for_s=now_s - holder.turn.granted_at_s,
                recalled=holder.state is not TenantState.HOLDING,
                overdue=any(client.overdue for client in holder.clients.values()),
                frozen=any(client.frozen for client in state.turn_clients(holder)),
                hold_left_s=_hold_left_s(state, holder, now_s),
                turn_left_s=_turn_left_s(state, holder, now_s),
            )
            for holder in state.holders(device.id)
            if holder.turn is not None
        ),
        queue=tuple(
            WaiterSnapshot(
                tenant=waiter.id,
                name=waiter.name,
                waited_s=now_s - waiter.waited_since_s,
            )
            for waiter in state.lines.of[device.id].queue
        ),
    )


def _shares(state: State, now_s: Seconds) -> Iterator[ShareSnapshot]:
    rules = state.lines.rules
    if rules is None:
        return
    for device, here in state.accounts.of.items():
        line = state.lines.of[device]
        for owner in sorted(line.owners.keys() | here.violations.keys()):
            to = entitlement(state.lines, rules, device, owner)
            if to != Entitlement() or owner in here.violations:
                used_s = here.usage.get(owner, Usage()).used_s(now_s, rules.window_s)
                yield ShareSnapshot(
                    owner=owner,
                    device=device,
                    request=to.request,
                    limit=to.limit,
                    hard_limit=to.hard_limit,
                    had=used_s / rules.window_s,
                    violations=here.violations.get(owner, 0),
                )


def _hold_left_s(state: State, tenant: Tenant, now_s: Seconds) -> Seconds:
    hold = state.holds.get(tenant.id)
    return 0.0 if hold is None else max(0.0, hold.until_s - now_s)


def _tenant(
    state: State,
    tenant: Tenant,
    now_s: Seconds,
    clients: tuple[ClientSnapshot, ...],
    memory: tuple[TenantMemorySnapshot, ...],
) -> TenantSnapshot:
    counted = tenant.counters
    uncounted_from_s = max(tenant.waited_since_s, tenant.waits_counted_to_s)
    waits_for_s = now_s - uncounted_from_s if tenant.state is TenantState.WAITING else 0.0
    held_for_s = 0.0 if tenant.turn is None else now_s - tenant.turn.granted_at_s
    return TenantSnapshot(
        id=tenant.id,
        name=tenant.name,
        owner=tenant.owner,
        kind=tenant.kind,
        state=tenant.state.value,
        cap_bytes=tenant.cap_bytes,
        clients=clients,
        counters=TenantCounters(
            turns=counted.turns,
            waits=counted.waits,
            waited_s_total=counted.waited_s_total + waits_for_s,
            held_s_total=counted.held_s_total + held_for_s,
            drain_stalls=counted.drain_stalls,
            recalls=counted.recalls,
        ),
        memory=memory,
        obstacle=_obstacle(state, tenant, now_s),
        hold_left_s=_hold_left_s(state, tenant, now_s),
        hold_to_come_s=state.holds_to_come.get(tenant.id, 0.0),
        boosted=tenant.boosted,
        placement=tenant.placement,
        asked_class=tenant.asked_class,
        runs_as=tenant.runs_as.value,
        hold_refused=tenant.hold_refused,
        memory_wait_left_s=left_s(state, tenant, now_s),
    )


def _obstacle(state: State, tenant: Tenant, now_s: Seconds) -> Obstacle | None:
    """The obstacle of now; for a tenant that does not wait, the one of its last refusal."""
    refused_lately = now_s < tenant.refused_at_s + REFUSAL_SHOWN_S
    waits = tenant.id in state.queue or tenant.space_waits
    is_past = not waits and refused_lately
    return tenant.refused_for if is_past else obstacle_to_tell(state, tenant, now_s)


def _memory(tenant: Tenant) -> Iterator[TenantMemorySnapshot]:
    devices = {device for client in tenant.clients.values() for device in client.devices}
    for device in sorted(devices):
        found = (client.devices.get(device) for client in tenant.clients.values())
        shares = [share for share in found if share is not None]
        yield TenantMemorySnapshot(
            device=device,
            bytes_resident=sum(share.bytes_resident for share in shares),
            bytes_parked=sum(share.bytes_parked for share in shares),
            bytes_fixed=sum(share.bytes_fixed for share in shares),
            bytes_staying=sum(share.bytes_staying for share in shares),
            cap_bytes=tenant.cap_bytes,
            bytes_context=sum(share.context.bytes for share in shares),
        )


def _client(client: Client) -> ClientSnapshot:
    return ClientSnapshot(
        id=client.id,
        pid=client.pid,
        process_name=client.process_name,
        state=client.state.value,
        in_cell=client.in_cell,
        overdue=client.overdue,
        frozen=client.frozen,
        devices=tuple(
            ClientDeviceSnapshot(
                device=device,
                bytes_allocated=share.bytes_allocated,
                bytes_parked=share.bytes_parked,
                bytes_fixed=share.bytes_fixed,
                bytes_context=share.context.bytes,
                failed=share.failed,
                silent=share.silent,
            )
            for device, share in client.devices.items()
        ),
    )
