"""The core against a world of processes that wait, run, drain, stall, die and say stale things,
over lines on which messages cross.

After each step all invariants hold, and what the *processes* can do (not what the scheduler
believes) is exclusive. At the end everybody behaves, and everybody who waits is served.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    CloseClient,
    Command,
    GrantTurn,
    KillClient,
    ReportFailure,
    TellContention,
    TellHold,
    TellMemoryLimit,
    WakeAt,
)
from jupyter_gpushare.core.errors import NeedNotMet
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId, TurnId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import OverduePolicy, TurnTaking
from jupyter_gpushare.core.shares.classes import TenantClass
from jupyter_gpushare.core.snapshot import Snapshot

from .desk import TURNS_ALONE
from .model_client import Gate, ModelClient

DEVICES = [DeviceId(name) for name in "ABC"]
TENANTS = [TenantId(name) for name in "abcd"]
CLIENTS_MAX = 12
ROUNDS_OF_WORDS_MAX = 200
"""Of words back and forth, until nobody has anything to say."""

some_device = st.sampled_from(DEVICES)
some_tenant = st.sampled_from(TENANTS)
some_devices = st.sets(st.sampled_from([*DEVICES, DEVICES[0], DEVICES[0]]), min_size=1, max_size=2)
some_index = st.integers(0, CLIENTS_MAX - 1)


class Lines(enum.Enum):
    """How fast messages travel after a step."""

    SLOW = "not at all"
    OUT = "the process's own words arrive"
    FAST = "all words arrive, everywhere"


lines = st.sampled_from([Lines.SLOW, Lines.OUT, Lines.FAST, Lines.FAST, Lines.FAST])


class World(stateful.RuleBasedStateMachine):
    """Four notebooks on three devices."""

    all_ends_within_s = 200.0
    """When everybody behaves, whatever ends by itself in these settings has ended then."""
    new_scheduler = Scheduler

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.recovering = False
        settings = TURNS_ALONE.replace(quantum_s=5, overdue_s=20, hold_max_s=30)
        self.scheduler = self.new_scheduler(settings)
        self.seen: Snapshot | None = None
        """After the last event; nothing changes between two."""
        self.clients: dict[ClientId, ModelClient] = {}
        self.last_client = 0
        self.wake_at_s: float | None = None
        self.owner_of_turn: dict[TurnId, TenantId] = {}
        self.told: dict[tuple[object, ...], Command] = {}
        self.told_hold: dict[ClientId, tuple[float, float]] = {}
        """Until when each process was told that its turn is kept by hand."""
        self.lost_devices: set[DeviceId] = set()
        self.overlapping_turns: set[TurnId] = set()
        """From before turns were switched on; what stalls in one may be helped by its siblings."""

    @stateful.initialize(
        recovering=st.sampled_from([False, False, False, True]),
        clients=st.lists(st.tuples(some_tenant, some_devices), min_size=3, max_size=8),
    )
    def start(self, recovering: bool, clients: list[tuple[TenantId, set[DeviceId]]]) -> None:
        if recovering:
            self.scheduler = self.new_scheduler(
                self.scheduler.settings, recovering_until_s=self.now_s + 2
            )
        self.recovering = recovering
        for device in DEVICES:
            self.handle(ev.DeviceFound(device=device, name=f"GPU {device}", bytes_total=8000))
        for tenant in TENANTS:
            self.register(tenant)
        for tenant, devices in clients:
            self.join(tenant, devices, False, Lines.FAST)

    # ---- the scheduler's side ----------------------------------------------------------------

    def handle(self, event: ev.Event) -> None:
        before = self.seen or self.scheduler.snapshot(self.now_s)
        kept_away = self.kept_away() | self.moved_among_siblings()
        commands: list[Command] = []
        for step in self.scheduler.steps(event, now_s=self.now_s):
            assert not any(isinstance(command, ReportFailure) for command in step)
            self.scheduler.check_invariants()
            commands += step
        self.seen = seen = self.scheduler.snapshot(self.now_s)
        if not isinstance(event, ev.DeviceOpened | ev.DeviceFound | ev.BoostRequested):
            # With these, an open gate may turn out to be one on a device: a claim before the queue;
            # and a boost is meant to overtake.
            kept_away |= self.kept_away() | self.moved_among_siblings()
            nobody_was_overtaken(before, seen, kept_away)
        for command in commands:
            assert command.cause
            self.perform(command)
        self.everybody_knows_the_contention(seen)
        self.everybody_knows_the_holds(seen)

    def moved_among_siblings(self) -> set[TenantId]:
        """Those that have another place for a turn that ends for them, or that they gave away."""
        tenants = self.scheduler._machine._state.tenants.values()
        return {each.id for each in tenants if each.succeeds is not None or each.gave_turn}

    def kept_away(self) -> set[TenantId]:
        """Tenants that need a paused device, or whose memory has no room: others may be served
        before them."""
        state = self.scheduler._machine._state
        return {each.id for each in state.queue.values() if state.is_kept_waiting(each)}

    def perform(self, command: Command) -> None:
        match command:
            case WakeAt(at_s=at_s):
                self.wake_at_s = at_s
                return
            case CloseClient(client=client_id):
                self.disconnect(client_id)
                return
            case KillClient(client=client_id):
                self.disconnect(client_id)
                return
            case GrantTurn(turn=turn, client=client_id):
                tenant = self.clients[client_id].tenant
                assert self.owner_of_turn.setdefault(turn, tenant) == tenant
            case TellContention(client=client_id):
                self.told_something_new((TellContention, client_id), command)
            case TellHold(client=client_id, left_s=left_s):
                self.told_hold[client_id] = (left_s, self.now_s)
            case TellMemoryLimit(client=client_id, device=device):
                self.told_something_new((TellMemoryLimit, client_id, device), command)
            case _:
                pass
        client_id = command.client  # type: ignore[attr-defined]
        self.clients[client_id].inbox.append(command)

    def told_something_new(self, subject: tuple[object, ...], command: Command) -> None:
        told = self.told.get(subject)
        assert told is None or without_cause(told) != without_cause(command)
        self.told[subject] = command

    def everybody_knows_the_contention(self, snapshot: Snapshot) -> None:
        """Who has the turn, the waiters of now; everybody, the tenants of now."""
        queues = {device.id: [w.tenant for w in device.queue] for device in snapshot.devices}
        live = {
            client.id: {d.device for d in client.devices if not d.failed} - self.lost_devices
            for tenant in snapshot.tenants
            for client in tenant.clients
        }
        on: dict[DeviceId, int] = dict.fromkeys(DEVICES, 0)
        for tenant in snapshot.tenants:
            opened_none = not any(client.devices for client in tenant.clients)
            for device in DEVICES:
                on[device] += opened_none or any(device in live[c.id] for c in tenant.clients)
        for tenant in snapshot.tenants:
            for client in (each for each in tenant.clients if live[each.id]):
                told = self.told[(TellContention, client.id)]
                assert isinstance(told, TellContention)
                assert told.tenants == max(on[device] for device in live[client.id])
                if client.state in ("holding", "recalled", "recalled, waiting"):
                    waiting = [set(queues[device]) - {tenant.id} for device in live[client.id]]
                    assert told.waiters == max(map(len, waiting))

    def everybody_knows_the_holds(self, snapshot: Snapshot) -> None:
        """What a process was told last about its tenant's hold is so, to the moment of its end."""
        for tenant in snapshot.tenants:
            begun_s, to_come_s = tenant.hold_left_s, tenant.hold_to_come_s
            assert min(begun_s, to_come_s) == 0
            assert max(begun_s, to_come_s) <= self.scheduler.settings.hold_max_s + 1e-6
            for client in tenant.clients:
                told_s, at_s = self.told_hold.get(client.id, (0.0, 0.0))
                left_s = max(0.0, at_s + told_s - self.now_s)
                assert (told_s if to_come_s else left_s) == pytest.approx(begun_s or to_come_s)

    def disconnect(self, client_id: ClientId) -> None:
        """The connection is gone; the process, if it lives, has nothing on the device (its kernel
        was shut down)."""
        client = self.clients[client_id]
        if not client.closed:
            client.closed = True
            client.outbox.append(ev.ClientLost(client=client_id))

    # ---- rules: time and administration ------------------------------------------------------

    @rule(step_s=st.sampled_from([0.0, 0.01, 0.3, 4.0, 30.0]))
    def time_passes(self, step_s: float) -> None:
        """Up to the next alarm, if there is one; an alarm that is late already rings at once."""
        if self.wake_at_s is not None and self.wake_at_s <= self.now_s + step_s:
            self.alarm_rings()
        else:
            self.now_s += step_s

    def time_goes_on(self) -> None:
        """To the next alarm; by a second where there is none, or where words arrive before it."""
        words_travel = any(client.outbox or client.inbox for client in self.clients.values())
        soonest_s = self.now_s + 1.0
        if self.wake_at_s is not None and (self.wake_at_s <= soonest_s or not words_travel):
            self.alarm_rings()
        else:
            self.now_s = soonest_s

    @precondition(lambda self: self.wake_at_s is not None)
    @rule()
    def alarm_rings(self) -> None:
        assert self.wake_at_s is not None
        self.now_s = max(self.now_s, self.wake_at_s)
        self.wake_at_s = None
        self.handle(ev.ClockTicked())

    def switch_turns(self, on: bool) -> None:
        """Gates that are open before turns are switched on may overlap until they are shut."""
        self.change_settings(turns=TurnTaking.ON if on else TurnTaking.OFF)

    def tune(self, quantum_s: float, policy: OverduePolicy) -> None:
        self.change_settings(quantum_s=quantum_s, overdue_policy=policy)

    def change_settings(self, **changes: object) -> None:
        if self.scheduler.settings.turns is TurnTaking.OFF:
            self.unsettle()
            devices = self.scheduler.snapshot(self.now_s).devices
            self.overlapping_turns |= {h.turn for device in devices for h in device.holders}
        self.handle(ev.SettingsChanged(settings=self.scheduler.settings.replace(**changes)))

    def device_mode(self, device: DeviceId, mode: ev.DeviceMode) -> None:
        """An admin pauses, drains or opens it."""
        self.handle(ev.DeviceModeChanged(device=device, mode=mode))

    def boost(self, tenant: TenantId) -> None:
        if tenant in self.registered():
            self.handle(ev.BoostRequested(tenant=tenant))

    def hold_for(self, tenant: TenantId, hold_s: float) -> None:
        """An admin does what the user could do."""
        if tenant in self.registered():
            self.handle(ev.TenantHeld(tenant=tenant, hold_s=hold_s))

    def freeze(self, index: int, frozen: bool) -> None:
        """Somebody says so, and may be wrong: the process goes on as it likes."""
        for client in self.pick(index):
            client.outbox.append(ev.ClientFrozen(client=client.id, frozen=frozen))

    def let_all_go_on(self) -> None:
        """Who needs a paused device waits for as long, and so does who is frozen."""
        for device in DEVICES:
            self.device_mode(device, ev.DeviceMode.OPEN)
        for number in range(len(self.alive())):
            self.freeze(number, False)

    def ask_class(self, tenant: TenantId, asked: str) -> None:
        if tenant in self.registered():
            self.handle(ev.ClassAsked(tenant=tenant, asked_class=asked))

    def ask_need(self, tenant: TenantId, need: str) -> None:
        """It may be more than there is, and the devices may be unknown."""
        if tenant in self.registered():
            with contextlib.suppress(NeedNotMet):
                self.handle(ev.NeedAsked(tenant=tenant, need=need))

    def evict(self, tenant: TenantId) -> None:
        if tenant in self.registered():
            self.handle(ev.EvictRequested(tenant=tenant))

    def recovery_is_complete(self) -> None:
        self.handle(ev.RecoveryComplete())
        self.recovering = False

    def device_falls_off(self, device: DeviceId) -> None:
        self.lost_devices.add(device)
        self.handle(ev.DeviceLost(device=device))

    def device_is_back(self, device: DeviceId) -> None:
        """Processes that were let through on it have open gates."""
        self.lost_devices.discard(device)
        self.unsettle()
        self.handle(ev.DeviceFound(device=device, name=f"GPU {device}", bytes_total=8000))

    def register(self, tenant: TenantId, cap_bytes: int = 0) -> None:
        self.handle(
            ev.TenantRegistered(
                tenant=tenant,
                name=f"notebook {tenant}",
                owner="me",
                kind="kernel",
                cap_bytes=cap_bytes,
            )
        )

    def shut_down(self, tenant: TenantId) -> None:
        if tenant in self.registered():
            self.handle(ev.TenantRemoved(tenant=tenant))
            self.handle(
                ev.TenantRegistered(
                    tenant=tenant, name=f"notebook {tenant}", owner="me", kind="kernel"
                )
            )

    def interrupt(self, tenant: TenantId) -> None:
        if tenant in self.registered():
            self.handle(ev.InterruptRequested(tenant=tenant))

    def release(self, tenant: TenantId) -> None:
        """Its user gives the turn away, whether it has one or not."""
        if tenant in self.registered():
            self.handle(ev.ReleaseRequested(tenant=tenant))

    def cell_seen(self, tenant: TenantId, busy: bool) -> None:
        """A server tells of a cell, at any moment."""
        if tenant in self.registered():
            self.handle(ev.TenantBusy(tenant=tenant, busy=busy))

    def unsettle(self) -> None:
        """Gates that are open, or are about to be, owe nothing to the turns from now on."""
        for client in self.clients.values():
            granted = any(isinstance(command, GrantTurn) for command in client.inbox)
            if client.gate is not Gate.SHUT or granted:
                client.settled = False

    def registered(self) -> set[TenantId]:
        return {tenant.id for tenant in self.scheduler.snapshot(self.now_s).tenants}

    # ---- rules: processes --------------------------------------------------------------------

    @precondition(lambda self: len(self.alive()) < CLIENTS_MAX)
    @rule(
        tenant=some_tenant,
        devices=some_devices | st.just(set()),
        holding=st.sampled_from([False, False, False, True]),
        lines=lines,
    )
    def join(self, tenant: TenantId, devices: set[DeviceId], holding: bool, lines: Lines) -> None:
        """A new process, or one that was connected before and holds a turn from then."""
        self.last_client += 1
        client = self.new_client(ClientId(self.last_client), tenant)
        self.clients[client.id] = client
        if holding:
            turn = TurnId(1000 * self.last_client)
            client.gate, client.turn, client.settled = Gate.OPEN, turn, False
        self.handle(
            ev.ClientJoined(
                client=client.id,
                tenant=tenant,
                pid=client.id,
                process_name="python",
                held_turn=client.turn,
            )
        )
        for device in sorted(devices):
            client.open_device(device)
        self.flow(client, lines)

    def new_client(self, client: ClientId, tenant: TenantId) -> ModelClient:
        return ModelClient(client, tenant)

    @rule(index=some_index, lines=lines)
    def call(self, index: int, lines: Lines) -> None:
        self.work(index, ModelClient.call, lines)

    @rule(indices=st.lists(some_index, min_size=2, max_size=5), lines=lines)
    def many_call(self, indices: list[int], lines: Lines) -> None:
        for index in indices:
            self.work(index, ModelClient.call, lines)

    @rule(index=some_index, lines=lines)
    def end_cell(self, index: int, lines: Lines) -> None:
        self.work(index, ModelClient.end_cell, lines, of=self.with_gate(Gate.OPEN))

    @rule(index=some_index, lines=lines)
    def finish_drain(self, index: int, lines: Lines) -> None:
        self.work(index, ModelClient.finish_drain, lines, of=self.with_gate(Gate.DRAINING))

    @rule(index=some_index, lines=lines)
    def stall_drain(self, index: int, lines: Lines) -> None:
        self.work(index, ModelClient.stall_drain, lines, of=self.with_gate(Gate.DRAINING))

    @rule(index=some_index, lines=lines)
    def give_up(self, index: int, lines: Lines) -> None:
        self.work(index, lambda client: client.give_up(), lines)

    @rule(index=some_index, hold_s=st.sampled_from([0.0, 1.0, 20.0, 9999.0]), lines=lines)
    def hold(self, index: int, hold_s: float, lines: Lines) -> None:
        self.work(index, lambda client: client.hold(hold_s), lines)

    @rule(index=some_index, lines=lines)
    def give_away(self, index: int, lines: Lines) -> None:
        self.work(index, ModelClient.give_away, lines)

    def work(
        self,
        index: int,
        what: Callable[[ModelClient], None],
        lines: Lines,
        of: list[ModelClient] | None = None,
    ) -> None:
        for client in self.pick(index, of):
            what(client)
            self.flow(client, lines)

    def with_gate(self, gate: Gate) -> list[ModelClient]:
        return [client for client in self.alive() if client.gate is gate]

    @rule(index=some_index, device=some_device, lines=lines)
    def open_device(self, index: int, device: DeviceId, lines: Lines) -> None:
        for client in self.pick(index):
            client.open_device(device)
            self.flow(client, lines)

    def close_device(self, index: int, device: DeviceId) -> None:
        for client in self.pick(index):
            client.close_device(device)

    def fail_context(self, index: int, device: DeviceId) -> None:
        for client in self.pick(index):
            if device in client.devices:
                client.fail(device)

    def die(self, index: int) -> None:
        """With the process, its work ends; what it had sent before is read before the end."""
        for client in self.pick(index):
            client.gate, client.closed = Gate.SHUT, True
            client.outbox.append(ev.ClientLost(client=client.id))

    def report_memory(self, index: int, device: DeviceId, bytes_allocated: int) -> None:
        for client in self.pick(index):
            client.outbox.append(
                ev.MemoryReported(
                    client=client.id,
                    device=device,
                    bytes_allocated=bytes_allocated,
                    bytes_fixed=0,
                )
            )

    def say_something_stale(self, index: int, turn: int, stalls: bool) -> None:
        """About a turn that this process does not have and never will, or a wait that is none."""
        stale = TurnId(turn)
        devices = self.scheduler.snapshot(self.now_s).devices
        over = stale not in {holder.turn for device in devices for holder in device.holders}
        for client in self.pick(index):
            owner = self.owner_of_turn.get(stale)
            if owner is None or (owner == client.tenant and not over):
                return
            if stale == client.turn or any(
                isinstance(command, GrantTurn) and command.turn == stale for command in client.inbox
            ):
                return
            if stalls:
                client.outbox.append(ev.DrainStalled(client=client.id, turn=stale, calls_waiting=1))
            else:
                client.outbox.append(
                    ev.TurnDropped(client=client.id, turn=stale, reason=ev.DropReason.IDLE)
                )
            if not client.asked:
                client.outbox.append(ev.RequestWithdrawn(client=client.id))

    @rule(data=st.data())
    def trouble(self, data: st.DataObject) -> None:
        """What is rare: one of these at a time."""
        index, tenant, device, flag = (
            data.draw(strategy)
            for strategy in (some_index, some_tenant, some_device, st.booleans())
        )
        troubles: list[Callable[[], None]] = [
            lambda: self.switch_turns(flag),
            lambda: self.tune(
                0.5 if flag else 5.0, OverduePolicy.KILL if flag else OverduePolicy.WARN
            ),
            self.recovery_is_complete,
            lambda: self.change_settings(hold_max_s=2 if flag else 30),
            lambda: self.device_falls_off(device),
            lambda: self.device_is_back(device),
            lambda: self.device_mode(device, data.draw(st.sampled_from(ev.DeviceMode))),
            lambda: self.device_mode(device, ev.DeviceMode.OPEN),
            lambda: self.evict(tenant),
            lambda: self.ask_class(tenant, "batch" if flag else "interactive"),
            lambda: self.ask_need(tenant, data.draw(st.sampled_from(["", "1KiB", "1GiB"]))),
            lambda: self.boost(tenant),
            lambda: self.freeze(index, flag),
            lambda: self.hold_for(tenant, 20.0 if flag else 0.0),
            lambda: self.register(tenant, 4000 if flag else 0),
            lambda: self.shut_down(tenant),
            lambda: self.interrupt(tenant),
            lambda: self.release(tenant),
            lambda: self.cell_seen(tenant, flag),
            lambda: self.close_device(index, device),
            lambda: self.fail_context(index, device),
            lambda: self.die(index),
            lambda: self.report_memory(index, device, 10 if flag else 0),
            lambda: self.say_something_stale(index, data.draw(st.integers(0, 5)), flag),
        ]
        data.draw(st.sampled_from(troubles))()

    # ---- rules: the lines --------------------------------------------------------------------

    @rule(index=some_index, count=st.integers(1, 4))
    def messages_arrive(self, index: int, count: int) -> None:
        """At the scheduler."""
        for client in self.pick(index, of=[c for c in self.clients.values() if c.outbox]):
            for _ in range(min(count, len(client.outbox))):
                self.arrive(client)

    @rule(index=some_index, count=st.integers(1, 4))
    def commands_arrive(self, index: int, count: int) -> None:
        """At a process."""
        for client in self.pick(index, of=[c for c in self.alive() if c.inbox]):
            for _ in range(min(count, len(client.inbox))):
                client.take_in(client.inbox.popleft())

    def flow(self, client: ModelClient, lines: Lines) -> None:
        """Let words travel: those of one process to the scheduler, or all in both directions."""
        if lines is Lines.OUT:
            while client.outbox and client.id in self.clients:
                self.arrive(client)
        if lines is not Lines.FAST:
            return
        for _ in range(ROUNDS_OF_WORDS_MAX):
            if not any(c.outbox or (c.inbox and not c.closed) for c in self.clients.values()):
                return
            for each in list(self.clients.values()):
                while each.outbox and each.id in self.clients:
                    self.arrive(each)
                while each.inbox and not each.closed:
                    each.take_in(each.inbox.popleft())
        raise AssertionError("the words never end")

    def arrive(self, client: ModelClient) -> None:
        event = client.outbox.popleft()
        if isinstance(event, ev.DeviceClosed):
            self.told.pop((TellMemoryLimit, client.id, event.device), None)
        if isinstance(event, ev.DeviceOpened):
            granted = any(isinstance(command, GrantTurn) for command in client.inbox)
            unknown = any(isinstance(later, ev.DeviceOpened) for later in client.outbox)
            if client.gate is Gate.SHUT and not granted and not unknown:
                client.settled = True  # a grant from now on covers the device
        self.handle(event)
        if isinstance(event, ev.ClientLost):
            client.outbox.clear()
            del self.clients[client.id]

    def alive(self) -> list[ModelClient]:
        return [client for client in self.clients.values() if not client.closed]

    def pick(self, index: int, of: list[ModelClient] | None = None) -> list[ModelClient]:
        """One of them, or none if there is none."""
        choice = self.alive() if of is None else of
        return [choice[index % len(choice)]] if choice else []

    # ---- what must always be so --------------------------------------------------------------

    @stateful.invariant()
    def the_processes_are_exclusive(self) -> None:
        """On each device, the processes that can run there now belong to one tenant, those apart
        that got an open gate before the scheduler could know of the device."""
        if self.scheduler.settings.turns is TurnTaking.OFF:
            return
        for device in set(DEVICES) - self.lost_devices:
            tenants = {
                client.tenant
                for client in self.alive()
                if client.settled
                and client.turn not in self.overlapping_turns
                and device in client.may_run_on
            }
            assert len(tenants) <= 1, f"{tenants} run on {device}"

    def teardown(self) -> None:
        """Everybody behaves now: who waits is served, whatever has happened before."""
        if not self.clients:
            return
        self.change_settings(turns=TurnTaking.ON)
        self.let_all_go_on()
        self.recovery_is_complete()
        unserved = {client.id for client in self.alive() if client.calls_wait}
        until_s = self.now_s + self.all_ends_within_s
        while self.now_s < until_s:
            if not unserved and not any(c.outbox or c.inbox for c in self.clients.values()):
                break
            for client in list(self.clients.values()):
                while client.outbox and client.id in self.clients:
                    self.arrive(client)
                while client.inbox and not client.closed:
                    client.take_in(client.inbox.popleft())
                self.behave(client)
                if self.is_served(client):
                    unserved.discard(client.id)
            self.time_goes_on()
        assert not unserved, f"nobody serves {unserved}"

    def behave(self, client: ModelClient) -> None:
        client.finish_drain()
        client.end_cell()

    def is_served(self, client: ModelClient) -> bool:
        return client.closed or not client.calls_wait


def without_cause(command: Command) -> tuple[object, ...]:
    return tuple(getattr(command, name) for name in command.__dataclass_fields__ if name != "cause")


def queues_of(snapshot: Snapshot, tenant: TenantId) -> int:
    """In how many the tenant stands."""
    return sum(w.tenant == tenant for device in snapshot.devices for w in device.queue)


def nobody_was_overtaken(before: Snapshot, after: Snapshot, kept_away: set[TenantId]) -> None:
    """In each device's queue, order is kept, and who was served left nobody behind it waiting
    longer, those apart whose memory is kept away and those that wait for other devices too. Where
    tenants are of several classes, shares and time change the order (test_classes.py)."""
    if after.settings.turns is TurnTaking.OFF:
        return
    interactive = TenantClass.INTERACTIVE.value
    if any(tenant.runs_as != interactive for seen in (before, after) for tenant in seen.tenants):
        return
    passed_over = {t.id for s in (before, after) for t in s.tenants if t.obstacle is not None}
    passed_over |= kept_away
    # A tenant of several devices lets others have one of them while it is not its turn on another.
    seen = (before, after)
    passed_over |= {t.id for t in after.tenants if any(queues_of(s, t.id) > 1 for s in seen)}
    only_waited = {tenant.id for tenant in before.tenants if tenant.state == "waiting"}
    for old, new in zip(before.devices, after.devices, strict=False):
        still = [w.tenant for w in old.queue if w.tenant in {n.tenant for n in new.queue}]
        stayed = [w.tenant for w in new.queue if w.tenant in still]
        gone_and_back = set(still) & {h.tenant for h in old.holders}
        if not gone_and_back:
            kept = [[t for t in each if t not in kept_away] for each in (stayed, still)]
            assert kept[0] == kept[1]
        for holder in new.holders:
            places = [w.tenant for w in old.queue]
            if holder.tenant in places and holder.tenant in only_waited - kept_away:
                ahead = places[: places.index(holder.tenant)]
                assert not (set(ahead) & set(stayed)) - passed_over, (
                    f"{holder.tenant} overtook {ahead}"
                )


class LongWorld(World):
    """The same, for longer."""


WORLD_TIMEOUT = pytest.mark.timeout(1800)
"""Enough for a slow machine, and for the five minutes in which Hypothesis makes a failing example
small: a test that is ended before that does not say why it failed."""

World.TestCase.settings = settings(max_examples=15, stateful_step_count=50)
TestWorld = World.TestCase
TestWorld.pytestmark = [
    WORLD_TIMEOUT,
    pytest.mark.promise("scheduler-97"),
]
TestWorld.__doc__ = "Whatever happens, the invariants hold and everybody who waits is served."

LongWorld.TestCase.settings = settings(max_examples=800, stateful_step_count=70)
TestLongWorld = LongWorld.TestCase
TestLongWorld.pytestmark = [
    WORLD_TIMEOUT,
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.promise("scheduler-97"),
]
TestLongWorld.__doc__ = "The same in many more and longer runs."
