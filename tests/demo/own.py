"""The demo's last act: whoever trains runs cells of some seconds in a second notebook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.demo.scenes import OWN_NUMBER, Act, Scene
from tests.support import gpu_cells
from tests.support.timeline import Cell, percentile

WORKS_S = (0.3, 1.0, 3.0)
LAUNCH_MS = 20.0
ROUNDS = 2
EVERY_ALONE_S = 1.5
EVERY_S = 3.6
LEAD_S = 5.0
"""So long it has trained before the first cell. It has in the acts before, too."""
OVER_ALONE_BAR = 1.15
OVER_ALONE_S_BAR = 0.3


def own_cells_alone() -> Scene:
    """What the cells take when nobody trains."""
    return _own_cells("Own cells alone", 1, every_s=EVERY_ALONE_S, beside_training=False)


def own_cells_beside_training() -> Scene:
    title = "Own cells beside the same user's training"
    return _own_cells(title, ROUNDS, every_s=EVERY_S, lead_s=LEAD_S)


def _own_cells(
    title: str, rounds: int, *, every_s: float, lead_s: float = 0.0, beside_training: bool = True
) -> Scene:
    def cell(notebook: int, number: int) -> str:
        work_s = WORKS_S[number % len(WORKS_S)]
        return gpu_cells.spin(LAUNCH_MS, round(work_s * 1000 / LAUNCH_MS))

    return Scene(
        title,
        {"turns": "on"},
        rounds * len(WORKS_S),
        cell,
        every_s=every_s,
        lead_s=lead_s,
        beside_training=beside_training,
        notebooks=(OWN_NUMBER,),
    )


@dataclass(frozen=True)
class OwnReport:
    """What is in demo-report.json about them: a list each, of the lengths of the cells' work, and
    of what they took alone and beside the training."""

    own_work_s: list[float]
    own_alone_s: list[float]
    own_beside_training_s_p95: list[float]

    def complaints(self) -> list[str]:
        """One sentence for each thing that does not hold."""
        rows = zip(self.own_work_s, self.own_alone_s, self.own_beside_training_s_p95, strict=True)
        return [
            f"Beside its user's own training a cell of {work_s} s took {beside_s} s at p95, which "
            f"is more than {OVER_ALONE_BAR} times the {alone_s} s that it takes alone and "
            f"{OVER_ALONE_S_BAR} s."
            for work_s, alone_s, beside_s in rows
            if beside_s > OVER_ALONE_BAR * alone_s + OVER_ALONE_S_BAR
        ]


def make_own_report(alone: Act, beside: Act) -> OwnReport:
    """From both acts."""
    return OwnReport(list(WORKS_S), _took_s(alone.cells), _took_s(beside.cells))


def _took_s(cells: Iterable[Cell]) -> list[float]:
    """At p95, of each length."""
    in_order = sorted((c for c in cells if c.kernel == OWN_NUMBER), key=lambda c: c.began_ns)
    took_s = [(cell.ended_ns - cell.began_ns) / 1e9 for cell in in_order]
    return [round(percentile(took_s[n :: len(WORKS_S)], 95), 3) for n in range(len(WORKS_S))]
