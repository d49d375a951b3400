"""Unified memory: whoever runs has its memory come by page faults, and the least recently used
memory leaves. So baselines that move no memory themselves exceed a device's memory too."""

from __future__ import annotations

from jupyter_gpushare.core.ids import Seconds

from ..base.hardware import Hardware


class Pager:
    """The memory of one device. `used` keeps what notebooks have there, the latest used last."""

    def __init__(self, hardware: Hardware, device_bytes: int) -> None:
        self._hardware = hardware
        self._free = device_bytes
        self._used: dict[int, int] = {}
        self._new: set[int] = set()

    def touch(self, notebook: int, count: int) -> Seconds:
        """How long it takes until the notebook has so many bytes there. The first time, its memory
        is made and nothing has to come."""
        is_new = notebook not in self._new
        self._new.add(notebook)
        missing = count - self._used.pop(notebook, 0)
        leaving = self._evict(missing)
        self._used[notebook] = count
        self._free -= missing
        coming = 0 if is_new else missing
        return max(coming, leaving) / self._hardware.page_bytes_per_s

    def _evict(self, count: int) -> int:
        """Bytes that leave so that so many are free."""
        left = 0
        for other in list(self._used):
            if self._free >= count:
                break
            leaves = min(self._used[other], count - self._free)
            self._used[other] -= leaves
            self._free += leaves
            left += leaves
            if not self._used[other]:
                del self._used[other]
        return left

    def forget(self, notebook: int) -> None:
        """It is gone."""
        self._free += self._used.pop(notebook, 0)
        self._new.discard(notebook)
