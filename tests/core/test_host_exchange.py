"""Hand-overs for which the host has no space at once, but piece by piece."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.space import exchange

from .memory_desk import USABLE, MemoryDesk

PIECE = 1000
PARKED = 3000
EACH = (USABLE + PARKED) // 2
OWN, OTHERS = 1, 2
"""Numbers of control groups."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As small as the desk's devices are."""
    monkeypatch.setattr(exchange, "PIECE_BYTES", PIECE)


def two_on_a_short_host(
    desk: MemoryDesk, room: int, *, limits: tuple[int, int] = (OWN, OWN)
) -> tuple[int, int]:
    """`a` has parked 3000 because `b` has as much; `b` has given its turn back and could park
    `room`. What bounds their rooms are these limits."""
    one = desk.with_memory("a", EACH)
    two = desk.with_memory("b", EACH - PARKED, resting=False)
    desk.need(two, PARKED)
    desk.report(one, host_limit=limits[0])
    desk.park(one)
    desk.report(two, allocated=EACH, parkable=room, host_limit=limits[1])
    desk.drop(two, after_s=1)
    return one, two


def hand_over(desk: MemoryDesk, leaves: int, comes: int, room: int) -> None:
    """Until all of the one that has the turn is there. The host has `room` for the other's memory
    at first, and what comes back leaves room for as much."""
    parked = desk.has[comes, "A"]["parked"]
    for _ in range(2 * parked // PIECE + 2):
        before = desk.has[leaves, "A"]["parked"]
        desk.park(leaves)
        room -= desk.has[leaves, "A"]["parked"] - before
        assert room >= 0
        desk.report(leaves, parkable=room)
        has = desk.has[comes, "A"]
        came = min(has["parked"], desk.budget(comes) - has["allocated"] + has["parked"])
        room += came // PIECE * PIECE
        desk.report(comes, parked=has["parked"] - came // PIECE * PIECE)
        desk.report(leaves, parkable=room)
    assert desk.has[comes, "A"]["parked"] == 0


@pytest.mark.promise(
    "accounts-24",
    "A hand-over that the host has space for piece by piece takes place; one for which not even "
    "the first piece has space is refused before anything moves, with who is in the way and how "
    "much host memory is missing",
)
def test_a_hand_over_takes_place_piece_by_piece() -> None:
    """With room for one piece, of 3000 that have to leave. At no time is it recalled or refused,
    also when there is no room for a moment."""
    desk = MemoryDesk()
    one, two = two_on_a_short_host(desk, PIECE)
    desk.ask(one)
    assert desk.granted() == [one]
    hand_over(desk, two, one, PIECE)
    desk.report(one, parkable=PIECE)
    desk.drop(one, after_s=1)
    desk.ask(two)
    hand_over(desk, one, two, PIECE)


@pytest.mark.promise("accounts-24")
@pytest.mark.parametrize("room", [0, 1, PIECE - 1])
def test_without_room_for_the_first_piece_nothing_moves(room: int) -> None:
    """Who waits is told whose memory it is, and how much more the host would need."""
    desk = MemoryDesk()
    one, two = two_on_a_short_host(desk, room)
    budgets = dict(desk.budgets)
    desk.ask(one)
    assert desk.granted() == []
    assert desk.budgets[two, "A"].budget_bytes == budgets[two, "A"].budget_bytes == EACH
    found = desk.status("a").obstacle
    assert found is not None
    assert (found.kind.value, found.tenant) == ("host", "b")
    assert (found.bytes_in_the_way, found.bytes_short) == (EACH - room, PIECE - room)
    desk.report(two, parkable=PIECE)
    assert desk.granted() == [one]


@pytest.mark.promise("accounts-24")
@pytest.mark.parametrize(
    ("limits", "takes_place"),
    [
        ((OWN, OTHERS), False),
        ((exchange.MACHINE, OTHERS), False),
        ((OWN, exchange.MACHINE), True),
        ((exchange.MACHINE, exchange.MACHINE), True),
    ],
)
def test_what_comes_back_is_room_under_the_same_limit_alone(
    limits: tuple[int, int], takes_place: bool
) -> None:
    """Of a control group, or of the machine, in which everybody's memory is. Elsewhere the host has
    to have all that must leave."""
    desk = MemoryDesk()
    one, _ = two_on_a_short_host(desk, PIECE, limits=limits)
    desk.ask(one)
    assert desk.granted() == ([one] if takes_place else [])
    if not takes_place:
        found = desk.status("a").obstacle
        assert found is not None
        assert (found.kind.value, found.bytes_short) == ("host", PARKED - PIECE)


@pytest.mark.promise("accounts-24")
def test_more_than_what_comes_back_is_no_exchange() -> None:
    """`a` needs more than it had, so more has to leave than what it gives up on the host."""
    desk = MemoryDesk()
    one, two = two_on_a_short_host(desk, PIECE)
    desk.ask(one)
    hand_over(desk, two, one, PIECE)
    desk.need(one, PIECE)
    desk.park(two)
    assert desk.budget(one) == EACH + PIECE
    desk.report(one, allocated=EACH + PIECE)
    desk.report(two, parkable=0)
    desk.need(one, PIECE)
    desk.await_refusal(one)


@pytest.mark.parametrize("limit", [OWN, OTHERS])
def test_a_call_that_waits_with_parked_memory_is_no_hopeless_need(limit: int) -> None:
    """What comes back counts for it too, although the host has no space for all at once."""
    desk = MemoryDesk()
    one, two = two_on_a_short_host(desk, 2 * PIECE, limits=(OWN, limit))
    desk.need(one, PIECE)
    if limit != OWN:
        return desk.await_refusal(one)
    desk.ask(one)
    assert desk.granted() == [one]
    desk.park(two)
    desk.report(one, parked=0)
    assert desk.refused() == []
    return None


@pytest.mark.promise("accounts-24")
def test_managed_memory_gives_no_host_memory_up() -> None:
    """It keeps that where it comes back, so the host has to have all that must leave. The turn went
    to and fro for ever, and nothing moved."""
    desk = MemoryDesk()
    one, two = two_on_a_short_host(desk, PIECE)
    desk.report(one, kept=PARKED)
    desk.ask(one)
    assert desk.granted() == []
    found = desk.status("a").obstacle
    assert found is not None
    assert (found.kind.value, found.tenant, found.bytes_short) == ("host", "b", PARKED - PIECE)
    desk.report(two, parkable=PARKED)
    assert desk.granted() == [one]


def test_nothing_comes_ahead_where_the_host_is_short() -> None:
    """What comes ahead of a turn keeps its host memory, which others under its limit may need."""
    for room, limit, comes_ahead in ((0, OWN, False), (0, OTHERS, True), (EACH, OWN, True)):
        desk = MemoryDesk()
        one, two = two_on_a_short_host(desk, EACH, limits=(OWN, limit))
        desk.ask(two)
        desk.report(two, allocated=EACH - PIECE, parkable=room)
        desk.ask(one)
        desk.report(two)
        assert (desk.budget(one) > EACH - PARKED) == comes_ahead
