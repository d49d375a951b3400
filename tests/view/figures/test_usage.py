"""What is counted of the GPU time that nodes report: each second once."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jupyter_gpushare.view.fleet import FORGET_S, Fleet
from jupyter_gpushare.view.usage import (
    ACCOUNT,
    DAY_S,
    GONE_MAX,
    GONE_S,
    HUB,
    LINES_MAX,
    OTHERS,
    UNDER_WAY_S,
    HeardOf,
    Known,
    UsageLine,
    UsageRecord,
)
from tests.view.figures.nodes import WALL_S, Reporting, tenant

TODAY = int(WALL_S // DAY_S)


class Kept:
    """What a file would have."""

    def __init__(self) -> None:
        self.lines: Counter[UsageLine] = Counter()
        self.nodes: dict[str, HeardOf] = {}
        self.counters: dict[tuple[str, str], float] = {}
        self.until_wall_s = WALL_S

    def takes(self, usage: UsageRecord, wall_s: float) -> None:
        changes = usage.changes()
        self.lines.update(changes.lines)  # type: ignore[arg-type]
        self.counters = {
            key: held for key, held in self.counters.items() if key[0] not in changes.cleared
        }
        for name in changes.forgotten:
            self.nodes.pop(name, None)
        self.nodes.update({each.node: each for each in changes.nodes})
        for key in changes.ended:
            self.counters.pop(key, None)
        self.counters.update({(node, id): held for node, id, held in changes.counters})
        self.until_wall_s = wall_s

    def known(self) -> Known:
        counters = [(node, id, held) for (node, id), held in self.counters.items()]
        return Known(
            until_wall_s=self.until_wall_s, nodes=[*self.nodes.values()], counters=counters
        )

    def seconds(self, **of: object) -> float:
        return sum(
            seconds
            for line, seconds in self.lines.items()
            if all(getattr(line, name) == value for name, value in of.items())
        )


class Bench:
    """A view whose clock the test moves."""

    def __init__(self, accounts_are_users: bool = False) -> None:
        self.now_s = 0.0
        self.fleet = Fleet()
        self.kept = Kept()
        self._accounts_are_users = accounts_are_users
        self.starts()

    def starts(self) -> None:
        """Anew, with what was kept."""
        self.fleet.nodes.clear()
        self.fleet.changed.clear()
        self.usage = UsageRecord(
            self.kept.known(),
            now_s=self.now_s,
            wall_s=WALL_S + self.now_s,
            accounts_are_users=self._accounts_are_users,
        )

    def starts_from_file(self) -> None:
        """All that was counted is written before."""
        self.counted()
        self.starts()

    def takes(self, *nodes: Reporting) -> None:
        for node in nodes:
            node.reports(self.now_s)
        wall_s = WALL_S + self.now_s
        self.usage.take(self.fleet, self.fleet.take_changed(), now_s=self.now_s, wall_s=wall_s)

    def counted(self, **of: object) -> float:
        self.kept.takes(self.usage, WALL_S + self.now_s)
        return self.kept.seconds(**of)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.promise(
    "view-19",
    "GPU time is counted for owners and their groups: each second once, over reconnects and "
    "restarts of schedulers and of the view",
)
def test_growth_is_counted(bench: Bench) -> None:
    """For its owner, and once for each group; what has not changed is not."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant("alice", groups=("ml", "bio", "ml")), u=tenant("bob"))
    bench.takes(node)
    bench.now_s = 10.0
    node.held({"t": 8.0, "u": 2.0})
    bench.takes(node)
    bench.takes(node)
    assert bench.counted(owner="alice", group="") == 8.0
    assert bench.counted(group="ml") == bench.counted(group="bio") == 8.0
    assert bench.counted(group="") == 10.0
    assert {line[:2] for line in bench.kept.lines} == {(TODAY, HUB)}


@pytest.mark.promise("view-19")
@pytest.mark.parametrize("restarts", ["node", "scheduler", "view", "view in a crash"])
def test_who_starts_anew_counts_nothing_twice(bench: Bench, restarts: str) -> None:
    """60 s before and 5 s after it."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant())
    bench.takes(node)
    bench.now_s = 60.0
    node.held({"t": 60.0})
    bench.takes(node)
    if restarts == "node":
        node.connects(bench.now_s)
    elif restarts == "scheduler":
        node.starts(bench.now_s)
        node.held({"t": -60.0})
    else:
        if restarts == "view":
            bench.counted()
        bench.starts()
        node.connects(bench.now_s)
    bench.takes()
    bench.now_s = 70.0
    node.held({"t": node.tenants["t"].held_s + 5.0 if restarts != "scheduler" else 5.0})
    bench.takes(node)
    assert bench.counted(group="") == 65.0


@pytest.mark.promise("view-19")
def test_a_whole_report_that_comes_in_pieces(bench: Bench) -> None:
    """A tenant that is in none of them yet is not a new one; one that stays away is forgotten."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant(), u=tenant())
    bench.takes(node)
    bench.now_s = 60.0
    node.held({"t": 60.0, "u": 0.5})
    bench.takes(node)
    node.connects(bench.now_s)
    late = node.tenants.pop("t")
    bench.takes(node)
    bench.starts_from_file()
    bench.now_s = 61.0
    node.connects(bench.now_s)
    bench.takes(node)
    node.has(t=late)
    bench.takes(node)
    assert bench.counted(group="") == 60.5
    del node.tenants["t"]
    for bench.now_s in (62.0, 62.0 + GONE_S, 63.0 + GONE_S):
        bench.takes(node)
    bench.counted()
    assert bench.kept.counters.keys() == {("a", "u")}


def test_a_turn_on_several_devices(bench: Bench) -> None:
    """Each of them counts, but none that the node does not have."""
    node = Reporting(bench.fleet, "a", now_s=0.0, devices=2)
    node.has(one=tenant("alice"), two=tenant("bob", devices=tuple(node.devices)))
    node.has(many=tenant("carol", devices=tuple("abcdef")), none=tenant("dave", devices=()))
    bench.takes(node)
    bench.now_s = 10.0
    node.held(dict.fromkeys(node.tenants, 3.0))
    bench.takes(node)
    counted = [bench.counted(owner=owner) for owner in ("alice", "bob", "carol", "dave")]
    assert counted == [3.0, 6.0, 6.0, 3.0]


def test_counters_of_an_earlier_boot(bench: Bench) -> None:
    """They are forgotten, also of a tenant that comes back after the view has started anew."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant(), u=tenant())
    bench.takes(node)
    bench.now_s = 60.0
    node.held({"t": 60.0})
    bench.takes(node)
    bench.counted()
    node.starts(bench.now_s)
    late = node.tenants.pop("t")
    bench.takes(node)
    bench.starts_from_file()
    node.breaks()
    node.has(t=replace(late, held_s=5.0))
    bench.now_s = 70.0
    bench.takes(node)
    assert bench.counted(group="") == 65.0


def test_old_rows_are_not_of_the_new_boot(bench: Bench) -> None:
    """Between the hello of a new scheduler and its first report, the rows are the old ones."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant())
    bench.takes(node)
    bench.now_s = 60.0
    node.held({"t": 60.0})
    bench.takes(node)
    node.starts(bench.now_s)
    node.connects(bench.now_s)
    bench.takes()
    assert bench.counted(group="") == 60.0


def test_what_nobody_has_watched_is_not_counted(bench: Bench) -> None:
    """A scheduler that has run for long before the first view, and one that began after it."""
    bench.now_s = 1000.0
    bench.kept.until_wall_s = WALL_S + 1000.0
    bench.starts()
    old, new = (Reporting(bench.fleet, name, now_s=at_s) for name, at_s in (("a", 0), ("b", 1000)))
    old.has(t=tenant("alice", held_s=700.0))
    new.has(t=tenant("bob", held_s=3.0))
    bench.now_s = 1004.0
    bench.takes(old, new)
    assert (bench.counted(owner="alice"), bench.counted(owner="bob")) == (0.0, 3.0)
    bench.now_s = 1010.0
    old.held({"t": 704.0})
    old.has(later=tenant("carol", held_s=1.0))
    bench.takes(old)
    assert (bench.counted(owner="alice"), bench.counted(owner="carol")) == (4.0, 1.0)


@pytest.mark.promise(
    "view-20",
    "A node that reports more GPU time than has passed is cut to what can be, and the page says so",
)
def test_a_node_that_lies(bench: Bench) -> None:
    """Neither a counter that jumps, nor tenants and boots that it makes up, give it more."""
    node = Reporting(bench.fleet, "a", now_s=0.0, devices=2)
    node.has(t=tenant())
    bench.takes(node)
    for second in range(1, 201):
        bench.now_s = float(second)
        if second % 7 == 0:
            node.starts(bench.now_s)
        if second % 3 == 0:
            node.tenants = {}
        node.has(**{f"t{second % 2}": tenant(held_s=1e6 * second)})
        bench.takes(node)
    assert 0 < bench.counted(group="") <= 2 * (200 + UNDER_WAY_S)
    assert "more of GPU time than can have passed" in bench.fleet.nodes["a"].doubt
    bench.now_s += 3601
    bench.takes(node)
    assert bench.fleet.nodes["a"].doubt == ""


def test_a_report_that_was_long_under_way_is_no_lie(bench: Bench) -> None:
    """The view, or the network, stands still for a while; the next report follows at once."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant())
    bench.takes(node)
    bench.now_s = 50.0  # what the node said at 1 s
    node.held({"t": 1.0})
    bench.takes(node)
    bench.now_s = 50.1
    node.held({"t": 50.0})
    bench.takes(node)
    assert bench.counted(group="") == 50.0
    assert bench.fleet.nodes["a"].doubt == ""


def test_a_counter_that_falls(bench: Bench) -> None:
    """It is passed over until it is above again."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant())
    for now_s, held_s in ((0, 0), (60, 60), (70, 5), (200, 62)):
        bench.now_s = float(now_s)
        node.held({"t": float(held_s)})
        bench.takes(node)
    assert bench.counted(group="") == 62.0


@pytest.mark.promise(
    "view-21", "Accounts of one name on two nodes are two owners, unless the admin says otherwise"
)
def test_accounts_of_nodes() -> None:
    """The line names the node; `accounts_are_users` makes them the hub's."""
    for users, kind in ((False, ACCOUNT), (True, HUB)):
        bench = Bench(accounts_are_users=users)
        nodes = [Reporting(bench.fleet, name, now_s=0.0, owners="accounts") for name in "ab"]
        for node in nodes:
            node.has(t=tenant())
        bench.takes(*nodes)
        bench.now_s = 5.0
        for node in nodes:
            node.held({"t": 3.0})
        bench.takes(*nodes)
        assert bench.counted(kind=kind, node="a") == bench.counted(kind=kind, node="b") == 3.0


def test_midnight_and_days_that_nobody_saw(bench: Bench) -> None:
    """Time is spread over the days in which it passed, evenly."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant())
    bench.takes(node)
    until_midnight_s = (TODAY + 1) * DAY_S - WALL_S
    bench.now_s = until_midnight_s + DAY_S + 100.0
    node.held({"t": bench.now_s / 2})
    bench.takes(node)
    assert bench.counted(day=TODAY) == pytest.approx(until_midnight_s / 2)
    assert bench.counted(day=TODAY + 1) == pytest.approx(DAY_S / 2)
    assert bench.counted(day=TODAY + 2) == pytest.approx(50.0)
    assert bench.counted() == pytest.approx(bench.now_s / 2)


def test_a_clock_that_is_set_back(bench: Bench) -> None:
    """Everything goes to the day that it says."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant())
    bench.takes(node)
    node.held({"t": 9.0})
    node.reports(10.0)
    bench.usage.take(bench.fleet, {"a"}, now_s=10.0, wall_s=WALL_S - 10 * DAY_S)
    assert bench.counted(day=TODAY - 10) == 9.0


def test_too_many_owners(bench: Bench) -> None:
    """A node has so many lines a day; the rest is added up."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    bench.takes(node)
    groups = tuple(f"g{n}" for n in range(200))
    for second in range(1, 60):
        bench.now_s = float(second)
        node.tenants = {}
        node.has(**{f"t{second}{n}": tenant(f"u{second}-{n}", groups=groups) for n in range(9)})
        node.held(dict.fromkeys(node.tenants, 0.5))
        bench.takes(node)
    assert bench.counted(group="") == pytest.approx(59 * 9 / 2)
    assert bench.counted(owner=OTHERS) > 0
    assert len(bench.kept.lines) == LINES_MAX + 1


def test_tenants_that_come_and_go(bench: Bench) -> None:
    """Not all of them are kept in mind."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    for second in range(20):
        bench.now_s = float(second)
        node.tenants = {}
        node.has(**{f"t{second}-{n}": tenant() for n in range(200)})
        bench.takes(node)
    bench.counted()
    assert len(bench.kept.counters) <= 200 + GONE_MAX


def test_a_node_that_is_forgotten(bench: Bench) -> None:
    """By the fleet, and by a view that starts later; its lines stay."""
    node = Reporting(bench.fleet, "a", now_s=0.0)
    node.has(t=tenant())
    bench.takes(node)
    bench.now_s = 5.0
    node.held({"t": 5.0})
    bench.takes(node)
    bench.counted()
    bench.now_s += FORGET_S + 1
    late = copy.deepcopy(bench.kept)
    later = UsageRecord(late.known(), now_s=0.0, wall_s=WALL_S + bench.now_s)
    late.takes(later, 0.0)
    bench.fleet.forget_silent(bench.now_s)
    bench.takes()
    assert bench.counted() == 5.0
    for kept in (bench.kept, late):
        assert (kept.nodes, kept.counters) == ({}, {})


# ---- at random --------------------------------------------------------------------------------

NODES = st.sampled_from("abc")
OWNERS = {"alice": ("ml",), "bob": ("ml", "bio"), "carol": ()}


class Honest(RuleBasedStateMachine):
    """Nodes that say what is so, and everybody who starts anew, whenever."""

    @initialize()
    def begin(self) -> None:
        self.bench = Bench()
        self.nodes = {n: Reporting(self.bench.fleet, n, now_s=0.0, devices=2) for n in "abc"}
        self.true_s: Counter[str] = Counter()
        self.said_s: Counter[str] = Counter()
        """By owner: what has reached a view. It is counted, unless a view crashes after it."""
        self.told: dict[str, dict[str, float]] = {node: {} for node in self.nodes}
        self.crashed = False
        self.ids = 0
        self.bench.takes(*self.nodes.values())
        self.bench.counted()

    @rule(node=NODES, owner=st.sampled_from([*OWNERS]))
    def registers(self, node: str, owner: str) -> None:
        self.ids += 1
        self.nodes[node].has(**{f"t{self.ids}": tenant(owner, groups=OWNERS[owner])})

    @rule(node=NODES)
    def ends(self, node: str) -> None:
        tenants = self.nodes[node].tenants
        if tenants:
            del tenants[next(iter(tenants))]

    @rule(
        for_s=st.floats(0.0, 200.0),
        shares=st.lists(st.floats(0, 1), min_size=9, max_size=9),
    )
    def time_passes(self, for_s: float, shares: list[float]) -> None:
        self.bench.now_s += for_s
        for node in self.nodes.values():
            for (id, row), share in zip(node.tenants.items(), shares, strict=False):
                grown_s = for_s * share
                node.tenants[id] = replace(row, held_s=row.held_s + grown_s)
                self.true_s[row.owner] += grown_s

    @rule(node=NODES)
    def reports(self, node: str) -> None:
        reporting = self.nodes[node]
        self.bench.takes(reporting)
        for id, row in reporting.tenants.items():
            self.said_s[row.owner] += row.held_s - self.told[node].get(id, 0.0)
        self.told[node] = {id: row.held_s for id, row in reporting.tenants.items()}

    @rule(node=NODES)
    def connects_anew(self, node: str) -> None:
        self.nodes[node].connects(self.bench.now_s)
        self.bench.takes()

    @rule(node=NODES)
    def scheduler_starts_anew(self, node: str) -> None:
        self.nodes[node].starts(self.bench.now_s)
        self.told[node] = {}

    @rule()
    def is_written(self) -> None:
        """All that was said is counted, unless a view has ended before it was written."""
        for owner in OWNERS:
            counted_s = self.bench.counted(owner=owner, group="")
            if not self.crashed:
                assert counted_s == pytest.approx(self.said_s[owner], abs=1e-6)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            for node in self.nodes:
                self.reports(node)
            self.is_written()

    @rule(crash=st.booleans())
    def view_starts_anew(self, crash: bool) -> None:
        if not crash:
            self.bench.counted()
        self.crashed |= crash
        self.bench.starts()
        for node in self.nodes.values():
            node.breaks()

    @invariant()
    @precondition(lambda self: hasattr(self, "bench"))
    def each_second_once(self) -> None:
        for owner, groups in OWNERS.items():
            counted_s = self.bench.kept.seconds(owner=owner, group="")
            assert counted_s <= self.true_s[owner] + 1e-6
            for group in groups:
                of_group_s = self.bench.kept.seconds(owner=owner, group=group)
                assert of_group_s == pytest.approx(counted_s, abs=1e-6)
        assert not any(node.doubt for node in self.bench.fleet.nodes.values())


TestHonestNodes = Honest.TestCase
TestHonestNodes.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
