"""Classes say when a tenant is served; how much its owner gets is for shares."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.errors import ClassNotAllowed
from jupyter_gpushare.core.ids import ClientId, TenantId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings, SettingsError
from jupyter_gpushare.core.shares import classes
from jupyter_gpushare.core.shares.classes import TenantClass

from .crowd import DRAIN_S, Crowd, Work
from .desk import Desk
from .full_machine import Beside
from .many_runs import PHASES, many_runs

SETTINGS = SchedulerSettings(
    memory_mode=MemoryMode.OFF, quantum_s=1.0, allowed_classes="rita=realtime, @lab=realtime"
)
LOOP = Work(in_cells=False)
WHEN = pytest.mark.promise(
    "scheduler-4",
    "`realtime` is served before new cells and ends the turns of others at once; `batch` is served "
    "after all others: each as far as the owner is within its share",
)
SHARE = pytest.mark.promise(
    "scheduler-5",
    "Whatever the classes, no owner is ahead of its share by more than the credit and two of the "
    "longest quanta, while others wait",
)
STARVED = pytest.mark.promise(
    "scheduler-6",
    "A `batch` tenant waits because of its class for no longer than `starvation_s`",
)
MAY = pytest.mark.promise(
    "scheduler-7",
    "A class that there is not, or that the user may not use, is not used: the notebook runs as "
    "one that asked for none, and the status says so",
)
HELD = pytest.mark.promise(
    "scheduler-8",
    "A turn kept by hand ends for `realtime`, for a tenant that an admin has boosted, and when its "
    "owner is in debt: ahead of its share by more than `credit_s` while others are there. Owners "
    "in debt keep none",
)


@pytest.fixture
def desk() -> Desk:
    return Desk(SETTINGS)


def waits(
    desk: Desk, name: str, owner: str, asked_class: str = "", *, cell: bool = False
) -> ClientId:
    """A process whose tenant wants the device."""
    desk.tenant(name, owner=owner, asked_class=asked_class)
    client = desk.client(name)
    if cell:
        desk.do(ev.CellBegan(client=client))
    desk.ask(client)
    return client


# ---- when ------------------------------------------------------------------------------------

OWNERS = st.lists(
    st.tuples(
        st.sampled_from(["", "batch", "realtime", "interactive"]),
        st.integers(1, 2),
        st.sampled_from([LOOP, Work(), Work(cell_s=0.3), Work(cell_s=1.4, pause_s=0.7)]),
        st.sampled_from([0.5, 1.0, 1.0, 4.0]),
        st.sampled_from([0.0, 0.0, 0.3, 6.0]),
    ),
    min_size=2,
    max_size=5,
)


@WHEN
def test_realtime_ends_the_turn_of_a_new_cell(desk: Desk) -> None:
    cell = waits(desk, "cell", "ann", cell=True)
    realtime = waits(desk, "realtime", "rita", "realtime")
    (recall,) = desk.all(RecallTurn)
    assert (recall.client, recall.reason) == (cell, RecallReason.GOES_FIRST)
    waits(desk, "other", "ben", cell=True)
    assert desk.queue() == ["realtime", "other"]
    desk.drop(cell)
    assert desk.granted() == [realtime]
    assert desk.recalled() == []


@WHEN
def test_realtime_does_not_end_realtime(desk: Desk) -> None:
    waits(desk, "first", "rita", "realtime")
    desk.set(allowed_classes="rita=realtime, rob=realtime")
    waits(desk, "second", "rob", "realtime")
    assert desk.recalled() == []


@WHEN
def test_realtime_beyond_its_share_is_as_others() -> None:
    """A loop has its turn at once, and then its share."""
    crowd = Crowd(SETTINGS)
    crowd.add("ann", LOOP)
    crowd.add("rita", Work(in_cells=False, asked_class="realtime"), at_s=10)
    crowd.run(110)
    before = crowd.part_s("ann"), crowd.part_s("rita")
    crowd.run(200)
    ann, rita = crowd.part_s("ann") - before[0], crowd.part_s("rita") - before[1]
    assert rita == pytest.approx(ann, abs=2.1)


@WHEN
def test_short_realtime_work_never_waits() -> None:
    """Without cells: it is the class that lets it go first."""
    crowd = Crowd(SETTINGS)
    crowd.add("ann", LOOP)
    crowd.add("ben", LOOP)
    short = crowd.add(
        "rita", Work(cell_s=0.2, pause_s=1.8, in_cells=False, asked_class="realtime"), at_s=1
    )
    crowd.run(200)
    assert len(short.waits_s) > 90
    assert max(short.waits_s) <= DRAIN_S + 1e-6


def realtime_never_waits(
    owners: list[tuple[str, int, Work, float, float]], part: float, cell_s: float, lasts_s: float
) -> None:
    """It wants `part` of what it might have, in work of `cell_s`. The others never end: who comes
    and goes moves the mean that it must not be beyond."""
    weights = ", ".join(f"owner{n}={each[3]}" for n, each in enumerate(owners))
    crowd = Crowd(SETTINGS.replace(weights=weights, quantum_s=0.0, quantum_max_s=4.0))
    for number, (asked, notebooks, work, _, at_s) in enumerate(owners):
        for _ in range(notebooks):
            mine = Work(in_cells=work.in_cells, asked_class=asked)  # it may not be realtime
            crowd.add(f"owner{number}", mine, at_s=at_s)
    share = part / (1 + sum(each[3] for each in owners))
    mine = Work(cell_s=cell_s, pause_s=cell_s / share, in_cells=False, asked_class="realtime")
    short = crowd.add("rita", mine, at_s=1)
    crowd.run(lasts_s)
    assert short.waits_s
    assert max(short.waits_s) <= DRAIN_S + 1e-6


@WHEN
@settings(max_examples=8, phases=PHASES)
@given(owners=OWNERS, part=st.floats(0.1, 0.9), cell_s=st.floats(0.01, 0.3))
def test_realtime_never_waits_whatever_the_others_do(
    owners: list[tuple[str, int, Work, float, float]], part: float, cell_s: float
) -> None:
    """As long as it wants less than its share, and nobody comes and goes."""
    realtime_never_waits(owners, part, cell_s, 60)


@WHEN
@many_runs
@given(owners=OWNERS, part=st.floats(0.1, 0.9), cell_s=st.floats(0.01, 0.3))
def test_realtime_never_waits_in_many_runs(
    owners: list[tuple[str, int, Work, float, float]], part: float, cell_s: float
) -> None:
    """The same in many more runs, which are shorter."""
    realtime_never_waits(owners, part, cell_s, 10)


@WHEN
def test_batch_is_after_those_who_came_later(desk: Desk) -> None:
    holder = waits(desk, "holder", "ann")
    waits(desk, "batch", "ben", "batch")
    other = waits(desk, "other", "cem")
    assert desk.queue() == ["other", "batch"]
    desk.drop(holder)
    assert desk.granted() == [other]


@WHEN
def test_batch_gives_way_at_once(desk: Desk) -> None:
    batch = waits(desk, "batch", "ben", "batch")
    desk.do(ev.ClockTicked(), after_s=100)
    waits(desk, "other", "cem")
    assert desk.recalled() == [batch]


@WHEN
def test_batch_does_not_give_way_to_who_is_beyond_its_share(desk: Desk) -> None:
    ann = waits(desk, "loop", "ann")
    batch = waits(desk, "batch", "ben", "batch")
    desk.sleep_until_woken()
    assert desk.recalled() == [ann]
    desk.drop(ann, ev.DropReason.RECALL)
    assert desk.granted() == [batch]
    desk.ask(ann)
    assert desk.recalled() == []


@WHEN
def test_a_new_cell_of_a_batch_tenant_is_no_new_cell(desk: Desk) -> None:
    waits(desk, "program", "ann")
    waits(desk, "batch", "ben", "batch", cell=True)
    assert desk.recalled() == []


@WHEN
def test_nobody_else_changes_where_nobody_asks_for_a_class(desk: Desk) -> None:
    """Weighted fair sharing orders the line as ever."""
    waits(desk, "holder", "ann")
    for number in range(4):
        waits(desk, f"n{number}", f"owner{number}")
    ranks = [rank[0] for rank in desk.scheduler._machine._state.lines.of["A"].ranks]  # type: ignore[index]
    assert ranks == [classes.ORDINARY] * 4


# ---- how much --------------------------------------------------------------------------------


def ahead_is_bounded(
    owners: list[tuple[str, int, Work, float, float]], quantum_s: float, lasts_s: float
) -> None:
    """`owners`: a class, so many notebooks, their work, a weight, and when they begin, of each."""
    weights = ", ".join(f"owner{n}={each[3]}" for n, each in enumerate(owners))
    allowed = ", ".join(f"owner{n}=realtime" for n in range(len(owners)))
    chosen = SchedulerSettings(
        memory_mode=MemoryMode.OFF,
        quantum_s=quantum_s,
        quantum_max_s=4.0,
        weights=weights,
        allowed_classes=allowed,
    )
    crowd = Crowd(chosen)
    for number, (asked, notebooks, work, _, at_s) in enumerate(owners):
        for _ in range(notebooks):
            mine = Work(work.cell_s, work.pause_s, work.in_cells, asked)
            crowd.add(f"owner{number}", mine, at_s=at_s)
    crowd.add("honest", LOOP)
    crowd.run(lasts_s)
    had_s, due_s = crowd.part_s("honest"), crowd.due_s["honest", crowd._devices[0]]
    longest_s = max(crowd.longest_s, quantum_s, chosen.quantum_min_s) + DRAIN_S
    others = len(owners)
    # Each of the others may be ahead by its credit and two quanta at this moment.
    assert due_s - had_s <= others * (chosen.credit_s + 2 * longest_s), (due_s, had_s)


@SHARE
@settings(max_examples=8)
@given(owners=OWNERS, quantum_s=st.sampled_from([0.0, 0.5, 2.0]))
def test_classes_take_nothing_from_an_honest_owner(
    owners: list[tuple[str, int, Work, float, float]], quantum_s: float
) -> None:
    ahead_is_bounded(owners, quantum_s, 200)


@SHARE
@many_runs
@given(owners=OWNERS, quantum_s=st.sampled_from([0.0, 0.5, 2.0]))
def test_classes_take_nothing_in_many_runs(
    owners: list[tuple[str, int, Work, float, float]], quantum_s: float
) -> None:
    """The same in many more runs, which are shorter."""
    ahead_is_bounded(owners, quantum_s, 20)


@SHARE
def test_a_batch_owner_has_its_share_beside_one_who_always_wants_the_device() -> None:
    crowd = Crowd(SETTINGS)
    crowd.add("ann", LOOP)
    crowd.add("ben", Work(in_cells=False, asked_class="batch"))
    crowd.run(200)
    assert crowd.part_s("ben") == pytest.approx(crowd.part_s("ann"), abs=2.1)


# ---- starvation ------------------------------------------------------------------------------


@STARVED
def test_batch_waits_for_its_own_interactive_notebook_and_no_longer() -> None:
    """Of one owner, nobody is beyond a share: the class alone decides, until `starvation_s`."""
    desk = Desk(SETTINGS.replace(starvation_s=30))
    loop = waits(desk, "loop", "ann")
    batch = waits(desk, "batch", "ann", "batch")
    while desk.now_s < 130 - 1e-9:
        assert desk.recalled() == [], desk.now_s
        desk.sleep_until_woken()
    while desk.recalled() == [] and desk.now_s <= 130 + SETTINGS.quantum_s:
        desk.sleep_until_woken()
    assert desk.recalled() == [loop]
    assert desk.now_s <= 130 + SETTINGS.quantum_s
    desk.drop(loop, ev.DropReason.RECALL)
    assert desk.granted() == [batch]
    desk.ask(loop)
    assert desk.recalled() == []  # it has a whole quantum
    desk.sleep_until_woken()
    assert desk.recalled() == [batch]


@STARVED
@pytest.mark.parametrize("starvation_s", [7.3, 10.1])
def test_the_moment_at_which_it_has_waited_long_enough(starvation_s: float) -> None:
    """A tenant that queues again just then has: the difference of two times is less by a hair."""
    desk = Desk(SETTINGS.replace(starvation_s=starvation_s))
    batch = waits(desk, "batch", "ann", "batch")
    came_s = desk.now_s
    waits(desk, "cell", "ben", cell=True)
    desk.drop(batch)
    assert (came_s + starvation_s) - came_s < starvation_s
    desk.now_s = came_s + starvation_s
    desk.ask(batch)
    assert desk.scheduler._machine._state.tenants[TenantId("batch")].starved


@STARVED
def test_it_has_waited_for_long_when_its_stalled_turn_ends() -> None:
    """For a further device, in whose queue it stays: as what it waits is found at that moment."""
    desk = Desk(SETTINGS.replace(starvation_s=30, overdue_s=1000), devices="AB")
    desk.tenant("other", owner="ben")
    other = desk.client("other", "B")
    desk.ask(other)
    desk.tenant("batch", owner="ann", asked_class="batch")
    first = desk.client("batch", "A")
    desk.ask(first)
    desk.ask(desk.client("batch", "B"))
    for _ in range(40):
        if desk.status("batch").state == "recalled":
            desk.stall(first, calls_waiting=1)
        desk.do(ev.ClockTicked(), after_s=1)
    assert desk.status("batch").state == "stalled"
    desk.drop(first)
    assert desk.status("batch").state == "waiting"
    assert desk.scheduler._machine._state.tenants[TenantId("batch")].starved


@STARVED
def test_a_turn_that_was_cut_short_counts_until_the_next_one(desk: Desk) -> None:
    """A tenant that has had the device since, for as long as it wanted, has waited for nothing."""
    desk.set(starvation_s=60)
    batch = waits(desk, "batch", "ann", "batch")
    cell = waits(desk, "cell", "ben", cell=True)
    assert desk.recalled() == [batch]
    desk.drop(batch)
    desk.ask(batch)
    desk.drop(cell, after_s=0.2)
    assert desk.granted() == [batch]
    desk.drop(batch, after_s=100)
    program = waits(desk, "program", "ben")
    desk.ask(batch, after_s=1)
    waits(desk, "other", "cem")
    assert desk.holders() == ["program"]
    assert desk.queue() == ["other", "batch"]
    desk.drop(program)


def batch_is_served(
    newcomers: list[tuple[float, float]], quantum_s: float, starvation_s: float, lasts_s: float
) -> None:
    """`newcomers`: how long the cells of each take, and the pauses between them."""
    crowd = Crowd(SETTINGS.replace(starvation_s=starvation_s, quantum_s=quantum_s))
    for cell_s, pause_s in newcomers:
        crowd.add("ann", Work(cell_s=cell_s, pause_s=pause_s))
    batch = crowd.add("ann", Work(in_cells=False, asked_class="batch"), at_s=0.01)
    since_s, longest_s = crowd.now_s, 0.0
    for _ in range(int(lasts_s * 10)):
        crowd.run(0.1)
        if batch.turn is not None and crowd.now_s - batch.granted_at_s >= 0.8 * quantum_s:
            since_s = crowd.now_s
        longest_s = max(longest_s, crowd.now_s - since_s)
    longest_cell_s = max(cell_s for cell_s, _ in newcomers)
    assert longest_s <= starvation_s + 2 * quantum_s + longest_cell_s + 0.2


NEWCOMERS = {
    "newcomers": st.lists(
        st.tuples(st.floats(0.03, 0.9), st.sampled_from([0.001, 0.001, 0.2])),
        min_size=1,
        max_size=4,
    ),
    "quantum_s": st.sampled_from([0.5, 1.0, 2.0]),
}


@STARVED
@settings(max_examples=8)
@given(**NEWCOMERS, starvation_s=st.sampled_from([5.0, 20.0]))
@pytest.mark.full
def test_batch_is_served_however_many_cells_come(
    newcomers: list[tuple[float, float]], quantum_s: float, starvation_s: float
) -> None:
    """Cells of one owner, one after the other; it and the batch tenant have the same owner."""
    batch_is_served(newcomers, quantum_s, starvation_s, 60)


@STARVED
@many_runs
@given(**NEWCOMERS, starvation_s=st.floats(1.0, 4.0))
def test_batch_is_served_in_many_runs(
    newcomers: list[tuple[float, float]], quantum_s: float, starvation_s: float
) -> None:
    """The same in many more runs, which are shorter."""
    batch_is_served(newcomers, quantum_s, starvation_s, 15)


# ---- who may ---------------------------------------------------------------------------------


@MAY
@pytest.mark.parametrize(
    ("asked", "text", "owner", "groups", "runs_as"),
    [
        ("", "", "ann", (), "interactive"),
        ("batch", "", "ann", (), "batch"),
        ("realtime", "", "ann", (), "interactive"),
        ("realtime", "ann=realtime", "ann", (), "realtime"),
        ("realtime", "@lab=realtime", "ann", ("lab",), "realtime"),
        ("realtime", "ann=interactive, @lab=realtime", "ann", ("lab",), "interactive"),
        ("realtime", "@guests=batch, @lab=realtime", "ann", ("guests", "lab"), "realtime"),
        ("", "@guests=batch", "ann", ("guests",), "batch"),
        ("", "@guests=batch", "@guests", (), "interactive"),
        ("fast", "ann=realtime", "ann", (), "interactive"),
    ],
)
def test_who_may_use_which(
    asked: str, text: str, owner: str, groups: tuple[str, ...], runs_as: str
) -> None:
    most = classes.highest(classes.parse(text), owner, groups)
    assert classes.runs_as(asked, most) is TenantClass(runs_as)


@MAY
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ann=fast", "The class of ann is 'fast'. Give one of: batch, interactive, realtime."),
        ("ann", "'ann' is not a class. Write it like ann=realtime"),
        ("ann=batch, ann=realtime", "ann is there twice. Give it one class."),
        ("@=batch", "is not a class"),
    ],
)
def test_a_wrong_setting_is_refused(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=r"^allowed_classes: ") as refused:
        SchedulerSettings(allowed_classes=text)
    assert words in str(refused.value)


@MAY
def test_what_a_tenant_runs_as_follows_the_settings(desk: Desk) -> None:
    """Also while it waits: it has another place in the line at once."""
    waits(desk, "holder", "ann")
    waits(desk, "first", "ben")
    waits(desk, "eve", "eve", "realtime")
    assert (desk.status("eve").asked_class, desk.status("eve").runs_as) == (
        "realtime",
        "interactive",
    )
    desk.set(allowed_classes="eve=realtime")
    assert desk.status("eve").runs_as == "realtime"
    assert desk.queue() == ["eve", "first"]
    assert desk.recalled() != []


@MAY
def test_a_group_brings_a_class(desk: Desk) -> None:
    desk.tenant("eve", owner="eve", asked_class="realtime")
    assert desk.status("eve").runs_as == "interactive"
    desk.do(
        ev.TenantRegistered(
            tenant=TenantId("other"), name="", owner="eve", kind="kernel", groups=("lab",)
        )
    )
    assert desk.status("eve").runs_as == "realtime"


# ---- holds -----------------------------------------------------------------------------------


@HELD
def test_a_hold_ends_for_realtime(desk: Desk) -> None:
    held = waits(desk, "held", "ann")
    desk.hold(held, 60)
    waits(desk, "realtime", "rita", "realtime")
    assert desk.recalled() == [held]
    desk.drop(held, ev.DropReason.RECALL)
    assert desk.status("held").hold_to_come_s == 60


@HELD
def test_a_hold_gives_way_to_a_boosted_tenant_after_its_quantum(desk: Desk) -> None:
    held = waits(desk, "held", "ann")
    desk.hold(held, 60)
    waits(desk, "other", "ann")
    desk.do(ev.BoostRequested(tenant=TenantId("other")))
    desk.sleep_until_woken()
    assert desk.recalled() == [held]
    assert desk.now_s == 101


@HELD
def test_a_hold_lasts_until_its_owner_is_in_debt(desk: Desk) -> None:
    """With one other owner, it is ahead by half of the time; 2 s of that are free."""
    held = waits(desk, "held", "ann")
    desk.hold(held, 600)
    waits(desk, "other", "ben")
    while desk.recalled() == []:
        desk.sleep_until_woken()
    assert desk.now_s == pytest.approx(104, abs=0.2)
    assert desk.holds_told() == {held: 0}
    assert desk.status("held").hold_refused
    desk.hold(held, 600)
    assert desk.holds_told() == {held: 0}


@HELD
def test_owners_in_debt_keep_nothing(desk: Desk) -> None:
    desk.set(quantum_s=30)
    ann = waits(desk, "held", "ann")
    waits(desk, "other", "ben")
    desk.hold(ann, 600, after_s=20)
    assert desk.status("held").hold_refused
    assert desk.device().holders[0].hold_left_s == 0
    desk.hold(ann, 0)
    assert not desk.status("held").hold_refused


@HELD
def test_an_admin_holds_for_those_in_debt(desk: Desk) -> None:
    desk.set(quantum_s=30)
    waits(desk, "held", "ann")
    waits(desk, "other", "ben")
    desk.do(ev.TenantHeld(tenant=TenantId("held"), hold_s=60, by_admin=True), after_s=20)
    assert not desk.status("held").hold_refused
    desk.sleep_until_woken()
    assert desk.now_s == pytest.approx(180)
    assert desk.recalled() != []


@pytest.mark.full
def test_random_classes_beside_a_machine_that_looks_at_everything() -> None:
    """The index of classes leads to what a look at everything does."""
    crowd = Crowd(SETTINGS.replace(starvation_s=3), devices="AB")
    crowd.scheduler = Beside(SETTINGS.replace(starvation_s=3))
    for device in "AB":
        crowd.say(ev.DeviceFound(device=device, name=device, bytes_total=8000))  # type: ignore[arg-type]
    kinds = itertools.cycle(["", "batch", "realtime"])
    owners = itertools.cycle(["ann", "rita", "ben", "cem"])
    for number in range(10):
        work = Work(cell_s=0.3 + number / 10, pause_s=0.1 * number, asked_class=next(kinds))
        devices = "AB" if number == 5 else "AB"[number % 2]
        crowd.add(next(owners), work, devices=devices, at_s=number / 7)
    for number in range(60):
        crowd.run(1)
        crowd.scheduler.check_invariants()
        if number == 30:
            crowd.say(
                ev.SettingsChanged(
                    settings=SETTINGS.replace(starvation_s=2, allowed_classes="ben=batch")
                )
            )


ASKED_LATER = pytest.mark.promise(
    "scheduler-9",
    "A notebook asks for another class at run time, and keeps the one that it has where its user "
    "may not use that",
)


@ASKED_LATER
def test_a_class_that_is_asked_for_later_changes_the_order(desk: Desk) -> None:
    """A tenant that waits goes behind one that came after it when it becomes batch, and back."""
    holder = waits(desk, "holder", "ann")
    waits(desk, "first", "ben")
    waits(desk, "second", "cora")
    assert desk.queue() == ["first", "second"]
    desk.do(ev.ClassAsked(tenant=TenantId("first"), asked_class="batch"))
    assert desk.queue() == ["second", "first"]
    desk.do(ev.ClassAsked(tenant=TenantId("first"), asked_class="interactive"))
    assert desk.queue() == ["first", "second"]
    desk.drop(holder)
    assert desk.status("first").asked_class == "interactive"


@ASKED_LATER
@pytest.mark.parametrize("asked", ["realtime", "fast", ""])
def test_a_class_that_may_not_be_changes_nothing(desk: Desk, asked: str) -> None:
    """It is the request's fault, and the tenant runs as before."""
    waits(desk, "first", "ben", "batch")
    with pytest.raises(ClassNotAllowed):
        desk.do(ev.ClassAsked(tenant=TenantId("first"), asked_class=asked))
    assert (desk.status("first").runs_as, desk.status("first").asked_class) == ("batch", "batch")
