"""Owners with notebooks that work and wait, in virtual time, before the real core.

It counts what each owner has had of each device, and what a device that could be divided at will
would have given it meanwhile: at each moment, each owner that wants the device gets its part by
weight.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    Command,
    GrantTurn,
    RecallTurn,
    ReportFailure,
    WakeAt,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, Seconds, TenantId, TurnId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from jupyter_gpushare.core.shares.entries import parse_weights, weight_of

DRAIN_S = 0.01
START_S: Seconds = 1000.0


@dataclass(slots=True)
class Work:
    """What a notebook does again and again: a pause, then a cell with so much device time."""

    cell_s: Seconds = math.inf
    pause_s: Seconds = 0.0
    in_cells: bool = True
    """Its cells are announced; a program has none."""
    asked_class: str = ""


@dataclass(slots=True, eq=False)
class Member:
    """A tenant with one process."""

    owner: str
    client: ClientId
    tenant: TenantId
    devices: tuple[DeviceId, ...]
    work: Work
    groups: tuple[str, ...] | None = None
    name: str = ""
    """Of the notebook, if it matters."""
    left_s: Seconds = 0.0
    turn: TurnId | None = None
    granted_at_s: Seconds = 0.0
    wants: bool = False
    end_number: int = 0
    """Of the end that is on its way; earlier ones do not count."""
    waits_s: list[Seconds] = field(default_factory=list)
    """Of each cell that has ended: its response, less its own time."""
    began_s: Seconds = 0.0


class Crowd:
    """All of them, and the scheduler."""

    def __init__(self, settings: SchedulerSettings | None = None, devices: str = "A") -> None:
        base = SchedulerSettings(memory_mode=MemoryMode.OFF)
        self.scheduler = Scheduler(settings or base)
        self.now_s: Seconds = START_S
        self.had_s: defaultdict[tuple[str, DeviceId], Seconds] = defaultdict(float)
        self.of_notebook_s: defaultdict[tuple[str, str], Seconds] = defaultdict(float)
        """What notebooks with names have had, of all devices."""
        self.due_s: defaultdict[tuple[str, DeviceId], Seconds] = defaultdict(float)
        self.longest_s: Seconds = 0.0
        """The longest turn while others waited."""
        self.members: dict[ClientId, Member] = {}
        self.worst_lag_s: defaultdict[str, Seconds] = defaultdict(float)
        self._devices = [DeviceId(each) for each in devices]
        self._actions: list[tuple[Seconds, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._wake_at_s: Seconds | None = None
        for device in self._devices:
            self.say(ev.DeviceFound(device=device, name=device, bytes_total=8000))

    # ---- who is there ------------------------------------------------------------------------

    def add(
        self,
        owner: str,
        work: Work,
        *,
        devices: str = "A",
        at_s: Seconds = 0.0,
        groups: tuple[str, ...] | None = None,
        name: str = "",
    ) -> Member:
        """A new notebook, which begins after this time."""
        client = ClientId(next(self._numbers))
        opened = tuple(map(DeviceId, devices))
        member = Member(owner, client, TenantId(f"{owner}-{client}"), opened, work, groups, name)
        self.members[client] = member
        self._later(at_s, lambda: self._joins(member))
        return member

    def _registers(self, member: Member) -> None:
        self.say(
            ev.TenantRegistered(
                tenant=member.tenant,
                name=member.name or str(member.tenant),
                owner=member.owner,
                kind="kernel",
                groups=member.groups,
                asked_class=member.work.asked_class,
            )
        )

    def _joins(self, member: Member) -> None:
        tenant = member.tenant
        self._registers(member)
        self.say(
            ev.ClientJoined(client=member.client, tenant=tenant, pid=member.client, process_name="")
        )
        for device in member.devices:
            self.say(ev.DeviceOpened(client=member.client, device=device))
        self._cell_begins(member)

    def leaves(self, member: Member) -> None:
        """Its kernel ends."""
        member.wants, member.turn = False, None
        member.end_number += 1
        del self.members[member.client]
        self.say(ev.TenantRemoved(tenant=member.tenant))

    def connects_anew(self, member: Member) -> None:
        """Its process loses its connection, and its turn with that. It says its cell once more."""
        self.say(ev.ClientLost(client=member.client))
        del self.members[member.client]
        member.turn, member.client = None, ClientId(next(self._numbers))
        member.end_number += 1
        self.members[member.client] = member
        self.say(
            ev.ClientJoined(
                client=member.client, tenant=member.tenant, pid=member.client, process_name=""
            )
        )
        for device in member.devices:
            self.say(ev.DeviceOpened(client=member.client, device=device))
        if member.work.in_cells:
            self.say(ev.CellBegan(client=member.client))
        self._ask(member)

    def restarts(self) -> None:
        """Another scheduler takes over, and is told of owners. All processes connect again, and
        those with a turn have it still. It begins when the one before would have done something
        next."""
        remembered = self.scheduler.to_remember(self.now_s)
        self.scheduler = Scheduler(self.scheduler.settings, recovering_until_s=self.now_s + 10)
        self._wake_at_s = None
        for event in remembered:
            self.say(event)
        for device in self._devices:
            self.say(ev.DeviceFound(device=device, name=device, bytes_total=8000))
        for member in self.members.values():
            self._registers(member)
            self.say(
                ev.ClientJoined(
                    client=member.client,
                    tenant=member.tenant,
                    pid=member.client,
                    process_name="",
                    held_turn=member.turn,
                )
            )
            for device in member.devices:
                self.say(ev.DeviceOpened(client=member.client, device=device))
            if member.wants and member.turn is None:
                self._ask(member)
        self.say(ev.RecoveryComplete())

    def withdraws(self, member: Member) -> None:
        """Its call does not wait any more."""
        member.wants = False
        self.say(ev.RequestWithdrawn(client=member.client))

    def asks(self, member: Member) -> None:
        """A call of it waits."""
        self._ask(member)

    # ---- time --------------------------------------------------------------------------------

    def run(self, for_s: Seconds) -> None:
        """Let so much time pass."""
        until_s = self.now_s + for_s
        while True:
            next_s = self._actions[0][0] if self._actions else math.inf
            if self._wake_at_s is not None and self._wake_at_s <= next_s:
                next_s = max(self._wake_at_s, self.now_s)
                if next_s > until_s:
                    break
                self._wake_at_s = None
                self._goes_on_to(next_s)
                self.say(ev.ClockTicked())
                continue
            if next_s > until_s:
                break
            _, _, action = heapq.heappop(self._actions)
            self._goes_on_to(next_s)
            action()
        self._goes_on_to(until_s)

    def _later(self, in_s: Seconds, action: Callable[[], None]) -> None:
        heapq.heappush(self._actions, (self.now_s + in_s, next(self._numbers), action))

    def _goes_on_to(self, at_s: Seconds) -> None:
        passed_s, self.now_s = at_s - self.now_s, at_s
        if passed_s <= 0:
            return
        for device in self._devices:
            holders = [m for m in self._on(device) if m.turn is not None]
            for holder in holders:
                self.had_s[holder.owner, device] += passed_s / len(holders)
                if holder.name:
                    self.of_notebook_s[holder.owner, holder.name] += passed_s / len(holders)
            wanting = {m.owner for m in self._on(device) if m.wants}
            if not holders:
                continue  # a hand-over: nobody could have it
            weights = {owner: self.weight(owner) for owner in wanting}
            for owner, weight in weights.items():
                self.due_s[owner, device] += passed_s * weight / sum(weights.values())
                lag_s = self.due_s[owner, device] - self.had_s[owner, device]
                self.worst_lag_s[owner] = max(self.worst_lag_s[owner], lag_s)

    def _on(self, device: DeviceId) -> Iterator[Member]:
        return (member for member in self.members.values() if device in member.devices)

    def weight(self, owner: str) -> float:
        return weight_of(parse_weights(self.scheduler.settings.weights), owner, ())

    # ---- words -------------------------------------------------------------------------------

    def say(self, event: ev.Event) -> None:
        for command in self._handled(event):
            match command:
                case WakeAt(at_s=at_s):
                    self._wake_at_s = at_s
                case GrantTurn(client=client, turn=turn):
                    self._granted(self.members[client], turn)
                case RecallTurn(client=client):
                    self._recalled(self.members[client])
                case _:
                    pass

    def _handled(self, event: ev.Event) -> list[Command]:
        commands = self.scheduler.handle(event, now_s=self.now_s)
        for command in commands:
            assert not isinstance(command, ReportFailure), command.message
        return commands

    def _cell_begins(self, member: Member) -> None:
        if member.client not in self.members:
            return
        member.left_s, member.began_s = member.work.cell_s, self.now_s
        if member.work.in_cells:
            self.say(ev.CellBegan(client=member.client))
        self._ask(member)

    def _ask(self, member: Member) -> None:
        if member.client in self.members:
            member.wants = True
            self.say(ev.TurnRequested(client=member.client))

    def _granted(self, member: Member, turn: TurnId) -> None:
        if member.turn is not None:
            return
        member.turn, member.granted_at_s = turn, self.now_s
        if math.isfinite(member.left_s):
            self._ends(member, member.left_s)

    def _recalled(self, member: Member) -> None:
        worked_s = self.now_s - member.granted_at_s
        if member.left_s - worked_s > DRAIN_S:
            self._ends(member, DRAIN_S)

    def _ends(self, member: Member, in_s: Seconds) -> None:
        member.end_number += 1
        number = member.end_number

        def end() -> None:
            if member.end_number == number and member.turn is not None:
                self._drops(member)

        self._later(in_s, end)

    def _drops(self, member: Member) -> None:
        turn, member.turn = member.turn, None
        assert turn is not None
        held_s = self.now_s - member.granted_at_s
        member.left_s -= held_s
        cell_is_over = member.left_s <= 1e-9
        reason = ev.DropReason.CELL_END if cell_is_over else ev.DropReason.RECALL
        if not cell_is_over:
            self.longest_s = max(self.longest_s, held_s)
        member.wants = not cell_is_over
        if cell_is_over:
            member.waits_s.append(self.now_s - member.began_s - member.work.cell_s)
            if member.work.in_cells:
                self.say(ev.CellEnded(client=member.client))
        self.say(ev.TurnDropped(client=member.client, turn=turn, reason=reason))
        if cell_is_over:
            self._later(member.work.pause_s, lambda: self._cell_begins(member))
        else:
            self._ask(member)

    def part_s(self, owner: str, device: str = "A") -> Seconds:
        """What the owner has had of the device."""
        return self.had_s[owner, DeviceId(device)]
