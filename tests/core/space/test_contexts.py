"""CUDA contexts of clients are told from strangers; the reserve follows them."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.core.snapshot import DeviceSnapshot
from tests.core.memory_desk import RESERVE, TOTAL, USABLE, MemoryDesk
from tests.core.test_memory_waits import begins_to_wait, let_pass

WAIT_S = 120.0


@pytest.fixture
def desk() -> MemoryDesk:
    return MemoryDesk(memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)


def look(desk: MemoryDesk, used: int, *told: tuple[int, int], after_s: float = 1.0) -> None:
    event = ev.DeviceMemoryMeasured(
        device=DeviceId("A"),
        bytes_used=used,
        bytes_of_clients=tuple((ClientId(client), count) for client, count in told),
    )
    desk.do(event, after_s=after_s)


def contexts(desk: MemoryDesk, tenant: str) -> int:
    return sum(each.bytes_context for each in desk.status(tenant).memory)


def told_apart(device: DeviceSnapshot) -> tuple[int, int]:
    return device.bytes_contexts, device.bytes_foreign - device.bytes_contexts


@pytest.mark.promise("accounts-56")
def test_what_a_process_has_beyond_its_allocations(desk: MemoryDesk) -> None:
    """The rest of what nobody has allocated is strangers'."""
    one = desk.with_memory("a", 1000)
    two = desk.client("b")
    look(desk, 1000 + 300 + 200 + 50, (one, 1300), (two, 200))
    look(desk, 1550)
    assert told_apart(desk.device()) == (500, 50)
    assert (contexts(desk, "a"), contexts(desk, "b")) == (300, 200)
    desk.close(two, "A")
    look(desk, 1350)
    assert told_apart(desk.device()) == (300, 50)


@pytest.mark.promise("accounts-56")
def test_what_is_not_reported_yet_is_no_context(desk: MemoryDesk) -> None:
    """The driver's word and the client's are not of one moment."""
    one = desk.with_memory("a", 1000, resting=False)
    for _ in range(2):
        look(desk, 1300, (one, 1300))
    look(desk, 3300, (one, 3300), after_s=0.05)
    look(desk, 3300, after_s=0.05)
    assert contexts(desk, "a") == 300
    desk.report(one, allocated=3000)
    look(desk, 3300, after_s=0.05)
    look(desk, 3300)
    assert contexts(desk, "a") == 300
    desk.report(one, allocated=1000)
    look(desk, 3300, after_s=0.05)
    assert contexts(desk, "a") == 300


def test_a_context_that_grows_is_seen_when_all_rest(desk: MemoryDesk) -> None:
    """Modules are loaded into it."""
    one = desk.with_memory("a", 1000)
    for grown in (300, 700):
        look(desk, 1000 + grown, (one, 1000 + grown))
        look(desk, 1000 + grown)
        assert contexts(desk, "a") == grown


def test_a_process_that_is_seen_before_it_opens_the_device(desk: MemoryDesk) -> None:
    """NVML may know of a context before its client has said a word, and says it once."""
    one = desk.client("a", devices="")
    look(desk, 300, (one, 300))
    desk.open(one, "A")
    look(desk, 300)
    look(desk, 300)
    assert contexts(desk, "a") == 300
    two = desk.client("b", devices="")
    look(desk, 600, (two, 300))
    look(desk, 300, (two, 0))
    assert told_apart(desk.device()) == (300, 0)


def test_without_the_drivers_word_all_are_strangers(desk: MemoryDesk) -> None:
    """As in a container."""
    desk.with_memory("a", 1000)
    for _ in range(2):
        look(desk, 1300)
    assert told_apart(desk.device()) == (0, 300)


# ---- in the way -----------------------------------------------------------------------------


def many_contexts(desk: MemoryDesk) -> list[ClientId]:
    """They take half of the device; `a` has most of them."""
    clients = [desk.client(name) for name in "aax"]
    for _ in range(2):
        look(desk, 4000, *((each, 1000 + 500 * (each == clients[0])) for each in clients))
    look(desk, 4000)
    return clients


@pytest.mark.promise(
    "accounts-3",
    "A call that lacks memory because of CUDA contexts of others waits as for memory that they "
    "cannot move; because of programs outside it is refused",
)
def test_a_call_waits_for_contexts_of_others(desk: MemoryDesk) -> None:
    """Until they end; whose take most is said."""
    first, second, _ = many_contexts(desk)
    bob = begins_to_wait(desk, count=4000)
    found = desk.status("b").obstacle
    assert found is not None and (found.kind.value, found.tenant) == ("contexts", "a")
    assert found.bytes_in_the_way >= 3500
    assert let_pass(desk, 60) == []
    desk.lose(first)
    desk.lose(second)
    look(desk, 1000)
    look(desk, 1000)
    assert let_pass(desk, 1) == [] and desk.holders() == ["b"]
    assert desk.budget(bob) >= 4000


@pytest.mark.promise("accounts-3")
def test_a_call_waits_in_vain(desk: MemoryDesk) -> None:
    """As long as for other memory."""
    many_contexts(desk)
    bob = begins_to_wait(desk, count=4000)
    assert let_pass(desk, WAIT_S + 1) == [bob]


@pytest.mark.promise("accounts-3")
def test_its_own_contexts_are_not_waited_for(desk: MemoryDesk) -> None:
    """Nor those of its other processes: it could wait for ever."""
    clients = [desk.client("b") for _ in range(3)]
    for _ in range(2):
        look(desk, 4000, *((each, 1300) for each in clients))
    desk.ask(clients[0])
    desk.need(clients[0], 4000)
    desk.await_refusal(clients[0], used=4000)


@pytest.mark.promise("accounts-3")
def test_strangers_beside_contexts_are_not_waited_for(desk: MemoryDesk) -> None:
    """All contexts together would not be enough."""
    other = desk.client("a")
    for _ in range(2):
        look(desk, 4000, (other, 500))
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, 4000)
    desk.await_refusal(bob, used=4000)
    assert desk.obstacle("b") == "foreign"


# ---- the reserve ----------------------------------------------------------------------------


def with_notebooks_to_come(desk: MemoryDesk, count: int, *, each: int = 150) -> ClientId:
    """Their contexts will take as much as the one that is there."""
    one = desk.client("a")
    for _ in range(2):
        look(desk, each, (one, each))
    for number in range(count):
        desk.tenant(f"n{number}")
    look(desk, each)
    return one


@pytest.mark.promise(
    "accounts-4",
    "The reserve follows the contexts that are to be expected, as those tell that are there, up to "
    "a sixteenth of the device; the setting says the least",
)
@pytest.mark.parametrize(("notebooks", "reserve"), [(0, 100), (1, 150), (2, 300), (50, 500)])
def test_the_reserve_follows(notebooks: int, reserve: int) -> None:
    """Notebooks that have opened no device yet may open this one."""
    desk = MemoryDesk(device_reserve_bytes=100)
    with_notebooks_to_come(desk, notebooks)
    assert desk.device().bytes_reserved == reserve
    assert desk.device().bytes_usable == TOTAL - reserve - 150


@pytest.mark.promise("accounts-4")
def test_the_setting_is_the_least() -> None:
    """A reserve that is large enough does not grow."""
    desk = MemoryDesk()
    with_notebooks_to_come(desk, 50)
    assert desk.device().bytes_reserved == RESERVE


@pytest.mark.promise("accounts-4")
def test_a_notebook_that_opens_the_device_takes_what_was_kept_for_it() -> None:
    """What others may have is the same before and afterwards."""
    desk = MemoryDesk(device_reserve_bytes=100)
    with_notebooks_to_come(desk, 2)
    usable = desk.device().bytes_usable
    two = desk.client("n0")
    for _ in range(2):
        look(desk, 300, (two, 150))
    assert desk.device().bytes_usable == usable


@pytest.mark.promise("accounts-4")
def test_memory_that_was_there_comes_back_into_what_is_kept() -> None:
    """What grows beyond the least keeps nobody's memory away."""
    desk = MemoryDesk(device_reserve_bytes=100)
    desk.measure(0)
    one = desk.with_memory("a", TOTAL - 600)
    two = desk.with_memory("b", 0, resting=False)
    desk.need(two, 5000)
    desk.park(one)
    desk.report(two, allocated=5000)
    for number in range(5):
        desk.tenant(f"n{number}")
    for _ in range(6):
        there = desk.memory("a").bytes_resident
        look(desk, there + 5300, (one, there + 300), (two, 5000))
        desk.park(one)
    assert desk.device().bytes_reserved == 500
    desk.ask(one)
    desk.drop(two)
    desk.park(two)
    assert desk.budget(one) == TOTAL - 600
    assert desk.obstacle("a") is None


@pytest.mark.promise("accounts-4")
def test_new_memory_leaves_the_contexts_to_come_their_space() -> None:
    """So what is allocated now can come back beside them."""
    desk = MemoryDesk(device_reserve_bytes=100)
    one = with_notebooks_to_come(desk, 3)
    desk.ask(one)
    desk.need(one, TOTAL)
    assert desk.refused() == [one]
    desk.need(one, TOTAL - 150 - 450)
    assert desk.budget(one) == TOTAL - 150 - 450
    assert USABLE > 0
