"""The timeline picture: what each notebook's cells did, one act below the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demo.scenes import Act

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAIT_COLOUR, WORK_COLOURS = "#d9d9d9", ("#1f77b4", "#ff7f0e", "#2ca02c")


def draw(acts: Sequence[Act], names: Sequence[str], path: Path, device: str) -> None:
    """One row of axes per act, one bar per kernel: grey from a cell's begin, colour while the
    device works for it."""
    # Here, for each worker of the tests reads this file.
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(len(acts), 1, figsize=(11, 2.4 * len(acts)), squeeze=False)
    for axes, act in zip(rows[:, 0], acts, strict=True):
        _draw_act(axes, act, names)
    figure.suptitle(f"Notebooks on one device ({device})")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_act(axes: Axes, act: Act, names: Sequence[str]) -> None:
    origin_ns = min(cell.began_ns for cell in act.cells)
    for number in range(len(names)):
        spans = [_span(c.began_ns, c.ended_ns, origin_ns) for c in act.cells if c.kernel == number]
        axes.broken_barh(spans, (number - 0.35, 0.7), facecolors=WAIT_COLOUR, edgecolor="white")
        spans = [_span(w.start_ns, w.end_ns, origin_ns) for w in act.works if w.kernel == number]
        axes.broken_barh(spans, (number - 0.25, 0.5), facecolors=WORK_COLOURS[number])
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(f"{act.title} (grey: the cell waits; colour: the device works for it)", size=9)
    axes.set_xlabel("seconds", size=8)


def _span(start_ns: int, end_ns: int, origin_ns: int) -> tuple[float, float]:
    return (start_ns - origin_ns) / 1e9, (end_ns - start_ns) / 1e9
