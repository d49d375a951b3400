"""The timeline picture: what each notebook's cells did, one act or node below the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demo.scenes import Act
from tests.support.timeline import Cell, Work

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAIT_COLOUR = "#d9d9d9"
WORK_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf")
AWAY_COLOUR = "#d62728"
WIDTH, HEAD, BAR = 11, 0.9, 0.5
"""Inches: of the picture, of what stands above and below the bars, and of each bar."""


@dataclass(frozen=True)
class Part:
    """One row of the picture, with a bar for each name; the numbers of cells and work are those of
    the names."""

    title: str
    names: Sequence[str]
    cells: Sequence[Cell]
    works: Sequence[Work]
    away_ns: Sequence[tuple[int, int]] = ()
    """When the scheduler was away."""


def draw(acts: Sequence[Act], names: Sequence[str], path: Path, device: str) -> None:
    """Each act from its own beginning."""
    parts = [Part(act.title, names, act.cells, act.works) for act in acts]
    origins = [min(cell.began_ns for cell in part.cells) for part in parts]
    draw_parts(parts, origins, path, f"Notebooks on one device ({device})")


def draw_parts(
    parts: Sequence[Part], origins_ns: Sequence[int], path: Path, title: str, *, level: bool = False
) -> None:
    """One row of axes per part, one bar per kernel: grey from a cell's begin, colour while the
    device works for it. The parts have one scale of time if they are `level`."""
    # Here, for each worker of the tests reads this file.
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    heights = [HEAD + BAR * len(part.names) for part in parts]
    figure, rows = plt.subplots(
        len(parts),
        1,
        figsize=(WIDTH, sum(heights)),
        squeeze=False,
        height_ratios=heights,
    )
    for axes, part, origin_ns in zip(rows[:, 0], parts, origins_ns, strict=True):
        _draw_part(axes, part, origin_ns)
    if level:
        ends_s = max(axes.get_xlim()[1] for axes in rows[:, 0])
        for axes in rows[:, 0]:
            axes.set_xlim(0, ends_s)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_part(axes: Axes, part: Part, origin_ns: int) -> None:
    for number in range(len(part.names)):
        spans = [_span(c.began_ns, c.ended_ns, origin_ns) for c in part.cells if c.kernel == number]
        axes.broken_barh(spans, (number - 0.35, 0.7), facecolors=WAIT_COLOUR, edgecolor="white")
        spans = [_span(w.start_ns, w.end_ns, origin_ns) for w in part.works if w.kernel == number]
        colour = WORK_COLOURS[number % len(WORK_COLOURS)]
        axes.broken_barh(spans, (number - 0.25, 0.5), facecolors=colour)
    told = "grey: the cell waits; colour: the device works for it"
    for began_ns, ended_ns in part.away_ns:
        start_s, seconds = _span(began_ns, ended_ns, origin_ns)
        axes.axvspan(start_s, start_s + seconds, color=AWAY_COLOUR, alpha=0.25, linewidth=0)
    if part.away_ns:
        told += "; red: the scheduler is away"
    axes.set_yticks(range(len(part.names)), part.names)
    axes.set_ylim(len(part.names) - 0.5, -0.5)
    axes.set_title(f"{part.title} ({told})", size=9)
    axes.set_xlabel("seconds", size=8)


def _span(start_ns: int, end_ns: int, origin_ns: int) -> tuple[float, float]:
    return (start_ns - origin_ns) / 1e9, (end_ns - start_ns) / 1e9
