"""Budgets: whose memory is on a device, told event by event."""

from __future__ import annotations

import pickle

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import GrantTurn, ReportSilent, TellBudget
from jupyter_gpushare.core.ids import DeviceId
from jupyter_gpushare.core.ledger import UNLIMITED_BYTES
from jupyter_gpushare.core.settings import MemoryMode

from .memory_desk import RESERVE, TOTAL, USABLE, MemoryDesk

MIB = 1 << 20


# ---- what a holder gets ----------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-45",
    "A tenant with a turn may have all memory that it has allocated and needs, and what is "
    "free besides; it hears so before the grant, or right after where its memory is there",
)
def test_a_holder_may_have_all_that_is_free() -> None:
    """The budget is told before the turn is granted."""
    desk = MemoryDesk()
    one = desk.client("a")
    desk.ask(one)
    assert [type(command) for command in desk.last[:2]] == [TellBudget, GrantTurn]
    assert desk.budget(one) == USABLE


@pytest.mark.promise("accounts-45")
def test_whose_memory_is_there_gets_its_turn_before_anybody_looks_at_memory() -> None:
    """The grant is a step of its own; who may have less or more from now on is told in the next. A
    tenant was told before that it may have what it has."""
    desk = MemoryDesk()
    one, two = desk.with_memory("a", 2000), desk.with_memory("b", 1000)
    desk.ask(one)
    desk.ask(two)
    dropped = ev.TurnDropped(client=one, turn=desk.turns[one], reason=ev.DropReason.CELL_END)
    first, rest = desk.scheduler.steps(dropped, now_s=desk.now_s)
    assert [type(command) for command in first] == [GrantTurn]
    budgets = {each.client: each.budget_bytes for each in rest if isinstance(each, TellBudget)}
    assert budgets == {one: 2000}
    desk.report(one, serial=rest[0].serial if isinstance(rest[0], TellBudget) else 0)
    assert desk.budget(two) == USABLE - 2000


@pytest.mark.promise("accounts-45")
@pytest.mark.parametrize("why", ["parked", "somebody asks for space", "nothing yet"])
def test_whose_memory_is_looked_at_before_its_grant(why: str) -> None:
    """The budget comes first where the tenant could not go on without it, or for somebody else."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 2000)
    two = desk.client("b") if why == "nothing yet" else desk.with_memory("b", 1500)
    if why == "parked":
        desk.report(two, parked=500)
    desk.ask(one)
    desk.ask(two)
    if why == "somebody asks for space":
        desk.ask_space(one, USABLE)
    dropped = ev.TurnDropped(client=one, turn=desk.turns[one], reason=ev.DropReason.CELL_END)
    steps = list(desk.scheduler.steps(dropped, now_s=desk.now_s))
    assert len(steps) == 1


@pytest.mark.promise(
    "accounts-46",
    "Memory stays on the device while there is space. Where there is none, the missing bytes are "
    "parked, the least recently used first, and all of a notebook that nobody has used for a "
    "minute",
)
def test_what_one_has_stays_when_its_turn_ends() -> None:
    """Nothing moves while there is room; the next one may have the rest."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 2000)
    two = desk.client("b")
    desk.ask(two)
    assert desk.budget(two) == USABLE - 2000
    assert one not in desk.told()


@pytest.mark.promise("accounts-45")
def test_processes_of_a_tenant_share_what_is_free() -> None:
    """Each may have a part; one that needs more is given what another does not use."""
    desk = MemoryDesk()
    one, two = desk.client("a"), desk.client("a")
    desk.ask(one)
    desk.ask(two)
    desk.need(two, 5000)
    desk.report(one)
    assert desk.budget(two) == 5000
    assert desk.budget(one) <= USABLE - 5000


@pytest.mark.promise("accounts-58")
def test_a_need_is_answered_even_when_the_budget_suffices() -> None:
    """The question may have crossed the answer."""
    desk = MemoryDesk()
    one = desk.client("a")
    desk.ask(one)
    desk.need(one, 100)
    assert desk.told() == {one: USABLE} and not desk.refused()


@pytest.mark.promise("accounts-46")
def test_a_need_that_is_withdrawn_moves_nothing_more() -> None:
    """Who was asked to park for it is told to stop."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 5000)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, 6000)
    assert desk.budget(one) == 1000
    desk.report(one, parked=500)
    desk.need(two, 0)
    assert desk.budget(one) == 4500


# ---- who makes room --------------------------------------------------------------------------


@pytest.mark.promise("accounts-46")
def test_only_what_is_short_is_parked() -> None:
    """The holder lacks 1000: so much is asked of the other, and given as it is released."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 5000)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, 3000)
    assert desk.budget(one) == 4000
    assert desk.budget(two) == 2000
    desk.report(one, parked=400)
    assert desk.budget(two) == 2400
    desk.report(one, parked=1000)
    assert desk.budget(two) == 3000


@pytest.mark.promise("accounts-46")
def test_the_least_recently_used_make_room_first() -> None:
    """In the order in which their turns ended, each as far as it can."""
    desk = MemoryDesk()
    one, two, three = (desk.with_memory(name, 2000) for name in "abc")
    desk.ask(one, after_s=1)
    desk.drop(one, after_s=1)
    four = desk.client("d")
    desk.ask(four)
    desk.need(four, 4500)
    assert [desk.budget(each) for each in (two, three, one)] == [0, 500, 2000]


@pytest.mark.promise("accounts-45")
def test_parked_memory_comes_back_with_the_turn() -> None:
    """The next holder is the one that had parked: all that it has allocated is wanted."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 5000)
    two = desk.with_memory("b", 2000, resting=False)
    desk.need(two, 3000)
    desk.park(one)
    desk.report(two, allocated=5000)
    assert desk.memory("a").bytes_parked == 3000
    desk.drop(two, after_s=1)
    desk.ask(one)
    assert desk.budget(two) == 2000
    desk.report(two, parked=1000)
    desk.report(two, parked=3000)
    assert desk.budget(one) == 5000


@pytest.mark.promise("accounts-57")
def test_budgets_are_not_raised_by_crumbs() -> None:
    """A quarter of what is lacking, 64 MiB, or all of it: less is kept until there is more."""
    desk = MemoryDesk()
    one = desk.with_memory("a", USABLE)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, 4000)
    told = []
    for parked in range(100, 4001, 100):
        desk.report(one, parked=parked)
        told += [desk.told()[two]] if two in desk.told() else []
    assert told[-1] == 4000
    assert len(told) < 20


@pytest.mark.promise("accounts-26")
def test_a_failed_context_is_no_victim() -> None:
    """Its memory stays where it is until the process ends; others make room, or nobody."""
    desk = MemoryDesk()
    one, two = desk.with_memory("a", 2000), desk.with_memory("b", 4000)
    desk.fail(one)
    three = desk.client("c")
    desk.ask(three)
    desk.need(three, 3000)
    assert desk.budget(two) == 2000
    desk.need(three, 6000)
    desk.await_refusal(three)


@pytest.mark.promise("accounts-26")
def test_what_a_failed_context_frees_is_free_for_others() -> None:
    """Its budget goes down with it."""
    desk = MemoryDesk()
    one, two = desk.with_memory("a", 4000), desk.client("b")
    desk.fail(one)
    desk.report(one, allocated=1000)
    desk.ask(two)
    assert desk.budget(two) == USABLE - 1000


@pytest.mark.promise("accounts-58")
@pytest.mark.promise("accounts-26")
def test_fixed_memory_is_not_asked_for() -> None:
    """And a need that it makes impossible is refused."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 4000, fixed=3000)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, 4000)
    assert desk.budget(one) == 3000
    desk.park(one)
    assert desk.budget(two) == 4000
    desk.need(two, 4500)
    desk.await_refusal(two)


@pytest.mark.promise("accounts-26")
def test_the_host_must_have_room() -> None:
    """No more is asked of a process than its host could take."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 4000, parkable=1000)
    two = desk.with_memory("b", 3000)
    three = desk.client("c")
    desk.ask(three)
    desk.need(three, 3000)
    assert (desk.budget(one), desk.budget(two)) == (3000, 1000)


@pytest.mark.promise("accounts-33")
def test_memory_that_is_freed_without_a_turn_is_free_for_others() -> None:
    """Its budget goes down with it, and is given away when that has been heard."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 5000)
    two = desk.client("b")
    desk.ask(two)
    desk.report(one, allocated=1000)
    assert desk.budget(one) == 1000
    assert desk.budget(two) == 2000
    desk.report(one)
    assert desk.budget(two) == 6000


@pytest.mark.promise("accounts-33")
def test_a_budget_that_crosses_a_drop_is_taken_back() -> None:
    """Until the process has said that it heard that, nobody else gets those bytes."""
    desk = MemoryDesk()
    one = desk.client("a")
    desk.ask(one)
    crossed = desk.budgets[one, "A"].serial
    desk.report(one, serial=0)
    two = desk.client("b")
    desk.ask(two)
    desk.has.clear()
    desk.drop(one)
    assert desk.budget(one) == 0
    assert two not in desk.told() or desk.budget(two) == 0
    desk.report(one, serial=crossed)
    assert desk.budget(two) == 0
    desk.report(one)
    assert desk.budget(two) == USABLE


# ---- what cannot be had ----------------------------------------------------------------------


@pytest.mark.promise("accounts-58")
def test_more_than_the_device_is_refused_at_once() -> None:
    """Nobody parks for it."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 1000)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, USABLE + 1)
    assert desk.refused() == [two]
    assert one not in desk.told()


@pytest.mark.promise("accounts-58")
def test_more_than_the_cap_is_refused_at_once() -> None:
    """All processes of the tenant count, on the device or parked."""
    desk = MemoryDesk()
    desk.tenant("a", cap_bytes=3000)
    desk.with_memory("a", 1000)
    two = desk.client("a")
    desk.ask(two)
    assert desk.budget(two) <= 2000
    desk.need(two, 2001)
    assert desk.refused() == [two]
    desk.need(two, 2000)
    assert not desk.refused() and desk.budget(two) >= 2000


@pytest.mark.promise("accounts-58")
def test_who_has_not_the_turn_is_refused_what_nobody_could_have() -> None:
    """It need not wait for a turn to learn that."""
    desk = MemoryDesk()
    one, two = desk.client("a"), desk.client("b")
    desk.ask(one)
    desk.need(two, USABLE + 1)
    assert desk.refused() == [two]


# ---- who does not answer ---------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-47",
    "A victim that makes no progress is skipped and shown; once it makes some, it is a victim "
    "again",
)
def test_a_silent_victim_is_passed_over_and_shown() -> None:
    """After `park_timeout_s` without progress the next one is asked."""
    desk = MemoryDesk(park_timeout_s=10)
    one, two = desk.with_memory("a", 3000), desk.with_memory("b", 3000)
    three = desk.client("c")
    desk.ask(three)
    desk.need(three, 2000)
    assert (desk.budget(one), desk.budget(two)) == (2000, 3000)
    while not desk.all(ReportSilent):
        desk.sleep_until_woken()
    (shown,) = desk.all(ReportSilent)
    assert (shown.client, shown.tenant_name) == (one, "notebook a")
    assert desk.budget(two) == 2000
    assert [client.devices[0].silent for client in desk.status("a").clients] == [True]


@pytest.mark.promise("accounts-47")
def test_a_silent_victim_that_answers_is_one_again() -> None:
    """Progress is all that counts."""
    desk = MemoryDesk(park_timeout_s=10)
    one = desk.with_memory("a", 6000)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, 3000)
    while not desk.all(ReportSilent):
        desk.sleep_until_woken()
    desk.await_refusal(two)
    desk.report(one, parked=500)
    desk.need(two, 3000)
    assert not desk.refused()
    desk.park(one)
    assert desk.budget(two) == 3000


@pytest.mark.promise("accounts-47")
def test_an_answer_alone_is_no_progress() -> None:
    """Two victims answer whatever they are told, and release nothing: the client that needs memory
    of both is refused."""
    desk = MemoryDesk(park_timeout_s=10)
    victims = {desk.with_memory("a", 3000), desk.with_memory("b", 3000)}
    three = desk.client("c")
    desk.ask(three)
    desk.need(three, 5000)
    until_s = desk.now_s + 15
    while three not in desk.refused():
        for victim in victims & desk.told().keys():
            desk.report(victim)
        assert desk.now_s < until_s, "it is not refused"
        desk.sleep_until_woken()


@pytest.mark.promise("accounts-47")
def test_silence_ends_with_the_turn() -> None:
    """A holder has not answered that its budget is smaller. It gives its turn back and keeps less
    than that: nothing of it is in the way."""
    desk = MemoryDesk(park_timeout_s=10)
    one = desk.with_memory("a", 0, resting=False)
    two, three = desk.client("b"), desk.client("c")
    desk.ask(two)
    desk.need(two, 1500)
    desk.ask(three, after_s=0.01)
    desk.measure(300)
    assert desk.budget(one) == USABLE - 300
    desk.now_s += 11
    desk.do(ev.ClockTicked())
    assert [shown.client for shown in desk.all(ReportSilent)] == [one]
    turn = desk.turns[one]
    desk.do(ev.TurnDropped(client=one, turn=turn, reason=ev.DropReason.CELL_END))
    assert desk.granted() == [two]


@pytest.mark.promise("accounts-47")
def test_slow_progress_is_progress() -> None:
    """Each report begins the time anew."""
    desk = MemoryDesk(park_timeout_s=10)
    one = desk.with_memory("a", 6000)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, 6000)
    for parked in range(100, 1000, 100):
        desk.report(one, parked=parked, after_s=9)
        assert not desk.all(ReportSilent)


def test_who_never_says_what_it_has_heard_costs_no_more_with_each_budget() -> None:
    """It is told a budget for each need, and answers none. What it may believe in stays charged
    until it answers."""
    desk = MemoryDesk()
    a, b = desk.with_memory("a", 1000, resting=False), desk.client("b")
    desk.ask(b)
    sizes = []
    for _ in range(3):
        for _ in range(300):
            desk.need(a, 500)
            desk.need(a, 0)
        sizes.append(len(pickle.dumps(desk.scheduler._machine)))
    assert sizes[2] - sizes[1] < 100
    share = desk.scheduler._machine._state.clients[a].devices[DeviceId("A")]
    assert share.bytes_charged >= 1500
    desk.report(a)
    assert share.bytes_charged == desk.budget(a)


# ---- several holders -------------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-48",
    "Without turns each tenant gets some memory, first come first served; a tenant that does "
    "not fit waits",
)
def test_without_turns_each_gets_some() -> None:
    """Nobody gets all that is free; who has a turn is nobody's victim."""
    desk = MemoryDesk()
    desk.turns_on(False)
    one, two = desk.client("a"), desk.client("b")
    desk.ask(one)
    desk.ask(two)
    desk.need(one, 3000)
    desk.report(one, allocated=3000)
    desk.report(two)
    desk.need(two, 3500)
    desk.report(one)
    assert desk.budget(two) == 3500
    desk.report(two, allocated=3500)
    desk.need(one, 1000)
    desk.await_refusal(one)
    assert desk.budget(two) >= 3500


@pytest.mark.promise("accounts-48")
def test_without_turns_who_does_not_fit_waits() -> None:
    """Until one of those that are in the way has ended."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 5000)
    two = desk.with_memory("b", 1000, resting=False)
    desk.need(two, 4000)
    desk.park(one)
    desk.report(two, allocated=5000)
    desk.turns_on(False)
    desk.ask(one)
    assert desk.granted() == []
    assert desk.obstacle("a") == "holder"
    desk.drop(two, after_s=1)
    assert desk.granted() == [one]


# ---- modes and settings ----------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-49",
    "Memory mode, reserve and a smaller device are settings, and change while it runs",
)
def test_with_memory_mode_off_nobody_has_a_limit() -> None:
    """It is said once."""
    desk = MemoryDesk(memory_mode=MemoryMode.OFF)
    one = desk.client("a")
    assert desk.told() == {one: UNLIMITED_BYTES}
    desk.ask(one)
    desk.report(one, allocated=10**6)
    assert not desk.told()
    desk.need(one, 10**6)
    assert desk.told() == {one: UNLIMITED_BYTES}


def test_with_memory_mode_off_a_failed_context_is_told_nothing_more() -> None:
    """It answers what it is told, and gets no more all the same: the words would never end."""
    desk = MemoryDesk(memory_mode=MemoryMode.OFF)
    a = desk.client("a")
    desk.fail(a)
    told = 0
    for _ in range(5):
        desk.report(a)
        told += len(desk.all(TellBudget))
    assert told == 0


@pytest.mark.promise("accounts-49")
def test_swap_can_be_switched_on() -> None:
    """What they have they keep; nobody parks because others could believe in no limit."""
    desk = MemoryDesk(memory_mode=MemoryMode.OFF)
    one = desk.with_memory("a", 3000)
    two = desk.with_memory("b", 2000, resting=False)
    desk.set(memory_mode=MemoryMode.SWAP)
    assert desk.told() == {one: 3000, two: 4000}
    desk.report(one)
    desk.report(two)
    assert not desk.told()


@pytest.mark.promise("accounts-49")
def test_swap_can_be_switched_off() -> None:
    """Everybody may have everything again; what is parked comes back with the turn."""
    desk = MemoryDesk()
    one, two = desk.with_memory("a", 3000), desk.client("b")
    desk.set(memory_mode=MemoryMode.OFF)
    assert desk.told() == {one: UNLIMITED_BYTES, two: UNLIMITED_BYTES}


@pytest.mark.promise("accounts-49")
@pytest.mark.promise("accounts-32")
@pytest.mark.parametrize(
    ("settings", "reserved", "usable"),
    [
        ({}, RESERVE, USABLE),
        ({"device_reserve_bytes": 0}, 0, TOTAL),
        ({"device_reserve_bytes": 300}, 300, TOTAL - 300),
        ({"device_bytes_max": 4000}, 500, 3500),
        ({"device_bytes_max": 10**9}, RESERVE, USABLE),
    ],
)
def test_what_is_usable(settings: dict[str, int], reserved: int, usable: int) -> None:
    """The reserve is an eighth of a small device, or what the setting says."""
    desk = MemoryDesk(**settings)
    device = desk.device()
    assert (device.bytes_reserved, device.bytes_usable) == (reserved, usable)
    one = desk.client("a")
    desk.ask(one)
    assert desk.budget(one) == usable


@pytest.mark.promise("accounts-49")
def test_the_reserve_of_a_large_device() -> None:
    """2 %, and at least 1 GiB."""
    desk = MemoryDesk()
    for gib, reserve_mib in [(4, 512), (16, 1024), (100, 2048)]:
        desk.find_device(gib << 30)
        assert desk.device().bytes_reserved == reserve_mib * MIB


# ---- what clients are told besides -----------------------------------------------------------


@pytest.mark.promise(
    "accounts-50",
    "Each budget says how much memory is usable and how much would have to leave; a change is "
    "told again, but seldom",
)
def test_usable_is_what_others_cannot_keep() -> None:
    """Others' fixed memory, and what the host has no room for, is not to be had."""
    desk = MemoryDesk()
    desk.with_memory("a", 3000, fixed=1000)
    desk.with_memory("b", 2000, parkable=500)
    three = desk.client("c")
    desk.ask(three)
    assert desk.budgets[three, "A"].usable_bytes == USABLE - 1000 - 1500


@pytest.mark.promise("accounts-50")
def test_what_a_process_leaves_behind_is_not_its_siblings() -> None:
    """While it lived they could count on it; until the device shows that it is free, nobody can."""
    desk = MemoryDesk()
    lost = desk.with_memory("a", 4000, fixed=4000, resting=False)
    sibling = desk.client("a")
    desk.ask(sibling)
    desk.report(sibling)
    desk.drop(sibling)
    desk.drop(lost)
    assert desk.budgets[sibling, "A"].usable_bytes == USABLE
    desk.now_s += 2
    desk.lose(lost)
    assert desk.budgets[sibling, "A"].usable_bytes == USABLE - 4000


@pytest.mark.promise("accounts-50")
def test_the_hint_is_what_would_have_to_leave() -> None:
    """When all the others came back at once."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 5000)
    two = desk.with_memory("b", 1000, resting=False)
    assert desk.budgets[two, "A"].park_hint_bytes == 0
    desk.need(two, 3000)
    desk.park(one)
    desk.report(two, allocated=4000)
    desk.report(two, after_s=2)
    assert desk.budgets[two, "A"].park_hint_bytes == 2000


@pytest.mark.promise("accounts-50")
def test_changes_that_concern_others_are_told_seldom() -> None:
    """At most once a second, and the last of them always."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 1000)
    two = desk.client("b")
    desk.report(one, allocated=900, fixed=900, after_s=0.1)
    assert two not in desk.told()
    while two not in desk.told():
        desk.sleep_until_woken()
    assert desk.budgets[two, "A"].usable_bytes == USABLE - 900


# ---- recovery --------------------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-51",
    "After a restart of the scheduler each client keeps its memory, and none parks for a "
    "client that is not back yet",
)
def test_after_a_restart_everybody_has_what_it_has() -> None:
    """Nobody is told to park, and nothing is given out, before all are back."""
    desk = MemoryDesk(recovering_until_s=110.0)
    one = desk.client("a", held_turn=7)
    two = desk.client("b")
    assert desk.budget(one) == 0
    desk.report(one, allocated=4000, serial=500)
    desk.report(two, allocated=2500, serial=300)
    assert desk.budget(one) == 4000
    assert desk.budget(two) in (0, 2500)
    desk.sleep_until_woken()
    assert desk.budget(one) == 4500


@pytest.mark.promise("accounts-51")
def test_who_comes_back_is_no_stranger() -> None:
    """What it has was on the device before a restarted scheduler knew it: nobody parks for that."""
    desk = MemoryDesk(recovering_until_s=110.0)
    desk.measure(6700)
    one = desk.client("a", held_turn=7)
    two = desk.client("b")
    desk.report(one, allocated=4000)
    desk.report(two, allocated=2500, after_s=0.1)
    desk.measure(6700, after_s=0.5)
    while desk.scheduler.snapshot(desk.now_s).recovering:
        desk.sleep_until_woken()
    desk.report(two, after_s=10)
    assert desk.device().bytes_foreign == 200
    assert desk.budget(two) in (0, 2500)
    assert desk.budget(one) == 4000 + USABLE - 6700
