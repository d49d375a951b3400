"""New cells go first, as far as the credit of their owner goes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

from .crowd import DRAIN_S, Crowd, Member, Work
from .desk import Desk
from .memory_desk import MemoryDesk

SETTINGS = SchedulerSettings(memory_mode=MemoryMode.OFF)
TRAINING = Work()
PROGRAM = Work(in_cells=False)
AT_ONCE = pytest.mark.promise(
    "scheduler-11",
    "A new cell is served next and recalls a longer turn, as long as its owner has credit",
)
GAIN = pytest.mark.promise(
    "scheduler-14",
    "Tiny cells, threads under trivial cells, many kernels and repeated holds gain at most the "
    "credit and one quantum over an honest owner",
)


@pytest.fixture
def desk() -> Desk:
    return Desk(SETTINGS)


def waits(desk: Desk, name: str, owner: str, *, cell: bool = True) -> int:
    """A process whose tenant wants the device, in a cell or not."""
    desk.tenant(name, owner=owner)
    client = desk.client(name)
    if cell:
        desk.do(ev.CellBegan(client=client))
    desk.ask(client)
    return client


@AT_ONCE
def test_a_new_cell_recalls_a_program_at_once(desk: Desk) -> None:
    program = waits(desk, "program", "ann", cell=False)
    desk.do(ev.ClockTicked(), after_s=100)
    cell = waits(desk, "cell", "ben")
    (recall,) = desk.all(RecallTurn)
    assert (recall.client, recall.reason) == (program, RecallReason.CELL_WAITS)
    desk.drop(program)
    assert desk.granted() == [cell]


@AT_ONCE
def test_a_new_cell_recalls_a_long_cell_at_once(desk: Desk) -> None:
    """A cell is long when it has used the device for `quantum_min_s`."""
    long = waits(desk, "long", "ann")
    desk.do(ev.ClockTicked(), after_s=1)
    waits(desk, "cell", "ben")
    assert desk.recalled() == [long]


@AT_ONCE
def test_a_cell_is_long_whoever_waited_at_its_beginning(desk: Desk) -> None:
    """Others who came and went used up a part of its quantum; that makes it no newer."""
    long = waits(desk, "long", "ann")
    program = waits(desk, "program", "ben", cell=False)
    desk.withdraw(program, after_s=0.1)
    desk.do(ev.ClockTicked(), after_s=1000)
    waits(desk, "cell", "cem")
    assert desk.recalled() == [long]


@AT_ONCE
def test_a_new_cell_does_not_recall_another_new_one(desk: Desk) -> None:
    """That one has its `quantum_min_s` first."""
    first = waits(desk, "first", "ann")
    waits(desk, "second", "ben")
    assert desk.recalled() == []
    desk.sleep_until_woken()
    assert desk.recalled() == [first]
    assert desk.now_s == pytest.approx(100 + SETTINGS.quantum_min_s)


@pytest.mark.promise(
    "scheduler-12",
    "A turn that its user has given away is not taken back by the same cell, however new it is",
)
@pytest.mark.parametrize("request_", [ev.ReleaseRequested, ev.EvictRequested])
def test_who_has_given_its_turn_away_does_not_take_it_back(request_: type[ev.Event]) -> None:
    """Nor is it for what it has had less than a sibling; a long quantum, within which cells are
    new."""
    desk = Desk(SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=600))
    trains = waits(desk, "trains", "ann")
    desk.do(ev.ClockTicked(), after_s=0.3)
    explores = waits(desk, "explores", "ann", cell=False)
    desk.do(ev.ClockTicked(), after_s=0.1)
    desk.do(request_(tenant=TenantId("trains")))
    assert desk.recalled() == [trains]
    desk.drop(trains, after_s=0.02)
    assert desk.granted() == [explores]
    desk.ask(trains, after_s=0.1)
    assert desk.recalled() == []
    desk.do(ev.ClockTicked(), after_s=10)
    assert desk.recalled() == []


@AT_ONCE
def test_new_cells_are_before_those_who_wait_longer(desk: Desk) -> None:
    program = waits(desk, "program", "ann", cell=False)
    waits(desk, "other", "ben", cell=False)
    cell = waits(desk, "cell", "cem")
    assert desk.queue("A") == ["cell", "other"]
    desk.drop(program)
    assert desk.granted() == [cell]


@AT_ONCE
def test_a_turn_kept_by_hand_is_not_recalled(desk: Desk) -> None:
    program = waits(desk, "program", "ann", cell=False)
    desk.hold(program, 30)
    waits(desk, "cell", "ben")
    assert desk.recalled() == []
    desk.sleep_until_woken()
    assert desk.recalled() == []
    assert desk.now_s == pytest.approx(100 + SETTINGS.quantum_min_s)


@AT_ONCE
@pytest.mark.parametrize("boosted", [False, True])
def test_who_is_passed_over_keeps_no_new_cell_waiting(desk: Desk, boosted: bool) -> None:
    """A tenant that needs a paused device, too, stands before the cell and could not be served."""
    desk.do(ev.DeviceModeChanged(device=DeviceId("B"), mode=ev.DeviceMode.PAUSED))
    program = waits(desk, "program", "ann", cell=False)
    desk.do(ev.ClockTicked(), after_s=100)
    desk.tenant("both", owner="ben")
    both = desk.client("both", "AB")
    desk.do(ev.CellBegan(client=both))
    desk.ask(both)
    if boosted:
        desk.do(ev.BoostRequested(tenant=TenantId("both")))
    assert desk.recalled() == []
    cell = waits(desk, "cell", "cem")
    assert desk.recalled() == [program]
    desk.drop(program)
    assert desk.granted() == [cell]


@AT_ONCE
def test_who_has_no_room_keeps_no_new_cell_waiting() -> None:
    """A new cell whose memory does not fit beside that of others stands before the cell."""
    desk = MemoryDesk()
    desk.tenant("big", owner="ben")
    big = desk.with_memory("big", 5000)
    desk.do(ev.EvictRequested(tenant=TenantId("big")))
    desk.park(big)
    desk.measure(4000)
    program = waits(desk, "program", "ann", cell=False)
    desk.do(ev.ClockTicked(), after_s=50)
    desk.do(ev.CellBegan(client=big))
    desk.ask(big)
    assert desk.recalled() == []
    waits(desk, "cell", "cem")
    assert desk.recalled() == [program]


@pytest.mark.promise(
    "scheduler-13",
    "Nobody is asked for a turn for the sake of somebody who could not be served then",
)
def test_nobody_is_recalled_for_who_is_passed_over(desk: Desk) -> None:
    """The quantum begins when the tenant could be served."""
    desk.do(ev.DeviceModeChanged(device=DeviceId("B"), mode=ev.DeviceMode.PAUSED))
    program = waits(desk, "program", "ann", cell=False)
    desk.tenant("both", owner="ben")
    both = desk.client("both", "AB")
    desk.ask(both)
    desk.do(ev.ClockTicked(), after_s=100)
    assert (desk.recalled(), desk.holders("A")) == ([], ["program"])
    desk.do(ev.DeviceModeChanged(device=DeviceId("B"), mode=ev.DeviceMode.OPEN))
    assert desk.recalled() == []
    desk.sleep_until_woken()
    assert desk.recalled() == [program]
    desk.drop(program)
    assert desk.granted() == [both]


@AT_ONCE
def test_without_credit_nobody_goes_first() -> None:
    desk = Desk(SETTINGS.replace(credit_s=0))
    waits(desk, "program", "ann", cell=False)
    waits(desk, "cell", "ben")
    assert desk.recalled() == []


@AT_ONCE
def test_short_cells_beside_training() -> None:
    """One each 2 s: each is answered at once, and the training has the rest."""
    crowd = Crowd(SETTINGS)
    crowd.add("ann", TRAINING)
    short = crowd.add("ben", Work(cell_s=0.2, pause_s=1.8), at_s=1)
    crowd.run(400)
    assert len(short.waits_s) > 190
    assert max(short.waits_s) <= DRAIN_S + 1e-6
    assert crowd.part_s("ann") >= 0.97 * (400 - crowd.part_s("ben"))


def gain_s(scheme: str, lasts_s: float, **changes: object) -> tuple[float, Crowd]:
    """What the owner of the scheme has had beyond its half, beside one who trains."""
    crowd = Crowd(SETTINGS.replace(**changes))
    crowd.add("honest", TRAINING)
    if scheme == "tiny cells":
        crowd.add("sly", Work(cell_s=0.004, pause_s=0.0))
    elif scheme == "cells of a quantum":
        crowd.add("sly", Work(cell_s=0.49, pause_s=0.0))
    elif scheme == "many kernels":
        for _ in range(20):
            crowd.add("sly", Work(cell_s=0.3, pause_s=0.0))
    elif scheme == "new kernels":
        for number in range(int(lasts_s)):
            crowd.add("sly", Work(cell_s=0.4, pause_s=1e9), at_s=number)
            crowd.add("sly", Work(cell_s=0.4, pause_s=1e9), at_s=number + 0.5)
    elif scheme == "a thread under trivial cells":
        thread = crowd.add("sly", TRAINING)

        def trivial_cell() -> None:
            crowd.say(ev.CellEnded(client=thread.client))
            crowd.say(ev.CellBegan(client=thread.client))
            crowd._later(0.05, trivial_cell)

        crowd._later(0.01, trivial_cell)
    elif scheme == "holds":
        kept = crowd.add("sly", TRAINING)

        def hold() -> None:
            crowd.say(ev.HoldRequested(client=kept.client, hold_s=600))
            crowd._later(1, hold)

        crowd._later(0.01, hold)
    elif scheme in GIVING_AWAY:
        gives_away(crowd, crowd.add("sly", TRAINING), scheme)
    crowd.run(lasts_s)
    whole = crowd.part_s("sly") + crowd.part_s("honest")
    return crowd.part_s("sly") - whole / 2, crowd


def gives_away(crowd: Crowd, sly: Member, scheme: str) -> None:
    """Again and again, each time before its quantum is over; and what may be had by it."""

    def give_away() -> None:
        if scheme == "evicts":
            crowd.say(ev.EvictRequested(tenant=sly.tenant))
        elif scheme == "connects anew":
            crowd.connects_anew(sly)
        else:
            crowd.say(ev.TurnGivenAway(client=sly.client))
        if scheme == "releases and holds":
            crowd.say(ev.HoldRequested(client=sly.client, hold_s=600))
        elif scheme == "releases between trivial cells":
            crowd.say(ev.CellEnded(client=sly.client))
            crowd.say(ev.CellBegan(client=sly.client))
        crowd._later(0.3, give_away)

    crowd._later(0.01, give_away)


GIVING_AWAY = [
    "releases",
    "evicts",
    "releases and holds",
    "releases between trivial cells",
    "connects anew",
]
SCHEMES = [
    *GIVING_AWAY,
    "tiny cells",
    "cells of a quantum",
    "many kernels",
    "new kernels",
    "a thread under trivial cells",
    "holds",
]
SHOWN = {"releases", "tiny cells", "many kernels", "a thread under trivial cells"}
"""The others in `make test-full`."""


@GAIN
@pytest.mark.parametrize(
    "scheme",
    [each if each in SHOWN else pytest.param(each, marks=pytest.mark.full) for each in SCHEMES],
)
def test_what_a_scheme_gains(scheme: str) -> None:
    gained_s, _ = gain_s(scheme, 30, quantum_max_s=2.0)
    assert gained_s <= SETTINGS.credit_s + 2.0 + DRAIN_S


@GAIN
@settings(max_examples=6)
@given(
    scheme=st.sampled_from(SCHEMES),
    lasts_s=st.sampled_from([10.0, 60.0, 150.0]),
    credit_s=st.sampled_from([0.0, 0.5, 2.0]),
    quantum_max_s=st.sampled_from([0.5, 1.0, 5.0, 30.0]),
)
def test_what_schemes_gain(
    scheme: str, lasts_s: float, credit_s: float, quantum_max_s: float
) -> None:
    """However long it lasts, and whatever the settings are."""
    gained_s, _ = gain_s(scheme, lasts_s, credit_s=credit_s, quantum_max_s=quantum_max_s)
    assert gained_s <= credit_s + quantum_max_s + DRAIN_S


KERNELS = st.lists(
    st.tuples(
        st.sampled_from([0.02, 0.1, 0.3, 0.49, 0.6, 2.0, 1e9]),
        st.sampled_from([0.0, 0.05, 0.5, 0.95, 1.1]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@GAIN
@pytest.mark.full
@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=10_000)
@given(
    kernels=KERNELS,
    credit_s=st.sampled_from([0.0, 0.5, 2.0]),
    quantum_max_s=st.sampled_from([0.5, 1.0, 5.0]),
)
def test_what_any_kernels_gain(
    kernels: list[tuple[float, float, bool]], credit_s: float, quantum_max_s: float
) -> None:
    """Cells and programs of any length, with any pauses, beside one who trains."""
    crowd = Crowd(SETTINGS.replace(credit_s=credit_s, quantum_max_s=quantum_max_s))
    crowd.add("honest", TRAINING)
    for cell_s, pause_s, in_cells in kernels:
        crowd.add("sly", Work(cell_s=cell_s, pause_s=pause_s, in_cells=in_cells))
    crowd.run(5)
    whole_s = crowd.part_s("sly") + crowd.part_s("honest")
    assert crowd.part_s("sly") - whole_s / 2 <= credit_s + quantum_max_s + DRAIN_S


@GAIN
def test_credit_does_not_come_back_from_an_idle_device() -> None:
    """Cells on a device that nobody else wants do not pay for those on another one."""
    crowd = Crowd(SETTINGS, devices="AB")
    for number in range(8):
        crowd.add(f"honest{number}", TRAINING)
    crowd.add("sly", Work(cell_s=0.49, pause_s=0.0))
    crowd.add("sly", Work(cell_s=0.001, pause_s=0.01), devices="B")
    crowd.run(30)
    assert crowd.part_s("sly") <= 30 / 9 + SETTINGS.credit_s + SETTINGS.quantum_max_s / 2


@AT_ONCE
def test_a_long_turn_is_not_on_credit_for_ever(desk: Desk) -> None:
    """One that goes on because its owner counts most is recalled by another's new cell."""
    desk.set(weights="ann=1000")
    long = waits(desk, "long", "ann")
    waits(desk, "program", "ben", cell=False)
    for _ in range(4):
        desk.sleep_until_woken()
    assert desk.recalled() == []
    waits(desk, "cell", "cem")
    assert desk.recalled() == [long]
