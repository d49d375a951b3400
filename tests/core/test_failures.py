"""The core fails in the middle of an event: it starts anew from its clients, nothing of the event
is left behind, and all hooks come to have what the core believes. Who makes it fail is kept out.

One story with all kinds of events is played again and again; each time the core fails before
another one of the lines that change something.
"""

from __future__ import annotations

import bisect
import pickle
import re
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core import scheduler
from jupyter_gpushare.core.commands import (
    CancelWait,
    CloseClient,
    Command,
    GrantTurn,
    MeasureDevice,
    RefuseClient,
    RenewConnection,
    ReportFailure,
    TellSettings,
    WakeAt,
)
from jupyter_gpushare.core.errors import NeverSettles, RequestFailed, TenantGone
from jupyter_gpushare.core.holds import Holds
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.records import NAMES_ALL_S, WORK_ENDS_S, Tenant
from jupyter_gpushare.core.residency import Residency
from jupyter_gpushare.core.scheduler import Bars, Machine, Scheduler
from jupyter_gpushare.core.settings import Fallback, MemoryMode, SchedulerSettings, TurnTaking
from jupyter_gpushare.core.snapshot import ClientSnapshot
from jupyter_gpushare.core.state import State

from .injection import Injected, Line, changing_lines, watching
from .model_client import Gate
from .model_memory import MemoryClient
from .moves import MovesFollowed

A, B = DeviceId("A"), DeviceId("B")
TOTAL = 8000
CONTEXT = 1
"""What a process has there that it does not report."""
ROUNDS_MAX = 300
MOMENT_S = 1e-6
"""Where every line fails once, nobody is kept waiting for longer."""
STATES = {
    Gate.OPEN: {"holding", "passing"},
    Gate.DRAINING: {"recalled", "recalled, waiting", "holding", "passing"},
}
"""A process may connect again while it drains: it still has its turn then, and drops it soon."""
Point = tuple[int, int]
"""An event by its number, and one of the changes on its way."""
DONE = (0, 0)


class Node:
    """A scheduler and its processes, over lines on which nothing stays for long. `fail_at`: where
    the core fails."""

    def __init__(self, fail_at: Point | None = None) -> None:
        self.now_s = 100.0
        self.wake_at_s: float | None = None
        self.scheduler = Scheduler(
            SchedulerSettings(
                quantum_s=5, overdue_s=20, memory_mode=MemoryMode.SWAP, fallback=Fallback.RUN
            )
        )
        self.processes: dict[str, MemoryClient] = {}
        self.connected: dict[ClientId, MemoryClient] = {}
        self.pending: deque[ev.Event] = deque()
        self.connections = 0
        self.foreign: Counter[DeviceId] = Counter()
        self.lost: set[DeviceId] = set()
        self.fail_at = fail_at
        self.moves = MovesFollowed()
        self.events = 0
        self.failed_at: ev.Event | None = None
        self.changes: list[tuple[Point, ev.Event, Line]] = []
        for device in (A, B):
            self.find(device)

    # ---- the scheduler's side ----------------------------------------------------------------

    def handle(self, event: ev.Event) -> None:
        """One event, and what comes of it."""
        self.pending.append(event)
        while self.pending:
            self.handle_one(self.pending.popleft())

    def handle_one(self, event: ev.Event) -> None:
        if is_stale(event, self.connected):
            return
        self.events += 1
        met: list[Line] = []

        def seen(line: Line) -> None:
            point = (self.events, len(met))
            met.append(line)
            if point == self.fail_at:
                self.failed_at = event
                raise Injected

        watched = self.fail_at is None or self.fail_at[0] == self.events
        with watching(seen) if watched else nullcontext():
            commands = self.told(event)
        self.changes += [((self.events, n), event, line) for n, line in enumerate(met)]
        self.scheduler.check_invariants()
        self.moves.follow(self.scheduler, self.scheduler.snapshot(self.now_s))
        failures = [command for command in commands if isinstance(command, ReportFailure)]
        assert bool(failures) == (self.failed_at is event and self.fail_at != DONE)
        assert all("Injected" in failure.message for failure in failures)
        for command in commands:
            self.perform(command)
        if failures:
            self.fail_at = DONE
        if failures and isinstance(event, ev.RequestEvent):
            self.pending.append(event)  # its caller repeats it

    def told(self, event: ev.Event) -> list[Command]:
        """A process of a tenant that was shut down meanwhile is refused when it comes back."""
        try:
            return self.scheduler.handle(event, now_s=self.now_s)
        except TenantGone:
            assert isinstance(event, ev.ClientJoined) and event.tenant not in self.tenants()
            self.connected.pop(event.client).closed = True
            return []

    def perform(self, command: Command) -> None:
        match command:
            case WakeAt(at_s=at_s):
                self.wake_at_s = at_s
            case MeasureDevice(device=device):
                self.pending.append(self.sample(device))
            case CloseClient(client=number):
                self.connected.pop(number).closed = True
                self.pending.append(ev.ClientLost(client=number))
            case RenewConnection(client=number):
                self.pending.append(ev.ClientLost(client=number))
                process = self.connected.pop(number, None)
                if process is not None:
                    self.connect(process)
            case RefuseClient(client=number, until_s=until_s):
                self.pending.append(ev.ClientLost(client=number))
                process = self.connected.pop(number)
                process.lose_turn()
                self.now_s = until_s + MOMENT_S
                self.connect(process)
            case ReportFailure():
                pass
            case GrantTurn(client=number):
                assert self.connected[number].tenant in self.tenants(), "a stale grant"
                self.connected[number].inbox.append(command)
            case _:
                number = command.client  # type: ignore[attr-defined]
                self.connected[number].inbox.append(command)

    def tenants(self) -> set[TenantId]:
        return {tenant.id for tenant in self.scheduler.snapshot(self.now_s).tenants}

    def sample(self, device: DeviceId) -> ev.DeviceMemoryMeasured:
        own = {
            number: process.memory[device].resident + CONTEXT
            for number, process in self.connected.items()
            if device in process.memory
        }
        return ev.DeviceMemoryMeasured(
            device=device,
            bytes_used=sum(own.values()) + self.foreign[device],
            bytes_of_clients=tuple(own.items()),
        )

    def find(self, device: DeviceId) -> None:
        self.lost.discard(device)
        self.handle(ev.DeviceFound(device=device, name=f"GPU {device}", bytes_total=TOTAL))

    def lose_device(self, device: DeviceId) -> None:
        self.lost.add(device)
        self.handle(ev.DeviceLost(device=device))

    def register(self, tenant: str) -> None:
        self.handle(
            ev.TenantRegistered(
                tenant=TenantId(tenant), name=f"notebook {tenant}", owner="me", kind="kernel"
            )
        )

    def change(self, **changes: object) -> None:
        settings = self.scheduler.settings.replace(**changes)
        self.handle(ev.SettingsChanged(settings=settings))

    # ---- processes ---------------------------------------------------------------------------

    def start(self, name: str, devices: list[DeviceId]) -> None:
        """A process of the tenant that its name begins with."""
        process = MemoryClient(ClientId(0), TenantId(name[0]))
        self.processes[name] = process
        self.connect(process)
        for device in devices:
            process.open_device(device)

    def connect(self, process: MemoryClient) -> None:
        self.connections += 1
        number = ClientId(self.connections)
        self.connected[number] = process
        process.connect_again(number)

    def die(self, name: str) -> None:
        process = self.processes.pop(name)
        process.closed = True
        del self.connected[process.id]
        self.handle(ev.ClientLost(client=process.id))

    def alive(self) -> list[MemoryClient]:
        return list(self.connected.values())

    # ---- time and words ----------------------------------------------------------------------

    def flow(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(ROUNDS_MAX):
            if not any(process.outbox or process.inbox for process in self.alive()):
                return
            for process in self.alive():
                if process.outbox:
                    self.handle(process.outbox.popleft())
                elif process.inbox:
                    process.take_in(process.inbox.popleft())
        raise AssertionError("the words never end")

    def tick(self) -> None:
        """The time comes that the core asked for."""
        if self.wake_at_s is not None:
            self.now_s, self.wake_at_s = max(self.now_s, self.wake_at_s), None
            self.handle(ev.ClockTicked())
        self.flow()

    def look_and_tick(self, device: DeviceId) -> None:
        """The device is looked at, and the time comes that the core asked for."""
        self.handle(self.sample(device))
        self.tick()

    def work_on(self) -> None:
        """Everybody moves memory and drains; who is let through ends its cell."""
        for process in self.alive():
            process.move(3000)
            process.finish_drain()
            if not process.restores and not process.waits_for_memory:
                process.end_cell()
        self.flow()

    # ---- what has to be so when nobody has anything to say ------------------------------------

    def hooks_have_what_the_core_believes(self) -> None:
        believed: dict[ClientId, ClientSnapshot] = {
            client.id: client
            for tenant in self.scheduler.snapshot(self.now_s).tenants
            for client in tenant.clients
        }
        assert believed.keys() == self.connected.keys()
        for number, process in self.connected.items():
            client = believed[number]
            at_the_gate = {"waiting"} if process.calls_wait else {"idle"}
            assert client.state in STATES.get(process.gate, at_the_gate), (number, process.gate)
            assert {each.device for each in client.devices} == process.devices
            for each in client.devices:
                memory = process.memory[each.device]
                assert each.bytes_allocated == memory.allocated
                assert each.bytes_parked == memory.parked
        if self.scheduler.settings.turns is TurnTaking.ON:
            self.gates_are_exclusive()

    def gates_are_exclusive(self) -> None:
        for device in {A, B} - self.lost:
            tenants = {
                process.tenant
                for process in self.alive()
                if process.gate is Gate.OPEN and device in process.may_run_on
            }
            assert len(tenants) <= 1, f"{tenants} run on {device}"

    def everybody_is_served(self) -> None:
        for _ in range(ROUNDS_MAX):
            waiting = [process for process in self.alive() if process.is_busy]
            if not waiting:
                self.hooks_have_what_the_core_believes()
                return
            self.work_on()
            self.tick()
        raise AssertionError(f"nobody serves {waiting}")


def is_stale(event: ev.Event, connected: Container[ClientId]) -> bool:
    """It comes from a connection that is no more."""
    is_word = isinstance(event, ev.ClientEvent) and not isinstance(event, ev.ClientLost)
    return is_word and event.client not in connected


WAIT_FOR_MEMORY: list[Callable[[Node], None]] = [
    lambda node: [node.register(tenant) for tenant in "de"] and None,
    lambda node: node.start("d1", [A]),
    lambda node: node.start("e1", [A]),
    lambda node: node.processes["d1"].call(),
    lambda node: node.processes["d1"].allocate(A, 5000, fixed=True),
    lambda node: node.work_on(),
    lambda node: node.processes["e1"].call(),
    lambda node: node.processes["e1"].allocate(A, 4000),
    *[lambda node: node.look_and_tick(A)] * 14,
    lambda node: node.processes["e1"].stall_drain(),
    lambda node: node.work_on(),
    *[lambda node: node.tick()] * 2,
    lambda node: node.processes["e1"].call(),
    lambda node: node.processes["e1"].allocate(A, 4000),
    lambda node: node.look_and_tick(A),
    lambda node: node.start("e2", []),
    lambda node: node.processes["e2"].ask_space(A, 4000),
    lambda node: node.flow(),
    lambda node: node.look_and_tick(A),
    lambda node: node.processes["e2"].ask_space(A, 0),
    lambda node: node.flow(),
    lambda node: node.processes["d1"].free(A, 5000),
    lambda node: node.tick(),
    lambda node: node.everybody_is_served(),
    lambda node: [node.handle(ev.TenantRemoved(tenant=TenantId(each))) for each in "de"] and None,
]
STORY: list[Callable[[Node], None]] = [
    *WAIT_FOR_MEMORY,
    lambda node: [node.register(tenant) for tenant in "abc"] and None,
    lambda node: node.start("a1", [A]),
    lambda node: node.start("a2", [A]),
    lambda node: node.start("b1", [A]),
    lambda node: node.start("c1", [A, B]),
    lambda node: node.start("c2", []),
    lambda node: node.processes["a1"].call(),
    lambda node: node.processes["a1"].allocate(A, 4000),
    lambda node: node.processes["a2"].call(),
    lambda node: node.processes["c2"].call(),
    lambda node: node.processes["b1"].call(),
    lambda node: node.processes["c1"].call(),
    lambda node: node.handle(ev.CellBegan(client=node.processes["b1"].id)),
    lambda node: node.processes["b1"].hold(3.0),
    lambda node: node.tick(),
    lambda node: node.processes["a1"].stall_drain(),
    lambda node: node.tick(),
    lambda node: node.work_on(),
    lambda node: node.processes["b1"].allocate(A, 6000),
    lambda node: node.tick(),
    lambda node: node.work_on(),
    lambda node: node.work_on(),
    lambda node: node.processes["b1"].give_away(),
    lambda node: node.handle(ev.CellEnded(client=node.processes["b1"].id)),
    lambda node: node.handle(node.sample(A)),
    lambda node: node.processes["a1"].call(),
    lambda node: node.handle(ev.InterruptRequested(tenant=TenantId("a"))),
    lambda node: node.handle(ev.TenantBusy(tenant=TenantId("b"), busy=False)),
    lambda node: node.processes["c1"].ask_space(A, 500),
    lambda node: node.work_on(),
    lambda node: node.foreign.update({A: 600}),
    lambda node: node.handle(node.sample(A)),
    lambda node: node.handle(ev.ReleaseRequested(tenant=TenantId("c"))),
    lambda node: node.work_on(),
    lambda node: node.processes["c1"].free(A, 100),
    lambda node: node.processes["b1"].allocate(A, 9000),
    lambda node: node.tick(),
    lambda node: node.lose_device(B),
    lambda node: node.change(requests="me=0.3", hard_limits="me=0.9", memory_caps="me=9000"),
    lambda node: [node.processes[name].call() for name in ("a1", "b1", "c1")] and None,
    lambda node: node.tick(),
    lambda node: node.work_on(),
    lambda node: node.change(requests="", hard_limits="", memory_caps=""),
    lambda node: node.change(turns=TurnTaking.OFF),
    lambda node: [node.processes[name].call() for name in ("a1", "b1", "c1")] and None,
    lambda node: node.change(turns=TurnTaking.ON, hold_max_s=1),
    lambda node: node.find(B),
    lambda node: node.tick(),
    lambda node: node.processes["a2"].fail(A),
    lambda node: node.processes["c1"].close_device(B),
    lambda node: node.die("a2"),
    lambda node: node.handle(
        ev.OwnerRemembered(
            owner="away",
            credit_s=0.0,
            debts=((A, 9.0), (DeviceId("later"), 9.0)),
            used=((TenantId("gone"), A, 3.0), (TenantId(""), A, 2.0)),
        )
    ),
    lambda node: node.handle(ev.DeviceModeChanged(device=A, mode=ev.DeviceMode.PAUSED)),
    lambda node: node.work_on(),
    lambda node: node.handle(ev.DeviceModeChanged(device=A, mode=ev.DeviceMode.OPEN)),
    lambda node: node.change(quantum_max_s=20.0),
    lambda node: node.change(memory_mode=MemoryMode.OFF, weights="me=2"),
    lambda node: node.handle(ev.TenantRemoved(tenant=TenantId("b"))),
    lambda node: node.tick(),
    lambda node: node.everybody_is_served(),
]


def play(node: Node, steps: Iterable[Callable[[Node], None]] = STORY) -> Node:
    """The story; processes that were closed say nothing any more."""
    for step in steps:
        step(node)
        node.flow()
        node.hooks_have_what_the_core_believes()
    return node


def played_so_far() -> list[tuple[int, bytes]]:
    """How many events there were before each step of the story, and the node then."""
    node, so_far = Node(DONE), []
    for step in STORY:
        so_far.append((node.events, pickle.dumps(node)))
        play(node, [step])
    return so_far


@pytest.fixture
def short_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "BAR_S_MIN", MOMENT_S)


def fail_at(points: Iterable[Point]) -> None:
    """The story is played from the step on in which the core fails."""
    so_far = played_so_far()
    for point in points:
        step = bisect.bisect_left([events for events, _ in so_far], point[0]) - 1
        node = Node(point) if step < 0 else pickle.loads(so_far[step][1])
        node.fail_at = point
        try:
            play(node, STORY[max(0, step) :])
        except AssertionError as error:
            raise AssertionError(f"after a failure at {point}") from error
        assert node.failed_at is not None, point


def points_of_all_lines() -> list[Point]:
    """Where the story comes to each line that changes something for the last time."""
    return list({line: point for point, _, line in play(Node()).changes}.values())


def test_the_story_meets_most_of_what_changes() -> None:
    """Else a failure there would be looked at by nobody."""
    met = {line for _, _, line in play(Node()).changes}
    lines = changing_lines()
    assert len(met) > 0.7 * len(lines), sorted(lines - met)


@pytest.mark.promise(
    "scheduler-18",
    "A failure in the middle of an event leaves nothing behind: the scheduler starts anew from its "
    "clients, the log has the traceback and the tenant's story, and every hook comes to have what "
    "the core believes",
)
@pytest.mark.usefixtures("short_bars")
def test_a_failure_at_each_change_leaves_nothing_behind() -> None:
    """Wherever the core fails, the invariants hold after it, nothing stale is said, every hook
    comes to have what the core believes, and everybody is served. Here at each twelfth line that
    changes something; `make test-full` takes them all."""
    fail_at(sorted(points_of_all_lines())[::12])


@pytest.mark.full
@pytest.mark.long
@pytest.mark.promise("scheduler-18")
@pytest.mark.usefixtures("short_bars")
def test_a_failure_at_every_change_leaves_nothing_behind() -> None:
    """The same at every line that changes something."""
    fail_at(points_of_all_lines())


@pytest.mark.full
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("short_bars")
def test_a_failure_at_each_change_in_each_kind_of_event() -> None:
    """The same at each line in each kind of event that comes to it, the first time and the last."""
    changes = play(Node()).changes
    last = {(type(event), line): point for point, event, line in changes}
    first = {(type(event), line): point for point, event, line in reversed(changes)}
    fail_at(sorted({*first.values(), *last.values()}))


# ---- failures that stay -------------------------------------------------------------------------


@pytest.fixture
def node() -> Node:
    """Two tenants; the first has the turn, the second waits."""
    node = Node()
    for name in ("a1", "b1"):
        node.register(name[0])
        node.start(name, [A])
        node.flow()
        node.processes[name].call()
        node.flow()
    node.fail_at = DONE
    return node


def fail_whenever(monkeypatch: pytest.MonkeyPatch, fails: Callable[[ev.Event], bool]) -> None:
    """The machine fails at these events, at the end of all that they change."""
    handle = Machine.handle

    def handle_or_fail(machine: Machine, event: ev.Event, *, now_s: float) -> list[Command]:
        commands = handle(machine, event, now_s=now_s)
        if fails(event):
            raise KeyError("a bug")
        return commands

    monkeypatch.setattr(Machine, "handle", handle_or_fail)


def kinds(commands: list[Command]) -> list[type[Command]]:
    return [type(command) for command in commands]


def told(node: Node, event: ev.Event) -> list[Command]:
    """What comes of the event. The connections that are to be renewed are, and all say what they
    have."""
    commands = node.scheduler.handle(event, now_s=node.now_s)
    for command in commands:
        if not isinstance(command, RefuseClient):
            node.perform(command)
        else:
            node.connected.pop(command.client)
            node.pending.append(ev.ClientLost(client=command.client))
    while node.pending:
        node.handle_one(node.pending.popleft())
    node.flow()
    return commands


def renewed(commands: list[Command]) -> set[ClientId]:
    return {each.client for each in commands if isinstance(each, RenewConnection)}


NOT_ADMITTED = pytest.mark.promise(
    "scheduler-108",
    "A client at whose words the scheduler fails is not admitted for 10 s, twice as long at each "
    "failure up to 10 min; it has no turn then, its calls wait whatever its fallback says, and its "
    "user is told until when. All others keep their turns",
)


@NOT_ADMITTED
def test_a_client_at_whose_words_the_core_fails_is_not_admitted_for_a_while(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others connect again at once. The holder keeps its turn, and the others are served."""
    fail_whenever(monkeypatch, lambda event: isinstance(event, ev.SpaceRequested))
    node.register("c")
    node.start("c1", [A])
    node.flow()
    turn, bad = node.processes["a1"].turn, node.processes["b1"]
    for lasts_s in (10, 20, 40, 80, 160, 320, 600, 600):
        asks = ev.SpaceRequested(client=bad.id, device=A, bytes_wanted=10, request_id=1)
        failed, waits, refused, *others = told(node, asks)
        assert isinstance(failed, ReportFailure)
        assert "KeyError: 'a bug'" in failed.message
        assert "SpaceRequested" in failed.message and "ClientJoined" in failed.message
        assert f"for {lasts_s} s" in failed.message
        assert isinstance(waits, TellSettings) and waits.settings.fallback is Fallback.WAIT
        assert isinstance(refused, RefuseClient)
        assert (refused.client, refused.until_s, refused.lasts_s) == (
            bad.id,
            node.now_s + lasts_s,
            lasts_s,
        )
        assert len(renewed(others)) == 2
        assert node.processes["a1"].turn == turn
        node.now_s += lasts_s - 1
        hello = ev.ClientJoined(
            client=ClientId(900), tenant=bad.tenant, pid=bad.pid, process_name=""
        )
        waits, refused = node.scheduler.handle(hello, now_s=node.now_s)
        assert isinstance(refused, RefuseClient) and isinstance(waits, TellSettings)
        assert refused.until_s == pytest.approx(node.now_s + 1) and refused.lasts_s == lasts_s
        node.scheduler.handle(ev.TurnRequested(client=hello.client), now_s=node.now_s)
        node.scheduler.handle(ev.ClientLost(client=hello.client), now_s=node.now_s)
        node.hooks_have_what_the_core_believes()
        node.now_s += 1
        node.connect(bad)
        node.flow()
        node.hooks_have_what_the_core_believes()
    monkeypatch.undo()
    node.everybody_is_served()


@NOT_ADMITTED
def test_a_client_that_behaves_for_ten_minutes_begins_anew() -> None:
    bars, process = Bars(), (TenantId("a"), 1)
    assert [bars.fails(process, now_s) for now_s in (0, 10, 629, 1269.1)] == [10, 20, 40, 10]
    assert bars.fails((TenantId("a"), 2), 1270) == 10


@NOT_ADMITTED
def test_others_are_served_as_soon_as_all_are_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the one that is not admitted, but for work that it may have in flight."""
    node.register("c")
    node.start("c1", [A])
    node.flow()
    client_fails(node, monkeypatch, "c1")
    assert node.wake_at_s == node.now_s + NAMES_ALL_S
    node.tick()
    assert not node.scheduler.snapshot(node.now_s).recovering
    client_fails(node, monkeypatch, "a1")
    assert node.wake_at_s == node.now_s + WORK_ENDS_S
    assert node.processes["b1"].gate is not Gate.OPEN
    node.tick()
    assert node.processes["b1"].gate is Gate.OPEN


def client_fails(node: Node, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """At a word of this client."""
    with monkeypatch.context() as patched:
        fail_whenever(patched, lambda event: isinstance(event, ev.BusUsed))
        told(node, ev.BusUsed(client=node.processes[name].id))


@NOT_ADMITTED
def test_nobody_waits_where_nobody_else_was_connected(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or where all whom it waits for are not admitted either."""
    for name in ("a1", "b1"):
        node.die(name)
    node.start("b2", [A])
    node.flow()
    client_fails(node, monkeypatch, "b2")
    assert not node.scheduler.snapshot(node.now_s).recovering
    node.start("a1", [A])
    node.flow()
    fail_whenever(monkeypatch, once(ev.ClockTicked))
    node.scheduler.handle(ev.ClockTicked(), now_s=node.now_s)
    assert node.scheduler.snapshot(node.now_s).recovering
    monkeypatch.setattr(State, "note", fails)
    pid = node.processes["a1"].pid
    hello = ev.ClientJoined(client=ClientId(900), tenant=TenantId("a"), pid=pid, process_name="")
    assert RefuseClient in kinds(node.scheduler.handle(hello, now_s=node.now_s))
    monkeypatch.undo()
    node.now_s += WORK_ENDS_S
    node.scheduler.handle(ev.ClockTicked(), now_s=node.now_s)
    assert not node.scheduler.snapshot(node.now_s).recovering


def fails_without(node: Node, monkeypatch: pytest.MonkeyPatch, away: MemoryClient) -> None:
    """The core fails, and all connect again but for this one."""
    with monkeypatch.context() as patched:
        fail_whenever(patched, once(ev.ClockTicked))
        commands = node.scheduler.handle(ev.ClockTicked(), now_s=node.now_s)
    if node.connected.pop(away.id, None) is not None:
        node.pending.append(ev.ClientLost(client=away.id))
    for command in commands:
        if getattr(command, "client", None) != away.id:
            node.perform(command)
    while node.pending:
        node.handle_one(node.pending.popleft())
    node.flow()


@pytest.mark.promise("scheduler-106")
def test_a_holder_on_its_way_back_is_awaited_after_a_second_failure(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = node.processes["a1"]
    for _ in range(2):
        fails_without(node, monkeypatch, holder)
        node.handle(ev.RecoveryComplete())  # of a restart, which knows nothing of the failure
        assert node.processes["b1"].gate is not Gate.OPEN
    node.connect(holder)
    node.flow()
    node.hooks_have_what_the_core_believes()
    assert holder.gate is Gate.OPEN
    node.everybody_is_served()


@pytest.mark.promise("scheduler-106")
def test_a_holder_that_is_shut_down_on_its_way_back_has_a_moment_to_end_its_work(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears of it when it is refused. Nobody waits for longer."""
    fails_without(node, monkeypatch, node.processes["a1"])
    node.handle(ev.TenantRemoved(tenant=TenantId("a")))
    node.flow()
    assert node.processes["b1"].gate is not Gate.OPEN
    assert node.wake_at_s == node.now_s + WORK_ENDS_S
    node.tick()
    assert node.processes["b1"].gate is Gate.OPEN


def test_tenants_that_end_one_after_the_other_prolong_no_grace(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By more than the last one's moment."""
    node.register("c")
    fail_whenever(monkeypatch, once(ev.ClockTicked))
    node.scheduler.handle(ev.ClockTicked(), now_s=node.now_s)
    over_s = node.now_s + node.scheduler.settings.reconnect_grace_s + WORK_ENDS_S
    for tenant in "abc":
        node.now_s += 0.9
        node.scheduler.handle(ev.TenantRemoved(tenant=TenantId(tenant)), now_s=node.now_s)
    assert node.now_s < over_s
    node.scheduler.handle(ev.ClockTicked(), now_s=over_s)
    assert not node.scheduler.snapshot(over_s).recovering


@pytest.mark.promise("scheduler-106")
def test_a_tenant_that_the_new_start_fails_at_has_a_moment_to_end_its_work(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_tenant = State.add_tenant

    def adds_all_but_a(state: State, tenant: Tenant, groups: Iterable[str] | None = None) -> None:
        if tenant.id == "a":
            raise KeyError("a second bug")
        add_tenant(state, tenant, groups)

    monkeypatch.setattr(State, "add_tenant", adds_all_but_a)
    fails_without(node, monkeypatch, node.processes["a1"])
    assert node.tenants() == {"b"}
    assert node.processes["b1"].gate is not Gate.OPEN
    assert node.wake_at_s == node.now_s + WORK_ENDS_S
    node.tick()
    assert node.processes["b1"].gate is Gate.OPEN


@pytest.mark.promise("scheduler-106")
def test_a_holder_on_its_way_back_is_awaited_also_without_a_grace(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting is for what crashes; here every process lives, and comes at once."""
    node.change(reconnect_grace_s=0.0)
    holder = node.processes["a1"]
    fails_without(node, monkeypatch, holder)
    assert node.processes["b1"].gate is not Gate.OPEN
    node.connect(holder)
    node.flow()
    assert holder.gate is Gate.OPEN
    node.everybody_is_served()


@NOT_ADMITTED
def test_a_client_that_is_not_admitted_is_awaited_by_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the core fails again before its connection has ended."""
    bad = node.processes["b1"]
    fail_whenever(monkeypatch, lambda event: isinstance(event, ev.BusUsed))
    for word in (ev.BusUsed(client=bad.id), ev.BusUsed(client=node.processes["a1"].id)):
        node.scheduler.handle(word, now_s=node.now_s)
    node.scheduler.handle(ev.ClockTicked(), now_s=node.now_s + WORK_ENDS_S)
    assert not node.scheduler.snapshot(node.now_s + WORK_ENDS_S).recovering


@pytest.mark.promise("scheduler-106")
def test_who_is_awaited_after_a_restart_is_so_after_a_failure(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows who they are, until somebody says that they are back."""
    node.scheduler = Scheduler(node.scheduler.settings, recovering_until_s=node.now_s + 30)
    node.moves = MovesFollowed()
    node.find(A)
    node.register("a")
    node.register("b")
    holder, other = node.processes["a1"], node.processes["b1"]
    node.connected.clear()
    node.connect(other)
    node.flow()
    fails_without(node, monkeypatch, holder)
    assert other.gate is not Gate.OPEN and node.wake_at_s == node.now_s + 30
    node.handle(ev.RecoveryComplete())
    node.tick()
    assert other.gate is Gate.OPEN


def once(kind: type[ev.Event]) -> Callable[[ev.Event], bool]:
    """The first of these events, and no other."""
    left = [kind]
    return lambda event: isinstance(event, kind) and bool(left) and left.pop() is kind


def test_who_never_comes_back_is_waited_for_until_the_grace_is_over(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_whenever(monkeypatch, once(ev.ClockTicked))
    node.scheduler.handle(ev.ClockTicked(), now_s=node.now_s)
    snapshot = node.scheduler.snapshot(node.now_s)
    assert snapshot.recovering and not any(tenant.clients for tenant in snapshot.tenants)
    monkeypatch.undo()
    node.now_s += node.scheduler.settings.reconnect_grace_s
    node.scheduler.handle(ev.ClockTicked(), now_s=node.now_s)
    assert not node.scheduler.snapshot(node.now_s).recovering


def test_what_nobody_says_again_is_heard_once_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All clients connect again; the holder keeps its turn, and the loss is not forgotten."""
    fail_whenever(monkeypatch, once(ev.TenantRemoved))
    turn = node.processes["a1"].turn
    node.register("c")
    commands = told(node, ev.TenantRemoved(tenant=TenantId("c")))
    assert kinds(commands)[0] is ReportFailure and renewed(commands) == {1, 2}
    assert node.tenants() == {"a", "b"}
    assert node.processes["a1"].turn == turn
    node.hooks_have_what_the_core_believes()
    node.everybody_is_served()


@pytest.mark.promise(
    "scheduler-109",
    "An event that no client sends and at which the scheduler fails again is dropped and told, and "
    "its device alone is paused",
)
def test_where_it_fails_again_the_event_is_dropped_and_its_device_is_paused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such events are not looked at for a while, however many come. Other devices go on."""
    fail_whenever(
        monkeypatch, lambda event: isinstance(event, ev.DeviceMemoryMeasured) and event.device == A
    )
    failures = [each for each in told(node, node.sample(A)) if isinstance(each, ReportFailure)]
    assert [re.search(r"for (\d+) s", each.message)[1] for each in failures] == ["0", "10"]  # type: ignore[index]
    modes = {each.id: each.mode for each in node.scheduler.snapshot(node.now_s).devices}
    assert modes == {A: "paused", B: "open"}
    for _ in range(20):
        node.now_s += 0.4
        assert node.scheduler.handle(node.sample(A), now_s=node.now_s) == []
    assert ReportFailure not in kinds(node.scheduler.handle(node.sample(B), now_s=node.now_s))
    node.now_s += 3
    failures = [each for each in told(node, node.sample(A)) if isinstance(each, ReportFailure)]
    assert len(failures) == 1 and "for 20 s" in failures[0].message
    monkeypatch.undo()
    node.handle(ev.DeviceModeChanged(device=A, mode=ev.DeviceMode.OPEN))
    node.everybody_is_served()


@pytest.mark.promise("scheduler-109")
def test_a_tick_that_fails_again_comes_later(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_whenever(monkeypatch, lambda event: isinstance(event, ev.ClockTicked) and not event.cause)
    commands = told(node, ev.ClockTicked())
    assert kinds(commands).count(ReportFailure) == 2
    (wake,) = node.scheduler.handle(ev.ClockTicked(), now_s=node.now_s + 1)
    assert isinstance(wake, WakeAt) and wake.at_s == node.now_s + 10
    monkeypatch.undo()
    node.now_s += 10
    node.everybody_is_served()


def test_a_request_at_which_the_core_fails_can_be_repeated(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has changed nothing; all clients connect again. Where it fails again it is refused for a
    while, and nobody has to connect again."""
    fail_whenever(monkeypatch, lambda event: isinstance(event, ev.InterruptRequested))
    interrupt = ev.InterruptRequested(tenant=TenantId("b"))
    for _ in range(2):
        commands = told(node, interrupt)
        assert kinds(commands)[0] is ReportFailure and len(renewed(commands)) == 2
        assert CancelWait not in kinds(commands)
        node.hooks_have_what_the_core_believes()
    with pytest.raises(RequestFailed, match=r"fails at this request\. .+\."):
        node.scheduler.handle(interrupt, now_s=node.now_s)
    monkeypatch.undo()
    node.now_s += 10
    assert CancelWait in kinds(node.scheduler.handle(interrupt, now_s=node.now_s))


# ---- what survives ------------------------------------------------------------------------------


def test_registrations_of_one_user_that_fail_are_one_request(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the third on nobody has to connect again, and nothing is left of any."""
    fail_whenever(monkeypatch, lambda event: isinstance(event, ev.TenantRegistered))
    first, second, third = (
        ev.TenantRegistered(tenant=TenantId(id), name="n", owner="new", kind="kernel")
        for id in "xyz"
    )
    for event in (first, second):
        assert len(renewed(told(node, event))) == 2
    with pytest.raises(RequestFailed):
        node.scheduler.handle(third, now_s=node.now_s)
    assert node.tenants() == {"a", "b"}


def test_what_is_barred_is_no_wider_than_what_fails(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other owners are remembered, and other settings are taken."""

    def is_bad(event: ev.Event) -> bool:
        return isinstance(event, ev.SettingsChanged) and event.settings.quantum_s == 3

    fail_whenever(monkeypatch, lambda event: is_bad(event) or getattr(event, "owner", "") == "bad")
    for _ in range(2):
        told(node, ev.SettingsChanged(settings=node.scheduler.settings.replace(quantum_s=3)))
        told(node, ev.OwnerRemembered(owner="bad", credit_s=1.0))
    node.change(quantum_s=4)
    node.handle(ev.OwnerRemembered(owner="good", credit_s=1.0, debts=((A, 9.0),)))
    assert node.scheduler.settings.quantum_s == 4
    owed = [each.owner for each in node.scheduler.to_remember(node.now_s) if each.debts]
    assert owed == ["good"]


def test_a_clock_that_goes_back_bars_nobody_for_longer(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for less."""
    for jump_s in (4000, -3000):
        node.now_s += jump_s
        node.handle(ev.ClockTicked())
    client_fails(node, monkeypatch, "b1")
    node.now_s += 9
    node.handle(ev.ClockTicked())
    node.connect(node.processes["b1"])
    refused = node.scheduler.handle(node.processes["b1"].outbox[0], now_s=node.now_s)
    assert kinds(refused) == [TellSettings, RefuseClient]
    node.connected.clear()
    node.now_s -= 500
    node.handle(ev.ClockTicked())
    node.now_s += 2
    node.connect(node.processes["b1"])
    admitted = node.scheduler.handle(node.processes["b1"].outbox[0], now_s=node.now_s)
    assert RefuseClient not in kinds(admitted)


def test_memory_of_the_one_that_is_not_admitted_is_given_to_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured last is known, as after a restart."""
    node.processes["a1"].allocate(A, 5000)
    node.flow()
    node.handle(node.sample(A))
    client_fails(node, monkeypatch, "a1")
    (device, _) = node.scheduler.snapshot(node.now_s).devices
    assert device.bytes_foreign >= 5000


@pytest.mark.promise(
    "scheduler-110",
    "What users owe, their credit, what notebooks have had of late, turns kept by hand, paused "
    "devices and settings survive a failure of the scheduler",
)
def test_what_no_client_says_survives(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as of the last event before the failure; what was counted may be a second older."""
    node.handle(ev.OwnerRemembered(owner="away", credit_s=1.0, debts=((A, 9.0),)))
    node.handle(ev.DeviceModeChanged(device=B, mode=ev.DeviceMode.DRAINED))
    node.change(quantum_s=3, allowed_classes="me=realtime")
    node.handle(ev.ClassAsked(tenant=TenantId("b"), asked_class="realtime"))
    node.handle(ev.TenantHeld(tenant=TenantId("a"), hold_s=50))
    node.now_s += 7
    node.processes["b1"].hold(30)
    node.flow()
    settings = node.scheduler.settings
    owners = node.scheduler.to_remember(node.now_s)
    holds = {each.id: each.hold_left_s for each in node.scheduler.snapshot(node.now_s).tenants}
    fail_whenever(monkeypatch, once(ev.ClockTicked))
    told(node, ev.ClockTicked())
    assert node.scheduler.settings == settings
    assert [(each.owner, each.debts) for each in node.scheduler.to_remember(node.now_s)] == [
        (each.owner, each.debts) for each in owners
    ]
    snapshot = node.scheduler.snapshot(node.now_s)
    assert [each.mode for each in snapshot.devices] == ["open", "drained"]
    tenants = {each.id: each for each in snapshot.tenants}
    assert {id: each.hold_left_s for id, each in tenants.items()} == holds
    assert tenants[TenantId("a")].hold_left_s == pytest.approx(43)
    assert tenants[TenantId("b")].hold_to_come_s == 30
    assert tenants[TenantId("b")].runs_as == "realtime"


@pytest.mark.promise("scheduler-110")
def test_settings_that_fail_shorten_no_hold(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for tenant in "ab":
        node.handle(ev.TenantHeld(tenant=TenantId(tenant), hold_s=50))
    fail_whenever(monkeypatch, once(ev.SettingsChanged))
    told(node, ev.SettingsChanged(settings=node.scheduler.settings.replace(hold_max_s=1)))
    assert node.scheduler.settings.hold_max_s > 50
    a, b = node.scheduler.snapshot(node.now_s).tenants
    assert a.hold_left_s == pytest.approx(50) and b.hold_to_come_s == 50


def fails(*arguments: object) -> None:
    raise KeyError("a second bug")


@pytest.mark.parametrize(
    ("place", "lost"),
    [((State, "add_device"), "AB"), ((Holds, "keep"), "hold"), ((scheduler, "remember"), "debt")],
)
def test_what_the_new_start_fails_at_is_forgotten_alone(
    node: Node, monkeypatch: pytest.MonkeyPatch, place: tuple[object, str], lost: str
) -> None:
    """The log says what it was. All else is known, and the scheduler takes in what comes."""
    node.handle(ev.OwnerRemembered(owner="away", credit_s=1.0, debts=((A, 9.0),)))
    node.handle(ev.TenantHeld(tenant=TenantId("b"), hold_s=50))
    node.now_s += 2
    node.handle_one(ev.ClockTicked())
    debtors = {each.owner for each in node.scheduler.to_remember(node.now_s)}
    fail_whenever(monkeypatch, once(ev.ClockTicked))
    monkeypatch.setattr(*place, fails)
    commands = node.scheduler.handle(ev.ClockTicked(), now_s=node.now_s)
    _, *reports = (each.message for each in commands if isinstance(each, ReportFailure))
    assert len(reports) == {"AB": 2, "hold": 1, "debt": len(debtors)}[lost]
    assert all("forgets it" in each and "a second bug" in each for each in reports)
    monkeypatch.undo()
    node.scheduler.check_invariants()
    snapshot = node.scheduler.snapshot(node.now_s)
    assert len(snapshot.devices) == (0 if lost == "AB" else 2)
    assert {each.id: each.hold_to_come_s for each in snapshot.tenants} == {
        "a": 0,
        "b": 0 if lost == "hold" else 50,
    }
    node.find(A)
    node.register("c")
    node.start("c1", [A])
    node.flow()
    assert "c" in node.tenants()


REQUESTS = [
    ev.TenantRegistered(
        tenant=TenantId("c"), name="c", owner="new", kind="kernel", asked_class="batch"
    ),
    ev.TenantRegistered(
        tenant=TenantId("b"), name="b2", owner="me", kind="kernel", groups=("staff",)
    ),
    ev.ClassAsked(tenant=TenantId("b"), asked_class="batch"),
    ev.BoostRequested(tenant=TenantId("b")),
    ev.TenantHeld(tenant=TenantId("a"), hold_s=0, by_admin=True),
    ev.TenantHeld(tenant=TenantId("b"), hold_s=9),
    ev.ReleaseRequested(tenant=TenantId("a")),
    ev.DeviceModeChanged(device=A, mode=ev.DeviceMode.DRAINED),
    ev.SettingsChanged(settings=SchedulerSettings(weights="me=2", allowed_classes="me=batch")),
]


def what_requests_change(node: Node) -> object:
    snapshot = node.scheduler.snapshot(node.now_s)
    tenants = [
        (each.id, each.name, each.asked_class, each.boosted, each.hold_left_s + each.hold_to_come_s)
        for each in snapshot.tenants
    ]
    accounts = node.scheduler._machine._state.accounts.owners
    groups = {name: owner.groups for name, owner in accounts.items()}
    return tenants, [each.mode for each in snapshot.devices], groups, node.scheduler.settings


@pytest.mark.promise("scheduler-18")
@pytest.mark.promise("scheduler-110")
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_failed_request_changes_nothing_and_costs_one_record_at_most(
    node: Node, request_: ev.RequestEvent
) -> None:
    """Wherever it fails, and also where the same line fails once more in the new start: what it
    fails at there is forgotten alone, and the log says so."""
    node.handle(ev.TenantHeld(tenant=TenantId("a"), hold_s=50))
    before, known = pickle.dumps(node), what_requests_change(node)
    met: list[Line] = []
    with watching(met.append):
        node.scheduler.handle(request_, now_s=node.now_s)
    for line in dict.fromkeys(met):
        for times in (1, 2):
            node = pickle.loads(before)
            reports = failures_at(node, request_, line, times)
            node.scheduler.check_invariants()
            if len(reports) == 1:
                assert what_requests_change(node) == known, line
            else:
                assert len(reports) == 2 and "forgets it" in reports[1], line
                snapshot = node.scheduler.snapshot(node.now_s)
                assert len(snapshot.tenants) + len(snapshot.devices) >= 3, line


def failures_at(node: Node, event: ev.Event, line: Line, times: int) -> list[str]:
    """The line fails in the event, and then in each new start that comes to it."""
    left = [Injected] * times

    def seen(at: Line) -> None:
        if at == line and left:
            raise left.pop()

    take_over = Machine._take_over

    def take_over_or_fail(*arguments: Any) -> None:
        with watching(seen):
            take_over(*arguments)

    with pytest.MonkeyPatch.context() as patched, watching(seen):
        patched.setattr(Machine, "_take_over", take_over_or_fail)
        commands = node.scheduler.handle(event, now_s=node.now_s)
    return [each.message for each in commands if isinstance(each, ReportFailure)]


def test_turns_and_memory_that_never_settle_are_a_failure(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop between them has a bound."""
    monkeypatch.setattr(Residency, "settle", lambda *arguments: True)
    event = ev.TurnRequested(client=node.processes["b1"].id)
    with pytest.raises(NeverSettles, match="after 16 rounds"):
        node.scheduler._machine.handle(event, now_s=node.now_s)
