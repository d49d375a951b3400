"""What a notebook has of a device at least, and at most, beside its owner."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import DeviceId, Seconds, TenantId
from jupyter_gpushare.core.settings import SettingsError
from jupyter_gpushare.core.shares.guarantees import Preset, by_owner, claimed
from jupyter_gpushare.core.snapshot import ShareSnapshot

from .crowd import DRAIN_S, Crowd, Work
from .desk import Desk
from .full_machine import Beside
from .many_runs import PHASES, many_runs
from .test_guarantees import DEVICE, LOOP, SETTINGS, Watched

HAND_OVER_S = 0.05 + DRAIN_S + 0.1
"""Who could go on for no longer than 0.05 s has had its limit; what it has had is noted each
0.1 s."""
OF_NOTEBOOKS = pytest.mark.promise(
    "scheduler-31",
    "A notebook may have a request, a limit and a hard limit of its own, within its user's: a hard "
    "one is never exceeded, an elastic one only while nobody else wants the device, and what a "
    "notebook requests is for it alone, less what new cells of its user's others take",
)
BAD = pytest.mark.promise("bad-input-31")


def shares_of(crowd: Crowd) -> tuple[ShareSnapshot, ...]:
    return crowd.scheduler.snapshot(crowd.now_s).shares


def registered(desk: Desk, name: str, *, after_s: Seconds = 0.0) -> None:
    """The tenant `a` is called so."""
    known = ev.TenantRegistered(tenant=TenantId("a"), name=name, owner="me", kind="kernel")
    desk.do(known, after_s=after_s)


# ---- limits ----------------------------------------------------------------------------------


@OF_NOTEBOOKS
def test_a_hard_limit_leaves_the_rest_to_its_owners_others() -> None:
    crowd = Watched(SETTINGS.replace(hard_limits="ann:a=0.2"))
    crowd.add("ann", LOOP, name="a")
    crowd.add("ann", LOOP, name="b")
    crowd.run(100)
    assert max(crowd.windows("ann:a", 20)) <= 0.2 * 20 + HAND_OVER_S
    assert crowd.of_notebook_s["ann", "a"] >= 0.15 * 100
    assert crowd.of_notebook_s["ann", "b"] >= 0.78 * 100


@OF_NOTEBOOKS
def test_an_elastic_limit_holds_while_somebody_wants_the_device() -> None:
    """Also one of its owner's others."""
    crowd = Watched(SETTINGS.replace(limits="ann:a=0.2"))
    crowd.add("ann", LOOP, name="a")
    crowd.run(40)
    assert crowd.of_notebook_s["ann", "a"] == pytest.approx(40, abs=0.1)
    crowd.add("ann", LOOP, name="b")
    crowd.run(60)
    assert max(crowd.windows("ann:a", 20)[600:]) <= 0.2 * 20 + HAND_OVER_S


@OF_NOTEBOOKS
@pytest.mark.parametrize("setting", ["limits", "hard_limits"])
def test_a_limit_lies_within_its_owners(setting: str) -> None:
    crowd = Watched(SETTINGS.replace(**{setting: "ann=0.2, ann:a=0.5"}))
    crowd.add("ann", LOOP, name="a")
    crowd.add("ben", LOOP)
    crowd.run(60)
    assert max(crowd.windows("ann:a", 20)) <= 0.2 * 20 + HAND_OVER_S
    told = {share.notebook: getattr(share, setting.removesuffix("s")) for share in shares_of(crowd)}
    assert told == {"": 0.2, "a": 0.2}


@OF_NOTEBOOKS
def test_all_notebooks_of_a_name_share_its_entry() -> None:
    crowd = Watched(SETTINGS.replace(hard_limits="ann:a=0.25"))
    for _ in range(3):
        crowd.add("ann", LOOP, name="a")
    crowd.add("ben", LOOP, name="a")
    crowd.run(60)
    assert max(crowd.windows("ann:a", 20)) <= 0.25 * 20 + HAND_OVER_S
    assert crowd.of_notebook_s["ben", "a"] >= 0.7 * 60


@OF_NOTEBOOKS
def test_a_limit_counts_on_after_a_restart_of_the_kernel_and_ends_with_a_new_name() -> None:
    desk = Desk(SETTINGS.replace(hard_limits="me:notebook a=0.25"))
    first = desk.client("a")
    desk.ask(first)
    while desk.recalled() == []:
        desk.sleep_until_woken()
    desk.drop(first, ev.DropReason.RECALL)
    desk.do(ev.TenantRemoved(tenant=TenantId("a")))
    again = desk.client("a")
    desk.ask(again)
    assert desk.granted() == []
    registered(desk, "new")
    assert desk.granted() == [again]
    registered(desk, "notebook a")
    (recall,) = desk.all(RecallTurn)
    assert recall.reason is RecallReason.LIMIT


@OF_NOTEBOOKS
def test_an_entry_waits_for_a_notebook_that_nobody_has_seen_yet() -> None:
    """It counts from the moment in which a notebook is called so, and not before."""
    desk = Desk(SETTINGS.replace(hard_limits="me:later=0.25"))
    a = desk.client("a")
    desk.ask(a)
    registered(desk, "now", after_s=10)
    assert desk.recalled() == []
    registered(desk, "later")
    began_s = desk.now_s
    while desk.recalled() == []:
        desk.sleep_until_woken()
    assert desk.now_s - began_s == pytest.approx(0.25 * 20, abs=0.06)


# ---- requests --------------------------------------------------------------------------------


@OF_NOTEBOOKS
@pytest.mark.parametrize("own", ["", "ann=0.5, "])
def test_a_request_is_kept_beside_its_owners_others_and_those_of_others(own: str) -> None:
    """Its turn does not go to others of its owner when its quantum is over."""
    crowd = Watched(SETTINGS.replace(requests=f"{own}ann:a=0.4"))
    for number in range(5):
        crowd.add("ann", LOOP, name="abcde"[number])
        crowd.add(f"other{number}", LOOP)
    crowd.run(120)
    assert min(crowd.windows("ann:a", 20)[100:]) >= 0.4 * 20 - HAND_OVER_S
    assert crowd.violations("ann", "a") == 0
    assert crowd.part_s("ann") <= (0.52 if own else 0.42) * 120
    assert [each.notebook for each in shares_of(crowd)] == (["", "a"] if own else ["a"])
    assert shares_of(crowd)[-1].request == 0.4


@OF_NOTEBOOKS
@pytest.mark.parametrize("own", ["", "ann=0.3, "])
def test_a_request_is_kept_beside_new_cells_of_others(own: str) -> None:
    """They go first as far as requests leave time, and those of notebooks count once."""
    requests = f"{own}ann:a=0.3, zed=0.6"
    crowd = Watched(SETTINGS.replace(requests=requests, weights="ann=0.2", share_window_s=60))
    crowd.add("ann", LOOP, name="a")
    crowd.add("zed", LOOP)
    cells = [crowd.add(owner, Work(cell_s=0.3, pause_s=0.7)) for owner in ("ben", "cem", "dan")]
    crowd.run(150)
    assert min(crowd.windows("ann:a", 60)[600:]) >= 0.3 * 60 - 2.1
    assert sum(crowd.part_s(each.owner) for each in cells) >= 0.08 * 150
    promised = crowd.scheduler._machine._state.accounts.of[DEVICE].promised
    assert promised == pytest.approx(0.9)


@OF_NOTEBOOKS
def test_a_request_is_for_the_notebook_alone() -> None:
    """Others of its user have what they would have without it."""
    crowd = Watched(SETTINGS.replace(requests="ann:a=0.5"))
    crowd.add("ann", LOOP, name="b")
    for number in range(4):
        crowd.add(f"other{number}", LOOP)
    crowd.run(100)
    assert crowd.part_s("ann") == pytest.approx(20, abs=2.1)


@OF_NOTEBOOKS
def test_what_a_notebook_requests_is_a_part_of_what_its_user_does() -> None:
    """Others of its user have used that up; another user's request is kept all the same."""
    chosen = SETTINGS.replace(requests="ann=0.5, ann:a=0.5, ben=0.5", weights="ann=5")
    crowd = Watched(chosen)
    crowd.add("ann", LOOP, name="b")
    crowd.add("ben", LOOP)
    crowd.run(12)
    crowd.add("ann", LOOP, name="a")
    crowd.run(60)
    assert min(crowd.windows("ben", 20)) >= 0.5 * 20 - 2.2
    assert min(crowd.windows("ann:a", 20)) >= 0.5 * 20 - 2.2


@OF_NOTEBOOKS
def test_a_violated_guarantee_of_a_notebook_is_counted() -> None:
    crowd = Watched(SETTINGS.replace(requests="ann:a=0.5"))
    other = crowd.add("ann", LOOP, name="b")
    crowd.run(1)
    crowd.say(ev.TenantHeld(tenant=other.tenant, hold_s=50, by_admin=True))
    crowd.add("ann", LOOP, name="a")
    crowd.run(48)
    crowd.say(ev.TenantHeld(tenant=other.tenant, hold_s=0, by_admin=True))
    crowd.run(2)
    assert crowd.violations("ann", "a") >= 1 and crowd.violations("ann") == 0
    (shown,) = shares_of(crowd)
    assert (shown.notebook, shown.violations) == ("a", crowd.violations("ann", "a"))


@OF_NOTEBOOKS
def test_a_notebook_requests_no_more_than_its_users_group_may_have() -> None:
    crowd = Watched(SETTINGS.replace(requests="ann:a=0.6", limits="@staff=0.3"))
    crowd.add("ann", LOOP, name="a", groups=("staff",))
    crowd.add("ben", LOOP)
    crowd.run(100)
    assert crowd.violations("ann", "a") == 0
    assert [(each.request, each.limit) for each in shares_of(crowd)] == [(0.0, 0.3), (0.3, 0.3)]


def test_fixed_gives_a_notebook_what_it_requests() -> None:
    """And its user's others what is left of the user's part."""
    crowd = Watched(SETTINGS.replace(sharing=Preset.FIXED, requests="ann=0.5, ann:a=0.2"))
    crowd.add("ann", LOOP, name="a")
    crowd.add("ann", LOOP, name="b")
    crowd.run(80)
    assert crowd.of_notebook_s["ann", "a"] == pytest.approx(0.2 * 80, abs=2.5)
    assert crowd.of_notebook_s["ann", "b"] == pytest.approx(0.3 * 80, abs=2.5)


# ---- whatever they do ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notebook:
    owner: str
    request: float
    limit: float
    hard_limit: float
    work: Work
    begins_s: Seconds


@dataclass(frozen=True, slots=True)
class World:
    requests: dict[str, float]
    """Of owners."""
    hard_limits: dict[str, float]
    weights: dict[str, float]
    notebooks: list[Notebook]

    def requests_together(self) -> dict[str, float]:
        own = {
            f"{each.owner}:n{number}": each.request
            for number, each in enumerate(self.notebooks)
            if each.request
        }
        return {**self.requests, **own}

    def is_valid(self) -> bool:
        together = by_owner(self.requests_together())
        return claimed(self.requests_together()) <= 0.9 and all(
            part <= self.requests.get(owner, 1) and part <= self.hard_limits.get(owner, 1)
            for owner, part in together.items()
        )


OWNERS = ("ann", "ben", "cem")
PARTS = st.dictionaries(st.sampled_from(OWNERS), st.sampled_from([0.2, 0.4, 0.6]), max_size=2)
WORKS = st.sampled_from([LOOP, LOOP, Work(), Work(cell_s=0.4), Work(cell_s=2.0, pause_s=1.0)])
WORLDS = st.builds(
    World,
    requests=PARTS,
    hard_limits=st.one_of(st.just({}), PARTS),
    weights=st.dictionaries(st.sampled_from(OWNERS), st.sampled_from([0.2, 5.0]), max_size=1),
    notebooks=st.lists(
        st.builds(
            Notebook,
            owner=st.sampled_from(OWNERS),
            request=st.sampled_from([0.0, 0.1, 0.3]),
            limit=st.sampled_from([1.0, 1.0, 0.4]),
            hard_limit=st.sampled_from([1.0, 1.0, 0.5, 0.3]),
            work=WORKS,
            begins_s=st.sampled_from([0.0, 0.0, 1.0, 3.0]),
        ),
        min_size=1,
        max_size=6,
    ),
).filter(lambda world: world.is_valid() and all_requests_within(world))


def all_requests_within(world: World) -> bool:
    limits = (world.requests.get(o, 0) <= world.hard_limits.get(o, 1) for o in OWNERS)
    return all(limits) and all(e.request <= min(e.limit, e.hard_limit) for e in world.notebooks)


def written(parts: dict[str, float]) -> str:
    return ", ".join(f"{name}={part}" for name, part in parts.items())


def all_is_kept(world: World, window_s: Seconds, quantum_s: Seconds, lasts_s: Seconds) -> None:
    """Hard limits of notebooks and owners always; requests of those that want the device throughout
    and have no limit, neither of their own nor of their owner."""
    named = {f"{each.owner}:n{number}": each for number, each in enumerate(world.notebooks)}
    crowd = Watched(
        SETTINGS.replace(
            requests=written(world.requests_together()),
            hard_limits=written(
                {**world.hard_limits, **{name: each.hard_limit for name, each in named.items()}}
            ),
            limits=written({name: each.limit for name, each in named.items()}),
            weights=written(world.weights),
            share_window_s=window_s,
            quantum_s=quantum_s,
            quantum_max_s=1.0,
            credit_s=0.0,
        )
    )
    for name, each in named.items():
        crowd.add(each.owner, each.work, name=name.partition(":")[2], at_s=each.begins_s)
    crowd.run(lasts_s)
    crowd.scheduler.check_invariants()
    longest_s = max(crowd.longest_s, quantum_s or 1.0)
    hand_overs_s = 0.05 + 10 * DRAIN_S + 0.2
    for name, each in named.items():
        of_owner = world.hard_limits.get(each.owner, 1.0)
        hard, windows = min(of_owner, each.hard_limit), crowd.windows(name, window_s)
        assert max(windows) <= hard * window_s + hand_overs_s, name
        assert max(crowd.windows(each.owner, window_s)) <= of_owner * window_s + hand_overs_s
        if each.work.pause_s or min(hard, each.limit) < 1:
            continue
        had_s = min(windows[round(each.begins_s * 10) + 1 :])
        assert had_s >= each.request * window_s - 2 * longest_s - 0.2, (name, had_s, longest_s)


@OF_NOTEBOOKS
@settings(max_examples=10, phases=PHASES)
@given(world=WORLDS, quantum_s=st.sampled_from([0.0, 0.5, 1.0]))
def test_requests_and_limits_are_kept_whatever_notebooks_do(
    world: World, quantum_s: Seconds
) -> None:
    """Loops and cells of notebooks with and without entries, beside those of their owners."""
    all_is_kept(world, 15.0, quantum_s, 40)


@OF_NOTEBOOKS
@many_runs
@given(world=WORLDS, quantum_s=st.sampled_from([0.0, 0.5, 1.0]))
def test_requests_and_limits_of_notebooks_are_kept_in_many_runs(
    world: World, quantum_s: Seconds
) -> None:
    """The same in many more runs, which are shorter."""
    all_is_kept(world, 6.0, quantum_s, 14)


@pytest.mark.full
def test_random_notebooks_beside_a_machine_that_looks_at_everything() -> None:
    """How notebooks with entries stand is found where something has changed, also a name."""
    chosen = SETTINGS.replace(
        requests="ann=0.3, ann:n0=0.2, ben:n1=0.2",
        limits="cem:n2=0.2",
        hard_limits="ann:n4=0.1, cem=0.4, ben:n5=0.3",
        share_window_s=5,
    )
    crowd = Crowd(chosen, devices="AB")
    crowd.scheduler = Beside(chosen)
    for device in "AB":
        crowd.say(ev.DeviceFound(device=DeviceId(device), name=device, bytes_total=8000))
    members = []
    for number, owner in zip(range(9), itertools.cycle(OWNERS), strict=False):
        work = Work(cell_s=0.3 + number / 5, pause_s=0.1 * number)
        devices = "AB" if number == 5 else "AB"[number % 2]
        at_s = number / 7
        members.append(crowd.add(owner, work, devices=devices, at_s=at_s, name=f"n{number % 6}"))
    for second in range(40):
        crowd.run(1)
        member = members[second % len(members)]
        name = member.name if second % 2 else f"n{second % 7}"
        crowd.say(
            ev.TenantRegistered(
                tenant=member.tenant, name=name, owner=member.owner, kind="kernel", groups=None
            )
        )
        crowd.scheduler.check_invariants()
        if second == 20:
            crowd.say(ev.SettingsChanged(settings=chosen.replace(limits="", hard_limits="ann=0.5")))
        if second == 30:
            crowd.say(ev.SettingsChanged(settings=SETTINGS))
        if second == 35:
            crowd.say(ev.SettingsChanged(settings=chosen))


# ---- bad input -------------------------------------------------------------------------------


@BAD
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"requests": "ann:a=0.6", "limits": "ann:a=0.5"}, "ann:a requests 0.6, and limits allow"),
        ({"requests": "ann:a=0.6, ann:b=0.2, ben=0.3"}, "requests add up to 1.1."),
        ({"requests": "ann:a=0.6, ann:b:c=0.6"}, "requests add up to 1.2."),
        (
            {"requests": "ann=0.3, ann:a=0.2, ann:b=0.2"},
            "of ann request 0.4 together, and requests",
        ),
        ({"requests": "ann:a=0.3", "hard_limits": "ann=0.2"}, "together, and hard_limits give ann"),
        ({"requests": "ann:a=0.3, ann:x:y=0.3", "limits": "ann=0.5"}, "and limits give ann 0.5."),
        ({"requests": "ann:a=0"}, "The share of ann:a is '0'."),
        ({"limits": "ann:=0.5"}, "'ann:' names no notebook."),
        ({"hard_limits": ":a=0.5"}, "':a' names no notebook."),
    ],
)
def test_what_cannot_be_kept_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        SETTINGS.replace(**changes)
    assert words in str(refused.value)
    assert str(refused.value).count("Give") + str(refused.value).count("Write") == 1


@BAD
def test_a_notebooks_request_is_no_more_where_its_users_is_said() -> None:
    """It is a part of that, and counts once."""
    SETTINGS.replace(requests="ann=0.6, ann:a=0.6, ben=0.4")


@BAD
def test_names_may_have_colons() -> None:
    """Of notebooks; and of users, of whom one may be called as somebody's notebook is."""
    crowd = Watched(SETTINGS.replace(hard_limits="ann:a:b=0.2, urn:zed=0.3"))
    crowd.add("ann", LOOP, name="a:b")
    crowd.add("urn:zed", LOOP)
    crowd.add("urn", LOOP, name="other")
    crowd.run(60)
    assert max(crowd.windows("ann:a:b", 20)) <= 0.2 * 20 + HAND_OVER_S
    assert max(crowd.windows("urn:zed", 20)) <= 0.3 * 20 + HAND_OVER_S
    assert [(each.owner, each.notebook) for each in shares_of(crowd)] == [
        ("ann", "a:b"),
        ("urn:zed", ""),
    ]
