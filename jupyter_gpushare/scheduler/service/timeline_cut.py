"""The timeline as JSON, cut to what the caller may see, as the status is. Pure.

Times are in seconds relative to the moment of the answer, so none is above 0 and no two clocks have
to agree. What began before the window begins with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jupyter_gpushare.core.ids import DeviceId, Seconds, TenantId
from jupyter_gpushare.core.settings import Visibility
from jupyter_gpushare.core.snapshot import DeviceSnapshot

from .cut import nameless
from .timeline import GRAIN_S, SAMPLE_S, WINDOW_S, Label, Lane, Timeline


def timeline_of(
    timeline: Timeline,
    devices: Iterable[DeviceSnapshot],
    *,
    may_see: Callable[[str], bool],
    is_own: Callable[[str], bool],
    visibility: Visibility,
    now_s: Seconds,
) -> dict[str, Any]:
    """`may_see` and `is_own` are asked of the key of a tenant's owner."""
    looks = {each.id: timeline.lane(DeviceId(each.id), now_s) for each in devices}
    labels = {turn.label.tenant: turn.label for lane, _ in looks.values() for turn in lane.turns}
    places = {tenant: place for place, tenant in enumerate(labels)}
    return {
        "window_s": WINDOW_S,
        "grain_s": GRAIN_S,
        "sample_s": SAMPLE_S,
        "tenants": [
            _tenant(label, f"other-{place + 1}", may_see, is_own, visibility)
            for place, label in enumerate(labels.values())
        ],
        "devices": [
            {"id": device, **_lane(lane, own_s, places)} for device, (lane, own_s) in looks.items()
        ],
    }


def _tenant(
    label: Label,
    alias: str,
    may_see: Callable[[str], bool],
    is_own: Callable[[str], bool],
    visibility: Visibility,
) -> dict[str, Any]:
    told = {"id": label.tenant, "name": label.name, "owner": label.owner}
    own = bool(label.owner_key) and is_own(label.owner_key)
    if not may_see(label.owner_key):
        shown = nameless(label.owner, visibility)
        told = {**told, "id": alias, **shown}
    return {**told, "own": own}


def _lane(lane: Lane, now_s: Seconds, places: dict[TenantId, int]) -> dict[str, Any]:
    def ago(at_s: Seconds) -> float:
        return round(max(-WINDOW_S, min(0.0, at_s - now_s)), 2)

    return {
        "turns": [
            {
                "tenant": places[turn.label.tenant],
                "begin_s": ago(turn.begin_s),
                "end_s": None if turn.end_s is None else ago(turn.end_s),
                "part": round(turn.part(now_s), 3),
            }
            for turn in lane.turns
        ],
        "waits": [{"begin_s": ago(each.begin_s), "waiting": each.waiting} for each in lane.steps],
        "samples": [
            {
                "begin_s": ago(each.begin_s),
                "utilization": None if each.percent is None else round(each.percent, 1),
                "bytes_used": each.bytes_used,
            }
            for each in lane.samples
        ],
    }
