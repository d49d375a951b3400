"""The demo's third notebook: it trains throughout, and the cells of the others are short."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.demo.options import Options
from tests.demo.scenes import Act, Scene
from tests.support import gpu_cells
from tests.support.timeline import Cell, Work, percentile

STEP_MS = 5.0
EVERY_S = 0.8
ALONE_CELLS = 3
"""In each notebook, before the training begins."""
LEAD_S = 1.5
"""How long the training is looked at alone, before the first cell."""
SETTLE_NS = 300_000_000
"""The first of it does not count: the training has just begun."""
BESIDE_OVER_ALONE_S_BAR = 0.3
TRAINING_SHARE_BAR = 0.9


def training_cell(stop: Path) -> str:
    """A cell that trains until this file is there."""
    step = textwrap.indent(gpu_cells.spin(STEP_MS), "    ")
    return f"import pathlib\nwhile not pathlib.Path({str(stop)!r}).exists():\n{step}"


def short_cells_alone(options: Options) -> Scene:
    """What the cells take when nobody trains."""
    return _short_cells("Short cells alone", options, ALONE_CELLS)


def short_cells_beside_training(options: Options) -> Scene:
    title = "Short cells beside a training"
    return _short_cells(title, options, options.cells, lead_s=LEAD_S, beside_training=True)


def _short_cells(
    title: str, options: Options, cells: int, *, lead_s: float = 0.0, beside_training: bool = False
) -> Scene:
    def cell(notebook: int, number: int) -> str:
        return gpu_cells.spin(options.launch_ms, options.launches)

    return Scene(
        title,
        {"turns": "on"},
        cells,
        cell,
        every_s=EVERY_S,
        lead_s=lead_s,
        beside_training=beside_training,
    )


ABOUT_TIMES = (
    "This does not hold: Beside a training",
    "This does not hold: Beside its user's own training",
    "This does not hold: The training had",
)
"""How the complaints begin that depend on what else the machine does. `make demo` judges these; a
test does not."""


def other_complaints(errors: str) -> list[str]:
    """Of what the demo has written."""
    lines = (line for line in errors.splitlines() if line.startswith("This does not hold: "))
    return [line for line in lines if not line.startswith(ABOUT_TIMES)]


@dataclass(frozen=True)
class TrainingReport:
    """What is in demo-report.json about the training and the cells beside it."""

    short_alone_s: float
    short_beside_training_s_p95: float
    training_share: float
    """Of the time that the cells leave, by what the training has of it alone."""

    def complaints(self) -> list[str]:
        """One sentence for each thing that does not hold."""
        found = []
        if self.short_beside_training_s_p95 > self.short_alone_s + BESIDE_OVER_ALONE_S_BAR:
            found.append(
                f"Beside a training a short cell took {self.short_beside_training_s_p95} s at p95, "
                f"which is more than the {self.short_alone_s} s that it takes alone and "
                f"{BESIDE_OVER_ALONE_S_BAR} s."
            )
        if self.training_share < TRAINING_SHARE_BAR:
            found.append(
                f"The training had {self.training_share} of the time that the short cells left, "
                f"which is less than {TRAINING_SHARE_BAR}."
            )
        return found


def make_training_report(alone: Act, beside: Act, *, training: int) -> TrainingReport:
    """From both acts; `training` is the number of the notebook that trains."""
    cells = sorted(cell for cell in beside.cells if cell.kernel != training)
    trained = [work for work in beside.works if work.kernel == training]
    began_ns, ended_ns = cells[0].began_ns, max(cell.ended_ns for cell in cells)
    lead_ns = trained[0].start_ns + SETTLE_NS
    left_ns = ended_ns - began_ns - sum(_had_device_ns(cell, beside.works) for cell in cells)
    alone_share = _busy_ns(trained, lead_ns, began_ns) / (began_ns - lead_ns)
    beside_share = _busy_ns(trained, began_ns, ended_ns) / left_ns
    return TrainingReport(
        short_alone_s=round(percentile(_responses_s(alone.cells), 50), 3),
        short_beside_training_s_p95=round(percentile(_responses_s(cells), 95), 3),
        training_share=round(beside_share / alone_share, 3),
    )


def _responses_s(cells: Iterable[Cell]) -> list[float]:
    return [(cell.ended_ns - cell.began_ns) / 1e9 for cell in cells]


def _busy_ns(works: Iterable[Work], began_ns: int, ended_ns: int) -> int:
    return sum(max(0, min(work.end_ns, ended_ns) - max(work.start_ns, began_ns)) for work in works)


def _had_device_ns(cell: Cell, works: Sequence[Work]) -> int:
    """From the cell's first work to the end of its last."""
    own = [
        work
        for work in works
        if work.kernel == cell.kernel and cell.began_ns <= work.start_ns <= cell.ended_ns
    ]
    return max(work.end_ns for work in own) - own[0].start_ns if own else 0
