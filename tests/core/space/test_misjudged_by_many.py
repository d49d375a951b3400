"""Requests for space beside other calls: of the same process, of its siblings, on two devices."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.budgets import MEASURE_PERIOD_S
from jupyter_gpushare.core.commands import TellBudget
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.space.requests import UNCERTAIN_S_MAX
from tests.core.memory_desk import TOTAL, MemoryDesk

from .test_misjudged import (
    AGAIN_S,
    COUNT,
    FREE,
    RECLAIM_S,
    SOON_S,
    USED,
    ask_again,
    look,
    misjudged,
    seconds_to_answer,
)
from .test_space_waits import answers_within

MORE = COUNT - FREE + 10
WAIT_S = 120.0


@pytest.fixture
def desk() -> MemoryDesk:
    return MemoryDesk(
        memory_wait_s=WAIT_S, reclaim_s=RECLAIM_S, overdue_s=1000, device_reserve_bytes=80
    )


def sibling(desk: MemoryDesk, count: int) -> ClientId:
    """Another process of the tenant, which works beside it."""
    other = desk.client("b")
    desk.ask(other)
    desk.report(other)
    desk.need(other, count)
    desk.report(other, allocated=count)
    return other


def hear(desk: MemoryDesk) -> dict[int, bool]:
    """Everybody answers what it was told; how requests are answered meanwhile."""
    answers = dict[int, bool]()
    while told := desk.all(TellBudget):
        for each in told:
            desk.report(each.client)
            answers |= desk.space_answers()
    return answers


@pytest.mark.promise("accounts-11")
def test_another_call_of_the_process_lacks_more(desk: MemoryDesk) -> None:
    """Its request takes the place of the one that waits for a certain look, and waits for it as
    well."""
    client, _ = misjudged(desk)
    seconds_to_answer(desk, client)
    ask_again(desk, client)
    desk.do(ev.ClockTicked(), after_s=AGAIN_S)
    desk.ask_space(client, MORE)
    assert seconds_to_answer(desk, client) < SOON_S
    assert desk.budget(client) < COUNT, "its calls look at its budget now"


@pytest.mark.promise("accounts-11")
def test_what_a_sibling_gives_up_was_perhaps_never_there(desk: MemoryDesk) -> None:
    """The driver has refused a call of it too. The device has nothing more for that."""
    client, _ = misjudged(desk)
    other = sibling(desk, 1)
    hear(desk)
    seconds_to_answer(desk, client)
    desk.report(other, allocated=COUNT)
    ask_again(desk, client)
    hear(desk)
    desk.report(other, allocated=1)
    assert desk.space_answers() == {}
    answers = hear(desk)
    for _ in range(round(SOON_S / MEASURE_PERIOD_S)):
        look(desk, USED, after_s=0 if answers else MEASURE_PERIOD_S)
        answers |= desk.space_answers() | hear(desk)
    assert answers == {client: True}
    assert desk.budget(client) < COUNT


@pytest.mark.promise("accounts-11")
def test_what_others_release_is_space_once_the_device_shows_it(desk: MemoryDesk) -> None:
    """Also for a call that was told before, by a look, that there is space."""
    client, _ = misjudged(desk)
    other = sibling(desk, MORE)
    hear(desk)
    seconds_to_answer(desk, client, used=USED)
    ask_again(desk, client)
    desk.report(other, allocated=0)
    assert desk.space_answers() == {}
    look(desk, USED - MORE, after_s=0.05)
    assert desk.space_answers() == {client: True}


@pytest.mark.promise("accounts-11")
def test_what_others_released_before_is_no_space_for_it(desk: MemoryDesk) -> None:
    """It is in the call's budget. The device was looked at last before they did so."""
    other = desk.with_memory("a", 3000)
    look(desk, 3000)
    client = desk.client("b")
    desk.ask(client, after_s=0.5)
    desk.report(client)
    desk.need(client, TOTAL - 1500)
    desk.park(other)
    hear(desk)
    assert desk.has[other, "A"]["parked"] > 1000
    desk.report(client, allocated=TOTAL - 1500)
    desk.ask_space(client, 500)
    desk.report(client, allocated=0)
    look(desk, 1600, after_s=0.005)
    assert desk.space_answers() == {}
    desk.park(other)
    assert desk.space_answers() == {client: True}


@pytest.mark.promise("accounts-11")
@pytest.mark.parametrize("count", [COUNT - FREE, TOTAL])
def test_nobody_waits_long_beside_those_who_free_a_little(desk: MemoryDesk, count: int) -> None:
    """Each time there could be space after the next look but one."""
    client = desk.client("b")
    desk.ask(client)
    others = [sibling(desk, 100 + each) for each in range(2)]
    hear(desk)
    desk.ask_space(client, count)
    for _ in range(round((UNCERTAIN_S_MAX + 0.2) / MEASURE_PERIOD_S)):
        for other in others:
            desk.report(other, allocated=201 - desk.has[other, "A"]["allocated"])
        look(desk, USED, after_s=MEASURE_PERIOD_S)
        if desk.space_answers():
            return
        hear(desk)
    raise AssertionError("no answer")


@pytest.mark.promise("accounts-12")
def test_a_process_may_wait_for_contexts_on_two_devices() -> None:
    """The end of one of the waits is not that of the other."""
    desk = MemoryDesk(devices="AB", memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)
    owners = [desk.with_memory(name, 6000, name.upper(), fixed=6000) for name in "ab"]
    for device in "AB":
        desk.measure(6000, device)
    client = desk.client("c", devices="")
    for device in "AB":
        desk.ask_space(client, 2500, device)
        assert desk.space_answers() == {}
    desk.lose(owners[0])
    desk.measure(0, "A", after_s=0.1)
    found = desk.space_answers()
    for _ in range(3):
        desk.measure(0, "A", after_s=0.1)
        found |= desk.space_answers()
    assert found == {client: True}
    assert desk.status("c").memory_wait_left_s == pytest.approx(WAIT_S - 0.4)
    waits_for = desk.status("c").obstacle
    assert waits_for is not None and (waits_for.kind.value, waits_for.device) == ("fixed", "B")
    desk.ask_space(client, 0, "B")
    assert desk.status("c").memory_wait_left_s is None and desk.obstacle("c") is None


@pytest.mark.promise("accounts-12")
def test_a_request_beyond_the_device_ends_the_one_before() -> None:
    """The hook has one request for a device, which is the latest: nobody waits for the other."""
    desk = MemoryDesk(memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)
    desk.with_memory("a", 6000, fixed=6000)
    desk.measure(6000)
    client = desk.client("c", devices="")
    desk.ask_space(client, 2500)
    assert desk.status("c").memory_wait_left_s is not None
    desk.ask_space(client, TOTAL + 1)
    assert desk.space_answers() == {client: False}
    assert desk.status("c").memory_wait_left_s is None
    assert answers_within(desk, WAIT_S + 20, used=6000) == {}
