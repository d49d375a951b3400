"""A request for space that comes again at once shows that the device was misjudged: its client is
not out of memory for that."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.budgets import MEASURE_PERIOD_S, SPACE_KEPT_S
from jupyter_gpushare.core.commands import MeasureDevice, TellSpaceAwaited
from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.core.ledger import SETTLED_S
from jupyter_gpushare.core.space.requests import REPEATS_MANY, UNCERTAIN_S_MAX
from tests.core.memory_desk import TOTAL, MemoryDesk
from tests.core.test_memory_waits import await_recall, let_pass

CONTEXT = 1000
OTHERS = 5
FREE = TOTAL - (OTHERS + 1) * CONTEXT
"""What the device itself has beside all contexts."""
COUNT = 2700
TOO_MUCH = 4100
"""Less than half of it is free."""
USED = TOTAL - FREE
AGAIN_S = 0.007
"""From an answer to the next request: the driver has refused the same once more."""
RECLAIM_S = 0.2
SOON_S = SETTLED_S + 0.2
"""By then a device is known again on which nobody's memory changes."""


@pytest.fixture
def desk() -> MemoryDesk:
    return MemoryDesk(
        memory_wait_s=120, reclaim_s=RECLAIM_S, overdue_s=1000, device_reserve_bytes=80
    )


def look(desk: MemoryDesk, used: int, *told: int, after_s: float = 0.0) -> None:
    event = ev.DeviceMemoryMeasured(
        device=DeviceId("A"),
        bytes_used=used,
        bytes_of_clients=tuple((ClientId(client), CONTEXT) for client in told),
    )
    desk.do(event, after_s=after_s)


def misjudged(desk: MemoryDesk, count: int = COUNT) -> tuple[ClientId, list[ClientId]]:
    """Others open their contexts while a call of the client counts as there, which the driver then
    refuses. So they seem to have less than they have, and the client is told that it may have what
    is not there."""
    client = desk.client("b")
    look(desk, CONTEXT, client)
    desk.ask(client)
    desk.report(client)
    desk.need(client, count)
    desk.report(client, allocated=count)
    others = [desk.client("acdef"[number]) for number in range(OTHERS)]
    look(desk, USED, *others, after_s=0.1)
    desk.ask_space(client, count - FREE)
    desk.report(client, allocated=0, after_s=0.05)
    assert desk.budget(client) >= count
    return client, others


def ask_again(desk: MemoryDesk, client: ClientId, *, after_s: float = AGAIN_S) -> None:
    desk.do(ev.ClockTicked(), after_s=after_s)
    desk.ask_space(client, COUNT - FREE)


def seconds_to_answer(
    desk: MemoryDesk,
    client: ClientId,
    *,
    used: int | None = USED,
    changes: bool = False,
    made: bool = True,
) -> float:
    """Until it is told that there is space, or none. The device has so much in use whenever it is
    looked at; other threads of the client may change its memory each time."""
    began_s = desk.now_s
    while client not in desk.space_answers():
        assert desk.now_s < began_s + UNCERTAIN_S_MAX + 1, "no answer"
        if client in desk.told():
            desk.report(client, after_s=0.01)
        elif desk.all(MeasureDevice) and used is not None:
            if changes:
                desk.report(client, allocated=(desk.has[client, "A"]["allocated"] + 1) % 2)
            look(desk, used, after_s=0.005)
        else:
            desk.sleep_until_woken()
    assert desk.space_answers() == {client: made}
    return desk.now_s - began_s


@pytest.mark.promise(
    "accounts-11",
    "A call that the driver refuses although there was to be room is not out of memory for that: "
    "it waits until the scheduler is certain of what the device has, and then as any call that "
    "lacks memory",
)
def test_a_call_waits_where_the_device_was_misjudged(desk: MemoryDesk) -> None:
    """Until others free what they have."""
    client, others = misjudged(desk)
    assert seconds_to_answer(desk, client) < 0.1
    ask_again(desk, client)
    assert seconds_to_answer(desk, client) < SOON_S
    assert desk.budget(client) < COUNT, "its call looks at its budget now"
    desk.report(client)
    desk.need(client, COUNT)
    await_recall(desk, client)
    desk.report(client)
    desk.drop(client)
    desk.ask(client)
    desk.report(client)
    assert let_pass(desk, 60) == []
    for other in others[:2]:
        desk.lose(other)
    for _ in range(3):
        look(desk, USED - 2 * CONTEXT, after_s=0.2)
    assert let_pass(desk, 1) == [] and desk.holders() == ["b"]
    assert desk.budget(client) >= COUNT


@pytest.mark.promise("accounts-11")
def test_what_is_given_up_may_be_told_late(desk: MemoryDesk) -> None:
    """Until then what it was to have counts as there, and looks agree on what is wrong."""
    others = [desk.client("acdef"[number]) for number in range(OTHERS)]
    look(desk, OTHERS * CONTEXT, *others)
    client = desk.client("b")
    desk.ask(client)
    desk.report(client)
    desk.need(client, COUNT)
    desk.report(client, allocated=COUNT)
    for _ in range(2):
        look(desk, USED, client, after_s=0.05)
    desk.ask_space(client, COUNT - FREE)
    desk.report(client)
    assert seconds_to_answer(desk, client) < 0.1
    ask_again(desk, client)
    desk.report(client)
    for _ in range(5):
        look(desk, USED, after_s=0.01)
        assert desk.space_answers() == {}
    desk.report(client, allocated=0)
    assert seconds_to_answer(desk, client) < SOON_S
    assert desk.budget(client) < COUNT


@pytest.mark.promise("accounts-11")
def test_contexts_that_open_where_everybody_rests(desk: MemoryDesk) -> None:
    """The last look alone shows them, and might err."""
    client = desk.client("b")
    desk.ask(client)
    for _ in range(10):
        look(desk, CONTEXT, after_s=0.1)
    desk.report(client)
    desk.ask_space(client, COUNT - FREE)
    desk.report(client)
    assert seconds_to_answer(desk, client) < 0.1
    ask_again(desk, client)
    assert seconds_to_answer(desk, client) < SOON_S
    assert desk.budget(client) < COUNT


@pytest.mark.promise("accounts-11")
def test_less_than_half_is_free(desk: MemoryDesk) -> None:
    """Then there does not even seem to be space, and the first look would deny it."""
    client, _ = misjudged(desk, count=TOO_MUCH)
    assert seconds_to_answer(desk, client) < SOON_S
    assert desk.budget(client) < TOO_MUCH


@pytest.mark.promise("accounts-11")
def test_what_was_judged_rightly_is_denied(desk: MemoryDesk) -> None:
    """A known device is looked at once, and any other one soon after."""
    client = desk.with_memory("b", 1000, resting=False)
    for is_known in (False, True):
        desk.ask_space(client, TOTAL)
        seconds = seconds_to_answer(desk, client, used=1000, made=False)
        assert seconds < (0.1 if is_known else SOON_S)


@pytest.mark.promise("accounts-11")
def test_its_process_is_told_how_long_that_may_take(desk: MemoryDesk) -> None:
    """By itself it waits for `reclaim_s` only, which may be shorter."""
    client = desk.client("b")
    desk.ask_space(client, COUNT)
    (told,) = desk.all(TellSpaceAwaited)
    assert (told.client, told.wait_s) == (client, UNCERTAIN_S_MAX + RECLAIM_S)
    desk.set(reclaim_s=UNCERTAIN_S_MAX + 0.1)
    desk.ask_space(client, COUNT)
    assert not desk.all(TellSpaceAwaited)


@pytest.mark.promise("accounts-11")
def test_nobody_waits_long_for_a_certain_look(desk: MemoryDesk) -> None:
    """Where memory changes all the time there is none."""
    client, _ = misjudged(desk)
    seconds_to_answer(desk, client)
    ask_again(desk, client)
    seconds = seconds_to_answer(desk, client, changes=True)
    assert UNCERTAIN_S_MAX <= seconds < UNCERTAIN_S_MAX + 0.1


@pytest.mark.promise("accounts-11")
def test_nobody_waits_long_for_a_driver_that_does_not_answer(desk: MemoryDesk) -> None:
    """What it said last counts then, as it did before."""
    client, _ = misjudged(desk)
    seconds_to_answer(desk, client)
    ask_again(desk, client)
    look(desk, USED, after_s=0.01)
    assert desk.space_answers() == {}
    seconds = seconds_to_answer(desk, client, used=None)
    assert seconds < UNCERTAIN_S_MAX + 0.1


def test_a_device_that_is_known_is_not_waited_for(desk: MemoryDesk) -> None:
    """What is free there may be of no use, in small pieces say: the next look answers."""
    client = desk.with_memory("b", 1000, resting=False)
    for _ in range(10):
        look(desk, 1000, after_s=0.1)
    for _ in range(3):
        ask_again(desk, client)
        assert seconds_to_answer(desk, client, used=1000) < 0.1


def test_tries_in_a_row_are_no_busy_loop(desk: MemoryDesk) -> None:
    """A restore tries for as long as `reclaim_s`, although the device seems to have space."""
    client = desk.with_memory("b", 1000, resting=False)
    for _ in range(10):
        look(desk, 1000, after_s=0.1)
    began_s, tries = desk.now_s, 0
    while desk.now_s < began_s + 1:
        ask_again(desk, client)
        seconds_to_answer(desk, client, used=1000)
        tries += 1
    assert tries <= 1 / MEASURE_PERIOD_S + 2


def test_what_others_release_is_space_at_once(desk: MemoryDesk) -> None:
    """A program that asks for a little many times waits for those who park, and for nothing
    else."""
    other = desk.with_memory("a", 3 * (COUNT - FREE))
    look(desk, 3 * (COUNT - FREE))
    client = desk.client("b")
    desk.ask(client)
    for _ in range(REPEATS_MANY - 1):
        ask_again(desk, client)
        assert desk.space_answers() == {}
        desk.report(client)
        desk.park(other)
        assert desk.space_answers() == {client: True}
    ask_again(desk, client)
    desk.report(client)
    desk.park(other)
    assert desk.space_answers() == {client: True}


@pytest.mark.promise("accounts-11")
def test_the_last_tries_are_certain(desk: MemoryDesk) -> None:
    """Others have made space each time, and contexts have taken it."""
    other = desk.with_memory("a", REPEATS_MANY * (COUNT - FREE))
    look(desk, REPEATS_MANY * (COUNT - FREE))
    client = desk.client("b")
    desk.ask(client)
    for _ in range(REPEATS_MANY):
        ask_again(desk, client)
        desk.report(client)
        desk.park(other)
        assert desk.space_answers() == {client: True}
    ask_again(desk, client)
    assert SETTLED_S < seconds_to_answer(desk, client) < SOON_S
    assert desk.budget(client) < COUNT


def test_a_request_that_comes_later_is_a_new_one(desk: MemoryDesk) -> None:
    """Its device has had the time to be known."""
    client, _ = misjudged(desk)
    seconds_to_answer(desk, client)
    ask_again(desk, client, after_s=SPACE_KEPT_S)
    assert seconds_to_answer(desk, client) < 0.1


def test_a_request_that_is_taken_back_is_forgotten(desk: MemoryDesk) -> None:
    """Its user has interrupted it, and tries something else."""
    client, _ = misjudged(desk)
    seconds_to_answer(desk, client)
    ask_again(desk, client)
    desk.ask_space(client, 0)
    ask_again(desk, client)
    assert seconds_to_answer(desk, client) < 0.1
