"""What an owner has of a device at least, and at most."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core import limits
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.order.lines import Lines
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings, SettingsError
from jupyter_gpushare.core.shares.guarantees import STEPS, Entitlement, Preset, Rules, Usage
from jupyter_gpushare.core.shown.waits import Reason

from .crowd import DRAIN_S, Crowd, Work
from .desk import Desk
from .full_machine import Beside
from .many_runs import PHASES, many_runs

SETTINGS = SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=1.0, share_window_s=20)
LOOP = Work(in_cells=False)
DEVICE = DeviceId("A")
REQUEST = pytest.mark.promise(
    "scheduler-28",
    "An owner with a request has at least that part of a device, less two quanta, and less what "
    "new cells of all others may take together (the credit of one and one quantum), within each "
    "window in which it wants the device throughout, as far as `realtime` leaves it; a window in "
    "which it has less is counted, and shown",
)
LIMIT = pytest.mark.promise(
    "scheduler-29",
    "An owner with a hard limit has no more than that part of a device in any window; one with an "
    "elastic limit no more while others want the device",
)
PRESET = pytest.mark.promise(
    "scheduler-30",
    "One word sets guarantees and limits: `best-effort`, `equal` or `fixed`",
)
BAD = pytest.mark.promise(
    "bad-input-31",
    "Requests above limits, requests of more than 1 together and parts that are none are refused, "
    "and the last good settings stay",
)


class Watched(Crowd):
    """Notes what each owner, and each notebook with a name, has had by each tenth of a second."""

    def run(self, for_s: float) -> None:
        for _ in range(round(for_s * 10)):
            super().run(0.1)
            for owner in {member.owner for member in self.members.values()}:
                self.history.setdefault(owner, []).append(self.part_s(owner))
            for who in {(each.owner, each.name) for each in self.members.values() if each.name}:
                self.history.setdefault(":".join(who), []).append(self.of_notebook_s[who])

    def __init__(self, chosen: SchedulerSettings, devices: str = "A") -> None:
        self.history: dict[str, list[float]] = {}
        super().__init__(chosen, devices)

    def windows(self, owner: str, window_s: float) -> list[float]:
        """What the owner has had in each window of this length."""
        had, length = self.history[owner], round(window_s * 10)
        return [after - before for before, after in zip(had, had[length:], strict=False)]

    def violations(self, owner: str) -> int:
        here = self.scheduler._machine._state.accounts.of[DEVICE]
        return here.violations.get(owner, 0)


# ---- requests --------------------------------------------------------------------------------


@REQUEST
def test_a_request_is_kept_beside_many() -> None:
    """Its owner's weight would give it an eighth."""
    crowd = Watched(SETTINGS.replace(requests="ann=0.5"))
    crowd.add("ann", LOOP)
    for number in range(7):
        crowd.add(f"other{number}", LOOP)
    crowd.run(120)
    assert min(crowd.windows("ann", 20)[100:]) >= 0.5 * 20 - 1.1
    assert crowd.part_s("ann") <= 0.6 * 120
    assert crowd.violations("ann") == 0


@REQUEST
def test_the_members_of_a_group_have_its_request() -> None:
    crowd = Watched(SETTINGS.replace(requests="@staff=0.4"))
    crowd.add("ann", LOOP, groups=("staff",))
    for number in range(7):
        crowd.add(f"other{number}", LOOP)
    crowd.run(100)
    assert crowd.part_s("ann") >= 0.38 * 100


@REQUEST
def test_a_violated_guarantee_is_counted() -> None:
    """An admin lets somebody else keep the device."""
    crowd = Watched(SETTINGS.replace(requests="ann=0.5"))
    ben = crowd.add("ben", LOOP)
    crowd.run(1)
    crowd.say(ev.TenantHeld(tenant=ben.tenant, hold_s=50, by_admin=True))
    crowd.add("ann", LOOP)
    crowd.run(48)
    crowd.say(ev.TenantHeld(tenant=ben.tenant, hold_s=0, by_admin=True))
    crowd.run(2)
    assert crowd.violations("ann") >= 1
    (shown,) = (e for e in crowd.scheduler.snapshot(crowd.now_s).shares if e.owner == "ann")
    assert (shown.request, shown.violations) == (0.5, crowd.violations("ann"))


@REQUEST
def test_who_does_not_want_the_device_is_not_wronged() -> None:
    crowd = Watched(SETTINGS.replace(requests="ann=0.5"))
    crowd.add("ann", Work(cell_s=0.1, pause_s=5.0))
    crowd.add("ben", LOOP)
    crowd.run(100)
    assert crowd.violations("ann") == 0


@REQUEST
def test_batch_owners_with_requests_have_whole_quanta() -> None:
    """Who has less than its request does not end the turn of another one who has."""
    crowd = Watched(SETTINGS.replace(requests="ann=0.3, ben=0.3, cem=0.3"))
    batch = Work(in_cells=False, asked_class="batch")
    loops = [crowd.add(owner, batch) for owner in ("ann", "ben", "cem")]
    crowd.run(30)
    turns = sum(
        tenant.counters.turns for tenant in crowd.scheduler._machine._state.tenants.values()
    )
    assert turns <= 30
    assert all(min(crowd.windows(each.owner, 20)) >= 0.3 * 20 - 1.1 for each in loops)


@REQUEST
def test_a_request_is_kept_beside_short_cells() -> None:
    """They go first as far as their credit goes, and leave what is guaranteed."""
    crowd = Watched(SETTINGS.replace(requests="ann=0.3", weights="ann=0.2", share_window_s=60))
    crowd.add("ann", LOOP)
    for owner in ("ben", "cem", "dan"):
        crowd.add(owner, Work(cell_s=0.3, pause_s=0.7))
    crowd.run(150)
    assert min(crowd.windows("ann", 60)[600:]) >= 0.3 * 60 - 2.1
    # A cell that finds no time left goes first as soon as there is some again.
    assert max(wait_s for each in crowd.members.values() for wait_s in each.waits_s) <= 1.0


@REQUEST
def test_a_request_is_kept_beside_a_class_that_begins_at_once() -> None:
    """All of these cells come while there is time for new ones, and have credit of their own."""
    crowd = Watched(SETTINGS.replace(requests="ann=0.5"))
    crowd.add("ann", LOOP)
    for number in range(40):
        crowd.add(f"student{number}", Work(cell_s=0.45, pause_s=20.0), at_s=5)
    crowd.run(80)
    credit_s = crowd.scheduler.settings.credit_s
    assert min(crowd.windows("ann", 20)) >= 0.5 * 20 - credit_s - 0.5


@REQUEST
def test_new_cells_within_a_request_go_first_and_leave_the_rest_to_others() -> None:
    """Ben has had less than its request most of the time: its cells do not wait for turns of others
    who have, and what the requests leave is for the cells of Cem."""
    requests = "ann=0.4, ben=0.3, eve=0.3"
    crowd = Watched(SETTINGS.replace(requests=requests, weights="cem=9"))
    crowd.add("ann", LOOP)
    crowd.add("eve", LOOP)
    other = crowd.add("cem", Work(cell_s=0.3, pause_s=0.3))
    within = crowd.add("ben", Work(cell_s=0.2, pause_s=0.7), at_s=0.3)
    crowd.run(60)
    assert max(within.waits_s) <= 1.0
    assert max(other.waits_s) <= 3.0


@REQUEST
def test_owners_with_requests_hand_the_device_over_to_a_new_cell_once() -> None:
    """None of them is served in its place."""
    crowd = Watched(SETTINGS.replace(requests="ann=0.2, ben=0.2"))
    crowd.add("ann", LOOP)
    crowd.add("ben", LOOP)
    short = crowd.add("cem", Work(cell_s=0.2, pause_s=1.8), at_s=0.3)
    crowd.run(60)
    tenants = crowd.scheduler._machine._state.tenants.values()
    assert sum(tenant.counters.turns for tenant in tenants) <= 3 * len(short.waits_s) + 20
    assert max(short.waits_s) <= DRAIN_S + 1e-6


ENTITLED = {
    "owners": st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5]),
            st.sampled_from([LOOP, Work(), Work(0.4), Work(0.3, 0.7), Work(2.0, 1.0)]),
            st.integers(1, 2),
            st.sampled_from([0.2, 1.0, 5.0]),
            st.sampled_from(["", "batch"]),
            st.sampled_from([0.0, 0.0, 1.0, 3.0]),
        ),
        min_size=2,
        max_size=4,
    ).filter(lambda owners: sum(each[0] for each in owners) <= 0.9),
    "quantum_s": st.sampled_from([0.0, 0.5, 1.0]),
    "credit_s": st.sampled_from([0.0, 0.5, 2.0]),
}
Entitled = list[tuple[float, Work, int, float, str, float]]


def requests_are_kept(
    owners: Entitled, quantum_s: float, credit_s: float, window_s: float, lasts_s: float
) -> None:
    """`owners`: a request, work, so many notebooks, a weight, a class, and when they begin, of
    each."""
    crowd = Watched(
        SETTINGS.replace(
            requests=", ".join(f"o{n}={each[0]}" for n, each in enumerate(owners) if each[0]),
            weights=", ".join(f"o{n}={each[3]}" for n, each in enumerate(owners)),
            share_window_s=window_s,
            quantum_s=quantum_s,
            quantum_max_s=1.0,
            credit_s=credit_s,
        )
    )
    for number, (_, work, notebooks, _, asked, at_s) in enumerate(owners):
        for _ in range(notebooks):
            mine = Work(work.cell_s, work.pause_s, work.in_cells, asked)
            crowd.add(f"o{number}", mine, at_s=at_s)
    crowd.run(lasts_s)
    # Turns that end with their cell are as long as this, too.
    longest_s = max(crowd.longest_s, quantum_s or crowd.scheduler.settings.quantum_max_s)
    for number, (request, work, _, _, _, at_s) in enumerate(owners):
        if not request or work.pause_s:
            continue
        owner, since = f"o{number}", round(at_s * 10) + 1
        had_s = min(crowd.windows(owner, window_s)[since:])
        # So much new cells may go before it, those of all others together.
        cells_s = credit_s + longest_s if credit_s else 0.0
        least_s = request * window_s - 2 * longest_s - cells_s - 0.2
        assert had_s >= least_s, (owner, had_s, longest_s)


@REQUEST
@settings(max_examples=10, phases=PHASES)
@given(**ENTITLED)  # type: ignore[arg-type]
def test_requests_are_kept_whatever_the_owners_do(
    owners: Entitled, quantum_s: float, credit_s: float
) -> None:
    """Loops and cells of owners with and without requests, of any weight, beside each other."""
    requests_are_kept(owners, quantum_s, credit_s, 15.0, 40)


@REQUEST
@many_runs
@given(**ENTITLED)  # type: ignore[arg-type]
def test_requests_are_kept_in_many_runs(
    owners: Entitled, quantum_s: float, credit_s: float
) -> None:
    """The same in many more runs, which are shorter."""
    requests_are_kept(owners, quantum_s, credit_s, 6.0, 14)


def test_who_wants_little_again_and_again_is_not_wronged() -> None:
    """Its cells are short and go first; between them it is away for a moment."""
    crowd = Watched(SETTINGS.replace(requests="ann=0.5"))
    crowd.add("ann", Work(cell_s=0.05, pause_s=0.5))
    crowd.add("ben", LOOP)
    crowd.run(100)
    assert crowd.violations("ann") == 0


@REQUEST
def test_who_asks_again_and_again_may_be_wronged() -> None:
    """Who goes away for a moment after each turn has still waited for most of the time."""
    crowd = Watched(SETTINGS.replace(requests="ann=0.5"))
    ben = crowd.add("ben", LOOP)
    crowd.add("ann", Work(cell_s=0.05, pause_s=0.05))
    crowd.run(21)
    crowd.say(ev.TenantHeld(tenant=ben.tenant, hold_s=19, by_admin=True))
    crowd.run(25)
    assert crowd.violations("ann") >= 1


@REQUEST
def test_a_user_requests_no_more_than_a_group_may_have() -> None:
    """Nobody else keeps the rest from it."""
    crowd = Watched(SETTINGS.replace(requests="ann=0.6", limits="@staff=0.3"))
    crowd.add("ann", LOOP, groups=("staff",))
    crowd.add("ben", LOOP)
    crowd.run(100)
    assert crowd.violations("ann") == 0
    assert crowd.part_s("ann") == pytest.approx(30, abs=2.5)
    (shown,) = (e for e in crowd.scheduler.snapshot(crowd.now_s).shares if e.owner == "ann")
    assert (shown.request, shown.limit) == (0.3, 0.3)


@REQUEST
@pytest.mark.parametrize("others", [{"requests": ""}, {"share_window_s": 80.0}])
def test_a_guarantee_counts_from_when_it_was_given(others: dict[str, object]) -> None:
    """What an owner had before does not count as kept from it, if nobody has counted it."""
    chosen = SETTINGS.replace(requests="ann=0.4")
    crowd = Watched(chosen)
    crowd.add("ann", LOOP)
    crowd.add("ben", LOOP)
    for now, for_s in ((chosen, 60), (chosen.replace(**others), 60), (chosen, 10)):
        crowd.say(ev.SettingsChanged(settings=now))
        crowd.run(for_s)
    assert crowd.violations("ann") == 0


# ---- limits ----------------------------------------------------------------------------------


@LIMIT
def test_a_hard_limit_holds_on_an_idle_device() -> None:
    crowd = Watched(SETTINGS.replace(hard_limits="ann=0.25"))
    crowd.add("ann", LOOP)
    crowd.run(100)
    assert max(crowd.windows("ann", 20)) <= 0.25 * 20 + 0.05 + DRAIN_S + 0.1
    assert crowd.part_s("ann") >= 0.2 * 100


@LIMIT
def test_an_elastic_limit_holds_while_others_want_the_device() -> None:
    crowd = Watched(SETTINGS.replace(limits="ann=0.25"))
    crowd.add("ann", LOOP)
    crowd.run(60)
    assert crowd.part_s("ann") == pytest.approx(60, abs=0.1)
    crowd.add("ben", LOOP)
    crowd.run(60)
    assert max(crowd.windows("ann", 20)[800:]) <= 0.25 * 20 + 1.2
    assert crowd.part_s("ben") >= 0.7 * 60


@LIMIT
def test_an_elastic_limit_holds_however_long_quanta_are() -> None:
    """Those of long cells grow to half of the window."""
    crowd = Watched(SchedulerSettings(memory_mode=MemoryMode.OFF, limits="ann=0.2"))
    crowd.add("ann", Work())
    crowd.add("ben", Work())
    crowd.run(300)
    assert max(crowd.windows("ann", 60)[1200:]) <= 0.2 * 60 + 0.5 + 0.2
    assert crowd.part_s("ben") >= 0.75 * 300


@LIMIT
def test_a_limit_of_a_new_group_counts_at_once() -> None:
    """Also for a turn that is under way, on an idle device."""
    desk = Desk(SETTINGS.replace(hard_limits="@guests=0.25"))
    a = desk.client("a")
    desk.ask(a)
    new = ev.TenantRegistered(
        tenant=TenantId("new"), name="new", owner="me", kind="kernel", cap_bytes=0
    )
    desk.do(replace(new, groups=("guests",)), after_s=1)
    assert desk.wake_at_s == pytest.approx(105)
    desk.do(replace(new, groups=()), after_s=1)
    desk.sleep_until_woken()
    assert desk.recalled() == []


@LIMIT
def test_a_turn_ends_at_its_owners_hard_limit() -> None:
    desk = Desk(SETTINGS.replace(hard_limits="me=0.25"))
    a = desk.client("a")
    desk.ask(a)
    while desk.recalled() == []:
        desk.sleep_until_woken()
    (recall,) = desk.all(RecallTurn)
    assert recall.reason is RecallReason.LIMIT
    assert desk.now_s == pytest.approx(105, abs=0.06)
    desk.drop(a, ev.DropReason.RECALL)
    desk.ask(a)
    assert desk.granted() == []
    estimates = desk.scheduler.estimates([TenantId("a")], desk.now_s)
    assert estimates[TenantId("a")].reason is Reason.LIMIT
    desk.sleep_until_woken()
    assert desk.granted() == [a]
    assert desk.now_s > 120


@LIMIT
def test_more_notebooks_do_not_lift_a_limit() -> None:
    crowd = Watched(SETTINGS.replace(hard_limits="ann=0.25"))
    for _ in range(3):
        crowd.add("ann", LOOP)
    crowd.run(60)
    assert max(crowd.windows("ann", 20)) <= 0.25 * 20 + 0.4


LIMITED = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 0.2]),
        st.sampled_from([1.0, 0.5, 0.3]),
        st.sampled_from([LOOP, Work(cell_s=0.3, pause_s=0.1), Work(cell_s=2.0, pause_s=1.0)]),
        st.integers(1, 2),
        st.sampled_from([0.0, 0.0, 2.5]),
    ),
    min_size=1,
    max_size=4,
)


def limits_are_kept(
    owners: list[tuple[float, float, Work, int, float]],
    window_s: float,
    quantum_s: float,
    lasts_s: float,
) -> None:
    """`owners`: a request, a hard limit, work, so many notebooks, and when they begin, of each."""
    requests = ", ".join(f"o{n}={each[0]}" for n, each in enumerate(owners) if each[0])
    limits = ", ".join(f"o{n}={each[1]}" for n, each in enumerate(owners))
    crowd = Watched(
        SETTINGS.replace(
            requests=requests, hard_limits=limits, share_window_s=window_s, quantum_s=quantum_s
        )
    )
    for number, (_, _, work, notebooks, at_s) in enumerate(owners):
        for _ in range(notebooks):
            crowd.add(f"o{number}", work, at_s=at_s)
    crowd.run(lasts_s)
    crowd.scheduler.check_invariants()
    for number, (_, limit, _, _, _) in enumerate(owners):
        most_s = limit * window_s + 0.05 + 10 * DRAIN_S + 0.2
        assert max(crowd.windows(f"o{number}", window_s)) <= most_s


@LIMIT
@settings(max_examples=10)
@given(
    owners=LIMITED,
    window_s=st.sampled_from([5.0, 15.0]),
    quantum_s=st.sampled_from([0.0, 0.5]),
)
def test_limits_are_kept_whatever_the_owners_do(
    owners: list[tuple[float, float, Work, int, float]], window_s: float, quantum_s: float
) -> None:
    limits_are_kept(owners, window_s, quantum_s, 40)


@LIMIT
@many_runs
@given(owners=LIMITED, window_s=st.floats(3.0, 6.0), quantum_s=st.sampled_from([0.0, 0.5, 2.0]))
def test_limits_are_kept_in_many_runs(
    owners: list[tuple[float, float, Work, int, float]], window_s: float, quantum_s: float
) -> None:
    """The same in many more runs, which are shorter."""
    limits_are_kept(owners, round(window_s, 1), quantum_s, 14)


# ---- presets ---------------------------------------------------------------------------------


@PRESET
def test_equal() -> None:
    """Weights do not count, and what the others leave is not given out."""
    crowd = Watched(SETTINGS.replace(sharing=Preset.EQUAL, weights="ann=5"))
    crowd.add("ann", LOOP)
    crowd.add("ben", Work(cell_s=0.1, pause_s=9.0))
    crowd.run(80)
    assert crowd.part_s("ann") == pytest.approx(40, abs=2.5)


@PRESET
def test_equal_parts_hang_on_who_has_the_device_open() -> None:
    """Also for a turn that is under way, and for somebody who has had a part and waits."""
    crowd = Watched(SETTINGS.replace(sharing=Preset.EQUAL))
    ann = crowd.add("ann", LOOP)
    crowd.run(5)
    ben = crowd.add("ben", Work(cell_s=0.0, pause_s=1e9))
    crowd.run(5.1)
    assert ann.turn is None
    crowd.leaves(ben)
    assert ann.turn is not None


@PRESET
def test_fixed() -> None:
    crowd = Watched(SETTINGS.replace(sharing=Preset.FIXED, requests="ann=0.2"))
    crowd.add("ann", LOOP)
    crowd.run(80)
    assert crowd.part_s("ann") == pytest.approx(16, abs=2.5)
    crowd.add("ben", LOOP)
    crowd.run(80)
    assert crowd.part_s("ben") == pytest.approx(64, abs=5)


@PRESET
def test_best_effort_gives_what_nobody_wants() -> None:
    crowd = Watched(SETTINGS.replace(requests="ann=0.2"))
    crowd.add("ann", LOOP)
    crowd.run(20)
    assert crowd.part_s("ann") == pytest.approx(20, abs=0.1)


# ---- bad input -------------------------------------------------------------------------------


@BAD
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"requests": "ann=0.6, ben=0.5"}, "requests add up to 1.1."),
        ({"requests": "ann=0.6", "limits": "ann=0.5"}, "ann requests 0.6, and limits allow 0.5."),
        ({"requests": "@g=0.6", "hard_limits": "@g=0.5"}, "@g requests 0.6, and hard_limits allow"),
        ({"requests": "ann=nan"}, "The share of ann is 'nan'."),
        ({"limits": "ann=-1"}, "The share of ann is '-1'."),
        ({"limits": "ann=0"}, "The share of ann is '0'."),
        ({"hard_limits": "ann=1.5"}, "The share of ann is '1.5'."),
        ({"hard_limits": "ann"}, "'ann' is not a share."),
        ({"sharing": Preset.FIXED}, "requests are empty"),
    ],
)
def test_what_cannot_be_kept_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        SETTINGS.replace(**changes)
    assert words in str(refused.value)
    assert str(refused.value).count("Give") + str(refused.value).count("Write") == 1


# ---- the parts -------------------------------------------------------------------------------


@given(
    spans=st.lists(
        st.tuples(st.floats(0, 5), st.floats(0.01, 5), st.floats(0.1, 1)), min_size=1, max_size=8
    ),
    most=st.floats(0, 3),
)
def test_usage_falls_when_it_says(spans: list[tuple[float, float, float]], most: float) -> None:
    usage, now_s, window_s = Usage(), 0.0, 10.0
    for pause_s, length_s, rate in spans:
        begin_s = now_s + pause_s
        now_s = begin_s + length_s
        usage.add(begin_s, now_s, length_s * rate, window_s)
    at_s = usage.falls_to_s(most, now_s, window_s)
    assert usage.used_s(at_s, window_s) <= most + 1e-6
    if at_s > now_s + 1e-3:
        assert usage.used_s(at_s - 1e-3, window_s) > most - 1e-6


def test_a_long_window_is_not_counted_turn_by_turn() -> None:
    """Nothing grows with the number of turns within it, and what is told is right all the same."""
    usage, window_s = Usage(), 86_400.0
    for turn in range(20_000):
        usage.add(turn * 10.0, turn * 10.0 + 2.0, 2.0, window_s)
    assert len(usage.spans) <= 2 * STEPS
    assert usage.used_s(200_000.0, window_s) == pytest.approx(window_s / 5, rel=0.002)


def test_the_rules_are_not_asked_of_all_who_wait_at_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of those alone whose part has changed."""
    asked: list[str] = []
    real = limits.entitlement

    def counted(lines: Lines, rules: Rules, device: DeviceId, who: str) -> Entitlement:
        asked.append(who)
        return real(lines, rules, device, who)

    monkeypatch.setattr(limits, "entitlement", counted)
    counts = []
    for owners in (8, 64):
        crowd = Crowd(SETTINGS.replace(requests="o1=0.1", hard_limits="o2=0.5"))
        for number in range(owners):
            crowd.add(f"o{number}", LOOP)
        crowd.run(30)
        asked.clear()
        crowd.run(20)
        counts.append(len(asked))
    assert counts[1] <= 2 * counts[0], counts


def test_random_owners_beside_a_machine_that_looks_at_everything() -> None:
    """How tenants stand is found where something has changed, as if all were looked at."""
    rules = {"requests": "ann=0.2, ben=0.3", "hard_limits": "ann=0.4, cem=0.2", "limits": "dan=0.3"}
    chosen = SETTINGS.replace(**rules, share_window_s=5)
    crowd = Crowd(chosen, devices="AB")
    crowd.scheduler = Beside(chosen)
    for device in "AB":
        crowd.say(ev.DeviceFound(device=DeviceId(device), name=device, bytes_total=8000))
    owners = itertools.cycle(["ann", "ben", "cem", "dan"])
    for number in range(9):
        work = Work(cell_s=0.3 + number / 5, pause_s=0.1 * number)
        devices = "AB" if number == 5 else "AB"[number % 2]
        crowd.add(next(owners), work, devices=devices, at_s=number / 7)
    for second in range(40):
        crowd.run(1)
        crowd.scheduler.check_invariants()
        if second == 20:
            crowd.say(ev.SettingsChanged(settings=chosen.replace(sharing=Preset.EQUAL)))
        if second == 30:
            crowd.say(ev.SettingsChanged(settings=SETTINGS))
