"""Managed memory goes to the host when others need the device, and comes back with the turn. The
program sees nothing of it: neither in what it wrote, nor in what it said about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.protocol.messages import TurnDropped
from tests.hook.managed.tensors import (
    CPU,
    HELD,
    NOWHERE,
    PIECE,
    PREFETCHED,
    SET_ACCESSED_BY,
    SET_PREFERRED,
    SET_READ_MOSTLY,
    SIZE,
    UNSET_READ_MOSTLY,
    Managed,
)
from tests.hook.runtime.memory_shell import MIB

Opens = Callable[..., Managed]
Takes = Callable[[int], bool]
ONE, BOTH, OWN_STREAM = 1, 2, 4
"""Flags of cuStreamAttachMemAsync: everybody, the host, one stream."""


@pytest.mark.promise(
    "park-15",
    "Managed memory is prefetched to the host at a park and back at a restore, every byte the "
    "same, and others can allocate what it has left",
)
def test_managed_memory_leaves_and_comes_back(holder: Managed, stranger: Takes) -> None:
    """Others get its place although the driver goes on counting it, until they need it."""
    report = holder.park()
    assert (report.bytes_parked, report.bytes_kept, report.bytes_fixed) == (HELD, HELD, 0)
    assert stranger(HELD)
    assert stranger(0)
    holder.restore()
    assert holder.is_whole()
    report = holder.client.expect_memory(lambda report: report.bytes_parked == 0)
    assert (report.bytes_allocated, report.bytes_kept) == (HELD, 0)
    assert holder.noted(0, PREFETCHED) == 0


@pytest.mark.promise("park-15")
def test_it_comes_back_into_its_own_place(holder: Managed) -> None:
    """Where nobody has taken that meanwhile, a device that counts as full is full of it alone."""
    for _ in range(3):
        holder.park()
        holder.restore()
        assert holder.is_whole()


@pytest.mark.promise(
    "park-16",
    "What the host writes into managed memory while it is parked, the next launch sees",
)
def test_the_host_writes_while_it_is_parked(holder: Managed) -> None:
    """The program needs no turn for that."""
    holder.park()
    holder.written_by_host(0, 77)
    holder.restore()
    assert holder.is_whole()


@pytest.mark.promise(
    "park-17",
    "Managed memory is told as a kind that moves, and what stays of it as one that does not",
)
def test_its_kind_is_told(holder: Managed) -> None:
    """What is too small to be worth a move stays."""
    holder.client.expect_memory(lambda report: report.bytes_allocated == HELD)
    told = holder.kinds()
    assert (told.bytes_prefetched, told.bytes_managed) == (HELD, 0)
    assert holder.run(f"new 2 {32 << 10}") == 0
    report = holder.client.expect_memory(lambda report: report.bytes_fixed > 0)
    assert report.bytes_fixed == 32 << 10
    told = holder.kinds()
    assert (told.bytes_prefetched, told.bytes_managed, told.bytes_stopped) == (HELD, 32 << 10, 0)
    assert holder.run("drop 2") == 0
    assert holder.client.expect_memory(lambda report: report.bytes_fixed == 0)


@pytest.mark.promise(
    "park-18",
    "Advice on managed memory outlives its moves; what is mostly read stays on the device, piece "
    "by piece",
)
def test_advice_outlives_a_move(holder: Managed) -> None:
    """The preferred location and who accesses it; memory that prefers its device leaves it, too."""
    assert holder.run(f"advise 0 {SET_PREFERRED} 0") == 0
    assert holder.run(f"advise 0 {SET_ACCESSED_BY} 0") == 0
    assert holder.run(f"advise 1 {SET_ACCESSED_BY} h") == 0
    before = holder.notes(0), holder.notes(1)
    assert before == ([0, 0, 0], [0, NOWHERE, CPU])
    assert holder.park().bytes_parked == HELD
    assert (holder.notes(0), holder.notes(1)) == before
    holder.restore()
    assert (holder.notes(0), holder.notes(1)) == before
    assert holder.is_whole()


@pytest.mark.promise("park-18")
def test_what_is_mostly_read_stays(holder: Managed) -> None:
    """The device keeps its copy when the host is given one. The half of a tensor that was named
    stays from then on, also when the advice is taken back."""
    assert holder.run(f"advise 0 {SET_READ_MOSTLY} 0half") == 0
    assert holder.client.expect_memory(lambda report: report.bytes_fixed == SIZE // 2)
    told = holder.kinds()
    assert (told.bytes_prefetched, told.bytes_managed) == (HELD - SIZE // 2, SIZE // 2)
    assert holder.run(f"advise 0 {UNSET_READ_MOSTLY} 0") == 0
    holder.memory.take_turn()
    holder.memory.budget(0)
    report = holder.client.expect_memory(lambda report: report.bytes_parked == HELD - SIZE // 2)
    assert report.bytes_fixed == SIZE // 2
    holder.restore()
    assert holder.is_whole()
    assert holder.run("drop 0") == 0
    assert holder.client.expect_memory(lambda report: report.bytes_fixed == 0)
    assert holder.kinds().bytes_managed == 0


@pytest.mark.promise("park-18")
def test_advice_on_parked_memory_waits_for_the_turn(holder: Managed) -> None:
    """What is to stay on the device has to be there. Other advice waits for nothing."""
    holder.park()
    assert holder.run(f"advise 1 {SET_PREFERRED} 0") == 0
    holder.memory.say(f"advise 1 {SET_READ_MOSTLY} 0")
    holder.memory.grant()
    assert holder.memory.result("advise") == 0
    assert holder.client.expect_memory(lambda report: report.bytes_fixed == SIZE)
    assert holder.is_whole()


@pytest.mark.promise(
    "park-19",
    "Managed memory that the program wants on the host, by its last prefetch or its advice, is not "
    "brought back to the device",
)
@pytest.mark.parametrize("wish", ["prefetch 0 h", f"advise 0 {SET_PREFERRED} h"])
def test_what_the_program_wants_on_the_host_is_not_brought_back(holder: Managed, wish: str) -> None:
    """It comes when the device uses it. The other tensor is brought."""
    assert holder.run(wish) == 0
    assert holder.run("sync") == 0
    assert holder.park().bytes_parked == HELD
    holder.restore()
    assert (holder.noted(0, PREFETCHED), holder.noted(1, PREFETCHED)) == (CPU, 0)
    assert holder.is_whole()
    assert holder.client.expect_memory(lambda report: report.bytes_parked == 0)
    if wish.startswith("prefetch"):  # until the program wants it on the device again
        assert holder.run("prefetch 0 0") == 0
        assert holder.run("sync") == 0
        holder.park()
        holder.restore()
        assert holder.noted(0, PREFETCHED) == 0


@pytest.mark.promise("park-15")
@pytest.mark.parametrize("flags", [ONE, BOTH, OWN_STREAM])
def test_memory_that_is_attached_to_a_stream(holder: Managed, flags: int) -> None:
    """Or to the host, or to nobody alone."""
    assert holder.run("create 1 n") == 0
    assert holder.run(f"attach 0 1 {flags}") == 0
    assert holder.run("sync") == 0
    assert holder.park().bytes_parked == HELD
    holder.restore()
    assert holder.is_whole()
    assert holder.run(f"attach 0 1 {ONE}") == 0


@pytest.mark.promise("park-15")
def test_it_comes_ahead_of_its_turn_and_leaves_again(holder: Managed) -> None:
    """As far as the budget reaches, a piece at a time."""
    holder.park()
    holder.memory.budget(SIZE)
    holder.client.expect_memory(lambda report: report.bytes_parked == HELD - SIZE)
    assert holder.memory.park_to(SIZE // 2).bytes_parked == HELD - SIZE // 2
    assert holder.client.hears_none(TurnDropped, for_s=0.1)
    holder.restore()
    assert holder.is_whole()


@pytest.mark.promise("park-15")
def test_no_more_leaves_than_has_to(holder: Managed) -> None:
    """Piece by piece."""
    report = holder.park(HELD - 10 * MIB)
    assert 10 * MIB <= report.bytes_parked < 10 * MIB + 2 * PIECE


@pytest.mark.promise(
    "park-20",
    "Without concurrent access, a prefetch or the turn's memory mode, managed memory is fixed",
)
@pytest.mark.parametrize(
    "env",
    [
        {"GPUSHARE_SIM_FAULTS": "fail cuDeviceGetAttribute nth=1 times=0 result=1"},
        {"GPUSHARE_MEMORY": "off"},
    ],
)
def test_where_it_cannot_be_prefetched_it_is_fixed(opens: Opens, env: dict[str, str]) -> None:
    """As all that the driver alone can move."""
    managed = opens(env=env)
    managed.fill()
    managed.memory.take_turn()
    report = managed.memory.limit(0)
    assert (report.bytes_fixed, report.bytes_parked) == (HELD, 0)
    assert managed.kinds().bytes_managed == HELD
    managed.restore()
    assert managed.is_whole()
