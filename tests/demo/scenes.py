"""What the demo plays, and what came of it. A further scene is a function here, a line in
performance.py that plays it, and a verdict in report.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.demo.options import Options
from tests.support import gpu_cells
from tests.support.timeline import Cell, Work

NOTEBOOKS = ("alice.ipynb", "bob.ipynb")
TRAINING, OWN = "training.ipynb", "analysis.ipynb"
"""Both are one user's."""
NAMES = (*NOTEBOOKS, TRAINING, OWN)
TRAINING_NUMBER, OWN_NUMBER = NAMES.index(TRAINING), NAMES.index(OWN)


@dataclass(frozen=True)
class Scene:
    """All its cells are sent to the notebooks at once, with these settings of the scheduler."""

    title: str
    settings: Mapping[str, object]
    cells: int
    """In each notebook."""
    cell: Callable[[int, int], str]
    """The code of a notebook's cell: number of the notebook, number of the cell."""
    moves_memory: bool = False
    """Copies are then no sign of work: one notebook's memory may leave while another's comes."""
    every_s: float = 0.0
    """The cells come one after the other instead, one in so much time."""
    lead_s: float = 0.0
    """So long before the first cell."""
    beside_training: bool = True
    """A third notebook trains meanwhile."""
    notebooks: Sequence[int] = tuple(range(len(NOTEBOOKS)))
    """Their numbers."""


@dataclass(frozen=True)
class Act:
    """A scene that was played."""

    title: str
    cells: Sequence[Cell]
    works: Sequence[Work]
    sent: int
    """How many cells should have run."""
    failures: Sequence[str] = ()
    """The error of each cell that failed."""
    waits_told: Mapping[str, int] = field(default_factory=dict)
    """The scheduler's own count of each notebook's waits, until the end of this act."""
    bytes_parked: int = 0
    """How much memory has left the device."""


def with_turns(options: Options) -> Scene:
    return _checked_work("With turns", options, turns="on")


def without_turns(options: Options) -> Scene:
    """The control: the same cells, and nothing that keeps them apart."""
    return _checked_work("Control run without turns", options, turns="off")


def _checked_work(title: str, options: Options, *, turns: str) -> Scene:
    """Launches, and a checksum that is wrong when anybody touched the cell's memory."""

    def cell(notebook: int, number: int) -> str:
        return gpu_cells.fill_and_check(
            1000 * notebook + number + 1,
            milliseconds=options.launch_ms,
            count=options.launches,
        )

    return Scene(title, {"turns": turns}, options.cells, cell)
