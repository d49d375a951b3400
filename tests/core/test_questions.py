"""The answers of questions.md that are about turns alone, played before the core."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    GrantTurn,
    KillClient,
    RecallTurn,
    ReportOverdue,
)
from jupyter_gpushare.core.ids import ClientId, TenantId
from jupyter_gpushare.core.settings import MemoryMode, OverduePolicy, SchedulerSettings

from .desk import Desk

Told = tuple[float, str, str]


class Story:
    """People who ask and give back, by their names; and what they were told, and when."""

    def __init__(
        self, *, devices: str = "A", recovering_s: float | None = None, **settings: object
    ) -> None:
        made = SchedulerSettings(memory_mode=MemoryMode.OFF).replace(**settings)
        until_s = None if recovering_s is None else 100.0 + recovering_s
        self.desk = Desk(made, devices=devices, recovering_until_s=until_s)
        self.began_s = self.desk.now_s
        self.told: list[Told] = []
        self.client_of: dict[str, ClientId] = {}
        self.keeps = set[str]()
        """Who does not give back at once."""
        self.ends = set[str]()
        """Who does not ask again."""

    def comes(
        self, name: str, owner: str = "", *, devices: str = "A", asks_class: str = ""
    ) -> None:
        self.desk.tenant(name, owner=owner or name, asked_class=asks_class)
        self.client_of[name] = self.desk.client(name, devices)
        self._note()

    def asks(self, *names: str, cell: bool = False) -> None:
        for name in names:
            if name not in self.client_of:
                self.comes(name)
            if cell:
                self.does(ev.CellBegan(client=self.client_of[name]))
            self.desk.ask(self.client_of[name])
            self._note()

    def withdraws(self, name: str) -> None:
        self.desk.withdraw(self.client_of[name])
        self._note()

    def gives_back(self, name: str, *, cell: bool = False) -> None:
        if cell:
            self.does(ev.CellEnded(client=self.client_of[name]))
        self.desk.drop(self.client_of[name])
        self._note()

    def does(self, event: ev.Event) -> None:
        self.desk.do(event)
        self._note()

    def at(self, seconds: float) -> None:
        """The time comes; on the way the core is woken when it wants to be."""
        desk, until_s = self.desk, self.began_s + seconds
        while desk.wake_at_s is not None and desk.wake_at_s <= until_s:
            desk.sleep_until_woken()
            self._note()
        self.desk.do(ev.ClockTicked(), after_s=until_s - desk.now_s)
        self._note()

    def what(self, word: str) -> list[tuple[float, str]]:
        return [(at_s, name) for at_s, said, name in self.told if said == word]

    def _note(self) -> None:
        words = {GrantTurn: "granted", RecallTurn: "asked back", ReportOverdue: "reported"}
        names = {client: name for name, client in self.client_of.items()}
        at_s, recalled = round(self.desk.now_s - self.began_s, 2), []
        for command in self.desk.last:
            for kind, word in words.items():
                if isinstance(command, kind) and command.client in names:
                    self.told.append((at_s, word, names[command.client]))
            if isinstance(command, RecallTurn) and command.client in names:
                recalled.append(names[command.client])
        for name in recalled:
            if name not in self.keeps:
                self.desk.drop(self.client_of[name], ev.DropReason.RECALL)
                self._note()
                if name not in self.ends:
                    self.desk.ask(self.client_of[name])
                    self._note()


def test_1_a_quantum_goes_on_for_the_next_who_waits() -> None:
    story = Story(quantum_s=10, credit_s=0)
    story.asks("ann")
    story.at(25)
    story.asks("bob")
    story.at(30)
    story.withdraws("bob")
    story.at(40)
    story.asks("cid")
    story.at(50)
    assert story.what("asked back") == [(45, "ann")]
    assert story.what("granted")[1:] == [(45, "cid")]


@pytest.mark.parametrize("credit_s", [2, 0])
def test_2_a_new_cell_goes_before_who_waits_already(credit_s: float) -> None:
    story = Story(quantum_s=30, credit_s=credit_s)
    story.asks("ann", cell=True)
    story.at(55)
    story.asks("cid")
    story.at(60)
    story.asks("bob", cell=True)
    story.at(61)
    if credit_s:
        assert story.what("asked back") == [(60, "ann")]
        story.gives_back("bob", cell=True)
        assert story.what("granted") == [(0, "ann"), (60, "bob"), (61, "cid")]
    else:
        story.at(86)
        assert story.what("asked back") == [(85, "ann")]
        assert story.what("granted") == [(0, "ann"), (85, "cid")]


def test_4_of_one_users_notebooks_the_one_with_less_takes_over() -> None:
    story = Story(quantum_s=5, credit_s=0)
    story.comes("a", "ann")
    story.comes("b", "ann")
    story.asks("a")
    story.at(2)
    story.asks("b")
    story.at(12.1)
    assert story.what("asked back") == [(2, "a"), (7, "b"), (12, "a")]


def test_5_a_sibling_has_the_rest_of_the_quantum() -> None:
    story = Story(credit_s=0)
    story.ends.add("a")
    story.comes("a", "ann")
    story.comes("b", "ann")
    story.asks("a", cell=True)
    story.at(20)
    story.asks("bob")
    story.at(24)
    story.asks("b")
    story.at(40.5)
    assert story.what("asked back") == [(24, "a"), (40, "b")]
    assert story.what("granted") == [(0, "a"), (24, "b"), (40, "bob")]


def test_6_a_batch_notebook_waits_until_it_starves() -> None:
    story = Story(quantum_s=10, credit_s=0, starvation_s=60)
    story.comes("day", "ann")
    story.comes("night", "ann", asks_class="batch")
    story.asks("day", "night")
    story.at(61)
    assert story.what("asked back") == [(60, "day")]
    assert story.what("granted") == [(0, "day"), (60, "night")]


def test_7_a_hold_ends_for_realtime_alone() -> None:
    story = Story(quantum_s=10, credit_s=2, allowed_classes="cid=realtime")
    story.asks("ann")
    story.does(ev.HoldRequested(client=story.client_of["ann"], hold_s=300))
    story.at(1)
    story.asks("bob", cell=True)
    story.at(2)
    story.comes("dan", asks_class="realtime")
    story.asks("dan", cell=True)
    story.at(3)
    assert story.what("asked back") == []
    story.comes("cid", asks_class="realtime")
    story.ends.add("ann")
    story.asks("cid")
    assert story.what("asked back") == [(3, "ann")]
    for name in ("cid", "bob"):
        story.gives_back(name)
    assert [name for _, name in story.what("granted")] == ["ann", "cid", "bob", "dan"]


def test_8_a_boosted_program_has_one_quantum() -> None:
    story = Story(quantum_s=10, credit_s=2)
    story.asks("ann", cell=True)
    story.does(ev.HoldRequested(client=story.client_of["ann"], hold_s=300))
    story.at(2)
    story.asks("bob")
    story.does(ev.BoostRequested(tenant=TenantId("bob")))
    story.at(13)
    story.asks("cid", cell=True)
    story.at(22.5)
    assert story.what("asked back") == [(12, "ann"), (22, "bob")]
    assert story.what("granted") == [(0, "ann"), (12, "bob"), (22, "cid")]


def test_10_a_hard_limit_leaves_the_device_to_nobody() -> None:
    story = Story(hard_limits="ann=0.1", share_window_s=60)
    story.asks("ann")
    story.at(30)
    assert story.what("asked back") == [(6, "ann")]
    story.asks("bob")
    story.at(35)
    story.gives_back("bob")
    story.at(59.9)
    assert story.what("granted") == [(0, "ann"), (30, "bob")]


def test_12_a_notebook_of_two_devices_gets_both_at_once() -> None:
    story = Story(devices="AB", quantum_s=10, credit_s=0)
    story.comes("bob", devices="B")
    story.comes("cid", devices="AB")
    story.comes("dan", devices="B")
    story.keeps |= {"ann", "bob"}
    story.asks("ann", "bob")
    story.at(1)
    story.asks("cid")
    story.at(2)
    story.asks("dan")
    story.at(11.1)
    assert sorted(story.what("asked back")) == [(11, "ann"), (11, "bob")]
    story.gives_back("ann")
    assert len(story.what("granted")) == 2
    story.at(12)
    story.gives_back("bob")
    story.at(22.5)
    assert story.what("granted")[2:] == [(12, "cid"), (22, "dan")]
    assert story.what("asked back")[2:] == [(22, "cid")]


@pytest.mark.parametrize("waits_on", [True, False])
def test_14_a_drain_that_stalls_takes_the_recall_back(waits_on: bool) -> None:
    story = Story(quantum_s=10, credit_s=0, recall_retry_s=0.5)
    story.keeps.add("p")
    story.asks("p")
    second = story.desk.client("p")
    story.desk.ask(second)
    story.asks("bob")
    story.at(10.2)
    story.desk.ask(second)
    story.desk.stall(story.client_of["p"], calls_waiting=0)
    assert set(story.desk.reopened()) == {story.client_of["p"], second}
    assert story.desk.holders() == ["p"]
    story.at(10.4)
    if not waits_on:
        story.withdraws("bob")
    story.at(11)
    assert story.what("asked back") == [(10, "p"), (10.7, "p")][: 1 + waits_on]


def test_15_the_policy_kill_reaches_who_was_reported() -> None:
    story = Story(quantum_s=10, credit_s=0, overdue_s=30)
    story.keeps.add("ann")
    story.asks("ann", "bob")
    story.at(5)
    story.does(ev.ClientFrozen(client=story.client_of["ann"], frozen=True))
    story.at(10)
    assert story.what("asked back") == [(10, "ann")]
    story.at(60)
    assert story.what("reported") == [(40, "ann")] and not story.desk.all(KillClient)
    story.desk.set(overdue_policy=OverduePolicy.KILL)
    assert [each.client for each in story.desk.all(KillClient)] == [story.client_of["ann"]]
    story.at(61)
    story.does(ev.ClientLost(client=story.client_of["ann"]))
    assert story.what("granted")[-1] == (61, "bob")


@pytest.mark.parametrize("comes_back", ["all", "not cid", "ann with a turn"])
def test_16_a_scheduler_waits_for_those_of_before(comes_back: str) -> None:
    story = Story(recovering_s=2, quantum_s=10, credit_s=0)
    story.keeps.add("ann")
    story.at(0.4)
    story.asks("bob")
    story.at(0.9)
    story.desk.tenant("ann", owner="ann")
    held = 7 if comes_back == "ann with a turn" else 0
    story.client_of["ann"] = story.desk.client("ann", held_turn=held)
    story.at(1.3)
    if comes_back == "all":
        story.does(ev.RecoveryComplete())
        assert story.what("granted") == [(1.3, "bob")]
        return
    story.at(2.5)
    if comes_back == "not cid":
        assert story.what("granted") == [(2, "bob")]
        return
    assert story.desk.holders() == ["ann"] and not story.what("granted")
    story.at(13)
    assert [name for _, name in story.what("asked back")] == ["ann"]
    story.gives_back("ann")
    assert story.what("granted") == [(13, "bob")]
