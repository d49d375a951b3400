"""A tenant's past waits as JSON, with the names of others cut as the status has them. Pure.

Times are in seconds relative to the moment of the answer, so none is above 0 and no two clocks have
to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jupyter_gpushare.core.ids import DeviceId, Seconds, TenantId
from jupyter_gpushare.core.settings import Visibility

from .blocked import size, was_in_the_way
from .cut import nameless, seen_name
from .past_waits import PastWaits
from .past_waits_parts import Interval, Restored, Told, told_of
from .timeline import Label
from .waits import COMES, COMES_NO_MORE, HAS_COME, REASONS_THEN

HAD_MAX = 8
"""So many of those who had the device are named of each interval: those who had it longest."""
RESTORED = "restored"
"""The reason of an interval in which memory came back. Nobody queues for it, so the core has no
such reason."""
FORGOTTEN = "The scheduler does not keep why any more."
_UNKNOWN_DEVICE = "a GPU"

MaySee = Callable[[str], bool]


def waits_of(
    waits: PastWaits,
    tenant: TenantId,
    devices: Mapping[DeviceId, str],
    *,
    may_see: MaySee,
    visibility: Visibility,
    now_s: Seconds,
) -> dict[str, Any]:
    """`devices` has their names; `may_see` is asked of the key of a tenant's owner."""
    told, forgotten, own_s = told_of(waits, tenant, now_s)
    teller = _Teller(devices, may_see, visibility, own_s)
    return {
        "at_s": now_s,
        "forgotten": forgotten,
        "waits": [teller.wait(each) for each in told],
    }


class _Teller:
    def __init__(
        self,
        devices: Mapping[DeviceId, str],
        may_see: MaySee,
        visibility: Visibility,
        now_s: Seconds,
    ) -> None:
        self._devices = devices
        self._may_see = may_see
        self._visibility = visibility
        self._now_s = now_s

    def wait(self, told: Told) -> dict[str, Any]:
        wait = told.wait
        return {
            "begin_s": self._ago(wait.begin_s),
            "end_s": None if wait.over_s is None else self._ago(wait.over_s),
            "how": wait.how.value,
            "is_pause": wait.is_pause,
            "used_s": round(wait.used_s, 3),
            "intervals": [self._interval(each) for each in told.intervals],
        }

    def _interval(self, interval: Interval) -> dict[str, Any]:
        had = sorted(interval.had.values(), key=lambda each: -each[1])
        in_the_way = None
        if (obstacle := interval.obstacle) is not None:
            device = self._devices.get(obstacle.device, _UNKNOWN_DEVICE)
            in_the_way = was_in_the_way(obstacle, device, self._whose(interval.whose))
        return {
            "begin_s": self._ago(interval.begin_s),
            "end_s": self._ago(interval.end_s),
            **_why(interval),
            "in_the_way": in_the_way,
            "had": [self._had(label, had_s) for label, had_s in had[:HAD_MAX]],
            "others": max(0, len(had) - HAD_MAX),
        }

    def _had(self, label: Label, had_s: Seconds) -> dict[str, Any]:
        names = {"name": label.name, "owner": label.owner}
        if not self._may_see(label.owner_key):
            names.update(nameless(label.owner, self._visibility))
        return {**names, "had_s": round(had_s, 3)}

    def _whose(self, label: Label | None) -> str | None:
        if label is None or not label.name:
            return None
        if self._may_see(label.owner_key):
            return label.name
        return seen_name(self._visibility, label.owner, label.name)

    def _ago(self, at_s: Seconds) -> float:
        return round(min(0.0, at_s - self._now_s), 3)


def _why(interval: Interval) -> dict[str, Any]:
    """The reason, for programs and for people."""
    if (restored := interval.restored) is not None:
        words, count = _restored(restored), restored.bytes_to_come
        return {"reason": RESTORED, "why": words, "bytes_restored": count}
    if interval.reason is None:
        return {"reason": None, "why": FORGOTTEN, "bytes_restored": None}
    why = REASONS_THEN[interval.reason]
    return {"reason": interval.reason.value, "why": why, "bytes_restored": None}


def _restored(restored: Restored) -> str:
    words = COMES
    if restored.is_over:
        words = HAS_COME if restored.came_all else COMES_NO_MORE
    return words.format(amount=size(restored.bytes_to_come))
