"""Which cells of a kernel are running, by the messages of its iopub channel: pure."""

from __future__ import annotations

import pytest

from jupyter_gpushare.server.kernel_activity import CELLS_MAX, RunningCells


def cell(number: int) -> dict[str, str]:
    return {"msg_id": f"cell {number}", "msg_type": "execute_request"}


COMM = {"msg_id": "comm", "msg_type": "comm_msg"}


@pytest.mark.promise("server-16")
def test_a_comm_that_ends_does_not_end_the_cell() -> None:
    """Any other message may come and go while a cell runs."""
    cells = RunningCells()
    cells.heard(cell(1), "busy")
    cells.heard(COMM, "busy")
    cells.heard(COMM, "idle")
    assert cells.busy
    cells.heard(cell(1), "idle")
    assert not cells.busy


@pytest.mark.promise("server-16")
def test_cells_may_overlap() -> None:
    """The kernel is busy until the last one has ended."""
    cells = RunningCells()
    cells.heard(cell(1), "busy")
    cells.heard(cell(2), "busy")
    assert cells.messages == ("cell 1", "cell 2")
    cells.heard(cell(1), "idle")
    assert cells.messages == ("cell 2",)
    cells.heard(cell(2), "idle")
    assert not cells.busy


def test_other_messages_are_no_cells() -> None:
    """A kernel that answers questions about itself is not busy."""
    cells = RunningCells()
    cells.heard(COMM, "busy")
    cells.heard({}, "busy")
    assert not cells.busy


def test_a_restart_ends_all_cells() -> None:
    """The new process runs none of the old one's, and nobody says so of each."""
    cells = RunningCells()
    cells.heard(cell(1), "busy")
    cells.heard({}, "starting")
    assert not cells.busy


def test_a_kernel_that_never_says_idle_is_bounded() -> None:
    """So many cells are remembered, and no more."""
    cells = RunningCells()
    for number in range(2 * CELLS_MAX):
        cells.heard(cell(number), "busy")
    for number in range(CELLS_MAX, 2 * CELLS_MAX):
        cells.heard(cell(number), "idle")
    assert not cells.busy
