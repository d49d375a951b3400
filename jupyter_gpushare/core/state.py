"""Everything that the scheduler knows: devices, tenants, their clients and turns, the queue.

The state answers questions about itself and moves by the transition tables; it decides nothing.
Answers that each event needs (what a client can use, what a tenant wants, who is on a device) are
remembered, and brought up to date where it changes (`note_devices`, `note_clients`, `note_turn`);
so an event costs what it changes, not what there is. Each such index has one owner: lines.py has
the tenants of each device, changes.py has what each part of the core has not looked at yet.
`invariants.check_invariants` says what always holds between two events.

The *reserve* of a device is never given out: contexts, modules and the driver itself need space
that no budget covers. It grows with the contexts that are to be expected (decision 0024). Foreign
bytes are not given out either. The rest is *usable*.

Contexts and modules are foreign as soon as they are there, and they grow while a notebook works.
Memory that was on the device before they grew may come back beside them. For such memory, and for
nothing new, foreign bytes count against the least of the reserve first, and what is kept beyond
the least is free.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from .accounts import Accounts
from .changes import Changes
from .errors import ClassNotAllowed, InvalidTransition
from .events import DeviceMode, Event
from .ids import ClientId, DeviceId, Seconds, TenantId
from .ledger import Share
from .limits import judge, rules_of
from .order.lines import Lines
from .records import CELLS_MAX, Client, Device, Grace, Hold, PastCell, Placement, Tenant, Turn
from .settings import RESERVE_BY_SIZE, MemoryMode, SchedulerSettings, TurnTaking
from .shares.classes import highest, runs_as
from .shares.classes import parse as parse_classes
from .shares.entries import cap_of, cap_of_tenant, parse_caps, parse_weights, tighter
from .shares.guarantees import Preset, Standing
from .space.requests import Obstacle
from .transitions import (
    CLIENT_TRANSITIONS,
    TENANT_TRANSITIONS,
    WITH_TURN,
    ClientState,
    ClientTrigger,
    TenantTrigger,
)


@dataclass(slots=True)
class State:
    """All of it. Tenants and devices are in the order in which they came."""

    settings: SchedulerSettings
    devices: dict[DeviceId, Device] = field(default_factory=dict)
    tenants: dict[TenantId, Tenant] = field(default_factory=dict)
    clients: dict[ClientId, Client] = field(default_factory=dict)
    queue: dict[TenantId, Tenant] = field(default_factory=dict)
    """Tenants that wait for a turn, in the order in which they came. Lines have the order in which
    they are served."""
    turn_holders: dict[TenantId, Tenant] = field(default_factory=dict)
    """Tenants that have a turn, in the order in which they got it."""
    holds: dict[TenantId, Hold] = field(default_factory=dict)
    """Tenants whose turns are kept by hand; one whose time is over is taken out by `settle`."""
    holds_to_come: dict[TenantId, Seconds] = field(default_factory=dict)
    """Tenants without a turn whose next one is to be kept by hand, and for how long."""
    evicted: set[TenantId] = field(default_factory=set)
    """Tenants that park all their memory until their next turn, because an admin said so."""
    placed: dict[TenantId, Tenant] = field(default_factory=dict)
    """Tenants that were put on devices before they opened CUDA."""
    changes: Changes = field(default_factory=Changes)
    accounts: Accounts = field(default_factory=Accounts)
    lines: Lines = field(init=False)
    cells: deque[PastCell] = field(default_factory=lambda: deque(maxlen=CELLS_MAX))
    arrivals: int = 0
    """How many tenants, devices and places in the queue there have been."""
    undecided: set[TenantId] = field(default_factory=set)
    """Tenants that have opened no device. They may open any next, and their first call must find a
    short queue of work there: so they count as registered on all of them."""
    touched: dict[TenantId, Tenant] = field(default_factory=dict)
    """Tenants whose own affairs the event under way has changed."""
    obstacles: dict[TenantId, Obstacle] = field(default_factory=dict)
    """Why tenants of the queue got no turn although their devices were free, and would get none
    now. Changed by `note_obstacles` alone."""
    recovery: Grace | None = None

    def __post_init__(self) -> None:
        self.lines = Lines(self.changes, self.accounts)
        self.accounts.quantum_longest_s = self.settings.quantum_longest_s
        self.accounts.recent.half_s = self.settings.quantum_max_s
        self.note_rules()

    def note_rules(self) -> None:
        """The settings say of guarantees and limits what they say now."""
        before, self.lines.rules = self.lines.rules, rules_of(self.settings)
        rules = self.lines.rules
        self.accounts.credit_most_s = self.settings.credit_s
        self.accounts.requests = {} if rules is None else rules.requests
        self.accounts.window_s = 0.0 if rules is None else rules.window_s
        if rules != before:
            self.lines.guarantee_anew()

    @property
    def weights(self) -> Mapping[str, float]:
        """Of owners and groups; none where all are equal."""
        return {} if self.settings.sharing is Preset.EQUAL else parse_weights(self.settings.weights)

    @property
    def turns_are_on(self) -> bool:
        """Whether tenants take turns at all."""
        return self.settings.turns is TurnTaking.ON

    @property
    def memory_moves(self) -> bool:
        """Whether device memory follows the turn."""
        return self.settings.memory_mode is MemoryMode.SWAP

    # ---- who is here -------------------------------------------------------------------------

    def next_arrival(self) -> int:
        """A number that is larger than all before."""
        self.arrivals += 1
        return self.arrivals

    def add_device(self, device: Device) -> None:
        """A device is here that nobody has opened."""
        device.order = self.next_arrival()
        device.memory.attention.to_show = self.changes.to_show
        self.devices[device.id] = device
        paused = device.mode is not DeviceMode.OPEN
        self.accounts.recent.pause(device.id, paused, self.accounts.now_s)
        self.lines.add_device(device.id)

    def remove_device(self, device: Device) -> None:
        """Nobody has the device open."""
        self.changes.devices_for_alarm[device.id] = None
        del self.devices[device.id]
        self.accounts.recent.pause(device.id, False, self.accounts.now_s)
        self.lines.remove_device(device.id)

    def add_tenant(self, tenant: Tenant, groups: Iterable[str] | None = None) -> None:
        """A tenant is here that has no clients; its owner is in these groups, if that is known."""
        tenant.order = self.next_arrival()
        self.tenants[tenant.id] = tenant
        self.accounts.recent.comes(tenant.id, tenant.owner)
        self.place(tenant, tenant.placement)
        self.note_owner(tenant.owner, groups)
        self.classify(tenant)
        self.note_clients(tenant)

    def note_owner(self, owner: str, groups: Iterable[str] | None) -> None:
        """The owner has registered a tenant, and is in these groups. None: those of before."""
        known = self.accounts.owners.get(owner)
        if known is None or (groups is not None and known.groups != frozenset(groups)):
            self.lines.charge_everything()
            self.accounts.know(owner, groups or (), self.weights)
            self.lines.renew(owner, self.lines.of)
            tenants = [each for each in self.tenants.values() if each.owner == owner]
            for tenant in tenants:
                self.classify(tenant)
            self.lines.judge_soon(tenants)

    def place(self, tenant: Tenant, placement: Placement | None) -> None:
        """What has become of its wish for a place, or of another need there."""
        tenant.placement = placement
        if placement is not None and placement.devices:
            self.placed[tenant.id] = tenant
        else:
            self.placed.pop(tenant.id, None)
        self.changes.of_look(tenant.id)

    def ask_class(self, tenant: Tenant, asked: str) -> None:
        """From now on. Raises ClassNotAllowed, and has then changed nothing."""
        groups = self.accounts.owners[tenant.owner].groups
        most = highest(parse_classes(self.settings.allowed_classes), tenant.owner, groups)
        if runs_as(asked, most).value != asked:
            raise ClassNotAllowed(
                f"This notebook stays {tenant.runs_as.value}: {tenant.owner} may not use the class "
                f"{asked}. Ask an administrator to allow it in the setting `allowed_classes`."
            )
        tenant.asked_class = asked
        self.weigh_everybody()  # the order of all who wait may be another

    def classify(self, tenant: Tenant) -> None:
        """What the tenant asks for, or what its owner may use, may have changed."""
        groups = self.accounts.owners[tenant.owner].groups
        caps = parse_caps(self.settings.memory_caps)
        by_setting = cap_of_tenant(caps, tenant.owner, groups, tenant.name)
        tenant.cap_bytes = tighter(tenant.own_cap_bytes, by_setting)
        most = highest(parse_classes(self.settings.allowed_classes), tenant.owner, groups)
        now = runs_as(tenant.asked_class, most)
        if now is not tenant.runs_as:
            self.lines.note_class(tenant, now)
        self.changes.of_look(tenant.id)

    def remove_tenant(self, tenant: Tenant) -> None:
        """Its clients are gone."""
        del self.tenants[tenant.id]
        self.undecided.discard(tenant.id)
        self.holds.pop(tenant.id, None)
        self.holds_to_come.pop(tenant.id, None)
        self.evicted.discard(tenant.id)
        self.placed.pop(tenant.id, None)
        if (recovery := self.recovery) is not None:
            recovery.tenant_ends(tenant.id, self.accounts.now_s)
        self.accounts.recent.ends(tenant.id, tenant.owner, self.accounts.now_s)
        self.accounts.recent.forget(self.tenants, self.accounts.now_s)
        self.changes.of_tenant(tenant)
        if len(self.accounts.owners) > self.accounts.owners_many:
            here = {each.owner for each in self.tenants.values()}
            self.accounts.forget_owners(here, self.settings.credit_s)

    def note_devices(self, client: Client) -> None:
        """The client's devices have changed, or what can be used of them."""
        client.live_devices = frozenset(
            device
            for device, share in client.devices.items()
            if not share.failed and not self.devices[device].lost
        )
        self.note_clients(self.tenants[client.tenant])

    def note_clients(self, tenant: Tenant) -> None:
        """The tenant is new, or its clients or their devices have changed."""
        clients = tenant.clients.values()
        tenant.wanted_devices = frozenset().union(*(client.live_devices for client in clients))
        if any(client.devices for client in clients):
            self.undecided.discard(tenant.id)
        else:
            self.undecided.add(tenant.id)
        self.changes.of_tenant(tenant)
        self.note_turn(tenant)

    def note_turn(self, tenant: Tenant) -> None:
        """The tenant's turn, or the devices of it, or its place in the queue have changed."""
        self.lines.note(
            tenant, queued=tenant.id in self.queue, passed_over=self.is_passed_over(tenant)
        )

    def is_passed_over(self, tenant: Tenant) -> bool:
        """Whether the tenant could not be served now, whoever has a turn: for somebody's memory, a
        paused device, its owner's hard limit, or the recovery."""
        if tenant.id in self.obstacles or self.is_kept_waiting(tenant):
            return True
        return tenant.turn is None and self.recovery is not None

    def is_kept_waiting(self, tenant: Tenant) -> bool:
        """Whether the tenant gets no turn because a device that it needs is paused, or because its
        owner has had its hard limit."""
        if tenant.turn is not None:
            return False
        blocked = tenant.standing is Standing.BLOCKED
        return blocked or self.paused_device(tenant.wanted_devices) is not None

    def judge_again(self, tenant: Tenant) -> None:
        """Time has changed how the tenant stands, or may have."""
        self.lines.judge_again(tenant, self.settings.starvation_s)
        self.note_turn(tenant)

    def note_obstacles(self, found: dict[TenantId, Obstacle]) -> None:
        """Tenants of the queue are passed over for these; the others are not any more."""
        changed = self.obstacles.keys() ^ found.keys()
        self.obstacles = found
        for tenant_id in sorted(changed & self.queue.keys()):
            self.note_turn(tenant := self.queue[tenant_id])
            for device in tenant.places.queues if self.recovery is not None else ():
                self.lines.stir(device, tenant)  # it was passed over already, for another reason

    def join_queue(self, tenant: Tenant) -> None:
        """At its end; at its head if an admin has said so; where it was, if it let one pass."""
        number = self.next_arrival()
        if tenant.boosted or self.accounts.now_s > tenant.keeps_place_until_s:
            tenant.place = -number if tenant.boosted else number
        tenant.keeps_place_until_s = -math.inf
        if not tenant.cut_short:
            tenant.starves_from_s = self.accounts.now_s
        tenant.cut_short = False
        tenant.starved = self.accounts.now_s >= tenant.starves_from_s + self.settings.starvation_s
        tenant.standing, tenant.judged_until_s = Standing.FREE, math.inf
        if self.lines.rules is not None:
            judge(self.lines, tenant)
        self.queue[tenant.id] = tenant
        if tenant.place != number:
            self.queue = dict(sorted(self.queue.items(), key=lambda each: each[1].place))
        self.note_turn(tenant)

    def boost(self, tenant: Tenant) -> None:
        """It goes before everybody else in the queue, now or when it comes."""
        tenant.boosted = True
        if tenant.id in self.queue:
            self.leave_queue(tenant)
            self.join_queue(tenant)
        self.changes.of_look(tenant.id)

    def leave_queue(self, tenant: Tenant) -> None:
        """From any place in it."""
        del self.queue[tenant.id]
        tenant.starved, tenant.succeeds = False, None
        self.obstacles.pop(tenant.id, None)
        self.changes.of_tenant(tenant)
        self.note_turn(tenant)

    def note_refusal(self, tenant: Tenant, found: Obstacle | None, now_s: Seconds) -> None:
        """The obstacle for which the tenant was refused memory; None: it got some since."""
        tenant.refused_for = found
        if found is not None:
            tenant.refused_at_s = now_s
        self.changes.of_look(tenant.id)

    def siblings(self, tenant: Tenant) -> tuple[int, list[Tenant]]:
        """How much its owner's tenants may have of a device together, and these; 0: all, and nobody
        has to know of the others."""
        groups = self.accounts.owners[tenant.owner].groups
        cap = cap_of(parse_caps(self.settings.user_memory_caps), tenant.owner, groups)
        if not cap:
            return 0, [tenant]
        return cap, [each for each in self.tenants.values() if each.owner == tenant.owner]

    def note_cap(self, tenant: Tenant) -> None:
        """How much the tenant may have has changed, or what it is called."""
        self.changes.of_look(tenant.id)
        for client in tenant.clients.values():
            self.note_memory(client)
            for device, share in client.devices.items():
                self.devices[device].memory.attention.note(share)

    def end_use(self, tenant: Tenant, now_s: Seconds) -> None:
        """The tenant's turn has ended."""
        tenant.last_turn_end_s = now_s
        for client in tenant.clients.values():
            self.note_memory(client)
            for share in client.devices.values():
                share.used_until(now_s)

    def set_devices(self, tenant: Tenant, turn: Turn, devices: set[DeviceId]) -> bool:
        """The devices that the turn is on, from now on. Whether they are others than before; then
        the tenant's turn is to be noted."""
        before, turn.devices = turn.devices, devices
        for device in devices - before:
            self.note_swap(tenant, turn, device)
        return devices != before

    def note_swap(self, tenant: Tenant, turn: Turn, device: DeviceId) -> None:
        """The turn is on the device from now on: what of the tenant's memory is to come back."""
        parked = sum(share.bytes_parked for share in self.shares_of(tenant, device))
        turn.bytes_to_restore = max(turn.bytes_to_restore, parked)
        if parked and self.memory_moves:
            part = self.settings.swap_percent / 100
            self.devices[device].swap.spend(parked, self.accounts.now_s, part)

    def learn_swap_rate(self, tenant: Tenant, turn: Turn) -> None:
        """All memory of the tenant has come back, unless it is waited for no longer."""
        shares = (share for each in turn.devices for share in self.shares_of(tenant, each))
        if not any(share.bytes_parked for share in shares):
            took_s = self.accounts.now_s - turn.granted_at_s
            for device in turn.devices:
                self.devices[device].swap.learn(turn.bytes_to_restore, took_s)

    def touch(self, tenant: Tenant) -> None:
        """The event under way is about the tenant."""
        self.touched[tenant.id] = tenant
        self.changes.of_tenant(tenant)

    def weigh_everybody(self) -> None:
        """Weights may have changed."""
        self.lines.charge_everything()
        self.accounts.quantum_longest_s = self.settings.quantum_longest_s
        self.accounts.recent.fade_in(self.settings.quantum_max_s, self.accounts.now_s)
        self.note_rules()
        weights = self.weights
        for name, owner in self.accounts.owners.items():
            self.accounts.know(name, owner.groups, weights)
        for tenant in self.tenants.values():
            self.classify(tenant)
        self._renew_everybody()

    def stir_everything(self) -> None:
        """A setting has changed that may concern everybody."""
        for device in self.devices.values():
            device.memory.look_at_all()
        self.changes.of_everything(self.tenants.values(), self.devices)

    def note_mode(self, device: Device, mode: DeviceMode) -> None:
        """An admin pauses, drains or opens the device. Whoever queues for it may stand on other
        lines too."""
        device.mode = mode
        self.lines.charge(device.id)
        self.accounts.recent.pause(device.id, mode is not DeviceMode.OPEN, self.accounts.now_s)
        self.changes.of_line(device.id)
        self.changes.of_memory(device.id)
        line = self.lines.of[device.id]
        for tenant in (*line.holders, *line.lacking.values(), *line.queue):
            self.changes.of_tenant(tenant)
            self.note_turn(tenant)
        for tenant in line.queue:
            self.lines.stir(device.id, tenant)  # it waits for another reason
        self._renew_everybody()

    def _renew_everybody(self) -> None:
        self.lines.renew_everybody()
        for tenant in self.queue.values():
            self.note_turn(tenant)

    def paused_device(self, devices: Set[DeviceId]) -> Device | None:
        """One of these devices on which no new turn begins."""
        for each in devices if len(devices) < 2 else sorted(devices):
            if self.devices[each].mode is not DeviceMode.OPEN:
                return self.devices[each]
        return None

    def end_recovery(self) -> None:
        """All clients of a scheduler before this one are back, or have had time to be."""
        self.recovery = None
        for tenant in self.queue.values():
            self.note_turn(tenant)
        self.stir_everything()

    def note_memory(self, client: Client) -> None:
        """What the client has, or may have, has changed on each of its devices."""
        for device in client.devices:
            self.changes.of_memory(device)

    def missing_devices(self, tenant: Tenant) -> frozenset[DeviceId]:
        """The devices that the tenant still lacks to run; all of its own while it has no turn."""
        wanted = tenant.wanted_devices
        return wanted if tenant.turn is None else wanted - tenant.turn.devices

    def ready_clients(self, tenant: Tenant) -> list[Client]:
        """Clients that wait and could run if they were granted the turn."""
        return [
            client
            for client in tenant.clients.values()
            if client.state is ClientState.WAITING and client.live_devices and not client.frozen
        ]

    def turn_clients(self, tenant: Tenant) -> list[Client]:
        """Clients that have been granted the tenant's turn and have not dropped it."""
        return [client for client in tenant.clients.values() if client.state in WITH_TURN]

    def holders(self, device: DeviceId) -> list[Tenant]:
        """Tenants with a turn on the device, the earliest first."""
        return self.lines.of[device].holders

    def holding_shares(self, device: DeviceId) -> list[Share]:
        """The shares of clients with a turn on the device, those of the earliest turn first."""
        return [
            share
            for tenant in self.holders(device)
            for client in tenant.clients.values()
            if client.state in WITH_TURN
            and (share := client.devices.get(device)) is not None
            and not share.failed
        ]

    def others_queue(self, tenant: Tenant, devices: Set[DeviceId]) -> bool:
        """Whether others queue for one of these devices."""
        return any(self.lines.others_queue(tenant, device) for device in devices)

    def count_waiters(self, tenant: Tenant, devices: Set[DeviceId]) -> int:
        """How many others queue for one of these devices."""
        if len(devices) == 1:
            (device,) = devices
            return len(self.lines.of[device].queue) - (device in tenant.places.queues)
        waiting = {each.id for device in devices for each in self.lines.of[device].queue}
        return len(waiting - {tenant.id})

    def shares_of(self, tenant: Tenant, device: DeviceId) -> Iterator[Share]:
        """What the tenant's clients have on the device."""
        for client in tenant.clients.values():
            share = client.devices.get(device)
            if share is not None:
                yield share

    # ---- how much of a device can be given out -----------------------------------------------

    def total_bytes(self, device: Device) -> int:
        """The device's memory, or as much of it as the settings allow."""
        limit = self.settings.device_bytes_max
        return min(device.bytes_total, limit) if limit else device.bytes_total

    def least_reserve_bytes(self, device: Device) -> int:
        """The bytes that are kept free in any case for contexts, modules and the driver."""
        setting, total = self.settings.device_reserve_bytes, self.total_bytes(device)
        by_size = min(max(1 << 30, total // 50), total // 8)
        return by_size if setting == RESERVE_BY_SIZE else min(setting, total)

    def reserve_bytes(self, device: Device) -> int:
        """The same, with those for contexts that are to be expected: 1/16 of the device at most."""
        to_come = min(device.memory.bytes_to_come, self.total_bytes(device) // 16)
        return max(self.least_reserve_bytes(device), to_come)

    def usable_bytes(self, device: Device) -> int:
        """The bytes that clients may have together; below 0 when others have grown into the
        reserve."""
        taken = self.reserve_bytes(device) + device.memory.bytes_foreign
        return self.total_bytes(device) - taken - device.memory.bytes_ghost

    def reserve_to_lend_bytes(self, device: Device) -> int:
        """How much of the reserve memory may use that was there before: see above."""
        least = self.least_reserve_bytes(device)
        return self.reserve_bytes(device) - least + min(least, device.memory.bytes_foreign)

    # ---- the tables --------------------------------------------------------------------------

    def note(self, tenant: Tenant, event: Event, now_s: Seconds) -> None:
        """For the tenant's story, which tells what came before a failure."""
        tenant.story.append(f"{now_s:.3f} s {type(event).__name__} {event.cause}".rstrip())

    def in_cell(self, tenant: Tenant) -> bool:
        """Whether a notebook cell of the tenant runs."""
        return tenant.busy or any(client.in_cell for client in tenant.clients.values())

    def work_begins(self, tenant: Tenant, *, in_burst: bool = False) -> None:
        """What the tenant uses from now on is for a new cell, or for a burst outside of one. So a
        burst before it is over."""
        if tenant.in_burst and (used_s := self.cell_used_s(tenant)) > 0:
            tenant.last_cells_s.append(used_s)
        tenant.cell_used_s, tenant.gave_way, tenant.in_burst = 0.0, False, in_burst
        if tenant.turn is not None:
            tenant.turn.counted_from_s = self.accounts.now_s
        elif tenant.id not in self.queue:
            tenant.came = True  # whatever ended the turn of other work

    def cell_used_s(self, tenant: Tenant) -> Seconds:
        """How long turns of the tenant's present cell have lasted."""
        turn = tenant.turn
        under_way_s = 0.0 if turn is None else self.accounts.now_s - turn.counted_from_s
        return tenant.cell_used_s + under_way_s

    def move_client(self, client: Client, trigger: ClientTrigger) -> None:
        """Take the client along the table."""
        tenant = self.tenants[client.tenant]
        new = CLIENT_TRANSITIONS.get((client.state, trigger))
        if new is None:
            raise InvalidTransition(
                f"Client {client.id} is {client.state.value}; {trigger.name} is not possible. "
                f"Report this with the story of its tenant: {_told(tenant)}"
            )
        tenant.story.append(f"client {client.id} {trigger._name_}: {new._value_}")
        if (client.state in WITH_TURN) != (new in WITH_TURN):
            self.note_memory(client)
        client.state = new
        self.changes.of_tenant(tenant)

    def move_tenant(self, tenant: Tenant, trigger: TenantTrigger) -> None:
        """Take the tenant along the table."""
        new = TENANT_TRANSITIONS.get((tenant.state, trigger))
        if new is None:
            raise InvalidTransition(
                f"Tenant {tenant.id} is {tenant.state.value}; {trigger.name} is not possible. "
                f"Report this with its story: {_told(tenant)}"
            )
        tenant.story.append(f"tenant {trigger._name_}: {new._value_}")
        tenant.state = new
        self.changes.of_tenant(tenant)


def _told(tenant: Tenant) -> str:
    return "; ".join(tenant.story)
