"""Virtual time: things happen in the order of their times, and no time passes between two."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from jupyter_gpushare.core.ids import Seconds


class Planned:
    """Something that is to happen, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Loop:
    """What is due at the same time happens in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now_s: Seconds = 0.0
        self._alarms: list[tuple[Seconds, int, Planned]] = []
        self._asked = 0

    def at(self, when_s: Seconds, action: Callable[[], None]) -> Planned:
        """Never earlier than now."""
        alarm = Planned(action)
        self._asked += 1
        heapq.heappush(self._alarms, (max(when_s, self.now_s), self._asked, alarm))
        return alarm

    def after(self, delay_s: Seconds, action: Callable[[], None]) -> Planned:
        return self.at(self.now_s + delay_s, action)

    def step(self) -> bool:
        """Let the next thing happen; whether there was one."""
        while self._alarms:
            when_s, _, alarm = heapq.heappop(self._alarms)
            if alarm.action is not None:
                self.now_s = when_s
                alarm.action()
                return True
        return False
