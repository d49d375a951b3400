"""A node's devices and tenants in a few figures, made once for each report. Pure.

Nothing here is cut: only `cut` and `advice` use it, and they decide what of it a caller may see.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jupyter_gpushare.reports.format import DeviceRow, Place, TenantRow

from .fleet import Fleet, Node

OPEN = "open"
"""The mode of a device on which new turns begin."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a tenant stands at a device."""

    device: str
    place: Place
    position: int
    """0: it holds the device. Else its place in the queue, from 1."""


@dataclass(slots=True)
class Glance:
    """Bytes are of all devices of the node together; lost devices count for nothing."""

    devices: dict[str, DeviceRow]
    tenants: dict[str, TenantRow]
    holders: list[str] = field(default_factory=list)
    """Tenants, in the order of the devices; each once."""
    waiting: int = 0
    """Tenants that wait, each once."""
    busy: int = 0
    free: list[DeviceRow] = field(default_factory=list)
    """Devices that nobody holds and nobody waits for, and that take new turns."""
    lost: list[str] = field(default_factory=list)
    bytes_total: int = 0
    bytes_used: int = 0
    bytes_outside: int = 0
    bytes_parked: int = 0
    _text: str | None = None
    _stands: dict[str, Stand] | None = None

    def stands(self) -> dict[str, Stand]:
        """Of each tenant that holds a device or waits for one: where it holds, else where it
        waits."""
        if self._stands is None:
            holds: dict[str, Stand] = {}
            waits: dict[str, Stand] = {}
            for device_id, device in self.devices.items():
                for place in device.holders:
                    holds.setdefault(place.tenant, Stand(device_id, place, 0))
                for position, place in enumerate(device.queue, 1):
                    waits.setdefault(place.tenant, Stand(device_id, place, position))
            self._stands = {**waits, **holds}
        return self._stands

    def text(self) -> str:
        """All names of tenants and owners, folded, to search in."""
        if self._text is None:
            rows = self.tenants.values()
            self._text = "\n".join(f"{row.owner}\n{row.name}" for row in rows).casefold()
        return self._text

    def bytes_unused_max(self) -> int:
        return max((unused_of(device) for device in self.free), default=0)


def unused_of(device: DeviceRow) -> int:
    """What a newcomer finds on the device without anybody's memory having to move."""
    return max(0, min(device.bytes_usable, device.bytes_total - device.bytes_used))


class Glances:
    """Of the nodes of one fleet. A fleet replaces a node's dictionaries with each report, so that
    the same ones are the same state."""

    def __init__(self) -> None:
        self._of: dict[str, Glance] = {}

    def of(self, node: Node) -> Glance:
        found = self._of.get(node.name)
        if found is None or found.devices is not node.devices or found.tenants is not node.tenants:
            found = self._of[node.name] = _glance(node)
        return found

    def forget(self, fleet: Fleet) -> None:
        """Nodes that are there no more."""
        if len(self._of) > len(fleet.nodes):
            self._of = {name: each for name, each in self._of.items() if name in fleet.nodes}


def _glance(node: Node) -> Glance:
    glance = Glance(node.devices, node.tenants)
    holders: dict[str, None] = {}
    waiting: set[str] = set()
    for device_id, device in node.devices.items():
        holders.update((place.tenant, None) for place in device.holders)
        waiting.update(place.tenant for place in device.queue)
        if device.lost:
            glance.lost.append(device_id)
            continue
        glance.busy += bool(device.holders)
        glance.bytes_total += max(0, device.bytes_total)
        glance.bytes_used += max(0, device.bytes_used)
        glance.bytes_outside += max(0, device.bytes_outside)
        if not device.holders and not device.queue and device.mode == OPEN:
            glance.free.append(device)
    glance.holders = list(holders)
    glance.waiting = len(waiting - holders.keys())
    rows = node.tenants.values()
    glance.bytes_parked = sum([row.bytes_parked for row in rows if row.bytes_parked > 0])
    return glance
