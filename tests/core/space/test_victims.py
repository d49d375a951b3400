"""Whose memory leaves the device, and in which order, told event by event."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.ids import ClientId, TenantId
from jupyter_gpushare.core.ledger import Attention, Share, Totals
from jupyter_gpushare.core.settings import RestoreAhead
from jupyter_gpushare.core.space import victims

from ..memory_desk import USABLE, MemoryDesk

SMALL = 100


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "PART_BYTES_MIN", SMALL)


def desk_with(*held: int) -> tuple[MemoryDesk, list[ClientId]]:
    """Idle tenants with so much memory each, the least recently used first."""
    desk = MemoryDesk()
    return desk, [desk.with_memory(f"t{number}", count) for number, count in enumerate(held)]


def with_a_need(desk: MemoryDesk, short: int) -> ClientId:
    """A tenant that has the turn and lacks so many bytes beyond those that are free."""
    client = desk.client("newcomer")
    desk.ask(client, after_s=0.01)
    resident = sum(has["allocated"] - has["parked"] for has in desk.has.values())
    desk.need(client, USABLE - resident + short)
    return client


def budgets(desk: MemoryDesk, clients: list[ClientId]) -> list[int]:
    return [desk.budget(client) for client in clients]


@pytest.mark.promise(
    "accounts-14",
    "Of a notebook that was used within the last minute, a third leaves at first: the least "
    "recently used first, and more only where a third of each is not enough",
)
def test_a_third_of_each_leaves_first() -> None:
    desk, idle = desk_with(1500, 1500, 3000)
    with_a_need(desk, 700)
    assert budgets(desk, idle) == [1000, 1300, 3000]


@pytest.mark.promise("accounts-14")
def test_more_where_a_third_of_each_is_not_enough() -> None:
    desk, idle = desk_with(1500, 1500, 3000)
    with_a_need(desk, 2500)
    assert budgets(desk, idle) == [500, 1000, 2000]


@pytest.mark.promise("accounts-14")
def test_what_is_parked_already_counts() -> None:
    """The third is one of all that the notebook has, not one of what is left."""
    desk, idle = desk_with(1500, 1500, 3000)
    newcomer = with_a_need(desk, 500)
    desk.park(idle[0])
    assert budgets(desk, idle) == [1000, 1500, 3000]
    desk.report(newcomer, allocated=desk.budget(newcomer))
    desk.need(newcomer, 100)
    assert budgets(desk, idle) == [1000, 1400, 3000]


@pytest.mark.promise("accounts-14")
def test_small_memory_leaves_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is back in a moment, and fewer have something to bring back."""
    monkeypatch.setattr(victims, "PART_BYTES_MIN", 1000)
    desk, idle = desk_with(900, 1500, 3000)
    with_a_need(desk, 1100)
    assert budgets(desk, idle) == [0, 1300, 3000]


@pytest.mark.promise(
    "accounts-15",
    "Of notebooks that were used within the last minute, those of whose memory the host has copies "
    "are asked first for their third; what is beyond the thirds leaves as if there were no copies",
)
@pytest.mark.parametrize(
    ("short", "left"),
    [
        (200, [1500, 1500, 1300, 1500]),
        (800, [1500, 1500, 1000, 1200]),
        (1300, [1200, 1500, 1000, 1000]),
        (2200, [800, 1000, 1000, 1000]),
    ],
)
def test_who_has_copies_is_asked_first(short: int, left: list[int]) -> None:
    """The last two have some, which may be less than their thirds."""
    desk, idle = desk_with(1500, 1500, 1500, 1500)
    desk.report(idle[2], copied=500)
    desk.report(idle[3], copied=50)
    with_a_need(desk, short)
    assert budgets(desk, idle) == left


@pytest.mark.promise("accounts-15")
def test_who_has_gone_away_is_asked_before_those_with_copies() -> None:
    desk, idle = desk_with(1500, 1500)
    desk.ask(idle[1], after_s=victims.AWAY_S)
    desk.drop(idle[1])
    desk.report(idle[1], copied=500)
    with_a_need(desk, 200)
    assert budgets(desk, idle) == [1300, 1500]


@pytest.mark.promise(
    "accounts-16",
    "Who is asked to park is not told to stop for another one to be asked in its place, whoever "
    "has copies meanwhile and however late reports are",
)
@pytest.mark.parametrize("short", [200, 700])
def test_who_was_asked_goes_on_without_copies(short: int) -> None:
    """Its copies are gone before it has parked all, and others have some only now."""
    desk, idle = desk_with(1500, 1500, 1500)
    desk.report(idle[2], copied=150)
    with_a_need(desk, short)
    asked = [1500 - max(0, short - 500), 1500, 1500 - min(500, short)]
    assert budgets(desk, idle) == asked
    desk.report(idle[2], parked=150, copied=0)
    desk.report(idle[1], copied=400)
    desk.report(idle[2], parked=170)
    assert budgets(desk, idle) == asked


@pytest.mark.promise("accounts-16")
def test_who_was_asked_goes_on_when_another_one_has_gone_away() -> None:
    """It was used before: from this moment on, all of its memory would leave first."""
    desk, idle = desk_with(1500, 1500)
    desk.report(idle[1], copied=500)
    desk.now_s += victims.AWAY_S - 1
    with_a_need(desk, 300)
    asked = [1500, 1200]
    assert budgets(desk, idle) == asked
    desk.report(idle[1], parked=100, copied=400, after_s=2)
    assert budgets(desk, idle) == asked


@pytest.mark.promise("accounts-18")
def test_who_was_asked_and_waits_now_is_asked_no_more() -> None:
    desk, idle = desk_with(1500, 1500)
    with_a_need(desk, 300)
    assert budgets(desk, idle) == [1200, 1500]
    desk.set(restore_ahead=RestoreAhead.OFF)
    desk.ask(idle[0])
    assert budgets(desk, idle) == [1500, 1200]
    desk.report(idle[0], parked=100)
    assert budgets(desk, idle) == [1400, 1200]


@pytest.mark.promise("accounts-14")
def test_less_is_asked_where_thirds_are_enough_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A need becomes smaller before the first one has parked beyond its third."""
    monkeypatch.setattr(victims, "STEP_BYTES", 1)
    desk, idle = desk_with(1500, 1500)
    holder = with_a_need(desk, 1400)
    assert budgets(desk, idle) == [600, 1000]
    desk.need(holder, USABLE - 3000 + 900)
    assert budgets(desk, idle) == [1000, 1100]


@pytest.mark.promise("accounts-15")
def test_more_is_asked_of_those_with_copies() -> None:
    """A need grows while the first one parks."""
    desk, idle = desk_with(1500, 1500, 1500)
    holder = with_a_need(desk, 200)
    assert budgets(desk, idle) == [1300, 1500, 1500]
    desk.report(idle[2], copied=300)
    desk.report(idle[0], parked=50)
    desk.need(holder, USABLE - 4500 + 500)
    assert budgets(desk, idle) == [1300, 1500, 1200]


@pytest.mark.promise(
    "accounts-17",
    "Where memory is missing, that of a notebook that nobody has used for a minute leaves whole, "
    "and first",
)
@pytest.mark.parametrize("idle_s", [victims.AWAY_S - 1, victims.AWAY_S + 1])
def test_who_has_gone_away_parks_all(idle_s: float) -> None:
    desk, idle = desk_with(1500, 1500)
    desk.ask(idle[1], after_s=idle_s)
    desk.drop(idle[1])
    with_a_need(desk, 1000)
    is_away = idle_s > victims.AWAY_S
    assert budgets(desk, idle) == ([500, 1500] if is_away else [1000, 1000])


@pytest.mark.promise(
    "accounts-18",
    "A notebook that waits for its turn keeps its memory on the device as long as that of others "
    "is enough; of those that wait, the last one's leaves first",
)
def test_who_waits_is_last() -> None:
    """`t0` and `t1` wait, in this order, and `t2` thinks; the turn needs more and more."""
    desk, clients = desk_with(1500, 1500, 1500)
    holder = with_a_need(desk, 0)
    desk.report(holder, allocated=desk.budget(holder))
    for client in clients[:2]:
        desk.ask(client, after_s=0.01)
    desk.need(holder, 600)
    assert budgets(desk, clients) == [1500, 1500, 900]
    desk.need(holder, 1900)
    assert budgets(desk, clients) == [1500, 1100, 0]
    desk.need(holder, 3100)
    assert budgets(desk, clients) == [1400, 0, 0]


@pytest.mark.promise("accounts-18")
def test_the_last_one_is_who_is_served_last() -> None:
    """`t0` began to wait before `t1`, and is served after it."""
    desk = MemoryDesk()
    desk.tenant("t0", asked_class="batch")
    clients = [desk.with_memory(name, 1500) for name in ("t0", "t1")]
    holder = with_a_need(desk, 0)
    desk.report(holder, allocated=desk.budget(holder))
    for client in clients:
        desk.ask(client, after_s=0.01)
    assert desk.queue() == ["t1", "t0"]
    desk.need(holder, 600)
    assert budgets(desk, clients) == [900, 1500]


@pytest.mark.promise(
    "accounts-19",
    "For a third of what a notebook has, host memory is made ready ahead of need, and for more "
    "only where a third of each of the others is not enough",
)
@pytest.mark.parametrize(
    ("held", "ready"),
    [
        ([2400] * 4, 1000),  # 2600 beyond what there is: two others give 800 each
        ([1500] * 6, 500),  # 2000 beyond: four others give 500 each
        ([5000] * 2, 3000),  # there is no third one
        ([2000, 7000], 2000),  # nor here: the other one can only come back for all of this one's
        ([7500], 500),  # its own is too much already
        ([1000] * 2, 0),  # all of it fits
    ],
)
def test_how_much_host_memory_is_made_ready(held: list[int], ready: int) -> None:
    share = Share(ClientId(1), TenantId("t"), Totals(), Attention(), bytes_allocated=held[0])
    others, allocated = len(held) - 1, sum(held)
    assert victims.bytes_for_one_other(share, others, allocated, allocated - USABLE) == ready
