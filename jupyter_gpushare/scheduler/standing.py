"""What a journal has told that still holds: a file that goes on from another one begins with it, so
that it can be read when the one before has been removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_gpushare.core import events as ev


class StillHolds:
    """The latest event about each device, tenant and process that are there."""

    def __init__(self) -> None:
        self._said: dict[tuple[object, ...], dict[str, Any]] = {}

    def note(self, event: ev.Event, said: dict[str, Any]) -> None:
        """`said` is the event as it stands in the journal."""
        match event:
            case ev.DeviceFound(device=device):
                self._said["device", device] = said
            case ev.DeviceModeChanged(device=device):
                self._said["device", device, "mode"] = said
            case ev.DeviceWithdrawn(device=device):
                self._said.pop(("device", device), None)
                self._said.pop(("device", device, "mode"), None)
            case ev.TenantRegistered(tenant=tenant):
                self._said["tenant", tenant] = said
            case ev.ClassAsked(tenant=tenant):
                self._said["tenant", tenant, "class"] = said
            case ev.NeedAsked(tenant=tenant):
                self._said["tenant", tenant, "need"] = said
            case ev.TenantRemoved(tenant=tenant):
                self._said.pop(("tenant", tenant, "need"), None)
                self._said.pop(("tenant", tenant, "class"), None)
                self._said.pop(("tenant", tenant), None)
            case ev.ClientJoined(client=client):
                self._said["client", client] = said
            case ev.ClientLost(client=client):
                for key in [key for key in self._said if key[:2] == ("client", client)]:
                    del self._said[key]
            case ev.DeviceOpened(client=client, device=device):
                self._said["client", client, device, "opened"] = said
            case ev.MemoryReported(client=client, device=device):
                self._said["client", client, device, "memory"] = said
            case ev.DeviceClosed(client=client, device=device):
                for word in ("opened", "memory"):
                    self._said.pop(("client", client, device, word), None)
            case _:
                pass

    def all(self) -> Sequence[dict[str, Any]]:
        """What others build on comes first: devices, then tenants, then processes."""
        order = {"device": 0, "tenant": 1, "client": 2}
        keys = sorted(self._said, key=lambda key: (order[str(key[0])], len(key)))
        return [self._said[key] for key in keys]
