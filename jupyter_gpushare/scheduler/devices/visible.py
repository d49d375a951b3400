"""Which devices a list in the manner of CUDA_VISIBLE_DEVICES names. Pure.

The list is read once, against the devices that are there at the start: a device that is lost later
does not change what the other entries mean. Indices are NVML's, which are CUDA's under
CUDA_DEVICE_ORDER=PCI_BUS_ID (and anyhow where all devices are of one kind). A GPU that is divided
into MIG instances stands for all of them, those of later included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base.errors import StartError


@dataclass(frozen=True, slots=True)
class DeviceName:
    """`uuid` as NVML writes it; for a MIG instance `parent_uuid` is its GPU's, else the same."""

    index: int
    uuid: str
    parent_uuid: str


@dataclass(frozen=True, slots=True)
class Served:
    """The devices that this scheduler is there for; `uuids` None means all that ever appear."""

    uuids: frozenset[str] | None = None

    def includes(self, device: DeviceName) -> bool:
        return self.uuids is None or bool(self.uuids & {device.uuid, device.parent_uuid})


EVERYTHING = Served()
NOTHING = Served(frozenset())


def visible(devices: Sequence[DeviceName], text: str | None) -> Served:
    """As CUDA reads its variable: None means all, and the first entry that names nothing ends the
    list."""
    if text is None:
        return EVERYTHING
    chosen: set[str] = set()
    for entry in _entries(text):
        uuid = _named(devices, entry)
        if uuid is None:
            break
        chosen.add(uuid)
    return Served(frozenset(chosen))


def asked_for(devices: Sequence[DeviceName], text: str) -> Served:
    """As `--devices` is read: an entry that names nothing is the caller's mistake."""
    chosen: set[str] = set()
    for entry in _entries(text):
        uuid = _named(devices, entry)
        if uuid is None:
            known = ", ".join(device.uuid for device in devices) or "none at all"
            raise StartError(f"No device is called {entry!r}. Name some of these: {known}.")
        chosen.add(uuid)
    return Served(frozenset(chosen))


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",")] if text.strip() else []


def _named(devices: Sequence[DeviceName], entry: str) -> str | None:
    """The UUID of the one GPU or instance that an index, a UUID or the beginning of one means."""
    if entry.isascii() and entry.isdigit():
        found = {d.parent_uuid for d in devices if d.index == int(entry)}
    elif entry.startswith(("GPU-", "MIG-")):
        known = {uuid for d in devices for uuid in (d.uuid, d.parent_uuid)}
        found = {uuid for uuid in known if uuid.lower().startswith(entry.lower())}
    else:
        found = set()
    return found.pop() if len(found) == 1 else None
