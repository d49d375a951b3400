"""A scheduler that replaces a lost one rebuilds what it knows from the clients that come back."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import GrantTurn
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.protocol.codec import encode
from jupyter_gpushare.scheduler.hook.translate import message_of

from .desk import Desk


def test_nobody_is_granted_before_the_time() -> None:
    """A holder may still be on its way back, so who asks waits, and the core asks to be woken."""
    desk = Desk(recovering_until_s=102)
    a = desk.client("a")
    desk.ask(a)
    assert desk.granted() == []
    assert desk.wake_at_s == 102
    assert desk.scheduler.snapshot(desk.now_s).recovering
    desk.sleep_until_woken()
    assert desk.granted() == [a]
    assert not desk.scheduler.snapshot(desk.now_s).recovering


def test_who_comes_at_its_end_is_not_the_cause() -> None:
    """What another user does at that moment is not told to those who are granted."""
    desk = Desk(recovering_until_s=102)
    a = desk.client("a")
    desk.ask(a)
    bobs = ev.TenantRegistered(
        tenant=TenantId("b"), name="b", owner="bob", kind="run", cause="registered by bob"
    )
    desk.do(bobs, after_s=102 - desk.now_s)
    (grant,) = desk.all(GrantTurn)
    assert grant.client == a
    assert grant.cause == "the wait for the clients of a scheduler before this one is over"


def test_it_ends_when_all_are_back() -> None:
    """RecoveryComplete ends it early."""
    desk = Desk(recovering_until_s=102)
    a = desk.client("a")
    desk.ask(a)
    desk.do(ev.RecoveryComplete())
    assert desk.granted() == [a]
    desk.do(ev.RecoveryComplete())
    assert desk.last == []


@pytest.mark.promise(
    "scheduler-106",
    "Nobody gets a device from a new scheduler while a client that holds a turn from before has "
    "yet to name its devices, as long as `reconnect_grace_s`",
)
@pytest.mark.parametrize("names", ["one", "two", "none", "one before"])
def test_a_holder_that_is_slow_to_name_its_devices_has_them(names: str) -> None:
    """It has said that it holds a turn, and its process is busy."""
    desk = Desk(recovering_until_s=102)
    slow = desk.client("slow", "", held_turn=41)
    other = desk.client("other", "B")
    desk.ask(other)
    if names == "one before":
        desk.do(ev.DeviceOpened(client=slow, device=DeviceId("A")), after_s=0.099)
        desk.do(ev.RecoveryComplete(), after_s=0.001)
        assert desk.granted() == []
        desk.do(ev.DeviceOpened(client=slow, device=DeviceId("B")), after_s=0.01)
        assert desk.holders("B") == ["slow"]
        return
    desk.do(ev.RecoveryComplete(), after_s=0.1)
    assert desk.granted() == []
    if names == "none":
        desk.sleep_until_woken()
        assert desk.now_s == 102 and desk.granted() == [other]
        return
    desk.do(ev.DeviceOpened(client=slow, device=DeviceId("A")), after_s=0.2)
    if names == "two":
        desk.do(ev.DeviceOpened(client=slow, device=DeviceId("B")), after_s=0.05)
    desk.sleep_until_woken()
    assert not desk.scheduler.snapshot(desk.now_s).recovering
    assert desk.holders("B") == (["slow"] if names == "two" else ["other"])


@pytest.mark.promise(
    "scheduler-107",
    "A new scheduler that stands still while it waits for the holders of before hears them out "
    "before anybody else gets a device",
)
@pytest.mark.parametrize("stood_s", [3, 13])
def test_holders_are_heard_after_a_standstill(stood_s: float) -> None:
    """It was stopped, and their time was over when it went on: they have connected meanwhile."""
    desk = Desk(recovering_until_s=112)
    other = desk.client("other")
    desk.ask(other)
    desk.do(ev.RecoveryComplete(in_time=False), after_s=stood_s)
    assert desk.granted() == []
    slow = desk.client("slow", "", held_turn=41)
    desk.do(ev.ClockTicked(), after_s=0.3)
    assert desk.granted() == []
    desk.open(slow, "A")
    assert desk.holders("A") == ["slow"]
    desk.sleep_until_woken()
    assert not desk.scheduler.snapshot(desk.now_s).recovering
    assert desk.granted() == []


def test_the_time_begins_anew_after_a_standstill() -> None:
    """Of a core that has started anew by itself, which nobody tells when it is over."""
    desk = Desk(recovering_until_s=102)
    other = desk.client("other")
    desk.ask(other)
    desk.do(ev.ClockTicked(), after_s=5)
    assert desk.granted() == []
    desk.client("slow", held_turn=41)
    desk.sleep_until_woken()
    assert desk.holders("A") == ["slow"]


def test_a_holder_that_gives_back_what_it_has_not_named_is_not_awaited() -> None:
    """It has closed its last context meanwhile."""
    desk = Desk(recovering_until_s=112)
    without, other = desk.client("without", "", held_turn=41), desk.client("other")
    desk.ask(other)
    desk.drop(without, turn=41)
    desk.do(ev.RecoveryComplete(), after_s=0.5)
    assert desk.granted() == [other]


def test_a_client_that_is_new_is_not_awaited() -> None:
    """It has named no device, and had none from a scheduler before this one."""
    desk = Desk(recovering_until_s=102)
    new, other = desk.client("new", ""), desk.client("other")
    desk.ask(new)
    desk.ask(other)
    desk.do(ev.RecoveryComplete(), after_s=0.5)
    assert desk.granted() == [other]


def test_a_holder_keeps_its_turn() -> None:
    """Who comes back with a turn has it, under the same id, and others wait for it."""
    desk = Desk(recovering_until_s=102)
    a = desk.client("a", held_turn=41)
    b = desk.client("b")
    desk.ask(b)
    desk.sleep_until_woken()
    assert desk.holders() == ["a"]
    assert desk.granted() == []
    desk.drop(a, turn=41)
    assert desk.granted() == [b]


def test_turn_ids_go_on_from_those_that_came_back() -> None:
    """No new turn has the id of one from before."""
    desk = Desk(recovering_until_s=102)
    a = desk.client("a", held_turn=41)
    desk.drop(a, turn=41)
    desk.do(ev.RecoveryComplete(), after_s=1)
    desk.ask(a)
    assert desk.turns[a] > 41


@pytest.mark.promise("bad-input-10")
def test_a_claimed_turn_takes_no_numbers_from_others() -> None:
    """The highest number that a message can hold: the turns of others can still be told."""
    desk = Desk(devices="AB")
    claimed = 2**64 - 1
    liar = desk.client("a", "A", held_turn=claimed)
    other = desk.client("b", "B")
    desk.ask(other)
    assert desk.granted() == [other]
    (grant,) = desk.all(GrantTurn)
    encode(message_of(grant))
    desk.drop(liar, turn=claimed)
    assert desk.holders("A") == []


def test_processes_of_one_tenant_share_what_they_bring() -> None:
    """The turn of the tenant ends when all of them have dropped it."""
    desk = Desk(recovering_until_s=102)
    a, a2, b = desk.client("a", held_turn=7), desk.client("a", held_turn=7), desk.client("b")
    desk.ask(b)
    desk.do(ev.RecoveryComplete(), after_s=1)
    desk.drop(a, turn=7)
    assert desk.granted() == []
    desk.drop(a2, turn=7)
    assert desk.granted() == [b]


def test_of_two_claims_the_first_wins() -> None:
    """Two tenants that both bring a turn on one device: the second is asked for it."""
    desk = Desk(recovering_until_s=102)
    a = desk.client("a", held_turn=7)
    b = desk.client("b", held_turn=8)
    assert desk.recalled() == [b]
    assert desk.holders() == ["a"]
    desk.ask(b)
    desk.drop(b, turn=8)
    desk.do(ev.RecoveryComplete(), after_s=1)
    assert desk.queue() == ["b"]
    desk.drop(a, turn=7)
    assert desk.granted() == [b]


def test_siblings_of_a_holder_are_let_through() -> None:
    """The tenant has the turn, so its other processes may use it, also before the time."""
    desk = Desk(recovering_until_s=102)
    desk.client("a", held_turn=7)
    a2 = desk.client("a")
    desk.ask(a2)
    assert desk.granted() == [a2]


def test_who_comes_back_is_served_once_all_its_devices_are_named() -> None:
    """A turn covers the devices that are named when it is granted, and opens the gate for all: a
    process that comes back names each of them before it asks."""
    desk = Desk()
    b = desk.client("b", "B")
    desk.ask(b)
    a = desk.client("a", "")
    desk.open(a, "A")
    assert desk.granted() == []
    desk.open(a, "B")
    assert desk.granted() == []
    desk.ask(a)
    assert desk.queue() == ["a"]
    desk.drop(b)
    assert desk.granted() == [a]


def test_a_late_claim_meets_who_came_after() -> None:
    """A process whose connection broke while its turn went to somebody else is asked back."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    turn = desk.turns[a]
    desk.ask(b)
    desk.lose(a)
    assert desk.granted() == [b]
    again = desk.client("a", held_turn=turn)
    assert desk.recalled() == [again]
    assert desk.all(GrantTurn) == []
    assert desk.holders() == ["b"]
    desk.drop(again, turn=turn)
    assert desk.status("a").state == "idle"


def test_a_late_claim_on_a_free_device_stands() -> None:
    """If nobody came after, the process goes on as if nothing had been."""
    desk = Desk()
    a = desk.client("a")
    desk.ask(a)
    turn = desk.turns[a]
    desk.lose(a)
    desk.client("a", held_turn=turn)
    assert desk.recalled() == []
    assert desk.holders() == ["a"]


def test_a_tenant_in_the_queue_that_brings_a_turn_leaves_it() -> None:
    """A sibling's claim serves the tenant's waiting calls too."""
    desk = Desk(recovering_until_s=102)
    a = desk.client("a")
    desk.ask(a)
    assert desk.queue() == ["a"]
    desk.client("a", held_turn=7)
    assert desk.granted() == [a]
    assert desk.queue() == []


def test_what_an_open_gate_uses_stays_taken_until_it_is_shut() -> None:
    """A claim on two devices, one of them somebody else's: the free one is nobody else's before
    the process has drained."""
    desk = Desk()
    b, c = desk.client("b", "B"), desk.client("c", "A")
    desk.ask(b)
    a = desk.client("a", "BA", held_turn=7)
    assert desk.status("a").state == "recalled"
    desk.ask(c)
    assert desk.granted() == []
    desk.drop(a, turn=7)
    assert desk.granted() == [c]


def test_a_claim_on_a_turn_under_recall_is_recalled_too() -> None:
    """Nobody joins a turn that is being given back, whatever it brings."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.sleep_until_woken()
    late = desk.client("a", held_turn=7)
    assert desk.recalled() == [late]
    desk.drop(a)
    assert desk.granted() == []
    desk.drop(late, turn=7)
    assert desk.granted() == [b]
