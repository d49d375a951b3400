"""The notebooks of one user among themselves: the least recent use first, and a credit of their own
for new cells; and what other users have of that (decision 0037)."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import GrantTurn, RecallReason, RecallTurn
from jupyter_gpushare.core.ids import DeviceId, TenantId

from .crowd import Crowd, Work
from .desk import Desk
from .memory_desk import MemoryDesk
from .own_notebooks import SETTINGS, comes, hand_over, later

LEAST = pytest.mark.promise(
    "scheduler-98",
    "Among one user's notebooks of one class that need one device, who has had less of late takes "
    "over, and no quantum counts between them",
)
OWN_CREDIT = pytest.mark.promise(
    "scheduler-99",
    "A new cell goes before its user's other notebooks as far as its notebook's own credit lasts",
)
OTHERS = pytest.mark.promise(
    "scheduler-100", "What a user's notebooks do among themselves takes nothing from other users"
)


@pytest.fixture
def desk() -> Desk:
    return Desk(SETTINGS)


@LEAST
def test_who_has_had_less_takes_over_at_once(desk: Desk) -> None:
    train = comes(desk, "train")
    later(desk, 60)
    explore = comes(desk, "explore")
    (recall,) = desk.all(RecallTurn)
    assert (recall.client, recall.reason) == (train, RecallReason.SIBLING)
    hand_over(desk, train)
    assert desk.granted() == [explore]
    later(desk, 20)
    assert desk.recalled() == []  # it has had less still
    later(desk, 30)
    assert desk.recalled() == [explore]


@LEAST
def test_who_was_recalled_waits_for_the_shortest_turn(desk: Desk) -> None:
    """It has not come by itself: else two would change hands all the time."""
    one = comes(desk, "one")
    later(desk, 60)
    two = comes(desk, "two", cell=True)
    hand_over(desk, one)
    desk.do(ev.CellEnded(client=two))
    desk.drop(two, after_s=1)
    assert desk.granted() == [one]
    since_s = desk.now_s
    again = comes(desk, "two")
    assert desk.recalled() == [one]
    hand_over(desk, one)
    assert desk.granted() == [again]
    later(desk, 60)
    assert desk.now_s - since_s > SETTINGS.quantum_min_s


@LEAST
def test_a_quantum_that_is_set_is_the_shortest_turn() -> None:
    """Of two without end: who was recalled had less after 4 s, and waits for the rest of 10."""
    desk = Desk(SETTINGS.replace(quantum_s=10))
    one = comes(desk, "one")
    later(desk, 60)
    two = comes(desk, "two")
    hand_over(desk, one)
    while desk.recalled() != [two]:
        desk.sleep_until_woken()
    hand_over(desk, two)
    assert desk.granted() == [one]
    since_s = desk.now_s
    later(desk, 60)
    assert desk.recalled() == [one]
    assert desk.now_s - since_s == pytest.approx(10, abs=0.1)


@LEAST
def test_the_least_goes_first_and_equals_by_arrival() -> None:
    """Of four that wait; nothing is new."""
    desk = Desk(SETTINGS.replace(credit_s=0))
    for name, seconds in (("a", 9), ("b", 3)):
        client = comes(desk, name)
        later(desk, seconds)
        desk.drop(client)
    holder = comes(desk, "h", "ben")
    for name in ("a", "b", "c", "d"):
        comes(desk, name)
    assert desk.queue() == ["c", "d", "b", "a"]
    assert desk.holders() == ["h"] and holder


@LEAST
def test_time_kept_through_gaps_counts(desk: Desk) -> None:
    """Also of a turn that nobody waits for."""
    comes(desk, "idle")
    later(desk, 2)
    comes(desk, "new")
    assert desk.recalled() == [1]


@LEAST
def test_two_without_end_have_a_half_each() -> None:
    """One of them is old. At most 15 hand-overs a minute."""
    crowd = Crowd(SETTINGS)
    crowd.add("ann", Work(in_cells=False), name="old")
    crowd.run(3600)
    crowd.add("ann", Work(in_cells=False), name="new")
    crowd.run(60)
    before = {name: crowd.of_notebook_s["ann", name] for name in ("old", "new")}
    turns = [each.counters.turns for each in crowd.scheduler.snapshot(crowd.now_s).tenants]
    crowd.run(600)
    for name, had_s in before.items():
        assert crowd.of_notebook_s["ann", name] - had_s == pytest.approx(300, rel=0.1)
    after = [each.counters.turns for each in crowd.scheduler.snapshot(crowd.now_s).tenants]
    assert sum(after) - sum(turns) <= 150


@LEAST
def test_fifty_notebooks_have_equal_parts() -> None:
    crowd = Crowd(SETTINGS)
    for number in range(50):
        crowd.add("ann", Work(in_cells=False), name=f"n{number}")
    crowd.run(1200)
    had = [crowd.of_notebook_s["ann", f"n{number}"] for number in range(50)]
    assert min(had) > 0.7 * max(had) > 0


@OWN_CREDIT
def test_a_short_cell_right_after_a_long_one_does_not_wait(desk: Desk) -> None:
    """Its notebook has had more than the training that it goes before. The credit lasts 2 s."""
    explore = comes(desk, "explore", cell=True)
    later(desk, 60)
    train = comes(desk, "train")
    hand_over(desk, explore)
    later(desk, 20)
    desk.do(ev.CellEnded(client=explore))
    desk.withdraw(explore)
    desk.do(ev.CellBegan(client=explore), after_s=1)
    desk.ask(explore)
    assert desk.recalled() == [train]
    hand_over(desk, train)
    assert desk.granted() == [explore]
    later(desk, 10)
    assert desk.recalled() == [explore]


@OWN_CREDIT
def test_a_cell_that_is_new_ends_for_no_other_new_cell(desk: Desk) -> None:
    """The first one has its shortest quantum."""
    first = comes(desk, "first", cell=True)
    comes(desk, "second", cell=True)
    assert desk.recalled() == []
    since_s = desk.now_s
    desk.sleep_until_woken()
    assert desk.recalled() == [first]
    assert desk.now_s - since_s == pytest.approx(SETTINGS.quantum_min_s)


@OWN_CREDIT
def test_run_all_leaves_a_training_its_half() -> None:
    """Cells of 4 s one after the other."""
    crowd = Crowd(SETTINGS)
    crowd.add("ann", Work(in_cells=False), name="train")
    crowd.run(600)
    crowd.add("ann", Work(cell_s=4.0, pause_s=0.05), name="cells")
    crowd.run(60)
    before = crowd.of_notebook_s["ann", "train"]
    crowd.run(600)
    assert crowd.of_notebook_s["ann", "train"] - before >= 0.43 * 600


@OWN_CREDIT
def test_splitting_a_training_into_cells_wins_nothing() -> None:
    """Beside one that is not split."""
    crowd = Crowd(SETTINGS)
    crowd.add("ann", Work(in_cells=False), name="honest")
    crowd.add("ann", Work(cell_s=0.3, pause_s=0.001), name="split")
    crowd.run(600)
    assert crowd.of_notebook_s["ann", "honest"] >= 0.43 * 600


@OTHERS
def test_a_sibling_has_the_rest_of_the_quantum(desk: Desk) -> None:
    """And goes before the other user, whose turn comes when it would have come."""
    train = comes(desk, "train")
    later(desk, 60)
    other = comes(desk, "other", "ben")
    begun_s = desk.now_s
    quantum_s = desk.wake_at_s - begun_s if desk.wake_at_s else 0.0
    later(desk, 10)
    explore = comes(desk, "explore")
    assert desk.recalled() == [train]
    hand_over(desk, train)
    assert desk.granted() == [explore]
    (grant,) = desk.all(GrantTurn)
    assert grant.quantum_s == pytest.approx(quantum_s - 10, abs=0.1)
    later(desk, 60)
    assert desk.recalled() == [explore]
    desk.drop(explore, ev.DropReason.RECALL)
    assert desk.granted() == [other]
    assert desk.now_s == pytest.approx(begun_s + quantum_s, abs=0.2)


@OTHERS
@pytest.mark.parametrize("notebooks", [1, 4])
def test_other_users_keep_their_shares(notebooks: int) -> None:
    """However many notebooks a user has, and whatever these do."""
    crowd = Crowd(SETTINGS)
    crowd.add("ben", Work(in_cells=False), name="ben")
    for number in range(notebooks):
        crowd.add("ann", Work(cell_s=0.5 + number, pause_s=0.01 * number), name=f"n{number}")
    crowd.run(1200)
    assert crowd.of_notebook_s["ben", "ben"] >= 0.46 * 1200


@OTHERS
def test_an_owners_credit_is_spent_only_while_another_owner_waits(desk: Desk) -> None:
    """New cells beside one's own training cost the user nothing."""
    train = comes(desk, "train")
    later(desk, 30)
    explore = comes(desk, "explore", cell=True)
    hand_over(desk, train)
    desk.do(ev.CellEnded(client=explore), after_s=0.4)
    desk.drop(explore)
    accounts = desk.scheduler._machine._state.accounts
    assert accounts.owners["ann"].credit_s >= SETTINGS.credit_s


# ---- what goes before it ---------------------------------------------------------------------


@LEAST
def test_what_a_user_gave_away_does_not_come_back_before_another_had_a_turn(desk: Desk) -> None:
    """Although it has had less."""
    long = comes(desk, "long")
    later(desk, 20)
    short = comes(desk, "short", cell=True)
    hand_over(desk, long)
    desk.do(ev.ReleaseRequested(tenant=TenantId("short")), after_s=1)
    assert desk.recalled() == [short]
    hand_over(desk, short)
    assert desk.granted() == [long]


@LEAST
def test_a_hold_goes_before(desk: Desk) -> None:
    train = comes(desk, "train")
    later(desk, 30)
    desk.hold(train, 20)
    comes(desk, "explore", cell=True)
    assert desk.recalled() == []
    later(desk, 30)
    assert desk.recalled() == [train]


@LEAST
def test_a_paused_device_keeps_what_was_used(desk: Desk) -> None:
    """Nothing fades there."""
    train = comes(desk, "train")
    later(desk, 60)
    desk.do(ev.DeviceModeChanged(device=DeviceId("A"), mode=ev.DeviceMode.PAUSED))
    hand_over(desk, train)
    comes(desk, "explore")
    later(desk, 3600)
    desk.do(ev.DeviceModeChanged(device=DeviceId("A"), mode=ev.DeviceMode.OPEN))
    assert desk.holders() == ["explore"]


@LEAST
def test_use_outlives_the_scheduler() -> None:
    """An old training is no new one after a restart."""
    before = Desk(SETTINGS)
    comes(before, "train")
    later(before, 60)
    after = Desk(SETTINGS)
    for event in before.scheduler.to_remember(before.now_s):
        after.do(event)
    train = comes(after, "train")
    comes(after, "explore")
    assert after.recalled() == [train]


@LEAST
def test_a_loop_of_programs_is_one_tenant() -> None:
    """Programs of 1 s one after the other leave a training its half, nearly."""
    crowd = Crowd(SETTINGS)
    crowd.add("ann", Work(in_cells=False), name="train")
    crowd.run(60)
    for number in range(300):
        member = crowd.add("ann", Work(cell_s=1.0, pause_s=1e9, in_cells=False), name="p")
        crowd.run(2)
        crowd.say(ev.TenantRemoved(tenant=member.tenant))
        assert number >= 0
    assert crowd.of_notebook_s["ann", "train"] >= 0.4 * 600


@OTHERS
def test_a_new_cell_in_the_rest_of_a_quantum_goes_before_nobody_else(desk: Desk) -> None:
    """It has its owner's own time, not the owner's credit: another owner's new cell goes first."""
    train = comes(desk, "train")
    later(desk, 60)
    comes(desk, "ben", "ben")
    later(desk, 2)
    cell = comes(desk, "cell", cell=True)
    hand_over(desk, train)
    assert desk.granted() == [cell]
    later(desk, 3)
    comes(desk, "dan", "dan", cell=True)
    assert desk.recalled() == [cell]


@OTHERS
@pytest.mark.parametrize("in_cell", [True, False])
def test_little_of_a_quantum_is_left_to_who_has_it(desk: Desk, in_cell: bool) -> None:
    """Less than the shortest quantum is not worth a hand-over."""
    train = comes(desk, "train")
    later(desk, 60)
    comes(desk, "ben", "ben")
    desk.do(ev.ClockTicked(), after_s=SETTINGS.quantum_max_s - 0.3)
    comes(desk, "explore", cell=in_cell)
    assert desk.recalled() == []
    later(desk, 0.2)
    assert desk.recalled() == [] and desk.holders() == ["train"] and train


@OTHERS
def test_a_turn_has_one_heir() -> None:
    """Its drain stalls, and a sibling that has had less comes meanwhile: that one has what is left
    of the quantum, and no other one."""
    desk = Desk(SETTINGS.replace(credit_s=0))
    for name, seconds in (("first", 9), ("second", 5)):
        desk.drop(comes(desk, name), after_s=seconds)
    train = comes(desk, "train")
    later(desk, 90)
    for name in ("first", "second"):
        comes(desk, name)
        while desk.recalled() != [train]:
            desk.sleep_until_woken()
        if name == "first":
            desk.stall(train, calls_waiting=1)
    ben = comes(desk, "ben", "ben")
    desk.drop(train, ev.DropReason.RECALL)
    desk.ask(train, after_s=0.001)
    while not desk.recalled():
        desk.sleep_until_woken()
    desk.drop(desk.recalled()[0], ev.DropReason.RECALL)
    assert desk.granted() == [ben]


@OWN_CREDIT
@pytest.mark.parametrize(("notebooks", "cell_s", "pause_s"), [(3, 0.3, 0.6), (4, 0.2, 0.6)])
def test_several_notebooks_leave_a_training_its_part(
    notebooks: int, cell_s: float, pause_s: float
) -> None:
    """The credit of each fills up at the part of one, also while the others rest."""
    crowd = Crowd(SETTINGS)
    crowd.add("ann", Work(in_cells=False), name="train")
    crowd.run(100)
    for number in range(notebooks):
        crowd.add("ann", Work(cell_s=cell_s, pause_s=pause_s), at_s=0.37 * number)
    crowd.run(60)
    before_s = crowd.of_notebook_s["ann", "train"]
    crowd.run(240)
    part = (crowd.of_notebook_s["ann", "train"] - before_s) / 240
    assert part >= 0.75 / (notebooks + 1)


@LEAST
def test_an_idle_helper_takes_nothing_over() -> None:
    """Programs one after the other, each beside a helper that has come before it and never works:
    what the one before had is the program's."""
    crowd = Crowd(SETTINGS)
    crowd.add("ann", Work(in_cells=False), name="train")
    crowd.run(60)
    before_s, began_s = crowd.of_notebook_s["ann", "train"], crowd.now_s
    for number in range(20):
        helper = TenantId(f"helper {number}")
        crowd.say(ev.TenantRegistered(tenant=helper, name="helper", owner="ann", kind="run"))
        program = crowd.add("ann", Work(cell_s=3.0, pause_s=1e9, in_cells=False))
        while not program.waits_s:
            crowd.run(0.1)
        crowd.leaves(program)
        crowd.say(ev.TenantRemoved(tenant=helper))
    part = (crowd.of_notebook_s["ann", "train"] - before_s) / (crowd.now_s - began_s)
    assert part >= 0.3


@OWN_CREDIT
@pytest.mark.parametrize("gap_s", [0.012, 0.06])
def test_a_cell_that_rests_goes_on_with_its_own_credit(desk: Desk, gap_s: float) -> None:
    """A gap ends its turn for the training, and it is no new cell any more when it asks again."""
    explore = comes(desk, "explore", cell=True)
    later(desk, 60)
    desk.do(ev.CellEnded(client=explore))
    desk.drop(explore)
    train = comes(desk, "train")
    later(desk, 10)
    desk.do(ev.CellBegan(client=explore))
    for _ in range(3):
        desk.ask(explore, after_s=gap_s)
        assert desk.recalled() == [train]
        hand_over(desk, train)
        assert desk.granted() == [explore]
        later(desk, 0.4)
        desk.drop(explore, after_s=0.01)
        assert desk.granted() == [train]


@OWN_CREDIT
def test_a_cell_after_work_that_was_recalled_is_new(desk: Desk) -> None:
    """The work was outside a cell, and is over when the cell begins."""
    explore = comes(desk, "explore")
    later(desk, 60)
    train = comes(desk, "train")
    assert desk.recalled() == [explore]
    desk.drop(explore, ev.DropReason.RECALL)
    later(desk, 10)
    comes(desk, "explore", cell=True)
    assert desk.recalled() == [train]


@LEAST
def test_a_sibling_that_opens_a_second_device_waits_for_a_quantum() -> None:
    """It waits already, and the holder's quantum begins then."""
    desk = Desk(SETTINGS)
    there = desk.client("there", "B")
    desk.ask(there)
    explore = comes(desk, "explore")
    desk.drop(explore, after_s=60)
    train = comes(desk, "train")
    desk.ask(explore, after_s=0.1)
    later(desk, 1)
    desk.open(explore, "B")
    desk.drop(there)
    opened_s = desk.now_s
    later(desk, 60)
    assert desk.recalled() == [train]
    assert desk.now_s - opened_s < 2 * SETTINGS.quantum_min_s + 0.2


@OTHERS
def test_an_heir_of_a_turn_that_stalled_has_nothing() -> None:
    """The quantum was over before the turn ended: another user is next."""
    desk = Desk(SETTINGS.replace(credit_s=0))
    train = comes(desk, "train")
    later(desk, 60)
    ben = comes(desk, "ben", "ben")
    explore = comes(desk, "explore")
    assert desk.recalled() == [train] and explore
    while [each.reason for each in desk.all(RecallTurn)] != [RecallReason.QUANTUM_OVER]:
        if desk.recalled():
            desk.stall(train, calls_waiting=1)
        desk.sleep_until_woken()
    desk.drop(train, ev.DropReason.RECALL, after_s=0.5)
    assert desk.granted() == [ben]


@OTHERS
def test_the_rest_of_a_quantum_is_not_worth_a_way_of_memory() -> None:
    """A sibling's memory would take longer to come back than it could work."""
    desk = MemoryDesk(devices="")
    desk.find_device(100_000_000_000)
    explore = desk.with_memory("explore", 40_000_000_000)
    train = desk.with_memory("train", 40_000_000_000, resting=False)
    desk.do(ev.ClockTicked(), after_s=60)
    desk.report(explore, parked=40_000_000_000)
    desk.do(ev.ClockTicked(), after_s=120)
    desk.tenant("ben", owner="ben")
    desk.ask(desk.client("ben"))
    desk.do(ev.ClockTicked(), after_s=25)
    desk.ask(explore)
    later(desk, 4)
    assert desk.recalled() == [] and desk.holders() == ["train"]
    later(desk, 2)
    (recall,) = desk.all(RecallTurn)
    assert (recall.client, recall.reason) == (train, RecallReason.QUANTUM_OVER)


@OWN_CREDIT
def test_credit_of_an_ended_notebook_wins_nothing(desk: Desk) -> None:
    """Whoever has spent its own opens a device where another one of its owner had some left."""
    desk.tenant("ended", owner="ann")
    ended = desk.client("ended", "B")
    desk.do(ev.CellBegan(client=ended))
    desk.ask(ended)
    desk.drop(ended, after_s=2)
    recent = desk.scheduler._machine._state.accounts.recent
    spends = comes(desk, "spends")
    recent.of[TenantId("ended")].credit_s = 1.9
    recent.of[TenantId("spends")].credit_s = -5.0
    desk.do(ev.TenantRemoved(tenant=TenantId("ended")))
    desk.drop(spends)
    desk.open(spends, "B")
    desk.ask(spends)
    assert recent.of[TenantId("spends")].credit_s < 0
