"""Who copies to the host ahead of need, and when, told event by event."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.budgets import REFRESH_S
from jupyter_gpushare.core.commands import Ahead, Command, ReportSilent, TellBudget
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.ledger import DeviceMemory
from jupyter_gpushare.core.settings import MemoryMode, RestoreAhead, TurnTaking
from jupyter_gpushare.core.space import ahead
from jupyter_gpushare.core.space.copiers import THINKS_S

from ..memory_desk import RESERVE, TOTAL, USABLE, MemoryDesk

A_MOMENT_S = 0.01


class CopyDesk(MemoryDesk):
    """Whatever happens: one client copies at a time, and none with a turn, and each budget says
    what moves ahead of need."""

    def do(self, event: ev.Event, *, after_s: float = 0.0) -> list[Command]:
        super().do(event, after_s=after_s)
        assert len(self.copiers()) <= 1
        for told in {told.client: told for told in self.all(TellBudget)}.values():
            copies, comes = self.copiers(), self.device_memory().ahead_of
            assert (told.ahead is Ahead.COPIES) == (told.client in copies)
            assert (told.ahead is Ahead.RESTORE) == (told.client in comes)
        return self.last

    def drop(self, client: ClientId, *args: object, **kwargs: object) -> list[Command]:
        """It had no copies any more when its gate opened."""
        self.has[client, "A"].update(copied=0, to_copy=0)
        return super().drop(client, *args, **kwargs)

    def device_memory(self) -> DeviceMemory:
        return self.scheduler._machine._state.devices[DeviceId("A")].memory

    def to_copy(self) -> list[int]:
        return list(self.device_memory().attention.to_copy)

    def copiers(self) -> list[int]:
        """Who was told to copy and not to stop, and has something left to copy."""
        told = [client for (client, _), last in self.budgets.items() if last.ahead is Ahead.COPIES]
        return [client for client in told if client in self.to_copy()]

    def told_to_copy(self, client: ClientId) -> bool:
        """As the scheduler has noted it."""
        return self.device_memory().shares[client].copies.told

    def moves(self) -> dict[int, str]:
        """What the last event has told of that."""
        return {told.client: told.ahead.value for told in self.all(TellBudget)}

    def thinks(self, client: ClientId, **has: int) -> None:
        """It has something to copy, and has thought for long enough."""
        self.report(client, **{"to_copy": 500, **has})
        self.do(ev.ClockTicked(), after_s=THINKS_S)


def desk_of_thinkers(*names: str, count: int = 1500) -> tuple[CopyDesk, list[ClientId]]:
    """Idle tenants with some memory each, the least recently used first."""
    desk = CopyDesk()
    return desk, [desk.with_memory(name, count) for name in names]


# ---- who, and when ------------------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-5",
    "While a notebook thinks, the host gets a copy of what would leave first: of one notebook at a "
    "time, the least recently used one first",
)
def test_who_thinks_copies() -> None:
    """Not at once: the next of many cells would make the copy worthless."""
    desk, (one,) = desk_of_thinkers("a")
    desk.report(one, to_copy=500)
    assert desk.wake_at_s == pytest.approx(desk.now_s + THINKS_S)
    desk.do(ev.ClockTicked(), after_s=THINKS_S - A_MOMENT_S)
    assert desk.moves() == {}
    desk.do(ev.ClockTicked(), after_s=A_MOMENT_S)
    assert desk.moves() == {one: "copies"}


@pytest.mark.promise("accounts-5")
def test_one_after_the_other() -> None:
    """The least recently used one first, whoever said first that it would."""
    desk, (one, two, three) = desk_of_thinkers("a", "b", "c")
    for client in (three, two, one):
        desk.report(client, to_copy=500)
    for client in (one, two, three):
        desk.do(ev.ClockTicked(), after_s=THINKS_S)
        assert desk.copiers() == [client]
        desk.report(client, to_copy=100, copied=400)
        assert desk.copiers() == [client], "it has not copied all"
        desk.report(client, to_copy=0, copied=500)
    assert desk.copiers() == []


@pytest.mark.promise("accounts-5")
def test_whoever_copies_goes_on() -> None:
    """Also when one that was used before has something to copy now."""
    desk, (one, two) = desk_of_thinkers("a", "b")
    desk.thinks(two)
    desk.thinks(one)
    assert desk.copiers() == [two]
    desk.report(two, to_copy=0, copied=500)
    assert desk.moves() == {one: "copies"}


def waits(desk: CopyDesk, client: ClientId) -> None:
    desk.with_memory("holder", 100, resting=False)
    desk.ask(client)


def computes(desk: CopyDesk, client: ClientId) -> None:
    desk.ask(client)
    assert desk.granted() == [client]


def fails(desk: CopyDesk, client: ClientId) -> None:
    desk.fail(client)


def is_stopped(desk: CopyDesk, client: ClientId) -> None:
    desk.do(ev.ClientFrozen(client=client, frozen=True))


@pytest.mark.promise("accounts-5")
@pytest.mark.parametrize("no_longer_thinks", [waits, computes, fails, is_stopped])
def test_who_copies_no_longer_thinks(no_longer_thinks: Callable[..., None]) -> None:
    """Another one does it instead, at once."""
    desk, (one, two) = desk_of_thinkers("a", "b")
    desk.thinks(two)
    desk.thinks(one, to_copy=0, copied=500)
    desk.report(one, to_copy=100)
    assert desk.copiers() == [two]
    no_longer_thinks(desk, two)
    assert desk.copiers() == [one]


@pytest.mark.promise("accounts-5")
@pytest.mark.parametrize("does_not_think", [waits, computes, fails, is_stopped])
def test_who_does_not_think_does_not_copy(does_not_think: Callable[..., None]) -> None:
    """Another one does, although it was used later."""
    desk, (one, two) = desk_of_thinkers("a", "b")
    does_not_think(desk, one)
    desk.report(one, to_copy=500)
    desk.thinks(two)
    assert desk.copiers() == [two]


def test_another_process_of_the_tenant_computes() -> None:
    """It is a part of the same notebook, whose next cell may be about to run when a turn ends."""
    desk, (one,) = desk_of_thinkers("a")
    desk.thinks(one)
    sibling = desk.with_memory("a", 100, resting=False)
    assert desk.copiers() == [one]
    desk.drop(sibling)
    assert desk.copiers() == []
    desk.do(ev.ClockTicked(), after_s=THINKS_S)
    assert desk.copiers() == [one]


def test_a_process_that_waits_for_its_notebooks_next_turn_copies_no_more() -> None:
    """Its notebook has the turn, which is about to end, and is in no line yet."""
    desk, (one,) = desk_of_thinkers("a")
    desk.thinks(one)
    sibling = desk.with_memory("a", 100, resting=False)
    desk.ask(desk.client("b"))
    desk.sleep_until_woken()
    assert desk.copiers() == [one]
    desk.ask(one)
    assert sibling and desk.copiers() == []


@pytest.mark.promise("accounts-9")
def test_who_waits_in_another_process_copies_no_more() -> None:
    """The turn is the notebook's, and so all its processes give up their copies for it."""
    desk, (one, two) = desk_of_thinkers("a", "b")
    for client in (one, two):
        desk.thinks(client)
    desk.ask(desk.client("holder"))
    assert desk.copiers() == [one]
    desk.ask(desk.client("a"))
    assert desk.queue() == ["a"]
    assert desk.copiers() == [two]


def test_who_has_nothing_to_copy_does_not_copy() -> None:
    """All that it could park has a copy already."""
    desk, (one, two) = desk_of_thinkers("a", "b")
    desk.report(one, to_copy=500, copied=1000, fixed=500)
    desk.thinks(two)
    assert desk.copiers() == [two]


def test_who_is_silent_does_not_copy() -> None:
    """It was to park and has not answered; another one parked instead."""
    desk, (one, two) = desk_of_thinkers("a", "b")
    desk.thinks(one)
    holder = desk.client("holder")
    desk.ask(holder)
    desk.need(holder, USABLE - 3000 + 100)
    while not desk.all(ReportSilent):
        desk.sleep_until_woken()
    assert [shown.client for shown in desk.all(ReportSilent)] == [one]
    desk.park(two)
    assert desk.budget(holder) == USABLE - 3000 + 100
    desk.report(holder, allocated=desk.budget(holder))
    desk.thinks(two)
    assert desk.copiers() == [two]


# ---- the bus is needed --------------------------------------------------------------------------


def desk_with_a_copier() -> tuple[CopyDesk, ClientId, ClientId, ClientId]:
    """`a` copies, `b` is idle, and `holder` has the turn."""
    desk, (copier, other) = desk_of_thinkers("a", "b")
    holder = desk.with_memory("holder", 1000, resting=False)
    desk.report(holder)
    desk.thinks(copier)
    assert desk.copiers() == [copier]
    return desk, copier, other, holder


Story = Callable[[CopyDesk, ClientId, ClientId], Callable[[], object]]


def memory_of_the_holder_comes_back(
    desk: CopyDesk, other: ClientId, holder: ClientId
) -> Callable[[], object]:
    desk.report(holder, parked=500)
    return lambda: desk.report(holder, parked=0)


def memory_comes_ahead_of_a_turn(
    desk: CopyDesk, other: ClientId, holder: ClientId
) -> Callable[[], object]:
    desk.report(other, parked=500)
    desk.report(other)
    desk.ask(other)
    assert desk.copiers() == []
    desk.report(holder)  # it had all that is free
    assert desk.moves()[other] == "restore"
    return lambda: desk.report(other, parked=0)


def the_holder_copies_much(
    desk: CopyDesk, other: ClientId, holder: ClientId
) -> Callable[[], object]:
    desk.do(ev.BusUsed(client=holder))
    stopped = desk.copiers()
    desk.do(ev.ClockTicked(), after_s=ahead.BUS_QUIET_S - A_MOMENT_S)
    assert desk.copiers() == stopped == []
    return lambda: desk.do(ev.ClockTicked(), after_s=A_MOMENT_S)


def another_one_parks(desk: CopyDesk, other: ClientId, holder: ClientId) -> Callable[[], object]:
    desk.do(ev.EvictRequested(tenant=TenantId("b")))
    assert desk.budget(other) == 0
    return lambda: desk.park(other)


def the_holder_waits_for_memory(
    desk: CopyDesk, other: ClientId, holder: ClientId
) -> Callable[[], object]:
    """Nobody can park what it lacks."""
    desk.set(memory_wait_s=60)
    desk.report(other, fixed=1500)
    desk.need(holder, 5000)
    assert not desk.refused()
    return lambda: desk.need(holder, 0)


def a_context_waits_for_space(
    desk: CopyDesk, other: ClientId, holder: ClientId
) -> Callable[[], object]:
    desk.measure(4000 + RESERVE)
    desk.ask_space(other, TOTAL - 4000)
    return lambda: desk.ask_space(other, 0)


@pytest.mark.promise(
    "accounts-6",
    "Nothing is copied ahead of need while the bus is needed: memory comes back or is to park, "
    "somebody lacks some, or the holder copies much; it goes on afterwards",
)
@pytest.mark.parametrize(
    "the_bus_is_needed",
    [
        memory_of_the_holder_comes_back,
        memory_comes_ahead_of_a_turn,
        the_holder_copies_much,
        another_one_parks,
        the_holder_waits_for_memory,
        a_context_waits_for_space,
    ],
)
def test_the_bus_is_needed(the_bus_is_needed: Story) -> None:
    """Whoever copies is told to stop in that moment, and to go on when it is over."""
    desk, copier, other, holder = desk_with_a_copier()
    ends = the_bus_is_needed(desk, other, holder)
    assert desk.copiers() == [] and desk.budgets[copier, "A"].ahead is Ahead.NOTHING
    desk.do(ev.ClockTicked())
    assert desk.copiers() == []
    ends()
    desk.report(holder)  # its budget may have changed meanwhile
    assert desk.copiers() == [copier]


@pytest.mark.promise("accounts-6")
def test_nobody_can_park_what_is_lacking() -> None:
    """Of the holder's own tenant nobody is asked to."""
    desk, (copier,) = desk_of_thinkers("a")
    desk.with_memory("b", 3000, fixed=3000)
    holder = desk.with_memory("a", 1000, resting=False)
    desk.thinks(copier)
    assert desk.copiers() == [copier]
    desk.set(memory_wait_s=60)
    desk.need(holder, 2000)
    assert not desk.refused() and desk.budget(copier) == 1500
    assert desk.copiers() == []


@pytest.mark.promise("accounts-6")
def test_who_copies_parks_itself() -> None:
    """It copies what is left when it has parked what it was asked for."""
    desk, copier, _, holder = desk_with_a_copier()
    desk.need(holder, USABLE - 4000 + 300)
    assert (desk.moves()[copier], desk.budget(copier)) == ("nothing", 1200)
    desk.report(copier, parked=200, to_copy=300)
    assert desk.copiers() == []
    desk.report(copier, parked=300, to_copy=200)
    desk.report(holder, allocated=desk.budget(holder))
    assert desk.copiers() == [copier] and desk.budget(copier) == 1200


@pytest.mark.promise("accounts-6")
def test_nobody_begins_while_others_recover() -> None:
    """After a restart, memory of those who are not back yet looks like strangers'."""
    desk = CopyDesk(recovering_until_s=200.0)
    client = desk.client("a")
    desk.report(client, allocated=1500)
    desk.thinks(client)
    assert desk.copiers() == []
    desk.do(ev.RecoveryComplete())
    assert desk.copiers() == [client]


@pytest.mark.promise(
    "accounts-7", "With `restore_ahead` off or without turns nothing is copied ahead of need"
)
@pytest.mark.parametrize(
    ("off", "on"),
    [
        ({"restore_ahead": RestoreAhead.OFF}, {"restore_ahead": RestoreAhead.ON}),
        ({"turns": TurnTaking.OFF}, {"turns": TurnTaking.ON}),
        ({"memory_mode": MemoryMode.OFF}, {"memory_mode": MemoryMode.SWAP}),
    ],
)
def test_a_setting_ends_copies(off: dict[str, object], on: dict[str, object]) -> None:
    """Whoever copies hears of it; nobody begins."""
    desk, (one, two) = desk_of_thinkers("a", "b")
    desk.thinks(one)
    desk.set(**off)
    assert desk.moves()[one] == "nothing"
    desk.report(one)
    desk.report(one, to_copy=400, copied=100)
    desk.thinks(two)
    assert desk.copiers() == []
    desk.set(**on)
    desk.report(one)
    desk.report(two)
    assert desk.copiers() == [one]


# ---- what is told, and what is left -------------------------------------------------------------


@pytest.mark.promise("accounts-5")
def test_a_turn_ends_what_was_told() -> None:
    """The hook takes it so: it copies again when it is told again."""
    desk, (one,) = desk_of_thinkers("a")
    desk.with_memory("b", USABLE - 1500)
    desk.thinks(one)
    desk.report(one, to_copy=0, copied=500)
    desk.ask(one)
    desk.report(one, copied=0)
    assert desk.told_to_copy(one), "there was nothing else to tell it"
    desk.drop(one)
    assert not desk.told_to_copy(one)
    desk.report(one, to_copy=500)
    assert desk.moves() == {}
    desk.do(ev.ClockTicked(), after_s=THINKS_S)
    assert desk.moves() == {one: "copies"}


@pytest.mark.parametrize("end", ["its connection ends", "it closes the device", "it says so"])
def test_nothing_is_left_of_who_copied(end: str) -> None:
    """And another one copies."""
    desk, (one, two) = desk_of_thinkers("a", "b")
    desk.thinks(one)
    desk.thinks(two)
    assert (desk.to_copy(), desk.copiers()) == ([one, two], [one])
    if end == "its connection ends":
        desk.lose(one)
        desk.measure(1500)
    elif end == "it closes the device":
        desk.close(one, "A")
    else:
        desk.report(one, to_copy=0)
    assert (desk.to_copy(), desk.copiers()) == ([two], [two])


def test_nothing_is_left_of_a_context_that_failed() -> None:
    """It says no more of its memory. Nobody is told anything for it."""
    desk, (one, two) = desk_of_thinkers("a", "b")
    desk.thinks(one)
    desk.fail(one)
    assert desk.to_copy() == []
    desk.thinks(two)
    desk.report(one, to_copy=400)
    assert (desk.to_copy(), desk.copiers()) == ([two], [two])
    assert one not in desk.moves()


@pytest.mark.promise(
    "accounts-8",
    "Each budget says what moves ahead of need: parked memory of who is next, copies of who was "
    "chosen to copy, and nothing else",
)
@pytest.mark.parametrize("what", ["copies", "restore"])
def test_a_budget_that_is_told_again_says_the_same(what: str) -> None:
    """What all of them could have at most has changed."""
    desk, copier, other, holder = desk_with_a_copier()
    if what == "restore":
        memory_comes_ahead_of_a_turn(desk, other, holder)
    mover, idle = (other, copier) if what == "restore" else (copier, other)
    desk.do(ev.ClockTicked(), after_s=REFRESH_S)
    desk.report(idle, fixed=500)
    assert desk.moves() == {mover: what, holder: "nothing"}
