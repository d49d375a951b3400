"""Victims park piece by piece, copy ahead of need, hear late and are heard late."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from jupyter_gpushare.core.commands import Ahead, TellBudget
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.space import victims

from ..memory_desk import USABLE, MemoryDesk

HELD = 1500
PART = HELD // victims.PART
VICTIMS = 4
STEP_S = 0.01
STEPS_BEFORE, STEPS_AFTER = 60, 100


@pytest.fixture(autouse=True)
def _every_byte_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are small, and whoever is asked for a little less is told so at once."""
    monkeypatch.setattr(victims, "PART_BYTES_MIN", 100)
    monkeypatch.setattr(victims, "STEP_BYTES", 1)


@dataclass
class Victim:
    """A process without a turn. What is said lies on the line for `late` steps, each way."""

    client: ClientId
    late: int
    pace: int
    """Bytes that it parks or copies in a step."""
    copied: int
    to_copy: int
    parked: int = 0
    budget: int = HELD
    serial: int = 0
    copies: bool = False
    inbox: deque[tuple[int, TellBudget]] = field(default_factory=deque)
    outbox: deque[tuple[int, dict[str, int]]] = field(default_factory=deque)
    said: dict[str, int] = field(default_factory=dict)

    def goes_on(self, step: int) -> None:
        while self.inbox and self.inbox[0][0] <= step:
            _, told = self.inbox.popleft()
            self.budget, self.serial = told.budget_bytes, told.serial
            self.copies = told.ahead is Ahead.COPIES
        over = HELD - self.parked - self.budget
        if over > 0:
            leaves = min(self.pace, over)
            self.parked += leaves
            self.copied -= min(self.copied, leaves)
        elif self.copies:
            more = min(self.pace, self.to_copy)
            self.copied, self.to_copy = self.copied + more, self.to_copy - more
        if self.says() != self.said:
            self.said = self.says()
            self.outbox.append((step + self.late, self.said))

    def says(self) -> dict[str, int]:
        has = {"parked": self.parked, "copied": self.copied, "to_copy": self.to_copy}
        return {**has, "serial": self.serial}

    def heard(self, step: int) -> Iterator[dict[str, int]]:
        while self.outbox and self.outbox[0][0] <= step:
            yield self.outbox.popleft()[1]


class Device:
    """Four idle tenants, and one with the turn that needs more at some time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._desk = MemoryDesk()
        self.victims = {each.client: each for each in map(self._idle, range(VICTIMS))}
        self.holder = self._desk.client("holder")
        self._desk.ask(self.holder)
        self._told()
        self.short = self._random.randint(1, VICTIMS * HELD * 2 // 3)
        self.asked: dict[ClientId, list[int]] = {client: [HELD] for client in self.victims}
        """The budgets of each, one after the other."""

    def _idle(self, number: int) -> Victim:
        client = self._desk.with_memory(f"t{number}", HELD)
        copied = self._random.choice([0, 0, 200, PART])
        to_copy = self._random.choice([0, PART - copied])
        late, pace = self._random.randint(0, 5), self._random.choice([20, 50, 130])
        self._desk.report(client, copied=copied, to_copy=to_copy)
        serial = self._desk.budgets[client, "A"].serial
        victim = Victim(client, late, pace, copied, to_copy, serial=serial)
        victim.said = victim.says()
        return victim

    def runs(self, steps: range) -> None:
        for step in steps:
            self._desk.now_s += STEP_S
            if self._desk.wake_at_s is not None and self._desk.wake_at_s <= self._desk.now_s:
                self._desk.sleep_until_woken()
                self._told(step)
            for victim in self._random.sample(list(self.victims.values()), VICTIMS):
                victim.goes_on(step)
                for said in victim.heard(step):
                    self._desk.report(victim.client, **said)
                    self._told(step)

    def needs(self, step: int) -> None:
        """As much as is free, as far as is known, and `short` more."""
        resident = sum(has["allocated"] - has["parked"] for has in self._desk.has.values())
        self.needed = USABLE - resident + self.short
        self._desk.need(self.holder, self.needed)
        self._told(step)

    def _told(self, step: int = 0) -> None:
        for told in self._desk.all(TellBudget):
            if told.client in self.victims:
                self.victims[told.client].inbox.append(
                    (step + self.victims[told.client].late, told)
                )
                self.asked[told.client].append(told.budget_bytes)

    @property
    def has_room(self) -> bool:
        return self._desk.budget(self.holder) >= self.needed

    @property
    def is_copied(self) -> bool:
        """By somebody, at this moment."""
        return any(victim.copies and victim.to_copy for victim in self.victims.values())


SEEDS = 40


@pytest.mark.promise("accounts-16")
def test_who_is_asked_goes_on_to_the_end() -> None:
    """A client that was told to stop by an old number of its memory would bring some back, and be
    asked again. No more parks than is short, and some parks while another client copies."""
    copied_meanwhile = 0
    for seed in range(SEEDS):
        device = Device(seed)
        begins = seed % STEPS_BEFORE
        device.runs(range(begins))
        copied_meanwhile += device.is_copied
        device.needs(begins)
        device.runs(range(begins, begins + STEPS_AFTER))
        assert device.has_room, seed
        for told in device.asked.values():
            assert told == sorted(told, reverse=True), f"{seed}: told to stop: {device.asked}"
        assert sum(victim.parked for victim in device.victims.values()) == device.short, seed
    assert copied_meanwhile > SEEDS / 10
