"""Which devices there are: those that NVML lists, and those that clients alone know of. Pure.

Without NVML, or beside the devices that the scheduler was given, a device is known by the clients
that have it open. What they say of it counts as long as they do: it is dropped with the last of
them, and where they disagree about its size, the largest one counts. So whoever names a size too
small keeps nobody from memory that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jupyter_gpushare.core.events import DeviceFound, DeviceLost, DeviceWithdrawn, Event
from jupyter_gpushare.core.ids import ClientId, DeviceId

NAMED_MAX = 256
"""By all clients together. No machine has so many."""
NAMED_BY_CLIENT_MAX = 128
"""A client that names ever new ones is broken, and leaves room for others."""


class TooManyDevices(Exception):
    """This client, or all together, have named more devices than a machine has."""


class NotServed(Exception):
    """Here only devices that NVML lists are shared, and this one is not among them."""


@dataclass(slots=True)
class _Named:
    name: str
    bytes_total: int
    sizes: dict[ClientId, int] = field(default_factory=dict)


class DeviceBook:
    """`clients_may_name`: a device that NVML does not list is shared all the same. That is for a
    scheduler whose clients all belong to one user. `mode_of` has what an administrator has said of
    a device before it was there."""

    def __init__(
        self,
        *,
        clients_may_name: bool,
        mode_of: Callable[[DeviceId], Event | None] = lambda device: None,
    ) -> None:
        self._clients_may_name = clients_may_name
        self._mode_of = mode_of
        self._listed: set[DeviceId] = set()
        self._named: dict[DeviceId, _Named] = {}

    def seen(self, event: Event) -> list[Event]:
        """NVML has found or lost a device: what it says counts, also after it lost it. Answers with
        what the core has to know."""
        if isinstance(event, DeviceFound | DeviceLost):
            self._listed.add(event.device)
            self._named.pop(event.device, None)
        return [event, *self._mode(event.device)] if isinstance(event, DeviceFound) else [event]

    def _mode(self, device: DeviceId) -> list[Event]:
        mode = self._mode_of(device)
        return [] if mode is None else [mode]

    def opened(
        self, client: ClientId, device: DeviceId, *, name: str, bytes_total: int
    ) -> list[Event]:
        """What the core has to know before the client has the device open; raises TooManyDevices
        or NotServed."""
        if device in self._listed:
            return []
        if not self._clients_may_name:
            raise NotServed
        known = self._named.get(device)
        if known is None:
            if self._named_by(client) >= NAMED_BY_CLIENT_MAX or len(self._named) >= NAMED_MAX:
                raise TooManyDevices
            known = self._named[device] = _Named(name, -1)
        known.sizes[client] = bytes_total
        return self._resized(device, known, cause="named by a client")

    def closed(self, client: ClientId, device: DeviceId) -> list[Event]:
        """What the core has to know after the client has closed the device."""
        known = self._named.get(device)
        if known is None or known.sizes.pop(client, None) is None:
            return []
        if known.sizes:
            return self._resized(device, known, cause="a client has closed it")
        del self._named[device]
        return [DeviceWithdrawn(device=device, cause="nobody has it open")]

    def left(self, client: ClientId) -> list[Event]:
        """What the core has to know after the client is gone."""
        devices = [device for device, known in self._named.items() if client in known.sizes]
        return [event for device in devices for event in self.closed(client, device)]

    def _named_by(self, client: ClientId) -> int:
        return sum(client in known.sizes for known in self._named.values())

    def _resized(self, device: DeviceId, known: _Named, *, cause: str) -> list[Event]:
        bytes_total = max(known.sizes.values())
        if bytes_total == known.bytes_total:
            return []
        known.bytes_total = bytes_total
        found = DeviceFound(device=device, name=known.name, bytes_total=bytes_total, cause=cause)
        return [found, *self._mode(device)]
