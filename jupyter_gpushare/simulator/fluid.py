"""The fluid reference: what each owner would have of one device if it were divided at every moment
by the owners' weights among those who have work (weighted max-min). Nothing is lost to changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jupyter_gpushare.core.ids import Seconds


@dataclass(frozen=True, slots=True)
class Demand:
    """An owner sends so much work at this time."""

    at_s: Seconds
    owner: str
    work_s: Seconds


@dataclass(frozen=True, slots=True)
class ServedSpan:
    """From `start_s` to `end_s` each of these owners had its part of the device."""

    start_s: Seconds
    end_s: Seconds
    parts: Mapping[str, float]


def fluid(demands: Sequence[Demand], weights: Mapping[str, float]) -> list[ServedSpan]:
    """The service of the reference, in the order of time. `weights` names those that are not 1."""
    waiting = sorted(demands, key=lambda demand: demand.at_s)
    left: dict[str, Seconds] = {}
    served: list[ServedSpan] = []
    now_s, place = 0.0, 0
    while place < len(waiting) or left:
        if not left:
            now_s = max(now_s, waiting[place].at_s)
        while place < len(waiting) and waiting[place].at_s <= now_s:
            demand = waiting[place]
            left[demand.owner] = left.get(demand.owner, 0.0) + demand.work_s
            place += 1
        total = sum(weights.get(owner, 1.0) for owner in left)
        parts = {owner: weights.get(owner, 1.0) / total for owner in left}
        end_s = min(now_s + left[owner] / part for owner, part in parts.items())
        if place < len(waiting):
            end_s = min(end_s, waiting[place].at_s)
        served.append(ServedSpan(now_s, end_s, parts))
        for owner, part in parts.items():
            left[owner] -= part * (end_s - now_s)
        left = {owner: work_s for owner, work_s in left.items() if work_s > 1e-9}
        now_s = end_s
    return served
