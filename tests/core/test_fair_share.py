"""Device time is shared among owners by weight, and among an owner's notebooks in rotation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.accounts import DEVICES_BEFORE_MAX, Account, DeviceAccounts
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.scheduler import Machine
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

from .crowd import DRAIN_S, Crowd, Work
from .desk import Desk
from .memory_desk import MemoryDesk

LOOP = Work(in_cells=False)
FIXED = SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=1.0)
DEVICE = DeviceId("A")
LAG = pytest.mark.promise(
    "scheduler-24",
    "An owner whose work waits is at most two of the longest quanta behind its weighted share of "
    "a device, whatever the weights",
)
SHARE = pytest.mark.promise(
    "scheduler-19",
    "Device time is shared among owners by weight, however many notebooks each has open",
)

DEBT_LIVES = pytest.mark.promise(
    "scheduler-23",
    "What an owner owes outlives its last notebook, an error of the scheduler and a restart, and "
    "a restart gains nobody more than a quantum",
)
BANK = pytest.mark.promise(
    "scheduler-21",
    "Time in which an owner does not want a device, or could not have it, is not saved up",
)
DEBT = pytest.mark.promise(
    "scheduler-22",
    "An owner that has kept a device for longer than its quantum owes that, also when those who "
    "waited have given up",
)


@SHARE
def test_more_notebooks_bring_no_more() -> None:
    """Five loops of one owner have together what the one of another has."""
    crowd = Crowd(FIXED)
    crowd.add("ann", LOOP)
    bens = [crowd.add("ben", LOOP) for _ in range(5)]
    crowd.run(200)
    assert crowd.part_s("ann") == pytest.approx(crowd.part_s("ben"), abs=2.1)
    assert len(bens) == 5


@SHARE
def test_an_owners_notebooks_take_turns() -> None:
    """Also where the quanta of one are longer: a loop is not behind short cells for ever."""
    crowd = Crowd(SchedulerSettings(memory_mode=MemoryMode.OFF, credit_s=0))
    loop = crowd.add("ann", LOOP)
    short = crowd.add("ann", Work(cell_s=0.4, pause_s=0.0))
    had = {loop: 0.0}
    for _ in range(100):
        crowd.run(1)
        had[loop] += loop.turn is not None
    assert had[loop] > 20
    assert len(short.waits_s) > 3


@SHARE
@pytest.mark.parametrize(("text", "ratio"), [("ann=3", 3), ("ann=0.25", 0.25), ("ben=2", 0.5)])
def test_weights(text: str, ratio: float) -> None:
    crowd = Crowd(FIXED.replace(weights=text))
    crowd.add("ann", LOOP)
    crowd.add("ben", LOOP)
    crowd.run(400)
    assert crowd.part_s("ann") / crowd.part_s("ben") == pytest.approx(ratio, rel=0.05)


@pytest.mark.promise(
    "scheduler-20",
    "Of a user's groups the one with the largest weight counts, and the user's own more",
)
def test_weights_of_groups() -> None:
    """A user whose name is written like a group's is nobody's member by that."""
    crowd = Crowd(FIXED.replace(weights="@staff=2, @boards=4, cem=0.5, @all=9"))
    crowd.add("ann", LOOP, groups=("staff", "boards", "unknown"))
    crowd.add("ben", LOOP, groups=())
    crowd.add("cem", LOOP, groups=("staff",))
    crowd.add("@all", LOOP, groups=())
    crowd.run(800)
    parts = [crowd.part_s(owner) / crowd.part_s("ben") for owner in ("ann", "cem", "@all")]
    assert parts == pytest.approx([4, 0.5, 1], rel=0.05)


def test_groups_are_those_of_the_latest_registration() -> None:
    """A kernel that comes back from before a restart says nothing of them, and changes nothing."""
    crowd = Crowd(FIXED.replace(weights="@staff=4"))
    crowd.add("ben", LOOP)
    crowd.add("ann", LOOP, groups=("staff",))
    crowd.add("ann", Work(cell_s=1.0, pause_s=1e6), at_s=10)
    crowd.run(200)
    assert crowd.part_s("ann") / crowd.part_s("ben") == pytest.approx(4, rel=0.1)
    before = crowd.part_s("ann")
    crowd.add("ann", Work(cell_s=1.0, pause_s=1e6), groups=())
    crowd.run(100)
    assert crowd.part_s("ann") - before == pytest.approx(50, abs=4)


@SHARE
def test_weights_change_while_it_runs() -> None:
    crowd = Crowd(FIXED)
    crowd.add("ann", LOOP)
    crowd.add("ben", LOOP)
    crowd.run(100)
    before = crowd.part_s("ann"), crowd.part_s("ben")
    crowd.say(ev.SettingsChanged(settings=FIXED.replace(weights="ann=4")))
    crowd.run(100)
    ann, ben = crowd.part_s("ann") - before[0], crowd.part_s("ben") - before[1]
    assert before[0] == pytest.approx(before[1], abs=2.1)
    assert ann / ben == pytest.approx(4, rel=0.15)


@SHARE
def test_idle_time_is_not_saved_up() -> None:
    """Who comes late has its share from then on, and no more."""
    crowd = Crowd(FIXED)
    crowd.add("ann", LOOP)
    crowd.add("ben", LOOP, at_s=300)
    crowd.run(300)
    before = crowd.part_s("ann")
    crowd.run(100)
    assert crowd.part_s("ann") - before == pytest.approx(50, abs=2.1)


@SHARE
@pytest.mark.parametrize(("away_s", "ahead_s"), [(0.5, -3.0), (1.0, 0.0), (1000.0, 0.0)])
def test_what_an_owner_was_behind_is_not_kept(away_s: float, ahead_s: float) -> None:
    """Who left before its turn came, and comes back after a while, is as far as everybody."""
    account = Account(ahead_s=-3.0, left_s=10.0)
    assert DeviceAccounts().ahead_s(account, 10.0 + away_s) == ahead_s


@SHARE
def test_who_was_alone_owes_nothing() -> None:
    """Time that nobody else wanted is not held against anybody."""
    crowd = Crowd(FIXED)
    crowd.add("ann", LOOP)
    crowd.run(1000)
    crowd.add("ben", LOOP)
    before = crowd.part_s("ann")
    crowd.run(100)
    assert crowd.part_s("ann") - before == pytest.approx(50, abs=2.1)


@SHARE
def test_debt_outlives_the_last_notebook() -> None:
    """A new kernel does not make anybody forget what its owner has had ahead of others."""
    crowd = Crowd(FIXED)
    crowd.add("ben", LOOP, at_s=0.5)
    for _ in range(100):
        ann = crowd.add("ann", LOOP)
        crowd.run(1.1)  # until ben has the next turn
        crowd.leaves(ann)
        crowd.run(0.5)
    total = crowd.part_s("ann") + crowd.part_s("ben")
    assert crowd.part_s("ann") <= total / 2 + 2


@BANK
@pytest.mark.parametrize("in_cells", [False, True])
@pytest.mark.parametrize("pause_s", [0.9, 1.1])
def test_short_absences_save_up_no_time(in_cells: bool, pause_s: float) -> None:
    """Who works for a moment now and then, and begins a loop later, has its share from then on, and
    one quantum that it waited for."""
    crowd = Crowd(FIXED)
    crowd.add("ann", LOOP)
    crowd.add("ben", Work(cell_s=0.001, pause_s=pause_s, in_cells=in_cells))
    crowd.run(300)
    before = crowd.part_s("ann")
    crowd.add("ben", LOOP)
    crowd.run(100)
    assert crowd.part_s("ann") - before >= 50 - 2.1


@BANK
def test_who_is_passed_over_saves_up_no_time() -> None:
    """A tenant of two devices, of which one is paused, has its share of the other from the moment
    when both are open; and whoever comes meanwhile has a share as if it were not there."""
    crowd = Crowd(FIXED, devices="AB")
    paused = DeviceId("B")
    crowd.say(ev.DeviceModeChanged(device=paused, mode=ev.DeviceMode.PAUSED))
    crowd.add("ann", LOOP)
    crowd.add("both", LOOP, devices="AB")
    crowd.run(300)
    before = crowd.part_s("ann")
    crowd.add("new", LOOP)
    crowd.run(100)
    assert crowd.part_s("new") == pytest.approx(50, abs=2.1)
    assert crowd.part_s("ann") - before == pytest.approx(50, abs=2.1)
    before = crowd.part_s("ann")
    crowd.say(ev.DeviceModeChanged(device=paused, mode=ev.DeviceMode.OPEN))
    crowd.run(90)
    assert crowd.part_s("both") == pytest.approx(30, abs=2.1)
    assert crowd.part_s("ann") - before == pytest.approx(30, abs=2.1)


@BANK
@pytest.mark.parametrize("why", ["no room", "recovery"])
def test_time_without_a_chance_is_not_saved_up(why: str) -> None:
    """Also where there is no room for a tenant's memory, and after a restart of the scheduler."""
    recovering_until_s = 1000.0 if why == "recovery" else None
    desk = MemoryDesk(recovering_until_s=recovering_until_s, quantum_s=10)
    desk.tenant("big", owner="ben")
    desk.tenant("small", owner="ann")
    if why == "no room":
        big = desk.with_memory("big", 5000)
        desk.do(ev.EvictRequested(tenant=TenantId("big")))
        desk.park(big)
        desk.measure(4000)
        small = desk.client("small")
    else:
        small = desk.client("small", held_turn=7)
        big = desk.client("big")
    desk.ask(small)
    desk.ask(big, after_s=1)
    while desk.now_s < 900:
        desk.do(ev.ClockTicked(), after_s=1)
        if small in desk.recalled():
            desk.drop(small, ev.DropReason.RECALL)
            desk.ask(small)
    account = desk.scheduler._machine._state.accounts.of[DeviceId("A")].accounts
    assert desk.queue("A") == ["big"]
    assert "ben" not in account or not account["ben"].present


@DEBT
@pytest.mark.parametrize("away_s", [0.5, 5.0])
def test_debt_outlives_the_absence_of_others(away_s: float) -> None:
    """Who had a device kept while somebody waited has the other one go first, also when
    that one has given up and comes later."""
    crowd = Crowd(FIXED)
    ann, ben = crowd.add("ann", LOOP), crowd.add("ben", LOOP, at_s=1)
    crowd.run(0.5)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=100, by_admin=True))
    crowd.run(99.5)
    crowd.withdraws(ben)
    crowd.run(away_s)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=0, by_admin=True))
    crowd.asks(ben)
    before = crowd.part_s("ann")
    crowd.run(40)
    assert crowd.part_s("ann") - before <= 1.1


def debt_s(crowd: Crowd, owner: str) -> float:
    """What the owner owes of the device now."""
    debts = [dict(each.debts) for each in remembered(crowd) if each.owner == owner]
    return sum(each.get(DEVICE, 0.0) for each in debts)


def remembered(crowd: Crowd) -> list[ev.OwnerRemembered]:
    return crowd.scheduler.to_remember(crowd.now_s)


def with_debt_left(crowd: Crowd) -> float:
    """Ann has kept the device from ben, has left, and owes a twentieth of that still."""
    ann = crowd.add("ann", LOOP)
    crowd.add("ben", LOOP, at_s=1)
    crowd.run(0.5)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=40, by_admin=True))
    crowd.run(39.5)
    crowd.leaves(ann)
    owed_s = debt_s(crowd, "ann")
    while debt_s(crowd, "ann") > owed_s / 20:
        crowd.run(0.1)
    return debt_s(crowd, "ann")


@DEBT
@pytest.mark.parametrize(("before", "after"), [("ann=10", ""), ("", "ann=10")])
def test_another_weight_changes_no_debt(before: str, after: str) -> None:
    """Also one of which the most has been paid already. It stays so many seconds."""
    crowd = Crowd(FIXED.replace(weights=before))
    left_s = with_debt_left(crowd)
    crowd.say(ev.SettingsChanged(settings=FIXED.replace(weights=after)))
    assert debt_s(crowd, "ann") == pytest.approx(left_s)
    assert left_s > 0.1


@DEBT_LIVES
def test_debt_outlives_the_device() -> None:
    """A device that clients alone know of is gone with the last of them, and comes back."""
    crowd = Crowd(FIXED)
    left_s = with_debt_left(crowd)
    for member in list(crowd.members.values()):
        crowd.leaves(member)
    crowd.say(ev.DeviceWithdrawn(device=DEVICE))
    assert debt_s(crowd, "ann") == pytest.approx(left_s)
    crowd.say(ev.DeviceFound(device=DEVICE, name="A", bytes_total=8000))
    assert debt_s(crowd, "ann") == pytest.approx(left_s)
    assert crowd.scheduler.snapshot(crowd.now_s).devices


def test_devices_without_end_leave_no_debts_without_end() -> None:
    """Clients may name any. The latest debts are known."""
    crowd = Crowd(FIXED)
    accounts = crowd.scheduler._machine._state.accounts
    accounts.know("ann", (), {})
    names = [DeviceId(f"named {number}") for number in range(DEVICES_BEFORE_MAX + 10)]
    for name in names:
        crowd.say(ev.DeviceFound(device=name, name=name, bytes_total=8000))
        accounts.remember("ann", 2.0, {name: 5.0})
        crowd.say(ev.DeviceWithdrawn(device=name))
    (ann,) = remembered(crowd)
    assert [device for device, _ in ann.debts] == names[10:]


@DEBT
def test_debt_is_not_forgotten_alone() -> None:
    """Who owes much and is alone on the device for a moment owes as much to who comes then."""
    crowd = Crowd(FIXED)
    ann, ben = crowd.add("ann", LOOP), crowd.add("ben", LOOP, at_s=1)
    crowd.run(0.5)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=100, by_admin=True))
    crowd.run(99.5)
    crowd.leaves(ann)
    crowd.run(1)
    crowd.leaves(ben)
    crowd.run(5)
    crowd.add("ann", LOOP)
    crowd.run(5)
    before = crowd.part_s("ann")
    crowd.add("cem", LOOP)
    crowd.run(40)
    assert crowd.part_s("ann") - before <= 1.1


@DEBT
def test_a_debt_is_paid_once() -> None:
    """Who has had back what it waited for owes nothing to those who come later, and neither does
    the debtor."""
    crowd = Crowd(FIXED)
    ann, ben = crowd.add("ann", LOOP), crowd.add("ben", LOOP, at_s=1)
    crowd.run(0.5)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=100, by_admin=True))
    crowd.run(99.5)
    crowd.withdraws(ben)
    crowd.run(5)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=0, by_admin=True))
    crowd.asks(ben)
    crowd.run(300)
    before = crowd.part_s("ben")
    crowd.add("cem", LOOP)
    crowd.run(90)
    assert crowd.part_s("cem") == pytest.approx(30, abs=2.1)
    assert crowd.part_s("ben") - before == pytest.approx(30, abs=2.1)


@DEBT_LIVES
@pytest.mark.parametrize("there", [True, False])
def test_debt_outlives_the_scheduler(there: bool) -> None:
    """Whether or not the debtor has a kernel when the scheduler ends."""
    crowd = Crowd(FIXED)
    ann, ben = crowd.add("ann", LOOP), crowd.add("ben", LOOP, at_s=1)
    crowd.run(0.5)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=100, by_admin=True))
    crowd.run(99.5)
    if not there:
        crowd.leaves(ann)
    crowd.restarts()
    if not there:
        crowd.add("ann", LOOP)
    before = crowd.part_s("ann")
    crowd.run(90 if there else 45)
    assert crowd.part_s("ann") - before <= 2.1
    assert ben.turn is not None


@DEBT_LIVES
@given(
    weights=st.lists(st.sampled_from([0.25, 1.0, 1.0, 4.0]), min_size=2, max_size=5),
    runs=st.lists(st.floats(0.5, 30), min_size=2, max_size=6),
)
@settings(max_examples=20)
def test_a_restart_gains_nobody_more_than_a_quantum(
    weights: list[float], runs: list[float]
) -> None:
    """Restarts at any time, again and again."""
    names = [f"owner{n}" for n in range(len(weights))]
    text = ", ".join(f"{name}={weight}" for name, weight in zip(names, weights, strict=True))
    crowd = Crowd(FIXED.replace(weights=text))
    for name in names:
        crowd.add(name, LOOP)
    for lasts_s in runs:
        crowd.run(lasts_s)
        crowd.restarts()
    crowd.run(20)
    worst_s = max(crowd.worst_lag_s.values())
    assert worst_s <= (2 + len(runs)) * (1 + DRAIN_S), worst_s


@DEBT_LIVES
def test_debt_of_who_is_away_outlives_an_error_of_ours() -> None:
    """A core that starts anew knows owners who have no kernel, too."""
    crowd = Crowd(FIXED)
    ann = crowd.add("ann", LOOP)
    crowd.add("ben", LOOP, at_s=1)
    crowd.run(0.5)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=100, by_admin=True))
    crowd.run(99.5)
    crowd.leaves(ann)
    (before,) = (each for each in crowd.scheduler.to_remember(crowd.now_s) if each.owner == "ann")
    broken = crowd.scheduler._machine
    machine = Machine.in_place_of(broken, FIXED, broken.to_remember(crowd.now_s), crowd.now_s)
    assert [each for each in machine.to_remember(crowd.now_s) if each.owner == "ann"] == [before]
    assert before.debts[0][1] > 45


def test_owners_who_owe_nothing_are_forgotten() -> None:
    """Three thousand come, work alone, and go. One who owes something is known for as long."""
    crowd = Crowd(FIXED)
    ann = crowd.add("ann", LOOP)
    crowd.add("ben", LOOP, at_s=1)
    crowd.run(0.5)
    crowd.say(ev.TenantHeld(tenant=ann.tenant, hold_s=100, by_admin=True))
    crowd.run(99.5)
    crowd.leaves(ann)
    accounts = crowd.scheduler._machine._state.accounts
    for number in range(3_000):
        tenant = TenantId(f"t{number}")
        owner = f"visitor{number}"
        crowd.say(ev.TenantRegistered(tenant=tenant, name="", owner=owner, kind="kernel"))
        crowd.say(ev.TenantRemoved(tenant=tenant))
    assert len(accounts.owners) <= 200
    assert "ann" in accounts.owners
    assert accounts.ahead_s(DeviceId("A"), "ann") > 40


@SHARE
def test_a_new_group_moves_its_users_in_line() -> None:
    """Who waits already is served by the weight that it has now."""
    desk = Desk(FIXED.replace(weights="@staff=100", quantum_s=10))
    for name in ("has", "ann", "ben"):
        desk.tenant(name, owner=name)
        desk.ask(desk.client(name))
    assert desk.queue("A") == ["ann", "ben"]
    desk.do(
        ev.TenantRegistered(
            tenant=TenantId("ben"), name="", owner="ben", kind="kernel", groups=("staff",)
        )
    )
    assert desk.queue("A") == ["ben", "ann"]


@SHARE
def test_a_notebook_on_two_devices_is_charged_on_each() -> None:
    crowd = Crowd(FIXED, devices="AB")
    crowd.add("ann", LOOP, devices="AB")
    crowd.add("ben", LOOP, devices="A")
    crowd.add("cem", LOOP, devices="B")
    crowd.run(300)
    assert crowd.part_s("ann", "A") == pytest.approx(crowd.part_s("ann", "B"), abs=1.1)
    for device, other in (("A", "ben"), ("B", "cem")):
        part = crowd.part_s("ann", device) / (
            crowd.part_s("ann", device) + crowd.part_s(other, device)
        )
        assert part == pytest.approx(0.5, abs=0.05)


def owners_who_begin(*at_s: float) -> st.SearchStrategy[list[tuple[float, int, float]]]:
    """After one of these times."""
    weights = [0.1, 0.5, 1.0, 1.0, 2.0, 7.0, 50.0]
    begins = st.sampled_from(at_s)
    owner = st.tuples(st.sampled_from(weights), st.integers(1, 3), begins)
    return st.lists(owner, min_size=1, max_size=7)


def lag_is_bounded(
    owners: list[tuple[float, int, float]], quantum_s: float, lasts_s: float
) -> None:
    """`owners`: a weight, so many loops, and when they begin, of each."""
    weights = ", ".join(f"owner{n}={weight}" for n, (weight, _, _) in enumerate(owners))
    chosen = SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=quantum_s, weights=weights)
    crowd = Crowd(chosen)
    for number, (_, loops, at_s) in enumerate(owners):
        for _ in range(loops):
            crowd.add(f"owner{number}", LOOP, at_s=at_s)
    crowd.run(lasts_s)
    longest_s = max(crowd.longest_s, quantum_s or chosen.quantum_min_s)
    worst_s = max(crowd.worst_lag_s.values())
    assert worst_s <= 2 * (longest_s + DRAIN_S), (worst_s, longest_s, weights)
    assert math.isfinite(worst_s)


@LAG
@settings(max_examples=5)
@given(owners=owners_who_begin(0.0, 0.0, 3.0, 25.0), quantum_s=st.sampled_from([0.0, 0.5, 2.0]))
def test_nobody_lags_far_behind(owners: list[tuple[float, int, float]], quantum_s: float) -> None:
    """Loops that never end, and that begin at different times."""
    lag_is_bounded(owners, quantum_s, 400)


@LAG
@pytest.mark.full
@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=10_000)
@given(owners=owners_who_begin(0.0, 0.0, 0.5, 3.0), quantum_s=st.sampled_from([0.5, 1.0, 2.0]))
def test_nobody_lags_far_behind_in_many_runs(
    owners: list[tuple[float, int, float]], quantum_s: float
) -> None:
    """The same in many more runs, which are shorter."""
    lag_is_bounded(owners, quantum_s, 6)
