"""The state of all nodes: what is believed of whom, and what is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.reports.format import (
    DEVICES_MAX,
    TENANTS_MAX,
    NodeHello,
    Report,
    ReportError,
    Seen,
    characters_of,
)
from jupyter_gpushare.view import fleet as fleet_module
from jupyter_gpushare.view.fleet import CONFLICT_S, FORGET_S, SILENT_S, Fleet, Node, OlderBoot
from tests.reports.rows import (
    BOOT,
    OTHER_BOOT,
    a_device,
    a_node,
    a_report,
    a_tenant,
)


class Told:
    """A fleet with a clock that the test moves."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.now_s = 100.0
        self.wall_s = 1000.0

    def hello(self, name: str = "a", boot: str = BOOT, **changes: Any) -> Seen:
        hello = NodeHello(**{"boot": boot, "version": "1", **changes})
        return self.fleet.hello(name, hello, now_s=self.now_s)

    def report(self, report: Report, name: str = "a") -> Seen:
        return self.fleet.report(name, report, now_s=self.now_s, wall_s=self.wall_s)

    def come(self, name: str = "a", boot: str = BOOT, **rows: Any) -> Node:
        """Hello and a whole report."""
        self.hello(name, boot)
        self.report(a_report(boot=boot, **rows), name)
        return self.fleet.nodes[name]


@pytest.fixture
def told() -> Told:
    return Told()


few_tenants = st.builds(
    a_tenant,
    owner=st.sampled_from(["alice", "bob", "Zoë <b>"]),
    groups=st.sampled_from([(), ("staff",)]),
    turns=st.integers(0, 3),
)
few_devices = st.builds(a_device, name=st.sampled_from(["T4", "H100"]), lost=st.booleans())
ROWS = st.dictionaries(st.sampled_from("abcd"), st.none() | few_tenants, max_size=4)
DEVICES = st.dictionaries(st.sampled_from("xyz"), st.none() | few_devices, max_size=3)


@pytest.mark.promise(
    "view-33", "The view of a node is what its reports together say, and a whole report begins anew"
)
@given(st.lists(st.tuples(st.booleans(), DEVICES, ROWS), max_size=8))
def test_deltas_make_the_state(
    steps: list[tuple[bool, Mapping[str, Any], Mapping[str, Any]]],
) -> None:
    """For any deltas and whole reports the rows are as if each had been applied to a dictionary,
    and what is kept besides (who owns what, how much it is) agrees with them."""
    told = Told()
    node = told.come()
    of_devices: dict[str, Any] = {}
    of_tenants: dict[str, Any] = {}
    for number, (whole, some_devices, some_tenants) in enumerate(steps, 1):
        report = a_report(
            number,
            whole=whole,
            node=a_node() if whole else None,
            devices=some_devices,
            tenants=some_tenants,
        )
        told.now_s += 1
        assert told.report(report) == Seen(sequence=number)
        of_devices = {**({} if whole else of_devices), **some_devices}
        of_tenants = {**({} if whole else of_tenants), **some_tenants}
        of_devices = {key: row for key, row in of_devices.items() if row}
        of_tenants = {key: row for key, row in of_tenants.items() if row}
        assert (node.devices, node.tenants) == (of_devices, of_tenants)
        assert node.devices_at_s.keys() == of_devices.keys()
        for key in some_devices.keys() & of_devices.keys():
            assert node.devices_at_s[key] == told.now_s
        rows = [*of_devices.values(), *of_tenants.values()]
        assert node.characters == sum(map(characters_of, rows))
        for owner in {row.owner for row in of_tenants.values()} | {"nobody"}:
            theirs = {key for key, row in of_tenants.items() if row.owner == owner}
            assert {key for _, key, _ in told.fleet.tenants_of(owner)} == theirs
    assert told.fleet._of_owner.keys() == {row.owner for row in of_tenants.values()}


@pytest.mark.promise(
    "bad-input-74", "A report that is replayed, older or out of order changes nothing"
)
def test_replayed_and_older_reports(told: Told) -> None:
    """The same one again, and one from before it, are refused; what is known stays."""
    node = told.come(tenants={"t": a_tenant()})
    told.report(a_report(1, tenants={"t": a_tenant(turns=1)}))
    before = dataclasses.replace(node)
    for again in (a_report(1, tenants={"t": None}), a_report(0), a_report(-1)):
        with pytest.raises(ReportError, match=r"has come after report 1\. Restart"):
            told.report(again)
    assert dataclasses.replace(node) == before


@pytest.mark.promise("bad-input-74")
def test_a_gap(told: Told) -> None:
    """After a report that is missing the next one is not applied: a whole one is asked for."""
    node = told.come(tenants={"t": a_tenant()})
    seen = told.report(a_report(2, tenants={"t": None, "u": a_tenant()}))
    assert seen == Seen(sequence=2, again=True)
    assert list(node.tenants) == ["t"]
    assert told.report(a_report(3, whole=True, node=a_node())) == Seen(sequence=3)
    assert node.tenants == {}


@pytest.mark.promise("bad-input-74")
def test_the_first_report_has_to_be_whole(told: Told) -> None:
    """A delta to nothing says too little."""
    assert told.hello() == Seen(sequence=-1, again=True)
    seen = told.report(a_report(0, whole=False, node=None, tenants={"t": a_tenant()}))
    assert seen.again and told.fleet.nodes["a"].row is None


@pytest.mark.promise("bad-input-74")
def test_a_report_without_a_hello(told: Told) -> None:
    """Nobody is known by a report alone."""
    with pytest.raises(OlderBoot):
        told.report(a_report())
    assert not told.fleet.nodes


@pytest.mark.promise(
    "bad-input-75",
    "Two nodes of one name: the one that came last is believed, the other is refused, and the page "
    "says so",
)
def test_two_nodes_of_one_name(told: Told) -> None:
    """The first one's reports and its return are refused; for a minute the name is in conflict."""
    node = told.come(boot=BOOT, tenants={"of the first": a_tenant()})
    told.come(boot=OTHER_BOOT, tenants={"of the second": a_tenant()})
    with pytest.raises(OlderBoot):
        told.report(a_report(1))
    assert not node.is_in_conflict(told.now_s)
    with pytest.raises(OlderBoot, match="a credential of its own"):
        told.hello(boot=BOOT)
    assert list(node.tenants) == ["of the second"]
    assert node.is_in_conflict(told.now_s + CONFLICT_S)
    assert not node.is_in_conflict(told.now_s + CONFLICT_S + 1)


@pytest.mark.promise("view-34", "A scheduler that restarts takes the place of the one before")
def test_a_restart(told: Told) -> None:
    """Its rows are new, and the end of the old one's connection does not touch it."""
    told.come(tenants={"t": a_tenant()})
    node = told.come(boot=OTHER_BOOT)
    told.fleet.gone("a", BOOT, now_s=told.now_s)
    assert node.connected and node.tenants == {}
    told.fleet.gone("a", OTHER_BOOT, now_s=told.now_s)
    assert not node.connected


def test_an_old_boot_is_forgotten_at_last(told: Told) -> None:
    """What is kept of earlier starts is bounded. A report of any of them is refused."""
    boots = [f"{number:032x}" for number in range(100)]
    for boot in boots:
        told.hello(boot=boot)
    node = told.fleet.nodes["a"]
    assert list(node.earlier_boots) == boots[-1 - fleet_module.BOOTS_KEPT : -1]
    for boot in (boots[0], boots[-2]):
        with pytest.raises(OlderBoot):
            told.report(dataclasses.replace(a_report(1), boot=boot))
    with pytest.raises(OlderBoot):
        told.hello(boot=boots[-1 - fleet_module.BOOTS_KEPT])
    told.hello(boot=boots[0])
    assert node.boot == boots[0]


@pytest.mark.promise(
    "view-35", "A node of which nothing is heard is shown as silent, with what it last said"
)
def test_a_silent_node(told: Told) -> None:
    """Its rows stay; a heartbeat makes it live again; so does each passing of time tell once."""
    node = told.come(tenants={"t": a_tenant()})
    told.fleet.take_changed()
    told.fleet.note_time(told.now_s + SILENT_S)
    assert told.fleet.take_changed() == set()
    told.now_s += SILENT_S + 1
    told.fleet.note_time(told.now_s)
    assert node.is_silent(told.now_s) and node.tenants
    assert told.fleet.take_changed() == {"a"}
    told.fleet.note_time(told.now_s)
    assert told.fleet.take_changed() == set()
    told.report(a_report(1))
    assert not node.is_silent(told.now_s)


@pytest.mark.promise("view-35")
def test_a_node_is_forgotten(told: Told) -> None:
    """A week later it is gone, and its tenants with it."""
    told.come(tenants={"t": a_tenant(owner="alice")})
    told.fleet.forget_silent(told.now_s + FORGET_S)
    assert "a" in told.fleet.nodes
    told.fleet.take_changed()
    told.fleet.forget_silent(told.now_s + FORGET_S + 1)
    assert told.fleet.nodes == {}
    assert list(told.fleet.tenants_of("alice")) == []
    assert told.fleet.take_changed() == {"a"}


@pytest.mark.promise("bad-input-76", "What a node says is believed of that node alone")
def test_nodes_do_not_touch_each_other(told: Told) -> None:
    """The same ids on two nodes are two things."""
    told.come("a", tenants={"t": a_tenant(owner="alice")}, devices={"d": a_device()})
    told.come("b", OTHER_BOOT, tenants={"t": a_tenant(owner="bob")})
    told.report(a_report(1, boot=OTHER_BOOT, tenants={"t": None}, devices={"d": None}), "b")
    assert list(told.fleet.nodes["a"].tenants) == ["t"]
    assert list(told.fleet.nodes["a"].devices) == ["d"]
    assert [node.name for node, _, _ in told.fleet.tenants_of("alice")] == ["a"]


@pytest.mark.promise("bad-input-52")
def test_deltas_do_not_pass_the_bounds(told: Told) -> None:
    """Many reports together may not bring what one could not, and a refused one changes nothing."""
    half = {str(n): a_tenant() for n in range(TENANTS_MAX // 2)}
    node = told.come(tenants=half)
    told.report(a_report(1, tenants={f"more {key}": row for key, row in half.items()}))
    with pytest.raises(ReportError, match=f"more than {TENANTS_MAX} tenants"):
        told.report(a_report(2, tenants={"one": a_tenant()}, devices={"d": a_device()}))
    assert (len(node.tenants), len(node.devices)) == (TENANTS_MAX, 0)
    some = {str(n): a_device() for n in range(DEVICES_MAX)}
    told.report(a_report(2, devices=some))
    with pytest.raises(ReportError, match=f"more than {DEVICES_MAX} devices"):
        told.report(a_report(3, devices={"one": a_device()}))


@pytest.mark.promise("bad-input-52")
def test_rows_that_grow(told: Told) -> None:
    """Rows that are fine one by one are bounded together: a lying node fills no memory."""
    groups = ("g" * 400,) * 256
    node = told.come()
    with pytest.raises(ReportError, match="characters together"):
        for number in range(1, TENANTS_MAX):
            told.report(a_report(number, tenants={str(number): a_tenant(groups=groups)}))
    assert node.characters <= fleet_module.CHARACTERS_MAX
    assert len(node.tenants) < 200


def test_another_format(told: Told) -> None:
    """The sentence says which versions do not fit."""
    with pytest.raises(ReportError, match=r"reports in format 2.* Bring both"):
        told.hello(format=2)
    assert "format 2" in told.fleet.nodes["a"].fault
    told.come()
    assert told.fleet.nodes["a"].fault == ""


def test_what_could_not_be_read(told: Told) -> None:
    """The node's row says so until the next good report."""
    node = told.come(tenants={"t": a_tenant()})
    told.fleet.cannot_be_read("a", ReportError("It lies. Look."), now_s=told.now_s)
    assert (node.fault, list(node.tenants)) == ("It lies. Look.", ["t"])
    told.report(a_report(1))
    assert node.fault == ""
    told.fleet.cannot_be_read("new", ReportError("x"), now_s=told.now_s)
    told.fleet.forget_silent(told.now_s)
    assert "new" in told.fleet.nodes


def test_skew(told: Told) -> None:
    """Its clock against the view's, by its last report."""
    assert told.come(sent_at=1040.0).skew_s == 40.0
