"""The judgement of the demo on a cluster, on made-up timelines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import slurm
from tests.demo.cluster import __main__ as demo
from tests.demo.cluster.report import ClusterReport, NodePlayed, make_cluster_report, summary
from tests.demo.picture import Part, draw_parts
from tests.demo.scenes import Act
from tests.demo.test_report import NO_MEMORY, OVERLAPPING, alternating
from tests.support.timeline import Cell, Work, cell_waits_ns, turns_had

DEVICE_BYTES = 1000


def act(*failures: str) -> Act:
    """Eight cells of two kernels, in turn."""
    cells, works = alternating(4)
    return Act("with", cells, works, sent=len(cells), failures=failures, bytes_parked=5000)


def without_turns() -> Act:
    return Act("without", [Cell(0, 20, 0), Cell(0, 20, 1)], OVERLAPPING, sent=2)


def node(name: str, *users: str) -> NodePlayed:
    return NodePlayed(
        name=name,
        users=users,
        act=act(),
        control=without_turns(),
        most_parked=600,
        turns_told={user: 4 for user in users},
        owners={user: user for user in users},
    )


def report(first: NodePlayed | None = None, *, restarts: int = 1, lost: int = 0) -> ClusterReport:
    return make_cluster_report(
        [first or node("n1", "alice", "bob"), node("n2", "carol", "dave")],
        device="d",
        judged_by="a test",
        device_bytes=DEVICE_BYTES,
        bytes_each=600,
        restarts=restarts,
        tenants_lost=lost,
        seconds=1.0,
    )


@pytest.mark.promise(
    "demo-4",
    "The verdict of `make demo-cluster` is right about overlaps, waits, memory, owners, the "
    "scheduler's restart and lost kernels",
)
def test_a_good_run_has_no_complaints() -> None:
    """What is told of it is the sum of both nodes, and each node's own."""
    good = report()
    assert good.complaints() == []
    assert (good.users, good.kernels, good.kernels_lost, good.cells) == (4, 4, 0, 20)
    assert (good.overlaps, good.overlaps_without_turns, good.waits_min) == (0, 1, 3)
    assert (good.oversubscribed, good.checksums_ok, good.owners_are_accounts) == (True,) * 3
    assert good.bytes_parked == 10_000 and good.hand_overs == 14
    assert good.nodes["n2"].turns == {"carol": 4, "dave": 4}
    told = good.as_json()
    assert isinstance(told["nodes"], dict) and told["nodes"]["n1"]["users"] == ["alice", "bob"]
    assert "alice 4, bob 4, carol 4, dave 4" in summary(good)["turns"]
    assert summary(good)["kernels lost"] == "0 of 4"


@pytest.mark.promise("demo-4")
def test_each_thing_that_does_not_hold_is_a_sentence() -> None:
    """On one node is enough."""
    good = node("n1", "alice", "bob")

    def complaint(**changes: object) -> str:
        return " ".join(report(replace(good, **changes)).complaints())  # type: ignore[arg-type]

    at_once = replace(act(), works=OVERLAPPING)
    assert "on the device at once, 1 times" in complaint(act=at_once)
    assert "proves nothing" in complaint(control=replace(without_turns(), works=[]))
    assert "1 of 20 cells failed" in complaint(act=act("AssertionError: checksum"))
    assert "Not every cell found all the bytes" in complaint(act=act("AssertionError: checksum"))
    assert "1 cells were out of memory" in complaint(act=act(NO_MEMORY))
    assert "On n1 at most 400 bytes were parked" in complaint(most_parked=400)
    assert "alice's is bob's" in complaint(owners={"alice": "bob", "bob": "bob"})
    assert "1 of 4 kernels were lost" in complaint(lost=["alice"])
    ended = replace(act(), cells=act().cells[:-1])
    assert "1 of 20 cells failed" in complaint(act=ended), "one that never ended has failed"
    alone = replace(act(), cells=[c for c in act().cells if c.kernel == 0])
    assert "Not on each node did notebooks hold more" in complaint(act=alone)
    assert "No scheduler was restarted" in report(restarts=0).complaints()[0]
    assert "1 notebooks are no tenants any more" in report(lost=1).complaints()[0]


def test_a_cell_waits_until_the_device_works_for_it() -> None:
    """A cell that used no device did not wait for one. Work of others does not count."""
    works = [Work(5, 8, 1), Work(12, 14, 0), Work(15, 16, 0)]
    assert cell_waits_ns(works, [Cell(0, 20, 0), Cell(2, 9, 1), Cell(30, 40, 0)]) == [12, 3]


def test_the_device_comes_to_somebody() -> None:
    """Work of the same kernel that follows its own is of the same turn."""
    works = [Work(0, 1, 0), Work(2, 3, 0), Work(4, 5, 1), Work(6, 7, 0)]
    assert turns_had(works, 3) == [2, 1, 0]


def test_the_picture_of_both_nodes(tmp_path: Path) -> None:
    """One below the other, and the time without a scheduler in one of them."""
    cells, works = alternating(4)
    parts = [
        Part("Node n1", ("alice", "bob"), cells, works, away_ns=[(10, 30)]),
        Part("Node n2", ("carol", "dave"), cells, works),
    ]
    draw_parts(parts, [0, 0], tmp_path / "nodes.png", "Notebooks on two nodes", level=True)
    assert (tmp_path / "nodes.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.promise(
    "demo-5", "`make demo-cluster` says what a machine lacks that cannot run it, and fails"
)
def test_a_machine_that_cannot_run_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(slurm.os, "getuid", lambda: 0)
    monkeypatch.setattr(slurm, "PROGRAMS", ("sh", "no-such-daemon"))
    assert demo.main([]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "\nThe demo could not run to its end: no-such-daemon is not installed. Run `apt-get "
        "install slurm-wlm munge` (Debian, Ubuntu).\n"
    )
    monkeypatch.setattr(slurm.os, "getuid", lambda: 1000)
    assert demo.main([]) == 1
    assert "Run this as root." in capsys.readouterr().err
