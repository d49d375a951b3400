"""What Prometheus reads of a node's plugin, in its text format. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFigures:
    """Of one moment. `mistakes` is None where the kubelet could not be asked (pods.py)."""

    seats: int
    healthy: bool
    watched: bool
    """A kubelet knows the seats."""
    silent_s: float
    """Since the scheduler last answered."""
    mistakes: int | None


def rendered(figures: PluginFigures) -> str:
    rows: list[tuple[str, str, float]] = [
        (
            "gpushare_seats_healthy",
            "Seats of the node that pods can get.",
            figures.seats if figures.healthy and figures.watched else 0,
        ),
        ("gpushare_seats", "Seats that the node is given.", figures.seats),
        (
            "gpushare_kubelet_watches",
            "1 while the kubelet knows the seats, else 0.",
            int(figures.watched),
        ),
        (
            "gpushare_scheduler_silent_seconds",
            "Time since the scheduler of the node has last answered.",
            round(figures.silent_s, 1),
        ),
    ]
    if figures.mistakes is not None:
        rows.append(
            (
                "gpushare_node_mistakes",
                "Containers and devices of the node that the doctor finds fault with.",
                figures.mistakes,
            )
        )
    return "".join(_row(*row) for row in rows)


def _row(name: str, meaning: str, value: float) -> str:
    return f"# HELP {name} {meaning}\n# TYPE {name} gauge\n{name} {value:g}\n"
