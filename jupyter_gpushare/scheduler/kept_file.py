"""What was said to the scheduler and outlives it: modes of devices, and what the tokens of kernels
do not name: groups of users, and the devices that kernels were placed on. A small file in the
runtime directory, as lasting as that one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jupyter_gpushare.core.events import (
    DeviceMode,
    DeviceModeChanged,
    Event,
    NeedAsked,
    TenantRegistered,
)
from jupyter_gpushare.core.ids import DeviceId

from .base.private_file import put_in_place
from .identity.tokens import key_of

log = logging.getLogger(__name__)

KEPT_FILE = "kept.json"
FORMAT = 1
OWNERS_MAX = 4096
TENANTS_MAX = 4096
_BYTES_MAX = 64 << 20
_CAUSE = "said to a scheduler before this one"


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """What a tenant has said that it needs, and the devices on which it was put for that."""

    need: str
    need_devices: str
    placed_on: tuple[DeviceId, ...]


class KeptFile:
    """Reads at once what there is. `note` is told each event that was handled."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._modes: dict[DeviceId, DeviceMode] = {}
        self._groups: dict[str, tuple[str, ...]] = {}
        """By the owner's key: an account of the node may have the name of a user of the hub."""
        self._groups_by_name: dict[str, tuple[str, ...]] = {}
        """As an earlier version wrote them; each until its owner registers a tenant."""
        self._places: dict[str, KeptPlace] = {}
        try:
            with path.open(encoding="utf-8") as file:
                self._take(json.loads(file.read(_BYTES_MAX)))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            log.warning(
                "%s is not as we write it (%r): all devices are open, and users are in no groups "
                "until they start a kernel",
                path,
                error,
            )

    def mode_of(self, device: DeviceId) -> DeviceModeChanged | None:
        """What an administrator has said of a device that is there now; None for an open one."""
        mode = self._modes.get(device)
        return None if mode is None else DeviceModeChanged(device=device, mode=mode, cause=_CAUSE)

    def groups_of(self, tenant: str, owner: str) -> tuple[str, ...]:
        """Of the tenant's owner, as they were when the owner last registered a tenant; the same
        object until then."""
        return self._known_groups(tenant, owner) or ()

    def as_before(self, event: TenantRegistered) -> TenantRegistered:
        """The registration of a tenant that comes back, with what its token does not say."""
        place = self._places.get(event.tenant)
        said = {} if place is None else asdict(place)
        groups = event.groups
        if groups is None:
            groups = self._known_groups(event.tenant, event.owner)
        return replace(event, groups=groups, **said)

    def note_place(
        self, event: TenantRegistered | NeedAsked, placed_on: tuple[DeviceId, ...]
    ) -> None:
        """The tenant was put on these devices, or needs something else there."""
        self._places[event.tenant] = KeptPlace(event.need, event.need_devices, placed_on)
        if len(self._places) > TENANTS_MAX:
            del self._places[next(iter(self._places))]
        self._write()

    def forget(self, tenant: str) -> None:
        """The tenant is gone."""
        if self._places.pop(tenant, None) is not None:
            self._write()

    def note(self, event: Event) -> None:
        match event:
            case DeviceModeChanged(device=device, mode=mode):
                before = self._modes.get(device, DeviceMode.OPEN)
                self._modes.pop(device, None)
                if mode is not DeviceMode.OPEN:
                    self._modes[device] = mode
                if mode is not before:
                    self._write()
            case TenantRegistered(tenant=tenant, owner=owner, groups=groups) if groups is not None:
                by_name = self._groups_by_name.pop(owner, None)
                key = _key(tenant, owner)
                before_groups = self._groups.pop(key, None)
                self._groups[key] = groups
                if len(self._groups) > OWNERS_MAX:
                    del self._groups[next(iter(self._groups))]
                if groups != before_groups or by_name is not None:
                    self._write()
            case _:
                pass

    def _known_groups(self, tenant: str, owner: str) -> tuple[str, ...] | None:
        known = self._groups.get(_key(tenant, owner))
        return self._groups_by_name.get(owner) if known is None else known

    def _take(self, said: Mapping[str, Any]) -> None:
        if said["kept"] != FORMAT:
            raise ValueError("a file of another version")
        modes = {DeviceId(str(name)): DeviceMode(mode) for name, mode in said["modes"].items()}
        by_name, groups = _groups(said["groups"]), _groups(said.get("groups_by_key", {}))
        self._modes = {name: mode for name, mode in modes.items() if mode is not DeviceMode.OPEN}
        self._groups, self._groups_by_name = groups, by_name
        self._places = {str(name): _place(each) for name, each in said["places"].items()}

    def _write(self) -> None:
        modes = {device: mode.value for device, mode in self._modes.items()}
        said = {
            "kept": FORMAT,
            "modes": modes,
            "groups": self._groups_by_name,
            "groups_by_key": self._groups,
            "places": {name: asdict(each) for name, each in self._places.items()},
        }
        try:
            put_in_place(self._path, said)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error.strerror)


def _key(tenant: str, owner: str) -> str:
    return key_of(tenant) or owner


def _groups(said: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {str(owner): tuple(map(str, each)) for owner, each in said.items()}


def _place(said: Mapping[str, Any]) -> KeptPlace:
    devices = tuple(DeviceId(str(device)) for device in said["placed_on"])
    return KeptPlace(str(said["need"]), str(said["need_devices"]), devices)
