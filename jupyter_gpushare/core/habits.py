"""How long cells have been lately, and how often new ones come: what estimates are made of.

A cell's length is the device time of its turns. A tenant may say what it likes about its cells. It
moves what is said of itself, and of everybody by some cells of many; all is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from .ids import DeviceId, Seconds

EVERYBODY_CELLS = 256
DEVICE_CELLS = 32
_NEAR = 32
"""So many of everybody's count beside a tenant's own."""
_FEW = 4


@dataclass(slots=True)
class Habits:
    """Of all that use the devices of a node."""

    lengths_s: deque[Seconds] = field(default_factory=lambda: deque(maxlen=EVERYBODY_CELLS))
    """Of everybody's last cells."""
    ends_s: dict[DeviceId, deque[Seconds]] = field(default_factory=dict)
    """When the last cells of each device ended."""

    def cell_ended(self, used_s: Seconds, devices: Iterable[DeviceId], now_s: Seconds) -> None:
        """A cell has used these devices for so long."""
        self.lengths_s.append(used_s)
        for device in devices:
            self.ends_s.setdefault(device, deque(maxlen=DEVICE_CELLS)).append(now_s)

    def cells_per_s(self, device: DeviceId, now_s: Seconds) -> float:
        """How many cells the device has had in a second, of late."""
        ends_s = self.ends_s.get(device)
        lasts_s = now_s - ends_s[0] if ends_s else 0.0
        return (len(ends_s) - 1) / lasts_s if ends_s and lasts_s > 0 else 0.0

    def left_s(self, own_s: Iterable[Seconds], used_s: Seconds, *, in_cell: bool) -> list[Seconds]:
        """How much longer work goes on that has used so much; each is as likely. It is what was
        left then of the tenant's own last and everybody's near ones, or of all where few of these
        lasted so long. It may also end like none before it: so a third, once and three times what
        it has used are added. Empty: nothing is known."""
        own, everybody = list(own_s), list(self.lengths_s) if in_cell else []
        left = [each - used_s for each in own + everybody[-_NEAR:] if each > used_s]
        if len(left) < _FEW:
            left = [each - used_s for each in own + everybody if each > used_s]
        known = own or everybody
        return [*left, used_s / 3, used_s, 3 * used_s] if known and used_s > 0 else left
