"""Copies ahead of need where somebody does not do as told, comes or goes, or where many would
copy."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Ahead, Command, GrantTurn, RecallTurn, TellBudget
from jupyter_gpushare.core.ids import ClientId, TenantId
from jupyter_gpushare.core.space import victims
from jupyter_gpushare.core.space.copiers import THINKS_S

from .. import desk as desks
from ..full_machine import Beside
from ..memory_desk import PLENTY, USABLE, MemoryDesk

MOST = 2**64 - 1


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "PART_BYTES_MIN", 100)


class CopiesDesk(MemoryDesk):
    """Clients say what they have copied (`copied`), and would copy (`to_copy`), too."""

    def do(self, event: ev.Event, *, after_s: float = 0.0) -> list[Command]:
        if isinstance(event, ev.MemoryReported):
            has = self.has[event.client, event.device]
            copied, to_copy = has.get("copied", 0), has.get("to_copy", 0)
            event = dataclasses.replace(event, bytes_copied=copied, bytes_to_copy=to_copy)
        return super().do(event, after_s=after_s)

    def copiers(self) -> list[int]:
        """Who believes that it is to copy."""
        told = {client: told for (client, _), told in self.budgets.items()}
        return sorted(client for client, last in told.items() if last.ahead is Ahead.COPIES)

    def sleep(self, for_s: float) -> None:
        """Woken whenever the core has asked for it."""
        until_s = self.now_s + for_s
        while self.wake_at_s is not None and self.wake_at_s <= until_s:
            self.sleep_until_woken()
        self.now_s = until_s


def desk_with_idle(*held: int) -> tuple[CopiesDesk, list[ClientId]]:
    """Tenants that think, the least recently used first. Each would copy."""
    desk = CopiesDesk()
    idle = [desk.with_memory(f"t{number}", count) for number, count in enumerate(held)]
    for client in idle:
        desk.report(client, to_copy=500)
    desk.sleep(THINKS_S)
    return desk, idle


# ---- one that says what it likes --------------------------------------------------------------


@pytest.mark.parametrize("copied", [MOST, 0])
def test_absurd_figures_make_nobody_else_park_more(copied: int) -> None:
    desk, idle = desk_with_idle(2400, 2300)
    desk.report(idle[1], to_copy=MOST, copied=copied)
    newcomer = desk.client("newcomer")
    desk.ask(newcomer)
    desk.need(newcomer, USABLE - 4700 + 900)
    expected = [2266, 1534] if copied else [1600, 2200]
    assert [desk.budget(client) for client in idle] == expected


# ---- who comes and goes ----------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-9",
    "A notebook that waits for its turn makes no copies ahead of need; another one does",
)
def test_who_comes_to_the_line_copies_no_more() -> None:
    desk, idle = desk_with_idle(2400, 2300)
    holder = desk.with_memory("h", 100, resting=False)
    for _ in range(3):  # until all is told, and nothing is left to look at
        for client in (holder, *idle):
            desk.report(client)
        desk.sleep(1.0)
        desk.do(ev.ClockTicked())
    assert desk.copiers() == [idle[0]]
    desk.ask(idle[0])
    assert desk.queue() == ["t0"]
    assert desk.copiers() == [idle[1]]
    desk.ask(idle[1])
    assert desk.copiers() == []
    for client in (holder, *idle):
        desk.report(client)
    desk.do(ev.ClockTicked())
    desk.withdraw(idle[0])
    assert desk.copiers() == [idle[0]]


def nothing_is_left_to_look_at(desk: CopiesDesk) -> None:
    for _ in range(3):
        for client, device in list(desk.has):
            desk.report(client, device)
        desk.sleep(1.0)
        desk.do(ev.ClockTicked())


@pytest.mark.promise("accounts-5")
def test_who_goes_on_after_a_stop_copies_at_once() -> None:
    """Nobody else has anything to say that would lead to a look."""
    desk, (one,) = desk_with_idle(2400)
    desk.do(ev.ClientFrozen(client=one, frozen=True))
    nothing_is_left_to_look_at(desk)
    assert desk.copiers() == []
    desk.do(ev.ClientFrozen(client=one, frozen=False))
    assert desk.copiers() == [one]


@pytest.mark.promise("accounts-5")
def test_who_no_longer_waits_for_its_notebooks_next_turn_copies_at_once() -> None:
    """It was in no line that it could have left."""
    desk, (one,) = desk_with_idle(2400)
    sibling = desk.with_memory("t0", 100, resting=False)
    desk.ask(desk.client("b"))
    desk.sleep_until_woken()
    assert desk.recalled() == [sibling]
    desk.ask(one)
    nothing_is_left_to_look_at(desk)
    assert desk.copiers() == []
    desk.withdraw(one)
    assert desk.copiers() == [one]


def test_nobody_is_woken_for_one_that_waits_now() -> None:
    """It has come to the line before it had thought for long enough."""
    desk = CopiesDesk()
    holder, one = desk.client("h"), desk.with_memory("t0", 2400)
    desk.ask(holder)
    desk.report(one, to_copy=500)
    for client in (holder, one):
        desk.report(client)
    desk.do(ev.ClockTicked())
    assert desk.wake_at_s is not None and desk.wake_at_s <= desk.now_s + THINKS_S
    desk.ask(one)
    assert desk.queue() == ["t0"]
    assert desk.wake_at_s > desk.now_s + THINKS_S


@pytest.mark.promise("accounts-18")
def test_who_goes_before_all_others_is_asked_last_at_once() -> None:
    """The one that was served last is served first, because an admin says so."""
    desk = MemoryDesk()
    first, last = desk.with_memory("t0", 2400), desk.with_memory("t1", 2400)
    holder = desk.client("holder")
    for client in (holder, first, last):
        desk.ask(client)
    desk.need(holder, USABLE - 4800 + 300)
    desk.do(ev.ClockTicked(), after_s=0.1)
    assert [desk.budget(first), desk.budget(last)] == [2400, 2100]
    desk.do(ev.BoostRequested(tenant=TenantId("t1")))
    assert desk.queue() == ["t1", "t0"]
    assert [desk.budget(first), desk.budget(last)] == [2100, 2400]


def test_words_on_their_way_make_nobody_a_victim() -> None:
    """The turn ends before its process has heard of a larger budget, so that it may believe in more
    than it has. It was asked for nothing, and has just been used."""
    desk, idle = desk_with_idle(2400, 2400)
    last = desk.with_memory("last", 1500, resting=False)
    newcomer = desk.client("newcomer")
    desk.ask(newcomer)
    desk.report(last)
    desk.need(last, 300)
    super(MemoryDesk, desk).drop(last)
    assert desk.holders() == ["newcomer"]
    desk.need(newcomer, 1500)
    assert [desk.budget(client) for client in (*idle, last)] == [1600, 2400, 1500]


@pytest.mark.promise("accounts-18")
def test_who_leaves_the_line_is_asked_at_once() -> None:
    """It is not spared any more, and another victim has come to the line."""
    desk, (leaves, comes) = MemoryDesk(), [ClientId(1), ClientId(2)]
    for name in ("t0", "t1"):
        desk.with_memory(name, 2400)
    desk.report(leaves, parkable=0)
    holder = desk.client("holder")
    desk.ask(holder)
    desk.need(holder, USABLE - 4800 + 600)
    desk.ask(leaves)
    desk.report(leaves, parkable=500)
    for _ in range(3):  # until nothing is left to look at
        desk.do(ev.ClockTicked(), after_s=0.1)
    assert [desk.budget(leaves), desk.budget(comes)] == [2400, 1800]
    desk.ask(comes)
    desk.withdraw(leaves)
    assert desk.budget(leaves) == 1900


# ---- by chance ------------------------------------------------------------------------------


class RandomStory:
    """Four tenants, one of them with two processes, that work, wait, park, copy and are stopped as
    chance will have it."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.desk = CopiesDesk()
        self.clients = [self.desk.client(f"t{number % 4}") for number in range(5)]
        self._state = dict.fromkeys(self.clients, "idle")
        self._stopped: set[ClientId] = set()
        self.told_to_copy = 0

    def step(self) -> None:
        desk, chance = self.desk, self._random.random()
        desk.now_s += self._random.choice([0, 0.01, 0.1, 0.3, 2.0, 7.0])
        if desk.wake_at_s is not None and desk.wake_at_s <= desk.now_s:
            desk.sleep_until_woken()
            self._hear()
        client = self._random.choice(self.clients)
        state = self._state[client]
        if client in self._stopped:
            self._stopped.remove(client)
            desk.do(ev.ClientFrozen(client=client, frozen=False))
        elif chance < 0.3:
            self._move(client, state)
        elif chance < 0.35:
            desk.do(ev.BusUsed(client=client))
        elif chance < 0.38:
            self._stopped.add(client)
            desk.do(ev.ClientFrozen(client=client, frozen=True))
        elif chance < 0.5 and state == "turn":
            self._grow(client)
        else:
            self._report(client, state)
        self._hear()

    def _move(self, client: ClientId, state: str) -> None:
        self._state[client] = "waiting" if state == "idle" else "idle"
        move = {"idle": self.desk.ask, "waiting": self.desk.withdraw}.get(state, self.desk.drop)
        move(client)

    def _grow(self, client: ClientId) -> None:
        has = self.desk.has.get((client, "A"), {"allocated": 0, "parked": 0})
        wanted = has["allocated"] + self._random.choice([300, 1000, 1500])
        if wanted > USABLE // 2:
            return
        self.desk.need(client, wanted - has["allocated"])
        self._hear()
        told = self.desk.budgets.get((client, "A"))
        if told is not None and told.budget_bytes >= wanted - has["parked"]:
            self.desk.report(client, allocated=wanted)

    def _report(self, client: ClientId, state: str) -> None:
        if (client, "A") not in self.desk.budgets or (client, "A") not in self.desk.has:
            self.desk.report(client)
            return
        has, pick = self.desk.has[client, "A"], self._random.choice
        over = has["allocated"] - has["parked"] - self.desk.budget(client)
        step, rests = pick([50, 500, 5000]), state in ("idle", "waiting")
        says = {"parkable": pick([5, 200, PLENTY, PLENTY, PLENTY])}
        if over > 0 and rests:
            says["parked"] = has["parked"] + min(over, step)
        elif over < 0:
            says["parked"] = has["parked"] - min(-over, has["parked"], step)
        says["copied"] = pick([0, 0, 100, 400]) if rests else 0
        says["to_copy"] = pick([0, 100, 500, MOST]) if rests else 0
        heard = self.desk.budgets[client, "A"].serial - pick([0, 0, 1, 2])
        self.desk.report(client, serial=max(0, heard), **says)

    def _hear(self) -> None:
        for granted in self.desk.all(GrantTurn):
            self._state[granted.client] = "turn"
        for recalled in self.desk.all(RecallTurn):
            self._state[recalled.client] = "recalled"
        told = self.desk.all(TellBudget)
        self.told_to_copy += sum(command.ahead is Ahead.COPIES for command in told)


@pytest.mark.promise("scheduler-32")
@pytest.mark.parametrize("seed", [0, 2, 3, 5, 16, 38])
def test_copies_are_the_same_as_if_everything_was_looked_at(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desks, "Scheduler", Beside)
    story = RandomStory(seed)
    for _ in range(200):
        story.step()
    assert story.told_to_copy > 0
