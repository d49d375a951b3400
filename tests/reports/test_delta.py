"""What reports say: with any course of events, the view ends up with the state of the node."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.ids import DeviceId, TenantId, TurnId
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.core.snapshot import (
    DeviceSnapshot,
    HolderSnapshot,
    Snapshot,
    TenantCounters,
    TenantMemorySnapshot,
    TenantSnapshot,
    WaiterSnapshot,
)
from jupyter_gpushare.reports import delta as delta_module
from jupyter_gpushare.reports.delta import (
    PROBLEMS_MAX,
    ROWS_MAX,
    STEP_S,
    Delta,
    Now,
    OutOfOrder,
    Whose,
    is_news,
)
from jupyter_gpushare.reports.format import (
    DEVICES_MAX,
    MESSAGE_BYTES_MAX,
    TENANTS_MAX,
    TEXT_CHARACTERS_MAX,
    NodeHello,
    NodeRow,
    Report,
    Seen,
    Waits,
    message_of,
    pieces_of,
    text_of,
)
from jupyter_gpushare.view.fleet import Fleet, Node

BOOT = "0" * 32
GIB = 1 << 30
NODE = NodeRow(version="1", owners="hub", platform="machine")


def device(name: str = "A", /, **changed: Any) -> DeviceSnapshot:
    found = DeviceSnapshot(
        id=DeviceId(name),
        name=f"GPU {name}",
        bytes_total=8 * GIB,
        bytes_used=0,
        bytes_allocated=0,
        bytes_foreign=0,
        bytes_reserved=0,
        bytes_usable=7 * GIB,
        bytes_staying=0,
        lost=False,
        mode="open",
        bytes_contexts=0,
        holders=(),
        queue=(),
    )
    return replace(found, **changed)


def tenant(name: str = "a", /, **changed: Any) -> TenantSnapshot:
    found = TenantSnapshot(
        id=TenantId(name),
        name=f"notebook {name}",
        owner="ann",
        kind="kernel",
        state="idle",
        cap_bytes=0,
        clients=(),
        counters=TenantCounters(),
        runs_as="interactive",
    )
    return replace(found, **changed)


def holder(name: str, held_for_s: float = 0.0, **changed: Any) -> HolderSnapshot:
    found = HolderSnapshot(
        tenant=TenantId(name),
        name=name,
        turn=TurnId(1),
        held_for_s=held_for_s,
        recalled=False,
        overdue=False,
        frozen=False,
    )
    return replace(found, **changed)


def waiter(name: str, waited_s: float = 0.0) -> WaiterSnapshot:
    return WaiterSnapshot(tenant=TenantId(name), name=name, waited_s=waited_s)


def now(*things: DeviceSnapshot | TenantSnapshot, at_s: float = 0.0, node: NodeRow = NODE) -> Now:
    snapshot = Snapshot(
        at_s=at_s,
        recovering=False,
        devices=tuple(each for each in things if isinstance(each, DeviceSnapshot)),
        tenants=tuple(each for each in things if isinstance(each, TenantSnapshot)),
        settings=SchedulerSettings(),
    )
    return Now(snapshot, node, lambda tenant: Whose(tenant.owner, ("lab",)))


class Pair:
    """A node and the view, and what is between them: each text is written and read."""

    def __init__(self) -> None:
        self.delta = Delta(BOOT)
        self.fleet = Fleet()
        self.connect()

    def connect(self) -> None:
        hello = message_of(text_of(NodeHello(boot=BOOT, version="1")))
        assert isinstance(hello, NodeHello)
        self.fleet.hello("node", hello, now_s=0)
        self.delta.restart()

    def report(self, state: Now) -> Report:
        """One that arrives, and whose answer does."""
        report = self.delta.next(state, sent_at=1.0)
        self.delta.seen(self.arrives(report))
        return report

    def arrives(self, report: Report) -> Seen:
        read = message_of(text_of(report))
        assert isinstance(read, Report)
        return self.fleet.report("node", read, now_s=state_s(read), wall_s=1.0)

    @property
    def node(self) -> Node:
        return self.fleet.nodes["node"]

    def settle(self, state: Now) -> None:
        """Report until nothing is left to say."""
        for _ in range(100):
            if not is_news(self.report(state)) and not self.delta.is_behind:
                return
        raise AssertionError("it never has said everything")


def state_s(report: Report) -> float:
    return report.sent_at


# ---- what is news ----


@pytest.mark.promise(
    "scheduler-53", "Reports to the view have what has changed, and times that pass are no change"
)
def test_what_does_not_change_is_said_once() -> None:
    """The first report is whole; the next one of the same state says nothing."""
    pair, state = Pair(), now(device(), tenant())
    first = pair.report(state)
    assert first.whole and first.node == NODE
    assert (first.devices.keys(), first.tenants.keys()) == ({"A"}, {"a"})
    assert not is_news(pair.report(state))
    assert pair.node.tenants["a"].groups == ("lab",)


@pytest.mark.promise("scheduler-53")
def test_only_what_has_changed_is_said_again() -> None:
    """A row comes whole; one that is gone comes as None."""
    pair = Pair()
    pair.report(now(device("A"), device("B"), tenant("a"), tenant("b")))
    report = pair.report(now(device("A"), device("B", bytes_used=GIB), tenant("b")))
    assert report.node is None and not report.whole
    assert report.devices.keys() == {"B"}
    assert report.tenants == {"a": None}
    assert pair.node.tenants.keys() == {"b"}


@pytest.mark.promise("scheduler-53")
def test_times_that_pass_are_no_news() -> None:
    """A turn and a wait that go on are known; what they add up to is told every 15 s."""
    pair = Pair()

    def state(at_s: float) -> Now:
        return now(
            device(holders=(holder("a", at_s),), queue=(waiter("b", at_s),)),
            tenant("a", state="holding", counters=TenantCounters(held_s_total=at_s)),
            tenant("b", state="waiting", counters=TenantCounters(waited_s_total=at_s)),
            at_s=at_s,
        )

    pair.report(state(0))
    assert not is_news(pair.report(state(STEP_S - 1)))
    report = pair.report(state(STEP_S))
    assert report.devices == {} and report.tenants.keys() == {"a", "b"}
    assert pair.node.tenants["a"].held_s == STEP_S


def test_the_end_of_a_turn_is_news_at_once() -> None:
    """However short it was, all of it is told."""
    pair = Pair()
    pair.report(now(tenant(state="holding", counters=TenantCounters(turns=1, held_s_total=1))))
    pair.report(now(tenant(counters=TenantCounters(turns=1, held_s_total=1.5))))
    assert pair.node.tenants["a"].held_s == 1.5


@pytest.mark.parametrize(
    "place",
    [
        {"holders": (holder("a", 3.0),)},
        {"holders": (holder("b", 10.0),)},
        {"holders": (holder("a", 10.0, recalled=True),)},
        {"holders": (holder("a", 10.0, frozen=True),)},
        {"holders": (holder("a", 10.0), holder("b"))},
        {"queue": (waiter("b"),)},
        {"lost": True},
        {"mode": "paused"},
    ],
    ids=["came-anew", "another", "recalled", "frozen", "second", "queue", "lost", "paused"],
)
def test_what_is_news_of_a_device(place: dict[str, Any]) -> None:
    """Who came anew within a report's time is there since then."""
    pair = Pair()
    pair.report(now(device(holders=(holder("a", 5.0),)), at_s=0))
    later = {"holders": (holder("a", 10.0),), **place}
    assert pair.report(now(device(**later), at_s=5)).devices.keys() == {"A"}
    assert not is_news(pair.report(now(device(**later), at_s=5)))


def test_a_little_memory_of_the_host_is_no_news() -> None:
    """It changes all the time."""
    pair = Pair()
    pair.report(now(node=replace(NODE, bytes_host_available=64 * GIB)))
    assert not is_news(pair.report(now(node=replace(NODE, bytes_host_available=63 * GIB))))
    assert is_news(pair.report(now(node=replace(NODE, bytes_host_available=50 * GIB))))
    assert is_news(pair.report(now(node=replace(NODE, waits=Waits(sum_s=1.0)))))


@pytest.mark.promise(
    "scheduler-54", "Tenants of which nothing is new cost a report next to nothing"
)
def test_rows_of_the_same_object_are_not_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core shows the same object while nothing of a tenant is new."""
    made: list[str] = []
    really = delta_module._tenant_row

    def noted(tenant: TenantSnapshot, whose: Whose) -> Any:
        made.append(tenant.id)
        return really(tenant, whose)

    monkeypatch.setattr(delta_module, "_tenant_row", noted)
    pair = Pair()
    resting, working = tenant("a"), tenant("b", state="holding")
    pair.report(now(resting, working))
    pair.report(now(resting, replace(working)))
    pair.connect()
    pair.report(now(resting, replace(working)))
    assert made == ["a", "b", "b", "b"]


# ---- answers ----


@pytest.mark.promise(
    "scheduler-55", "Whatever reports are lost, the view ends up with the state of the node"
)
def test_after_a_new_connection_the_report_is_whole() -> None:
    """Also where the answer was lost alone."""
    pair, state = Pair(), now(device(), tenant())
    pair.arrives(pair.delta.next(state, sent_at=1.0))
    pair.connect()
    report = pair.report(state)
    assert report.whole and report.sequence == 0 and report.tenants.keys() == {"a"}


@pytest.mark.promise("scheduler-55")
def test_the_view_may_ask_for_everything() -> None:
    """`again` makes the next report whole."""
    pair, state = Pair(), now(device(), tenant())
    pair.report(state)
    report = pair.delta.next(state, sent_at=1.0)
    pair.delta.seen(Seen(sequence=report.sequence, again=True))
    assert pair.report(state).whole


@pytest.mark.promise("scheduler-55")
@pytest.mark.parametrize("sequence", [-1, 1, 7])
def test_an_answer_to_another_report_is_none(sequence: int) -> None:
    """What it was meant for cannot be known."""
    delta = Delta(BOOT)
    delta.next(now(), sent_at=1.0)
    with pytest.raises(OutOfOrder):
        delta.seen(Seen(sequence=sequence))


STATES = st.sampled_from(["idle", "waiting", "holding", "recalled"])
TEXTS = st.text(max_size=6)


@st.composite
def tenants(draw: st.DrawFn) -> tuple[TenantSnapshot, ...]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6))
    return tuple(
        tenant(
            name,
            name=draw(TEXTS),
            owner=draw(TEXTS),
            state=draw(STATES),
            counters=TenantCounters(
                turns=draw(st.integers(0, 3)), held_s_total=draw(st.sampled_from([0.0, 1.0, 20.0]))
            ),
            memory=tuple(
                TenantMemorySnapshot(
                    device=DeviceId("A"),
                    bytes_resident=draw(st.integers(0, 2)),
                    bytes_parked=0,
                    bytes_fixed=0,
                    bytes_staying=0,
                    cap_bytes=0,
                )
                for _ in range(draw(st.integers(0, 1)))
            ),
        )
        for name in names
    )


@st.composite
def devices(draw: st.DrawFn) -> tuple[DeviceSnapshot, ...]:
    names = draw(st.lists(st.sampled_from("ABC"), unique=True, max_size=3))
    return tuple(
        device(
            name,
            bytes_used=draw(st.integers(0, 2)),
            holders=tuple(holder(each) for each in draw(st.lists(st.sampled_from("ab")))[:1]),
            queue=tuple(waiter(each) for each in draw(st.lists(st.sampled_from("abc")))[:3]),
        )
        for name in names
    )


@st.composite
def states(draw: st.DrawFn) -> Now:
    node = replace(NODE, problems=tuple(draw(st.lists(TEXTS, max_size=2))))
    return now(*draw(devices()), *draw(tenants()), node=node)


FATES = st.sampled_from(["arrives", "is lost", "answer is lost", "is not sent", "again"])


@pytest.mark.promise("scheduler-55")
@given(course=st.lists(st.tuples(states(), FATES), max_size=12), end=states())
def test_any_course_of_events(course: list[tuple[Now, str]], end: Now) -> None:
    """States in any order; reports that are lost, and answers; a view that asks for everything."""
    pair = Pair()
    for state, fate in course:
        report = pair.delta.next(state, sent_at=1.0)
        if fate == "arrives":
            pair.delta.seen(pair.arrives(report))
        elif fate == "again":
            pair.delta.seen(Seen(sequence=report.sequence, again=True))
        elif fate != "is not sent":
            if fate == "answer is lost":
                pair.arrives(report)
            pair.connect()
    pair.settle(end)
    fresh = Pair()
    fresh.settle(end)
    assert without_short_times(pair.node) == without_short_times(fresh.node)


def without_short_times(node: Node) -> tuple[object, ...]:
    """What a turn under way adds up to may be up to 15 s behind."""
    rows = {
        name: row if row.state == "idle" else replace(row, held_s=0.0)
        for name, row in node.tenants.items()
    }
    return node.row, node.devices, rows, node.fault


# ---- bounds ----


def test_a_text_is_cut_to_what_a_row_may_have() -> None:
    """Names may be long, and have anything in them."""
    pair = Pair()
    name = "n" * 1000
    pair.report(now(device(name=name), tenant(name="a\x00b", owner=name)))
    assert pair.node.tenants["a"].name == "a\N{REPLACEMENT CHARACTER}b"
    assert pair.node.tenants["a"].owner == name[:TEXT_CHARACTERS_MAX]
    assert pair.node.devices["A"].name == name[:TEXT_CHARACTERS_MAX]


@pytest.mark.promise(
    "scheduler-56", "A report is bounded, and says so where the node has more than it may have"
)
def test_more_than_the_view_takes() -> None:
    """The rest is left out, and a problem says so; none that there is too many of is refused."""
    pair = Pair()
    devices = [device(f"d{number}") for number in range(DEVICES_MAX + 1)]
    tenants = [tenant(f"t{number}") for number in range(TENANTS_MAX + 1)]
    node = replace(NODE, problems=tuple(f"problem {number}" for number in range(200)))
    pair.settle(now(*devices, *tenants, node=node))
    assert (len(pair.node.devices), len(pair.node.tenants)) == (DEVICES_MAX, TENANTS_MAX)
    assert pair.node.row is not None and len(pair.node.row.problems) == PROBLEMS_MAX
    assert pair.node.row.problems[0].startswith(f"This node has {DEVICES_MAX + 1} devices, and")
    assert "4097 notebooks" in pair.node.row.problems[1]
    others = [tenant(f"u{number}") for number in range(TENANTS_MAX)]
    pair.settle(now(*(device(f"e{number}") for number in range(DEVICES_MAX)), *others))
    assert pair.node.devices.keys() == {f"e{number}" for number in range(DEVICES_MAX)}
    assert pair.node.tenants.keys() == {each.id for each in others}


@pytest.mark.promise("scheduler-56")
def test_a_report_has_so_many_new_rows_and_the_next_goes_on() -> None:
    """Where all of them change all the time, each of them has its turn."""
    pair = Pair()
    named = [f"t{number}" for number in range(3 * ROWS_MAX)]
    seen: set[str] = set()
    for held_s in range(0, 4 * 20, 20):
        counters = TenantCounters(held_s_total=held_s)
        state = now(*(tenant(each, state="holding", counters=counters) for each in named))
        report = pair.report(state)
        assert len(report.tenants) <= ROWS_MAX and pair.delta.is_behind
        seen |= report.tenants.keys()
    assert seen == set(named)


@pytest.mark.promise("scheduler-56")
def test_the_longest_texts_fit_into_a_message() -> None:
    """Names that take twelve bytes a character, and queues of all tenants on all devices."""
    pair = Pair()
    emoji = "\N{GRINNING FACE}" * TEXT_CHARACTERS_MAX
    queue = tuple(waiter(f"t{number:040}") for number in range(TENANTS_MAX))
    devices = [device(f"d{number}", name=emoji, queue=queue) for number in range(DEVICES_MAX)]
    tenants = [tenant(f"t{number:040}", name=emoji, owner=emoji) for number in range(600)]
    state = now(*devices, *tenants)
    state = replace(state, whose=lambda tenant: Whose(emoji, (emoji,) * 1000, emoji))
    for _ in range(20):
        report = pair.delta.next(state, sent_at=1.0)
        text = text_of(report)
        assert len(text) <= MESSAGE_BYTES_MAX
        pair.delta.seen(pair.arrives(report))
    assert len(pair.node.devices) == DEVICES_MAX


def test_pieces_are_the_text() -> None:
    """However it is made, and it is what the rows say."""
    report = Delta(BOOT).next(
        now(device(holders=(holder("a"),)), tenant(name='"a"'), tenant("b")), sent_at=1.0
    )
    pieces = list(pieces_of(replace(report, tenants={**report.tenants, "c": None})))
    said = json.loads("".join(pieces))
    assert said["type"] == "report" and said["tenants"]["c"] is None
    assert said["tenants"]["a"]["name"] == '"a"'
    assert said["devices"]["A"] == json.loads(json.dumps(dataclasses.asdict(report.devices["A"])))  # type: ignore[call-overload]
    assert said["node"] == json.loads(json.dumps(dataclasses.asdict(NODE)))
    assert len(pieces) > len(report.tenants)
