"""Tenants of several devices whose memory does not fit beside that of others, and new cells that
go first on credit: everybody is served all the same."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Command, MeasureDevice, TellBudget
from jupyter_gpushare.core.ids import DeviceId, TurnId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

from .crowd import DRAIN_S, Member, Work
from .many_runs import PHASES, many_runs
from .test_gangs import LOOP, Gangs

TOTAL = 8000
USABLE = TOTAL - TOTAL // 8
BYTES_PER_S = 20_000.0
PASSES_MAX = 3
"""So many turns of each of the others a tenant waits at most, and for the credit of each once."""
SERVED = pytest.mark.promise("scheduler-26")

Place = tuple[Member, DeviceId]


class Swapping(Gangs):
    """Members have memory on each of their devices. It comes back when they have the turn, and
    leaves when the scheduler says so."""

    def __init__(self, settings: SchedulerSettings, devices: str) -> None:
        self.size: dict[Member, int] = {}
        self.parked: dict[Place, int] = {}
        self.budget: defaultdict[Place, int] = defaultdict(int)
        self.serial: dict[Place, int] = {}
        self.moving: set[Place] = set()
        self.restoring: set[Member] = set()
        """They have the turn, and not all of their memory."""
        self.recalled: set[Member] = set()
        super().__init__(settings, devices)

    # ---- what the processes do ---------------------------------------------------------------

    def _cell_begins(self, member: Member) -> None:
        if member.client in self.members and (member, member.devices[0]) not in self.parked:
            for device in member.devices:  # it begins with all of its memory in host memory
                self.parked[member, device] = self.size[member]
                self._report(member, device)
        super()._cell_begins(member)

    def _granted(self, member: Member, turn: TurnId) -> None:
        if member.turn is None:
            member.turn, member.granted_at_s = turn, self.now_s
            for device in member.devices:
                others = [each for each in self._on(device) if each.turn is not None]
                assert others == [member], "a device has two turns at once"
            self.restoring.add(member)
            self._moves(member)

    def _recalled(self, member: Member) -> None:
        self.recalled.add(member)
        if member in self.restoring:
            self._ends(member, DRAIN_S)
        else:
            super()._recalled(member)

    def _drops(self, member: Member) -> None:
        if member in self.restoring:
            member.granted_at_s = self.now_s  # it has not worked
            self.restoring.discard(member)
        self.recalled.discard(member)
        for device in member.devices:
            self._report(member, device)
            self.budget[member, device] = self._resident(member, device)
        super()._drops(member)
        self._moves(member)

    # ---- memory ------------------------------------------------------------------------------

    def _handled(self, event: ev.Event) -> list[Command]:
        commands = super()._handled(event)
        for command in commands:
            if isinstance(command, TellBudget):
                self._later(0.0, partial(self._told, command))
            elif isinstance(command, MeasureDevice):
                self._later(0.0, partial(self._measured, command.device))
        return commands

    def _told(self, told: TellBudget) -> None:
        member = self.members.get(told.client)
        if member is not None:
            self.budget[member, told.device] = told.budget_bytes
            self.serial[member, told.device] = told.serial
            self._report(member, told.device)
            self._moves(member)

    def _measured(self, device: DeviceId) -> None:
        used = sum(self._resident(each, device) for each in self._on(device))
        self.say(ev.DeviceMemoryMeasured(device=device, bytes_used=used))

    def _resident(self, member: Member, device: DeviceId) -> int:
        return self.size[member] - self.parked.get((member, device), self.size[member])

    def _due(self, place: Place) -> int:
        """So many bytes are to leave; below 0: to come back."""
        beyond = self._resident(*place) - self.budget[place]
        if place[0].turn is None:
            return max(0, beyond)
        return max(-self.parked[place], min(0, beyond))

    def _moves(self, member: Member) -> None:
        for device in member.devices:
            place = (member, device)
            due = self._due(place)
            if due and place not in self.moving:
                self.moving.add(place)
                self._later(abs(due) / BYTES_PER_S, partial(self._moved, place))
        if member in self.restoring and not any(self.parked[member, d] for d in member.devices):
            self.restoring.discard(member)
            member.granted_at_s = self.now_s
            if member not in self.recalled and math.isfinite(member.left_s):
                self._ends(member, member.left_s)

    def _moved(self, place: Place) -> None:
        self.moving.discard(place)
        member, device = place
        if member.client not in self.members:
            return
        self.parked[place] += self._due(place)
        used = sum(self._resident(each, device) for each in self._on(device))
        assert used <= USABLE, f"too much on {device}"
        self._report(member, device)
        self._moves(member)

    def _report(self, member: Member, device: DeviceId) -> None:
        self.say(
            ev.MemoryReported(
                client=member.client,
                device=device,
                bytes_allocated=self.size[member],
                bytes_parked=self.parked[member, device],
                bytes_fixed=0,
                bytes_parkable=10 * TOTAL,
                budget_serial=self.serial.get((member, device), 0),
            )
        )


WORLD = {
    "devices": st.integers(2, 3),
    "members": st.lists(
        st.tuples(
            st.integers(1, 7),  # its devices, as bits
            st.sampled_from([500, 3000, 5000, USABLE]),  # its memory on each
            st.sampled_from([None, (0.2, 0.0), (0.2, 1.0), (2.0, 0.5)]),  # cells and pauses
            st.sampled_from([0.0, 0.0, 2.0]),  # when it comes
            st.sampled_from([0.0, 0.0, 0.0, 6.0]),  # when it goes; 0: it stays
        ),
        min_size=2,
        max_size=4,
    ),
    "quantum_s": st.sampled_from([0.0, 0.5]),
    "credit_s": st.sampled_from([0.0, 0.5, 2.0]),
}
Members = list[tuple[int, int, tuple[float, float] | None, float, float]]


def everybody_is_served(
    devices: int, members: Members, quantum_s: float, credit_s: float, lasts_s: float
) -> None:
    """In a time that does not depend on how long the others go on, and with all of its memory."""
    names = "ABC"[:devices]
    chosen = SchedulerSettings(
        memory_mode=MemoryMode.SWAP,
        quantum_s=quantum_s,
        quantum_min_s=0.2,
        quantum_max_s=1.0,
        swap_wait_max_s=1.0,
        credit_s=credit_s,
    )
    gangs = Swapping(chosen, names)
    for number, (bits, size, cells, at_s, goes_s) in enumerate(members):
        wants = "".join(name for n, name in enumerate(names) if bits >> n & 1) or names[0]
        work = LOOP if cells is None else Work(cell_s=cells[0], pause_s=cells[1])
        member = gangs.add(f"o{number}", work, devices=wants, at_s=at_s)
        gangs.size[member] = size
        if goes_s:
            gangs._later(goes_s, partial(gangs.leaves, member))
    gangs.run(lasts_s)
    turn_s = max(gangs.longest_s, 1.0) + 2 * USABLE / BYTES_PER_S
    bound_s = len(members) * (PASSES_MAX * turn_s + credit_s)
    assert gangs.longest_wait_s <= bound_s, (gangs.longest_wait_s, bound_s)
    gangs.scheduler.check_invariants()


@SERVED
@settings(max_examples=10, phases=PHASES)
@given(**WORLD)  # type: ignore[arg-type]
def test_everybody_is_served(**world: object) -> None:
    """Cells and programs on one to three devices, of which some come late and some go."""
    everybody_is_served(**world, lasts_s=25)  # type: ignore[arg-type]


@SERVED
@many_runs
@given(**WORLD)  # type: ignore[arg-type]
def test_everybody_is_served_in_many_runs(**world: object) -> None:
    """The same in many more runs."""
    everybody_is_served(**world, lasts_s=25)  # type: ignore[arg-type]
