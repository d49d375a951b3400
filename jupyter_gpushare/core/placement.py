"""On which devices a tenant is put that says what it needs, before it opens CUDA. Pure.

A tenant is put where its need is free and few others are: first where the queue is short, then
where few tenants are, then where most is free. A tenant that was put on a device counts there for
its whole need, or for what it has if that is more, as long as it lives: so tenants that start
together spread out. While it runs it may say another amount, and stays where it is. A need is a
wish for a place and nothing else: it keeps no memory from others, and gives no turn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import NeedNotMet
from .events import DeviceMode
from .ids import DeviceId
from .records import Device, Placement, Tenant
from .state import State

WISH_CHARACTERS_MAX = 40
DEVICES_MAX = 64
_UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_AMOUNT = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>[a-z]*)", re.ASCII)
_MIG = "MIG-"


class BadNeed(ValueError):
    """What a tenant says of its need cannot be met anywhere; the message says why, and what to
    write."""


@dataclass(frozen=True, slots=True)
class Need:
    """So many bytes on each of so many devices."""

    bytes_needed: int
    devices: int = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device, as far as it matters to those who look for a place. Without a `uuid`, which only
    NVML knows, CUDA cannot be told to use it."""

    device: DeviceId
    uuid: str
    bytes_usable: int
    """By all tenants together."""
    bytes_free: int
    """Of these, what no tenant has or was given a place for."""
    queue: int
    """Tenants that have the device or wait for it."""
    tenants: int
    """Tenants that have it open, or were put on it."""
    open: bool = True
    """Turns begin on it."""


def need_of(need: str, devices: str = "") -> Need:
    """What a person has written, such as `20GiB` and `2`; raises BadNeed."""
    if not need.strip():
        raise BadNeed("It says a number of devices and no `need`. Add one, such as 20GiB.")
    found = _AMOUNT.fullmatch(need.strip().lower())
    if found is None or (found["unit"] and found["unit"] not in _UNITS):
        raise BadNeed(f"The need {need!r} is no amount of memory. Write it like 20GiB or 512MiB.")
    if not found["unit"]:
        raise BadNeed(f"The need {need!r} has no unit. Write it like 20GiB or 512MiB.")
    amount = float(found["number"]) * _UNITS[found["unit"]]
    if not 1 <= amount < math.inf:
        raise BadNeed(f"The need {need!r} is nothing. Write it like 20GiB or 512MiB.")
    count = devices.strip() or "1"
    if not (count.isascii() and count.isdigit() and 1 <= int(count) <= DEVICES_MAX):
        raise BadNeed(
            f"The number of devices is {devices!r}. Write a whole number from 1 to {DEVICES_MAX}."
        )
    return Need(int(amount), int(count))


def place(candidates: Sequence[Candidate], need: Need) -> Placement:
    """The devices that suit best, or why there are none."""
    several = need.devices > 1
    named = [each for each in candidates if each.uuid and not (several and _is_instance(each))]
    fitting = [each for each in named if each.open and each.bytes_free >= need.bytes_needed]
    if len(fitting) < need.devices:
        return Placement(bytes_needed=need.bytes_needed, reason=_why_not(candidates, named, need))
    order = {each.device: number for number, each in enumerate(candidates)}
    best = sorted(
        fitting,
        key=lambda each: (each.queue, each.tenants, -each.bytes_free, order[each.device]),
    )[: need.devices]
    best.sort(key=lambda each: order[each.device])
    return Placement(
        devices=tuple(each.device for each in best),
        bytes_needed=need.bytes_needed,
        visible=",".join(each.uuid for each in best),
    )


def _is_instance(candidate: Candidate) -> bool:
    """A MIG instance, of which a process can use one."""
    return candidate.uuid.startswith(_MIG)


def _why_not(candidates: Sequence[Candidate], named: Sequence[Candidate], need: Need) -> str:
    wanted = f"{size(need.bytes_needed)} on each of {need.devices} GPUs"
    if need.devices == 1:
        wanted = size(need.bytes_needed)
    if not any(each.uuid for each in candidates):
        return (
            "NVML lists no GPU here, so none can be chosen. Look at `jupyter gpushare doctor`, and "
            "restart the kernel then."
        )
    if not named:
        return "A program can use one MIG instance, and several are asked for. Ask for one."
    large = [each for each in named if each.bytes_usable >= need.bytes_needed]
    if len(named) < need.devices:
        return f"It needs {need.devices} GPUs, and there are {len(named)}. Ask for fewer."
    if len(large) < need.devices:
        sizes = sorted((each.bytes_usable for each in named), reverse=True)
        return (
            f"It needs {wanted}, and notebooks can have {size(sizes[need.devices - 1])} at most. "
            f"Ask for less."
        )
    is_open = [each for each in large if each.open]
    if len(is_open) < need.devices:
        return (
            f"It needs {wanted}, and GPUs that are large enough are paused. Restart the kernel "
            f"when the administrator has opened them."
        )
    free = sorted((each.bytes_free for each in is_open), reverse=True)
    return (
        f"It needs {wanted}, and {size(max(0, free[need.devices - 1]))} are free at most. Shut "
        f"down kernels that are not needed and restart this one, or ask for less."
    )


def size(count: int) -> str:
    """Bytes as people write them."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count / 1024:.4g} KiB"


# ---- as the core has it ------------------------------------------------------------------------


def placed(state: State, need: str, devices: str, placed_on: Iterable[DeviceId]) -> Placement:
    """What becomes of this wish now. `placed_on`: the place that it was given by a scheduler before
    this one, which stays, also where the need was taken back."""
    before = tuple(placed_on)
    if before and not (need or devices):
        return Placement(devices=before)
    try:
        wanted = need_of(need, devices)
    except BadNeed as error:
        return Placement(reason=str(error))
    if before:
        return Placement(devices=before, bytes_needed=wanted.bytes_needed)
    return place([_candidate(state, device) for device in state.devices.values()], wanted)


def needed_now(state: State, tenant: Tenant, need: str, devices: str) -> Placement | None:
    """What becomes of a need that a tenant says while it runs. Its processes have seen their
    devices, so these stay. Raises NeedNotMet."""
    its = _devices_of(state, tenant)
    was_placed = tenant.id in state.placed
    if not need:
        return Placement(devices=its) if was_placed else None
    try:
        wanted = need_of(need, devices)
    except BadNeed as error:
        raise NeedNotMet(str(error)) from None
    if not its:
        raise NeedNotMet(
            "This notebook has not used a GPU yet, so nobody knows which one it will use. Use it "
            "first, or set GPUSHARE_NEED before the kernel starts."
        )
    if devices and wanted.devices != len(its):
        raise NeedNotMet(
            f"This notebook has {len(its)} GPU{'s' * (len(its) > 1)} until it is restarted. Set "
            f"GPUSHARE_NEED and GPUSHARE_NEED_DEVICES before the kernel starts."
        )
    asked = wanted.bytes_needed
    if not (was_placed and tenant.placement and asked <= tenant.placement.bytes_needed):
        for device in its:
            _must_have_left(state, tenant, device, asked)
    visible = tenant.placement.visible if tenant.placement else ""
    return Placement(devices=its, bytes_needed=asked, visible=visible)


def _devices_of(state: State, tenant: Tenant) -> tuple[DeviceId, ...]:
    """Where it was put, else what it has opened, else the only one that there is."""
    if tenant.placement is not None and tenant.placement.devices:
        return tenant.placement.devices
    if tenant.wanted_devices:
        return tuple(each for each in state.devices if each in tenant.wanted_devices)
    return tuple(state.devices) if len(state.devices) == 1 else ()


def _must_have_left(state: State, tenant: Tenant, device_id: DeviceId, asked: int) -> None:
    """Raises NeedNotMet where the device has not so much beside what others have and need."""
    device = state.devices.get(device_id)
    if device is None:
        raise NeedNotMet("The GPU of this notebook is gone. Restart the kernel.")
    if tenant.cap_bytes and asked > tenant.cap_bytes:
        raise NeedNotMet(
            f"This notebook may have {size(tenant.cap_bytes)} on a GPU at most. Ask for less, or "
            f"ask an administrator for a larger limit."
        )
    there = _candidate(state, device)
    left = there.bytes_free + _bytes_of(tenant, device_id)
    if tenant.id in state.placed:
        left += _bytes_to_come(tenant, device_id)
    if asked > left:
        raise NeedNotMet(
            f"It needs {size(asked)}, and its GPU has {size(max(0, left))} beside what others have "
            f"and need. Ask for less, or shut down kernels that are not needed."
        )


def _candidate(state: State, device: Device) -> Candidate:
    line = state.lines.of[device.id]
    on_it = [
        each
        for each in state.placed.values()
        if each.placement is not None and device.id in each.placement.devices
    ]
    usable = max(0, state.usable_bytes(device))
    to_come = sum(_bytes_to_come(each, device.id) for each in on_it)
    return Candidate(
        device=device.id,
        uuid=device.uuid,
        bytes_usable=usable,
        bytes_free=usable - device.memory.bytes_allocated - to_come,
        queue=len(line.holders) + len(line.queue),
        tenants=len(line.users) + sum(each.id not in line.users for each in on_it),
        open=not (device.lost or device.mode is not DeviceMode.OPEN),
    )


def _bytes_to_come(tenant: Tenant, device: DeviceId) -> int:
    """What a tenant needs there, and has not allocated yet."""
    needed = tenant.placement.bytes_needed if tenant.placement else 0
    return max(0, needed - _bytes_of(tenant, device))


def _bytes_of(tenant: Tenant, device: DeviceId) -> int:
    shares = (client.devices.get(device) for client in tenant.clients.values())
    return sum(share.bytes_allocated for share in shares if share is not None)
