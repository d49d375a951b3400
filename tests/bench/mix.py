"""The mix that bench_scheduler measures: tenants that work in turns, and their processes' words.

Time is virtual, and the same seed leads to the same events. Each process keeps to decision 0007:
what it has beyond its budget it parks when it has no turn, and what is parked comes back when it
has one. docs/scheduling-costs.md describes the mix.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    Command,
    GrantTurn,
    MeasureDevice,
    RecallTurn,
    ReportFailure,
    TellBudget,
    WakeAt,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, Seconds, TenantId, TurnId

GIB = 1 << 30
DEVICE_BYTES = 141 * GIB
FOREIGN_BYTES = 2 * GIB
ACTIVE_PER_DEVICE = 4
"""So many tenants of a device work at one moment; when one has done, another one begins."""
TWO_DEVICES_SHARE = 0.02
LONG_SHARE = 0.24
"""Of the turns; each of them lasts until it is recalled."""
CELL_MESSAGES_SHARE = 0.1
"""Of the turns; the others belong to cells that have been told before."""
CELLS_PER_VISIT = 24
"""So many short turns a tenant has before it thinks, and its memory may be parked."""
GROWS_SHARE = 0.1
SHORT_WORK_S = 0.05
MESSAGE_S = 0.0002
MOVE_BYTES_PER_S = 40 * GIB

Handle = Callable[[ev.Event, Seconds], list[Command]]


@dataclass(slots=True, eq=False)
class Process:
    """One client, and what it really has."""

    client: ClientId
    tenant: TenantId
    devices: tuple[DeviceId, ...]
    allocated: dict[DeviceId, int]
    parked: dict[DeviceId, int]
    budget: dict[DeviceId, int] = field(default_factory=dict)
    serial: dict[DeviceId, int] = field(default_factory=dict)
    to_say: set[DeviceId] = field(default_factory=set)
    """Devices of which a report is on its way."""
    turn: TurnId | None = None
    works: bool = False
    """All its memory is back, and its turn will end by itself or by a recall."""
    cells_left: int = 0
    in_cell: bool = False


class Mix:
    """A node: `handle` is the scheduler's, and each event goes through it in its time."""

    def __init__(self, handle: Handle, *, tenants: int, devices: int, seed: int = 1) -> None:
        self._handle = handle
        self._random = random.Random(seed)
        self.now_s: Seconds = 1000.0
        self.events: Counter[str] = Counter()
        self.commands: Counter[str] = Counter()
        self._actions: list[tuple[Seconds, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._wake_at_s: Seconds | None = None
        self._devices = [DeviceId(f"{number:032x}") for number in range(devices)]
        self._processes = {
            ClientId(number): self._new_process(number, devices) for number in range(tenants)
        }
        self._on: dict[DeviceId, list[Process]] = {device: [] for device in self._devices}
        for process in self._processes.values():
            self._on[process.devices[0]].append(process)
        self._resident: Counter[DeviceId] = Counter()
        self._set_up()

    def _new_process(self, number: int, devices: int) -> Process:
        count = 2 if devices > 1 and self._random.random() < TWO_DEVICES_SHARE else 1
        opened = tuple(self._devices[(number + each) % devices] for each in range(count))
        has = {device: self._random.randint(1, 12) * GIB for device in opened}
        tenant = TenantId(f"kernel-{number:05d}")
        return Process(ClientId(number), tenant, opened, has, dict(has))

    def _set_up(self) -> None:
        """While the devices are away, nobody has to be told who comes."""
        for device in self._devices:
            self.say(ev.DeviceFound(device=device, name="GPU", bytes_total=DEVICE_BYTES))
            self.say(ev.DeviceLost(device=device))
        for each in self._processes.values():
            name = f"notebook {each.tenant}"
            self.say(ev.TenantRegistered(tenant=each.tenant, name=name, owner="ann", kind="kernel"))
            pid = 10_000 + each.client
            self.say(
                ev.ClientJoined(client=each.client, tenant=each.tenant, pid=pid, process_name="py")
            )
            for device in each.devices:
                self.say(ev.DeviceOpened(client=each.client, device=device))
                self._report(each, device)
        for device in self._devices:
            self.say(ev.DeviceFound(device=device, name="GPU", bytes_total=DEVICE_BYTES))
            self._look(device)
        for device in self._devices:
            for each in self._random.sample(
                self._on[device], min(ACTIVE_PER_DEVICE, len(self._on[device]))
            ):
                each.cells_left = self._random.randint(1, CELLS_PER_VISIT)
                self._ask(each)

    # ---- time and words --------------------------------------------------------------------

    def run(self, events: int) -> None:
        """So many events at least."""
        until = self.events.total() + events
        while self.events.total() < until:
            self.step()

    def step(self) -> None:
        """What comes next: a word of a process, or the scheduler's alarm."""
        next_s = self._actions[0][0] if self._actions else math.inf
        if self._wake_at_s is not None and self._wake_at_s <= next_s:
            self.now_s, self._wake_at_s = max(self.now_s, self._wake_at_s), None
            self.say(ev.ClockTicked())
            return
        self.now_s, _, action = heapq.heappop(self._actions)
        action()

    def say(self, event: ev.Event) -> None:
        self.events[type(event).__name__] += 1
        for command in self._handle(event, self.now_s):
            self.commands[type(command).__name__] += 1
            self._take_in(command)

    def _later(self, after_s: Seconds, action: Callable[[], None]) -> None:
        heapq.heappush(self._actions, (self.now_s + after_s, next(self._numbers), action))

    def _take_in(self, command: Command) -> None:
        match command:
            case WakeAt(at_s=at_s):
                self._wake_at_s = at_s
            case GrantTurn(client=client, turn=turn):
                self._granted(self._processes[client], turn)
            case RecallTurn(client=client, turn=turn):
                process = self._processes[client]
                self._later(0.005, lambda: self._drop(process, turn, ev.DropReason.RECALL))
            case TellBudget(client=client, device=device, budget_bytes=budget, serial=serial):
                process = self._processes[client]
                process.budget[device], process.serial[device] = budget, serial
                self._answer_later(process, device)
            case MeasureDevice(device=device):
                self._later(0.002, lambda: self._look(device))
            case ReportFailure(message=message):
                raise RuntimeError(message)
            case _:
                pass

    def _look(self, device: DeviceId) -> None:
        used = self._resident[device] + FOREIGN_BYTES
        self.say(ev.DeviceMemoryMeasured(device=device, bytes_used=used))

    # ---- a tenant's visit ------------------------------------------------------------------

    def _ask(self, process: Process) -> None:
        if not process.in_cell and self._random.random() < CELL_MESSAGES_SHARE:
            process.in_cell = True
            self.say(ev.CellBegan(client=process.client))
        self.say(ev.TurnRequested(client=process.client))

    def _granted(self, process: Process, turn: TurnId) -> None:
        process.turn, process.works = turn, False
        self._later(MESSAGE_S, lambda: self._work_if_back(process, turn))

    def _work_if_back(self, process: Process, turn: TurnId) -> None:
        """The gate opens when all its memory is back."""
        if process.turn != turn or process.works or any(process.parked.values()):
            return
        process.works = True
        if self._random.random() >= LONG_SHARE:
            work_s = self._random.expovariate(1 / SHORT_WORK_S)
            self._later(work_s, lambda: self._drop(process, turn, ev.DropReason.CELL_END))

    def _drop(self, process: Process, turn: TurnId, reason: ev.DropReason) -> None:
        if process.turn != turn:
            return
        process.turn, process.works = None, False
        for device in process.devices:
            process.budget[device] = process.allocated[device] - process.parked[device]
        if reason is not ev.DropReason.RECALL and process.in_cell:
            process.in_cell = False
            self.say(ev.CellEnded(client=process.client))
        self.say(ev.TurnDropped(client=process.client, turn=turn, reason=reason))
        process.cells_left -= 1
        if process.cells_left > 0:
            self._later(self._random.uniform(0.001, 0.02), lambda: self._ask(process))
            return
        others = self._on[process.devices[0]]
        some = self._random.sample(others, min(8, len(others)))
        follower = next((each for each in some if each.cells_left <= 0), process)
        follower.cells_left = self._random.randint(CELLS_PER_VISIT // 2, CELLS_PER_VISIT * 3 // 2)
        self._later(self._random.uniform(0.001, 0.02), lambda: self._ask(follower))

    # ---- memory ----------------------------------------------------------------------------

    def _answer_later(self, process: Process, device: DeviceId) -> None:
        if device in process.to_say:
            return
        process.to_say.add(device)
        resident = process.allocated[device] - process.parked[device]
        beyond = resident - process.budget.get(device, 0)
        back = min(process.parked[device], -beyond)
        moved = max(0, back if process.turn is not None else beyond)
        self._later(MESSAGE_S + moved / MOVE_BYTES_PER_S, lambda: self._answer(process, device))

    def _answer(self, process: Process, device: DeviceId) -> None:
        """All that its budget asks for has been done when it says so."""
        process.to_say.discard(device)
        resident = process.allocated[device] - process.parked[device]
        beyond = resident - process.budget[device]
        if process.turn is not None:
            back = max(0, min(process.parked[device], -beyond))
            process.parked[device] -= back
            self._resident[device] += back
            grows = not process.parked[device] and self._random.random() < GROWS_SHARE
            room = min(process.budget[device] - process.allocated[device], GIB // 4)
            if grows and room > 0 and process.allocated[device] < 16 * GIB:
                process.allocated[device] += room
                self._resident[device] += room
        elif beyond > 0:
            process.parked[device] += beyond
            self._resident[device] -= beyond
        self._report(process, device)
        if process.turn is not None:
            self._work_if_back(process, process.turn)

    def _report(self, process: Process, device: DeviceId) -> None:
        self.say(
            ev.MemoryReported(
                client=process.client,
                device=device,
                bytes_allocated=process.allocated[device],
                bytes_fixed=0,
                bytes_parked=process.parked[device],
                bytes_parkable=1 << 50,
                budget_serial=process.serial.get(device, 0),
            )
        )
