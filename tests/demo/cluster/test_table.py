"""The table of the nodes that the demo on a cluster shows."""

from __future__ import annotations

import io
import os
import shutil
from typing import Any

import pytest

from tests.demo.cluster.table import Seen, TableView, rows_of, table
from tests.demo.test_live import Terminal
from tests.support.sim import MIB

GPU = "d" * 32


def tenant(owner: str, parked: int = 0, turns: int = 0) -> dict[str, Any]:
    opened = [{"device": GPU, "bytes_parked": parked * MIB}]
    return {
        "id": f"{owner}'s",
        "owner": owner,
        "clients": [{"devices": opened}],
        "counters": {"turns": turns},
    }


def status(*tenants: dict[str, Any], holder: str = "", queue: tuple[str, ...] = ()) -> Any:
    device = {
        "id": GPU,
        "name": "Simulated GPU",
        "holders": [{"tenant": f"{holder}'s"}] if holder else [],
        "queue": [{"tenant": f"{user}'s"} for user in queue],
        "bytes_used": 300 * MIB,
        "bytes_total": 512 * MIB,
    }
    return {"devices": [device], "tenants": list(tenants)}


BUSY = status(
    tenant("alice", turns=3),
    tenant("bob", parked=200, turns=2),
    tenant("carol", parked=100),
    holder="alice",
    queue=("bob", "carol"),
)
QUIET = status(tenant("dave"))


@pytest.mark.promise(
    "demo-6",
    "`make demo-cluster` shows a table of both nodes: device, holder, queue, memory on the device "
    "and parked, turns; it is redrawn on a terminal, and a line for each change elsewhere",
)
def test_what_the_table_shows() -> None:
    """A line for each device, in columns; who waits stands in the order of the queue."""
    rows = {"n1": rows_of("n1", BUSY, {"alice": 3, "bob": 2}), "n2": rows_of("n2", QUIET, {})}
    headings, first, second = table(rows)
    assert " ".join(headings.split()) == "node device holder queue on the device parked turns"
    assert [
        first[headings.index(name) :].split("  ")[0].strip() for name in ("holder", "queue")
    ] == [
        "alice",
        "bob, carol",
    ]
    assert "300 of 512 MiB" in first and "300 MiB" in first and first.endswith(" 5")
    assert second.split()[-2:] == ["MiB", "0"] and " -  " in second


@pytest.mark.promise("demo-6")
def test_on_a_terminal_it_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three lines in place, none wider than the terminal; a headline leaves them standing."""
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((50, 20)))
    out = Terminal()
    view = TableView(("n1", "n2"), out)
    for _ in range(2):
        view.show({"n1": BUSY, "n2": QUIET})
    assert out.getvalue().count("\x1b[3A") == 1
    lines = [line.rpartition("\x1b[2K")[2] for line in out.getvalue().split("\n")[:-1]]
    assert len(lines) == 6 and all(len(line) < 50 for line in lines)
    view.headline("next")
    view.show({"n1": BUSY, "n2": QUIET})
    assert out.getvalue().count("\x1b[3A") == 1


@pytest.mark.promise("demo-6")
def test_elsewhere_each_change_is_a_line() -> None:
    """Of who holds and who waits, not of each byte; silence of a scheduler is one, too."""
    out = io.StringIO()
    view = TableView(("n1", "n2"), out)
    more = status(tenant("dave", parked=5))
    for first, second in ((BUSY, QUIET), (BUSY, more), (None, more), (BUSY, more)):
        view.show({"n1": first, "n2": second})
    told = [line.split(" s  ")[1] for line in out.getvalue().splitlines()]
    busy = "n1: alice holds, bob and carol wait; 300 of 512 MiB in use, 300 MiB parked, 5 turns"
    quiet = "n2: nobody holds; 300 of 512 MiB in use, 0 MiB parked, 0 turns"
    assert told == [busy, quiet, "n1: no scheduler answers", busy]


def test_turns_are_counted_on_where_a_scheduler_counts_anew() -> None:
    """And the most that was parked is that of one moment."""
    seen = Seen()
    looks = ((3, 10), (5, 200), (0, 50), (1, 50), (4, 0))
    for turns, parked in looks:
        seen.look_at(status(tenant("alice", parked=parked, turns=turns), tenant("bob", turns=1)))
    assert seen.turns == {"alice": 9, "bob": 1}
    assert seen.most_parked == 200 * MIB
