"""A picture of simulations: who had each device when, and how long short cells waited.

Matplotlib draws it, which comes with the extra `simulate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpushare.core.ids import Seconds

from .base.errors import SimulationError
from .base.record import Kind, Record
from .base.workload import Workload, solo_ends
from .metrics import short_waits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEVICES_MAX = 8
"""So many devices of each policy are drawn; more would be too thin to read."""
SUFFIXES = (".svg", ".png")
_OTHERS = "0.6"
_SWAP_COLOUR = "0.25"
_WAIT_MIN_S = 0.001


@dataclass(frozen=True, slots=True)
class Drawn:
    """One policy's run."""

    policy: str
    record: Record


def check(path: Path) -> None:
    """Raises SimulationError before a long simulation whose picture could not be drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise SimulationError(
            f"The picture {path} is neither SVG nor PNG. Give it a name that ends in .svg or .png."
        )
    if not path.absolute().parent.is_dir():
        raise SimulationError(f"There is no folder {path.parent} for the picture. Make it first.")
    try:
        import matplotlib  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise SimulationError(
            "Matplotlib is not installed, which draws the picture. Install it with "
            "`pip install 'jupyter-gpushare[simulate]'`, or leave --picture out."
        ) from error


def draw(path: Path, workload: Workload, runs: Sequence[Drawn], *, devices: int) -> None:
    """Write the picture; raises SimulationError where the file cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = min(devices, DEVICES_MAX)
    row_inches = 0.7 + 0.28 * shown
    figure = Figure(figsize=(11, 3.4 + row_inches * len(runs)), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(
        len(runs) + 1, 1, height_ratios=[row_inches] * len(runs) + [3.0], squeeze=False
    )
    axes = [row[0] for row in rows]
    colours = _colours(workload)
    until_s = _until_s(workload, runs)
    for axis, run in zip(axes, runs, strict=False):
        _timeline(axis, workload, run, colours, shown, until_s)
    axes[len(runs) - 1].set_xlabel("time in s")
    _waits(axes[-1], workload, runs)
    figure.suptitle(workload.title)
    try:
        figure.savefig(path)
    except OSError as error:
        raise SimulationError(
            f"The picture {path} cannot be written: {error.strerror}. Name another file."
        ) from error


def _colours(workload: Workload) -> dict[str, object]:
    """Each owner's; those with the most notebooks first, for there are not many colours."""
    from matplotlib import colormaps

    few = colormaps["tab20"]
    owners = list(dict.fromkeys(notebook.owner for notebook in workload.notebooks))
    return {owner: few(i) if i < few.N else _OTHERS for i, owner in enumerate(owners)}


def _until_s(workload: Workload, runs: Sequence[Drawn]) -> Seconds:
    """The end of the quickest run: what others do later would only make all of it thinner."""
    ends = [max(run.record.ends_s, default=0.0) for run in runs]
    return max(min(ends), workload.cells[-1].at_s)


def _timeline(
    axis: Axes,
    workload: Workload,
    run: Drawn,
    colours: dict[str, object],
    devices: int,
    until_s: Seconds,
) -> None:
    """Bars in the owners' colours; dark where memory comes, pale where a device is kept idle. Where
    several run at once, each owner has a lane of its own."""
    lanes = {owner: 0 for owner in colours}
    if any(span.share < 1 for span in run.record.spans()):
        lanes = {owner: lane for lane, owner in enumerate(colours)}
    height = 0.8 / (max(lanes.values()) + 1)
    bars: dict[tuple[object, float, float], list[tuple[float, float]]] = {}
    for span in run.record.spans():
        if span.device >= devices or span.kind is Kind.WAIT or span.start_s > until_s:
            continue
        owner = workload.notebooks[span.notebook].owner
        colour = _SWAP_COLOUR if span.kind is Kind.SWAP else colours[owner]
        alpha = 0.3 if span.kind is Kind.HELD else 1.0
        bottom = span.device - 0.4 + lanes[owner] * height
        bars.setdefault((colour, alpha, bottom), []).append(
            (span.start_s, span.end_s - span.start_s)
        )
    for (colour, alpha, bottom), times in bars.items():
        axis.broken_barh(times, (bottom, height), facecolors=[colour], alpha=alpha)
    axis.set_xlim(0, until_s)
    axis.set_ylim(devices - 0.5, -0.5)
    axis.set_yticks(range(devices), [f"device {device}" for device in range(devices)])
    axis.set_title(run.policy, loc="left", fontsize="medium")


def _waits(axis: Axes, workload: Workload, runs: Sequence[Drawn]) -> None:
    """Of all short cells, the part that waited no longer than so."""
    solo = solo_ends(workload)
    works = [cell.work_s for cell in workload.cells]
    for run in runs:
        waits = sorted(short_waits(run.record.ends_s, solo, works))
        if waits:
            parts = [(i + 1) / len(waits) for i in range(len(waits))]
            axis.step([max(w, _WAIT_MIN_S) for w in waits], parts, where="post", label=run.policy)
    axis.set_xscale("log")
    axis.set_xlabel("wait of a short cell in s, on a logarithmic scale")
    axis.set_ylabel("part of the cells")
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
