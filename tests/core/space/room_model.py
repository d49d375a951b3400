"""A model of a device with a driver, of hooks and of looks, in virtual time, before the real core.

Memory is there or not: contexts open unseen, calls count before the driver has answered, reports
come 0.1 s apart, and what is parked is free a moment later. A call does what the hook's does
(hook/src/allocate/making.c, shortage.c).
"""

from __future__ import annotations

import enum
import heapq
import itertools
import random
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
    TellSpace,
    TellSpaceAwaited,
    WakeAt,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, Seconds, TenantId, TurnId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

TOTAL = 8000
DEVICE = DeviceId("A")
ON_THE_WAY_S = 0.001
LOOK_S = 0.002
LOOK_PERIOD_S = 1.0
REPORT_PERIOD_S = 0.1
STEP_BYTES, STEP_S = 20, 0.004
"""50 GB/s, if the device has 80 GB."""
TRIES_MAX = 5
SMALLEST_BYTES = 2


class End(enum.Enum):
    """Of a call."""

    MADE = "made"
    NO_BUDGET = "no budget"
    NO_ROOM = "no room"
    NO_TRIES = "no tries"


class Stage(enum.Enum):
    """Where a call is."""

    NONE = "none"
    NEEDS = "needs"
    WITH_DRIVER = "with the driver"
    ASKS = "asks for room"


@dataclass(eq=False)
class Process:
    """Truth about one. It keeps its turn until it is asked for it."""

    world: RoomWorld
    id: ClientId
    context: int
    try_s: Seconds = 0.0
    """How long the driver takes."""
    turn: TurnId | None = None
    recalled: bool = False
    budget: int = 0
    serial: int = 0
    allocated: int = 0
    claimed: int = 0
    parked: int = 0
    physical: int = 0
    stage: Stage = Stage.NONE
    calls: list[int] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    count: int = 0
    tries: int = 0
    need_id: int = 0
    request_id: int = 0
    free_before: int = 0
    waits_until_s: Seconds = 0.0
    told: tuple[int, ...] = ()
    told_need: tuple[int, int] = (0, 0)
    reported_at_s: Seconds = 0.0
    report_is_due: bool = False
    moves: bool = False

    @property
    def resident(self) -> int:
        return self.allocated + self.claimed - self.parked

    # ---- what it says ------------------------------------------------------------------------

    def report_soon(self) -> None:
        if not self.report_is_due:
            self.report_is_due = True
            wait_s = self.reported_at_s + REPORT_PERIOD_S - self.world.now_s
            self.world.later(max(0.0, wait_s), self.report)

    def report(self) -> None:
        self.report_is_due = False
        now = (self.allocated + self.claimed, self.parked, self.serial)
        if now != self.told:
            self.told, self.reported_at_s = now, self.world.now_s
            self.world.say(
                ev.MemoryReported(
                    client=self.id,
                    device=DEVICE,
                    bytes_allocated=now[0],
                    bytes_parked=now[1],
                    bytes_fixed=0,
                    bytes_parkable=TOTAL,
                    budget_serial=now[2],
                )
            )

    def say_need(self) -> None:
        need = (self.need_id, self.resident) if self.stage is Stage.NEEDS else (0, 0)
        if need == self.told_need or need[0] == self.told_need[0] == 0:
            return
        self.report()
        self.told_need, wanted = need, self.count if need[0] else 0
        self.world.say(
            ev.MemoryNeeded(client=self.id, device=DEVICE, bytes_needed=wanted, need_id=need[0])
        )

    # ---- its calls ---------------------------------------------------------------------------

    def call(self, count: int) -> None:
        self.calls.append(count)
        self._next()

    def _next(self) -> None:
        if self.stage is Stage.NONE and self.calls:
            self.count, self.tries = self.calls.pop(0), 0
            self.need_id += 1
            self._claim()

    def _claim(self) -> None:
        has_turn = self.turn is not None and not self.recalled and not self.parked
        if has_turn and self.resident + self.count <= self.budget:
            self.stage, self.claimed = Stage.WITH_DRIVER, self.count
            self.report_soon()
            self.world.later(self.try_s, self._driver_answers)
        else:
            self.stage = Stage.NEEDS
        self.say_need()

    def _driver_answers(self) -> None:
        world, self.claimed = self.world, 0
        if world.free >= self.count:
            self.physical += self.count
            self.allocated += self.count
            self._end(End.MADE)
        elif self.tries == TRIES_MAX:
            self._end(End.NO_TRIES)
        else:
            self.stage, self.free_before = Stage.ASKS, world.free
            least = SMALLEST_BYTES << self.tries
            self.tries += 1
            self.request_id += 1
            self.waits_until_s = world.now_s + world.settings.reclaim_s
            self.report_soon()
            world.say(
                ev.SpaceRequested(
                    client=self.id,
                    device=DEVICE,
                    bytes_wanted=max(least, self.count - self.free_before),
                    request_id=self.request_id,
                )
            )
            self._waits_for(self.request_id)
            self._gives_turn_back()

    def _waits_for(self, request_id: int) -> None:
        left_s = self.waits_until_s - self.world.now_s
        if self.stage is not Stage.ASKS or request_id != self.request_id:
            return
        if left_s > 0:
            self.world.later(left_s, lambda: self._waits_for(request_id))
        else:
            self._is_answered(made=False)

    def _is_answered(self, *, made: bool) -> None:
        is_there = made or self.world.free >= max(self.count, self.free_before + 1)
        if is_there or self.resident + self.count > self.budget:
            self._claim()
        else:
            self._end(End.NO_ROOM)

    def _end(self, end: End) -> None:
        self.stage = Stage.NONE
        self.ends.append(end)
        self.report_soon()
        self.say_need()
        self._gives_turn_back()
        self._next()

    # ---- its memory and its turn -------------------------------------------------------------

    def free_some(self, count: int) -> None:
        count = min(count, self.allocated)
        from_parked = min(count, self.parked)
        self.parked -= from_parked
        self.allocated -= count
        self.physical -= count - from_parked
        self.report_soon()

    def _gives_turn_back(self) -> None:
        if not self.recalled or self.turn is None or self.stage is Stage.WITH_DRIVER:
            return
        turn, self.turn, self.recalled = self.turn, None, False
        self.report()
        self.budget = self.resident
        self.world.say(ev.TurnDropped(client=self.id, turn=turn, reason=ev.DropReason.RECALL))
        self.world.say(ev.TurnRequested(client=self.id))
        self._move()

    def _move(self) -> None:
        if not self.moves:
            self.moves = True
            self.world.later(STEP_S, self._step)

    def _step(self) -> None:
        self.moves = False
        if self.turn is None:
            count = min(STEP_BYTES, self.resident - self.budget)
        else:
            count = -min(STEP_BYTES, self.parked, self.budget - self.resident)
        if count == 0 or (count < 0 and self.turn is None):
            return
        if count > 0 or self.world.free >= -count:
            self.parked += count
            self.physical -= count
            if count > 0:
                self.world.cleans(count)
            self.report()
            if not self.parked and self.stage is Stage.NEEDS:
                self._claim()
        self._move()

    def hear(self, command: Command) -> None:
        match command:
            case GrantTurn(turn=turn):
                self.turn, self.recalled = turn, False
            case RecallTurn(turn=turn) if turn == self.turn:
                self.recalled = True
                self._gives_turn_back()
            case TellBudget(budget_bytes=budget, serial=serial, refused_need=refused):
                self.budget, self.serial = budget, serial
                self.report()
                if self.stage is Stage.NEEDS and refused == self.need_id:
                    self._end(End.NO_BUDGET)
            case TellSpaceAwaited(request_id=request_id, wait_s=wait_s):
                if request_id == self.request_id:
                    told_s = self.world.now_s + wait_s
                    self.waits_until_s = max(self.waits_until_s, told_s)
            case TellSpace(request_id=request_id, made=made):
                if self.stage is Stage.ASKS and request_id == self.request_id:
                    self._is_answered(made=made)
            case _:
                return
        if self.stage is Stage.NEEDS:
            self._claim()
        self._move()


class RoomWorld:
    """One device, and all that is on it."""

    def __init__(self, seed: int, **changes: object) -> None:
        self.random = random.Random(seed)
        self.settings = SchedulerSettings(
            memory_mode=MemoryMode.SWAP, overdue_s=1000, device_reserve_bytes=80
        ).replace(**changes)
        self.now_s: Seconds = 100.0
        self.strangers = 0
        self.processes: dict[ClientId, Process] = {}
        self._scheduler = Scheduler(self.settings)
        self._cleaning = 0
        self._numbers = itertools.count()
        self._actions: list[tuple[Seconds, int, Callable[[], None]]] = []
        self._wake_at_s: Seconds | None = None
        self._looking = self._look_again = False
        self._told: dict[ClientId, int] = {}
        self._handle(ev.DeviceFound(device=DEVICE, name="A", bytes_total=TOTAL))
        self._look_now_and_then()

    @property
    def free(self) -> int:
        own = sum(each.context + each.physical for each in self.processes.values())
        return TOTAL - self.strangers - self._cleaning - own

    def later(self, in_s: Seconds, action: Callable[[], None]) -> None:
        heapq.heappush(self._actions, (self.now_s + in_s, next(self._numbers), action))

    def run(self, for_s: Seconds) -> None:
        until_s = self.now_s + for_s
        while self._actions and self._actions[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._actions)
            action()
        self.now_s = until_s

    def process(self, tenant: str, context: int = 0) -> Process:
        client = ClientId(len(self.processes) + 1)
        if client == 1 or tenant not in {each.id for each in self._tenants()}:
            self._handle(
                ev.TenantRegistered(tenant=TenantId(tenant), name=tenant, owner="me", kind="kernel")
            )
        process = self.processes[client] = Process(self, client, context)
        self._handle(
            ev.ClientJoined(client=client, tenant=TenantId(tenant), pid=client, process_name="")
        )
        self._handle(ev.DeviceOpened(client=client, device=DEVICE))
        return process

    def cleans(self, count: int) -> None:
        """The driver does, what has just been parked."""
        self._cleaning += count
        self.later(self.random.choice([0.001, 0.004, 0.02]), lambda: self._has_cleaned(count))

    def _has_cleaned(self, count: int) -> None:
        self._cleaning -= count

    def _tenants(self) -> tuple[object, ...]:
        return self._scheduler.snapshot(self.now_s).tenants

    # ---- words and looks ---------------------------------------------------------------------

    def say(self, event: ev.ClientEvent) -> None:
        self.later(ON_THE_WAY_S, lambda: self._handle(event))

    def _handle(self, event: ev.Event) -> None:
        for command in self._scheduler.handle(event, now_s=self.now_s):
            assert not isinstance(command, ReportFailure), command.message
            if isinstance(command, WakeAt):
                self._wake_at(command.at_s)
            elif isinstance(command, MeasureDevice):
                self._look()
            elif (
                process := self.processes.get(getattr(command, "client", ClientId(0)))
            ) is not None:
                self._deliver(process, command)

    def _deliver(self, process: Process, command: Command) -> None:
        self.later(ON_THE_WAY_S, lambda: process.hear(command))

    def _wake_at(self, at_s: Seconds) -> None:
        self._wake_at_s = at_s
        self.later(max(0.0, at_s - self.now_s), lambda: self._tick(at_s))

    def _tick(self, at_s: Seconds) -> None:
        if self._wake_at_s == at_s:
            self._handle(ev.ClockTicked())

    def _look_now_and_then(self) -> None:
        self._look()
        self.later(LOOK_PERIOD_S, self._look_now_and_then)

    def _look(self) -> None:
        """As the probe does: one at a time."""
        if self._looking:
            self._look_again = True
            return
        self._looking = True
        self.later(LOOK_S, self._see)

    def _see(self) -> None:
        used = TOTAL - self.free
        has = {each.id: each.context + each.physical for each in self.processes.values()}
        self.later(LOOK_S, lambda: self._tell(used, has))

    def _tell(self, used: int, has: dict[ClientId, int]) -> None:
        news = tuple((each, n) for each, n in has.items() if n and n != self._told.get(each))
        self._told = has
        self._handle(ev.DeviceMemoryMeasured(device=DEVICE, bytes_used=used, bytes_of_clients=news))
        self._looking = False
        if self._look_again:
            self._look_again = False
            self._look()
