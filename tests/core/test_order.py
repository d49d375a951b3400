"""Corners of the order in a line and of what owners are charged, each by itself."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.accounts import Accounts, Use
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from jupyter_gpushare.core.swap_budget import SwapBudget

from .crowd import Crowd, Work
from .desk import Desk

ALONE = SchedulerSettings(memory_mode=MemoryMode.OFF)
DEVICE = DeviceId("A")
LOOP = Work(in_cells=False)


def test_who_is_boosted_goes_before_a_new_cell() -> None:
    """A new cell goes before all others but those."""
    desk = Desk(ALONE)
    for name in ("holder", "boosted", "cell"):
        desk.tenant(name, owner=name)
    holder, boosted, cell = (desk.client(name) for name in ("holder", "boosted", "cell"))
    desk.ask(holder)
    desk.ask(boosted)
    desk.do(ev.BoostRequested(tenant=TenantId("boosted")))
    desk.do(ev.CellBegan(client=cell))
    desk.ask(cell)
    assert desk.queue() == ["boosted", "cell"]


def test_too_little_credit_is_none() -> None:
    """A turn on it would be over at once."""
    desk = Desk(ALONE.replace(credit_s=0.04))
    desk.tenant("program", owner="ann")
    desk.tenant("cell", owner="ben")
    program, cell = desk.client("program"), desk.client("cell")
    desk.ask(program)
    desk.do(ev.CellBegan(client=cell))
    desk.ask(cell)
    assert desk.recalled() == []


def test_a_free_device_waits_with_the_first_of_its_line() -> None:
    """One that wants two devices gets the one that is free when the other one is free too, though
    somebody behind it would be content with less."""
    desk = Desk()
    other, both, one = desk.client("other", "B"), desk.client("both", "AB"), desk.client("one", "A")
    desk.ask(other)
    desk.ask(both)
    desk.ask(one)
    assert (desk.holders("A"), desk.queue("A")) == ([], ["both", "one"])
    desk.drop(other)
    assert desk.holders("A") == desk.holders("B") == ["both"]


def test_turns_that_run_at_once_are_charged_a_part_each() -> None:
    """They overlap where turns have just been switched on."""
    accounts = Accounts()
    accounts.add_device(DEVICE)
    for owner in ("ann", "ben", "cem"):
        accounts.know(owner, (), {})
        accounts.comes(DEVICE, owner)
    accounts.now_s = 12.0
    accounts.charge(DEVICE, [Use("ann", on_credit=False), Use("ben", on_credit=False)])
    ahead = [accounts.ahead_s(DEVICE, owner) for owner in ("ann", "ben", "cem")]
    assert ahead == pytest.approx([2, 2, -4])


def test_a_debt_outlives_an_idle_device() -> None:
    """Who was ahead when all had gone is behind the other one when all are back."""
    crowd = Crowd(ALONE.replace(quantum_s=2))
    ann, ben = crowd.add("ann", LOOP), crowd.add("ben", LOOP, at_s=1)
    crowd.run(0.5)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=50, by_admin=True))
    crowd.run(40)
    crowd.leaves(ann)
    crowd.run(0.5)
    crowd.leaves(ben)
    crowd.run(30)
    before = crowd.part_s("ann"), crowd.part_s("ben")
    crowd.add("ann", LOOP)
    crowd.add("ben", LOOP)
    crowd.run(30)
    assert crowd.part_s("ann") - before[0] <= 2.1
    assert crowd.part_s("ben") - before[1] >= 27.5


def test_the_swap_budget_fills_while_nothing_moves() -> None:
    """Up to what a minute brings."""
    swap = SwapBudget(bytes_per_s=1.0)
    swap.spend(3, 100.0, 0.1)
    swap.spend(1, 120.0, 0.1)
    assert swap.spent_s == pytest.approx(2.0)  # 2 of the 3 had come in again
    swap.spend(1, 1000.0, 0.1)
    assert swap.spent_s == pytest.approx(1.0)


def test_an_owners_notebooks_take_turns_in_the_order_of_their_arrival() -> None:
    """Of three none is left out."""
    desk = Desk(ALONE)
    clients = [desk.client(name) for name in "abc"]
    for client in clients:
        desk.ask(client)
    served = []
    for _ in range(6):
        (holder,) = desk.holders()
        served.append(holder)
        client = clients["abc".index(holder)]
        desk.drop(client, ev.DropReason.RECALL)
        desk.ask(client)
    assert served == ["a", "b", "c", "a", "b", "c"]
