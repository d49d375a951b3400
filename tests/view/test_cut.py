"""What a caller may see of all nodes, and what is found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.reports.format import (
    DEVICES_MAX,
    MESSAGE_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
    DeviceRow,
    NodeHello,
    TenantRow,
)
from jupyter_gpushare.view.caller import Viewer
from jupyter_gpushare.view.cut import (
    OTHER,
    SOMETHING,
    Sight,
    answer_of_events,
    answer_of_node,
    answer_of_nodes,
    answer_of_summary,
    answer_of_tenants,
    natural,
    news_of,
)
from jupyter_gpushare.view.fleet import SILENT_S, Fleet
from jupyter_gpushare.view.query import Query, QueryError, query_of
from tests.view.fleets import (
    GIB,
    device,
    node_row,
    place,
    reports,
    small_fleet,
    tenant,
)

ADMIN = Viewer("root", True)
ALICE = Viewer("alice", False)


def sight(fleet: Fleet, caller: Viewer = ADMIN, now_s: float = 1.0, **more: Any) -> Sight:
    return Sight(fleet, caller, now_s, **more)


def nodes(fleet: Fleet, caller: Viewer = ADMIN, **asked: str) -> dict[str, Any]:
    return answer_of_nodes(sight(fleet, caller), query_of(asked))


def names(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["nodes"]]


# ---- users see what is theirs -------------------------------------------------------------------


@pytest.mark.promise(
    "view-29",
    "A user sees all nodes and devices, and of others neither names nor ids nor counters, whatever "
    "nodes report and whatever is searched for",
)
def test_a_user_sees_own_tenants_whole_and_others_without_names() -> None:
    """Alice finds her notebook and that somebody waits behind it."""
    seen = answer_of_node(sight(small_fleet(), ALICE), "node-a")
    assert seen is not None
    (holder,) = seen["devices"]["a0"]["holders"]
    assert (holder["name"], holder["owner"], holder["tenant"]) == (
        "train.ipynb",
        "alice",
        "t-alice",
    )
    assert holder["mine"] and holder["for_s"] == 13.0
    (waiter,) = seen["devices"]["a0"]["queue"]
    assert waiter["name"] == OTHER and waiter["for_s"] == 6.0
    assert waiter["owner"] is None and waiter["tenant"] is None
    assert [each["id"] for each in seen["tenants"]] == ["t-alice"]
    assert seen["problems"] == []


MARK = "ZQ"
"""Stands in all that must not be seen of others, and in nothing else."""
COUNTERS = (771_001, 771_002)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Alice among others, with everything of theirs marked."""
    fleet = Fleet()
    others = st.text("abé'<\\", max_size=4).map(lambda text: f"{MARK}{text}")
    owners = st.one_of(st.just("alice"), others)
    for number in range(draw(st.integers(1, 4))):
        by_hub = draw(st.booleans())
        tenants: dict[str, TenantRow] = {}
        for count in range(draw(st.integers(0, 4))):
            owner = draw(owners)
            mine = owner == "alice" and by_hub
            tag = "own" if mine else MARK
            tenants[f"{tag}-{number}-{count}"] = tenant(
                owner,
                f"{tag}.ipynb",
                groups=(tag,),
                turns=1 if mine else COUNTERS[0],
                held_s=1.0 if mine else float(COUNTERS[1]),
                why=draw(st.sampled_from(["", f"{MARK} is in the way."])),
            )
        stands = [place(each) for each in draw(st.permutations([*tenants, f"{MARK}-gone"]))]
        cut = draw(st.integers(0, len(stands)))
        found: dict[str, DeviceRow] = {
            "d0": device(holders=tuple(stands[:cut])),
            "d1": device(queue=tuple(stands[cut:]), lost=draw(st.booleans())),
        }
        owners_of = "hub" if by_hub else "accounts"
        row = node_row(owners=owners_of, problems=(f"{MARK} has a problem.",))
        reports(fleet, f"node-{number}", found, tenants, row=row)
    if draw(st.booleans()):
        fleet.hello("node-new", NodeHello(boot="0" * 32, version="1"), now_s=0.0)
    return fleet


@pytest.mark.promise("view-29")
@given(
    fleet=fleets(),
    find=st.sampled_from(["", MARK.lower(), "alice", "own", "node", ".ipynb"]),
    sort=st.sampled_from(["name", "waiting", "free", "problems"]),
    state=st.sampled_from(["", "live", "problems", "free"]),
    owner=st.sampled_from(["", "alice", MARK, f"{MARK}a"]),
)
def test_nothing_of_others_is_in_any_answer(
    fleet: Fleet, find: str, sort: str, state: str, owner: str
) -> None:
    """Every answer as text is searched for what is marked."""
    seen = sight(fleet, ALICE)
    for show in ("nodes", "tenants"):
        query = Query(show=show, find=find, sort=sort, state=state, owner=owner, summary=True)
        for name in fleet.nodes:
            opened = Query(**{**_fields(query), "open": name})
            text = json.dumps(answer_of_events(seen, opened))
            assert MARK not in text
            assert not any(str(each) in text for each in COUNTERS)
    tenants = answer_of_tenants(seen, Query())
    assert all(each["id"].startswith("own") for each in tenants["tenants"])


def _fields(query: Query) -> dict[str, Any]:
    return {name: getattr(query, name) for name in query.__dataclass_fields__}


@pytest.mark.promise("view-29")
@given(fleet=fleets(), find=st.text("aZQlicedno-0.p", min_size=1, max_size=3))
def test_a_search_finds_the_same_whatever_others_are_called(fleet: Fleet, find: str) -> None:
    """What a user's search counts does not change when all others get new names."""
    told = query_of({"find": find})
    before = [_counted(sight(fleet, ALICE), told)]
    for node in fleet.nodes.values():
        for key, row in list(node.tenants.items()):
            if key.startswith(MARK):
                values = {name: getattr(row, name) for name in row.__dataclass_fields__}
                fleet._unlist(node.name, key, row)
                node.tenants[key] = TenantRow(**{**values, "owner": "x", "name": "y"})
                fleet._of_owner.setdefault("x", set()).add((node.name, key))
    assert [_counted(sight(fleet, ALICE), told)] == before


def _counted(seen: Sight, query: Query) -> tuple[int, int, int]:
    found = answer_of_nodes(seen, query)
    return found["total"], len(found["nodes"]), answer_of_tenants(seen, query)["total"]


def test_an_account_of_the_same_name_is_somebody_else() -> None:
    """Unless the administrator says that accounts are the hub's users."""
    fleet = small_fleet()
    assert answer_of_summary(sight(fleet, ALICE))["mine"]["total"] == 1
    told = answer_of_summary(sight(fleet, ALICE, accounts_are_users=True))["mine"]
    assert [each["node"] for each in told["tenants"]] == ["node-a", "node-c"]


def test_the_words_of_a_node_on_a_tenant_do_not_reach_users() -> None:
    """They may name who is in the way: users are told where to look instead."""
    fleet = Fleet()
    reports(fleet, "n", {}, {"t": tenant("alice", "x", why="Memory of bob is in the way.")})
    assert answer_of_tenants(sight(fleet, ALICE), Query())["tenants"][0]["why"] == SOMETHING
    assert "bob" in answer_of_tenants(sight(fleet), Query())["tenants"][0]["why"]


def test_an_administrator_sees_all() -> None:
    """Names with their owners, and what nodes say."""
    (row,) = [each for each in nodes(small_fleet())["nodes"] if each["name"] == "node-a"]
    assert row["holders"] == ["alice: train.ipynb"]
    assert row["problems"] == ["The notebook secret-plan.ipynb of bob is stuck."]
    assert (row["devices"], row["devices_free"], row["waiting"]) == (2, 1, 1)
    assert row["bytes_parked"] == GIB and row["outside"]
    assert answer_of_tenants(sight(small_fleet()), Query())["total"] == 3


# ---- what is found ------------------------------------------------------------------------------


@pytest.mark.promise(
    "view-30", "Nodes are found by their names and by those of owners and notebooks there"
)
def test_a_node_is_found_by_who_is_there() -> None:
    """Capitals do not matter; who was looked for is named, also where it holds nothing."""
    fleet = small_fleet()
    assert names(nodes(fleet, find="NODE-B")) == ["node-b"]
    assert names(nodes(fleet, find="alice")) == ["node-a", "node-c"]
    (row,) = nodes(fleet, find="secret")["nodes"]
    assert row["found"] == ["bob: secret-plan.ipynb"]
    assert nodes(fleet, find="nowhere") == {"at": 1.0, "total": 0, "nodes": []}
    assert names(nodes(fleet, ALICE, find="secret")) == []
    assert names(nodes(fleet, ALICE, find="train")) == ["node-a"]


def test_the_holder_that_was_looked_for_comes_first() -> None:
    """However many there are."""
    fleet = Fleet()
    tenants = {f"t{n}": tenant("u", f"book-{n}.ipynb") for n in range(20)}
    reports(fleet, "n", {"d": device(holders=tuple(place(each) for each in tenants))}, tenants)
    (row,) = nodes(fleet, find="book-17")["nodes"]
    assert row["holders"][0] == "u: book-17.ipynb"
    assert len(row["holders"]) == 8 and row["holders_count"] == 20


def test_nodes_are_sorted() -> None:
    """By name as people count, by who waits, by what is free, and by what needs a look."""
    fleet = Fleet()
    reports(fleet, "node-10", {"d": device()}, {})
    reports(fleet, "node-9", {"d": device(holders=(place("x"),), queue=(place("y"),))}, {})
    reports(fleet, "node-11", {"d": device(), "e": device()}, {})
    reports(fleet, "node-7", {"d": device(holders=(place("x"),))}, {}, skew_s=-90.0)
    assert names(nodes(fleet)) == ["node-7", "node-9", "node-10", "node-11"]
    assert names(nodes(fleet, sort="waiting"))[0] == "node-9"
    assert names(nodes(fleet, sort="free"))[:2] == ["node-11", "node-10"]
    assert names(nodes(fleet, sort="problems"))[0] == "node-7"
    assert names(nodes(fleet, state="problems")) == ["node-7"]
    assert "90 s behind" in nodes(fleet, state="problems")["nodes"][0]["problems"][0]


@given(st.text(max_size=12), st.text(max_size=12))
def test_the_order_of_names_is_one_order(one: str, other: str) -> None:
    """Two names never count as the same, and any two can be compared."""
    assert (natural(one) == natural(other)) == (one == other)
    assert (natural(one) < natural(other)) or (natural(other) < natural(one)) or one == other


def test_a_page_at_a_time() -> None:
    """The total stays; rows come once each."""
    fleet = Fleet()
    for number in range(7):
        tenants = {f"t{n}": tenant("u", f"book-{n}") for n in range(number)}
        reports(fleet, f"n{number}", {}, tenants)
    pages = [nodes(fleet, limit="3", offset=str(offset)) for offset in (0, 3, 6)]
    assert [name for page in pages for name in names(page)] == [f"n{n}" for n in range(7)]
    seen = []
    for offset in range(0, 25, 4):
        answer = answer_of_tenants(sight(fleet), Query(limit=4, offset=offset))
        assert answer["total"] == 21
        seen += [(each["node"], each["id"]) for each in answer["tenants"]]
    assert len(seen) == len(set(seen)) == 21


@pytest.mark.promise("view-31", "However much a node reports, an answer stays of a bounded length")
def test_a_node_that_reports_very_much() -> None:
    """Its places, tenants and names are told up to a bound, with how many there are."""
    fleet = Fleet()
    tenants = {f"t{n:04}": tenant("u", f"book-{n:04}") for n in range(4000)}
    places = tuple(place(each) for each in tenants)
    lines = device(holders=places[3000:], queue=places[:3000])
    reports(fleet, "n", {f"d{n}": lines for n in range(8)}, tenants)
    seen = answer_of_node(sight(fleet), "n")
    assert seen is not None
    assert (len(seen["tenants"]), seen["tenants_count"]) == (100, 4000)
    assert seen["tenants"][0]["place"] == "holder"
    told = seen["devices"]["d0"]
    assert (len(told["holders"]), told["holders_count"]) == (50, 1000)
    assert (len(told["queue"]), told["queue_count"]) == (50, 3000)
    (row,) = nodes(fleet, find="book")["nodes"]
    assert (len(row["holders"]), len(row["found"]), row["holders_count"]) == (8, 5, 1000)


@pytest.mark.promise("view-31")
def test_a_node_that_fills_every_place() -> None:
    """Each row as long as it may be, on as many devices as there may be."""
    fleet, long = Fleet(), "x" * TEXT_CHARACTERS_MAX
    lists = tuple(f"{n:04}{long[4:]}" for n in range(400))
    ids = [f"{n:04}{long[4:]}" for n in range(100)]
    tenants = {each: tenant(long, long, groups=(), devices=()) for each in ids}
    tenants[ids[0]] = tenant(long, long, groups=lists, devices=lists)
    places = tuple(map(place, ids))
    lines = device(holders=places, queue=places)
    row = node_row(problems=lists)
    reports(fleet, "n", {f"d{n}": lines for n in range(DEVICES_MAX)}, tenants, row=row)
    seen = answer_of_node(sight(fleet), "n")
    assert seen is not None
    told = seen["devices"]["d0"]
    assert (len(told["holders"]), told["holders_count"]) == (12, 100)
    assert (len(told["queue"]), told["queue_count"]) == (12, 100)
    assert max(len(each[name]) for each in seen["tenants"] for name in ("groups", "devices")) == 64
    assert len(seen["problems"]) == 65 and seen["problems"][-1].startswith("And 336 more.")
    assert len(json.dumps(seen)) < MESSAGE_BYTES_MAX


@pytest.mark.parametrize(
    "asked",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "1e2"},
        {"offset": "-1"},
        {"offset": "9" * 30},
        {"sort": "owner"},
        {"state": "dead"},
        {"show": "everything"},
        {"find": "x" * 201},
        {"summary": "yes"},
    ],
)
def test_what_cannot_be_asked_is_refused(asked: dict[str, str]) -> None:
    """With a sentence on what may be."""
    with pytest.raises(QueryError, match=r"\. .*\.$"):
        query_of(asked)


# ---- states and times ---------------------------------------------------------------------------


@pytest.mark.promise(
    "view-32", "A silent node stays on the page, is shown as silent and is not advised"
)
def test_a_silent_node_is_shown_as_such() -> None:
    """With what it said last; nothing of it counts as free."""
    fleet = small_fleet()
    reports(fleet, "node-a", {}, {}, now_s=SILENT_S)
    told = {each["name"]: each for each in _later(fleet, SILENT_S + 1)["nodes"]}
    assert told["node-b"]["state"] == "silent" and told["node-b"]["devices_free"] == 0
    assert told["node-a"]["state"] == "live"
    summary = answer_of_summary(sight(fleet, now_s=SILENT_S + 1))
    assert summary["states"] == {"live": 1, "silent": 2}
    assert summary["devices"] == 0 and summary["advice"] == []


def _later(fleet: Fleet, now_s: float) -> dict[str, Any]:
    return answer_of_nodes(sight(fleet, now_s=now_s), Query())


def test_states_of_nodes() -> None:
    """One that has not reported yet, one whose scheduler still gathers, one of two schedulers."""
    fleet = Fleet()
    fleet.hello("new", NodeHello(boot="0" * 32, version="1"), now_s=1.0)
    reports(fleet, "gathers", {}, {}, row=node_row(recovering=True))
    reports(fleet, "two", {}, {})
    fleet.nodes["two"].conflict_s = 0.5
    told = {each["name"]: each["state"] for each in nodes(fleet)["nodes"]}
    assert told == {"new": "recovering", "gathers": "recovering", "two": "conflict"}
    assert nodes(fleet, state="conflict")["nodes"][0]["problems"] != []


def test_what_only_time_changes_is_no_news() -> None:
    """The next turn of the same tenant is, as is a silent node."""
    fleet = small_fleet()

    def news(now_s: float) -> Any:
        seen = sight(fleet, now_s=now_s)
        return news_of(answer_of_events(seen, Query(summary=True, open="node-a")), now_s)

    assert news(1.0) == news(1.0 + 20) == news(1.0 + 40)
    assert news(1.0) != news(60.0)
    before = news(40.0)
    row = fleet.nodes["node-a"]
    again = {**row.devices, "a0": device(holders=(place("t-alice", 0.1),))}
    reports(fleet, "node-a", again, row.tenants, now_s=40.0, row=row.row)
    assert news(40.0) != before


def test_versions_that_differ_from_most() -> None:
    """Are marked, and named in the summary."""
    fleet = Fleet()
    for number, version in enumerate(["1.0", "1.1", "1.0"]):
        reports(fleet, f"n{number}", {}, {}, row=node_row(version=version))
    assert [each["version_differs"] for each in nodes(fleet)["nodes"]] == [False, True, False]
    assert answer_of_summary(sight(fleet))["version"] == "1.0"


def test_an_empty_fleet() -> None:
    """Has answers too."""
    assert nodes(Fleet())["total"] == 0
    assert answer_of_summary(sight(Fleet()))["nodes"] == 0
    assert answer_of_node(sight(Fleet()), "x") is None
