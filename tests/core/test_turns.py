"""Who gets the turn, and when: the queue, several devices, several processes."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import GrantTurn

from .desk import TURNS_ALONE, Desk


def test_a_free_device_is_granted_at_once() -> None:
    """Who asks alone is let through with the quantum and no waiters."""
    desk = Desk(TURNS_ALONE.replace(quantum_s=7))
    a = desk.client("a")
    desk.ask(a)
    (grant,) = desk.all(GrantTurn)
    assert (grant.client, grant.quantum_s, grant.waiters) == (a, 7, 0)
    assert grant.turn > 0
    assert grant.cause == "cuLaunchKernel"


@pytest.mark.promise(
    "scheduler-44", "Turns of one owner are first come, first served, for each device"
)
def test_first_come_first_served() -> None:
    """Waiting tenants are served in the order in which they asked."""
    desk = Desk()
    clients = {name: desk.client(name) for name in "abcd"}
    for name in "adcb":
        desk.ask(clients[name])
    served = []
    for _ in range(4):
        (holder,) = desk.holders()
        served.append(holder)
        desk.drop(clients[holder])
    assert served == ["a", "d", "c", "b"]
    assert desk.holders() == []


def test_who_asks_again_goes_to_the_end() -> None:
    """A tenant that still has a waiting client after its turn queues behind everybody."""
    desk = Desk()
    a, a2, b, c = (desk.client(name) for name in "aabc")
    desk.ask(a)
    desk.ask(b)
    desk.ask(c)
    desk.set(quantum_s=0.01)
    desk.sleep_until_woken()
    desk.ask(a2)
    assert desk.granted() == []
    desk.drop(a)
    assert desk.queue() == ["c", "a"]


@pytest.mark.promise("scheduler-45", "A tenant on several devices gets all its turns or none")
def test_all_devices_or_none() -> None:
    """A tenant on two devices waits until both are free, and gets them together."""
    desk = Desk()
    a, b, both = desk.client("a", "A"), desk.client("b", "B"), desk.client("m", "AB")
    desk.ask(a)
    desk.ask(b)
    desk.ask(both)
    desk.drop(a)
    assert desk.granted() == []
    assert desk.holders("A") == []
    desk.drop(b)
    assert desk.granted() == [both]
    assert desk.holders("A") == desk.holders("B") == ["m"]


@pytest.mark.promise("scheduler-44")
def test_a_later_one_does_not_overtake_for_a_free_device() -> None:
    """A free device that an earlier waiter wants stays free for it: nobody starves."""
    desk = Desk()
    b, both, a = desk.client("b", "B"), desk.client("m", "AB"), desk.client("a", "A")
    desk.ask(b)
    desk.ask(both)
    desk.ask(a)
    assert desk.queue("A") == ["m", "a"]
    assert desk.holders("A") == []
    desk.drop(b)
    assert desk.granted() == [both]


def test_tenants_on_different_devices_do_not_meet() -> None:
    """Who wants another device does not wait."""
    desk = Desk()
    a, b = desk.client("a", "A"), desk.client("b", "B")
    desk.ask(a)
    desk.ask(b)
    assert desk.granted() == [b]


@pytest.mark.promise("scheduler-45")
def test_the_device_set_is_that_of_all_processes() -> None:
    """A process on one device waits for the devices of its siblings too."""
    desk = Desk()
    b, a, _sibling = desk.client("b", "B"), desk.client("a", "A"), desk.client("a", "B")
    desk.ask(b)
    desk.ask(a)
    assert desk.granted() == []
    desk.drop(b)
    assert desk.granted() == [a]


def test_siblings_share_the_turn() -> None:
    """A process whose tenant has the turn is let through at once, with the same turn."""
    desk = Desk()
    first, second, other = desk.client("a"), desk.client("a"), desk.client("b")
    desk.ask(first)
    desk.ask(other)
    desk.ask(second)
    assert desk.granted() == [second]
    assert desk.turns[first] == desk.turns[second]


@pytest.mark.promise("scheduler-48")
def test_the_turn_ends_with_its_last_process() -> None:
    """The next tenant comes when all processes that were granted the turn have dropped it."""
    desk = Desk()
    first, second, other = desk.client("a"), desk.client("a"), desk.client("b")
    desk.ask(first)
    desk.ask(second)
    desk.ask(other)
    desk.drop(first)
    assert desk.granted() == []
    desk.lose(second)
    assert desk.granted() == [other]


def test_a_sibling_waits_while_the_turn_is_recalled() -> None:
    """Nobody joins a turn that is being given back."""
    desk = Desk()
    first, second, other = desk.client("a"), desk.client("a"), desk.client("b")
    desk.ask(first)
    desk.ask(other)
    desk.sleep_until_woken()
    assert desk.recalled() == [first]
    desk.ask(second)
    assert desk.granted() == []
    desk.drop(first)
    assert desk.granted() == [other]
    desk.drop(other)
    assert desk.granted() == [second]


def test_opening_a_free_device_extends_the_turn() -> None:
    """A holder that opens a further device has it at once if it is free."""
    desk = Desk()
    a, b = desk.client("a", "A"), desk.client("b", "B")
    desk.ask(a)
    desk.open(a, "B")
    assert desk.holders("B") == ["a"]
    desk.ask(b)
    assert desk.granted() == []


def test_opening_a_device_in_use_recalls_the_whole_turn() -> None:
    """A holder that opens a device of somebody else's turn waits until it has all of them."""
    desk = Desk()
    a, b = desk.client("a", "A"), desk.client("b", "B")
    desk.ask(a)
    desk.ask(b)
    desk.open(a, "B")
    assert desk.recalled() == [a]
    desk.ask(a)
    desk.drop(a)
    assert desk.holders("A") == []
    assert desk.queue("A") == desk.queue("B") == ["a"]
    desk.drop(b)
    assert desk.granted() == [a]
    assert desk.holders("A") == desk.holders("B") == ["a"]


def test_closing_a_device_frees_it() -> None:
    """A device that no process of the holder has open any more is free at once."""
    desk = Desk()
    a, b = desk.client("a", "AB"), desk.client("b", "B")
    desk.ask(a)
    desk.ask(b)
    desk.close(a, "B")
    assert desk.granted() == [b]
    assert desk.holders("A") == ["a"]


def test_withdrawn_requests_leave_the_queue() -> None:
    """Who does not wait any more is passed over."""
    desk = Desk()
    a, b, c = (desk.client(name) for name in "abc")
    for client in (a, b, c):
        desk.ask(client)
    desk.withdraw(b)
    assert desk.queue() == ["c"]
    desk.drop(a)
    assert desk.granted() == [c]


def test_a_grant_that_crosses_a_withdrawal_stays() -> None:
    """A withdrawal that arrives after the grant is stale: the client drops the turn itself."""
    desk = Desk()
    a = desk.client("a")
    desk.ask(a)
    desk.withdraw(a)
    assert desk.holders() == ["a"]
    desk.drop(a)
    assert desk.holders() == []


def test_who_asks_with_the_turn_is_told_again() -> None:
    """A client that asks although it has the turn is told the same turn once more."""
    desk = Desk()
    a = desk.client("a")
    desk.ask(a)
    turn = desk.turns[a]
    desk.ask(a)
    assert desk.granted() == [a]
    assert desk.turns[a] == turn


def test_a_client_without_a_device_passes() -> None:
    """A call of a process that has opened no device is let through: it can run nothing, and is to
    meet the driver's own error. With its first device it is part of its tenant's turn."""
    desk = Desk()
    other = desk.client("b")
    a = desk.client("a", "")
    desk.ask(a)
    assert desk.granted() == [a]
    assert desk.status("a").state == "idle"
    desk.ask(other)
    desk.open(a, "A")
    assert desk.recalled() == [a]
    desk.drop(a)
    assert desk.status("a").state == "idle"


def test_stale_drops_change_nothing() -> None:
    """What a client says about another turn than its own is ignored."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    for turn in (0, desk.turns[a] + 1, 99):
        desk.drop(a, turn=turn)
        desk.drop(b, turn=turn)
    assert desk.holders() == ["a"]
    assert desk.queue() == ["b"]


def test_turn_ids_are_never_used_twice() -> None:
    """Each turn has an id of its own."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    seen = set()
    for _ in range(10):
        for client in (a, b):
            desk.ask(client)
            seen.add(desk.turns[client])
            desk.drop(client)
    assert len(seen) == 20


@pytest.mark.promise("scheduler-44")
def test_equal_turns_for_tenants_that_always_ask() -> None:
    """Tenants that always want the device get equally many turns, in a fixed round."""
    desk = Desk(TURNS_ALONE.replace(quantum_s=1))
    for name in "abcde":
        desk.tenant(name, owner=name)
    clients = {name: desk.client(name) for name in "abcde"}
    for client in clients.values():
        desk.ask(client)
    order = []
    for _ in range(50):
        (holder,) = desk.holders()
        order.append(holder)
        desk.sleep_until_woken()
        assert desk.recalled() == [clients[holder]]
        desk.ask(clients[holder])
        desk.drop(clients[holder], ev.DropReason.RECALL)
    assert order == list("abcde") * 10
    counters = [desk.status(name).counters for name in clients]
    assert {counted.turns for counted in counters} == {10, 11}  # the next round has begun
    assert all(counted.held_s_total == 10 for counted in counters)


def test_a_lost_client_frees_turn_and_place_at_once() -> None:
    """A process that dies holding is followed by the next; one that dies waiting is forgotten."""
    desk = Desk()
    a, b, c = (desk.client(name) for name in "abc")
    for client in (a, b, c):
        desk.ask(client)
    desk.lose(b)
    assert desk.queue() == ["c"]
    desk.lose(a)
    assert desk.granted() == [c]


def test_fairness_is_by_tenant_not_by_process() -> None:
    """Many processes of one tenant get one turn together, not one each."""
    desk = Desk()
    many = [desk.client("a") for _ in range(5)]
    one, other = desk.client("b"), desk.client("c")
    desk.ask(one)
    for client in many:
        desk.ask(client)
    desk.ask(other)
    desk.drop(one)
    assert desk.granted() == many
    for client in many:
        desk.drop(client)
    assert desk.granted() == [other]
