"""Budgets are decided from figures alone."""

from __future__ import annotations

import pickle

import pytest

from jupyter_gpushare.core import residency
from jupyter_gpushare.core.budgets import Decision, decide
from jupyter_gpushare.core.space.figures import Figures

from .memory_desk import USABLE, MemoryDesk


def test_deciding_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figures lead to the same decision, and the state is as before; each client is told
    one budget at a time."""
    desk = MemoryDesk()
    decisions: list[Decision] = []

    def decide_twice(figures: Figures) -> Decision:
        before = pickle.dumps(desk.scheduler._machine)
        decision = decide(figures)
        assert decide(figures) == decision
        assert pickle.dumps(desk.scheduler._machine) == before
        decisions.append(decision)
        return decision

    monkeypatch.setattr(residency, "decide", decide_twice)
    one = desk.with_memory("a", 5000)
    two = desk.with_memory("b", 2000, resting=False, fixed=100)
    desk.need(two, 3000)
    desk.park(one)
    desk.report(two, allocated=5000)
    desk.ask_space(one, 800)
    desk.measure(USABLE + 900)
    desk.need(two, 9000)
    desk.drop(two)
    desk.ask(one)
    desk.sleep_until_woken()
    desk.lose(two)
    desk.sleep_until_woken()
    told = [change.client for decision in decisions for change in decision.changes]
    assert {one, two} == set(told)
    for decision in decisions:
        clients = [change.client for change in decision.changes]
        assert len(clients) == len(set(clients))
