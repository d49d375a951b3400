"""On which devices a tenant is put that says what it needs, before it opens CUDA. Pure.

A tenant is put where its need is free and few others are: first where the queue is short, then
where few tenants are, then where most is free. A tenant that was put on a device counts there for
its whole need, or for what it has if that is more, as long as it lives: so tenants that start
together spread out. A need is a wish for a place and nothing else: it keeps no memory from others,
and gives no turn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .events import DeviceMode
from .ids import DeviceId
from .records import Placement

if TYPE_CHECKING:
    from .records import Device, Tenant
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
        raise BadNeed(f"Its need {need!r} is no amount of memory. Write it like 20GiB or 512MiB.")
    if not found["unit"]:
        raise BadNeed(f"Its need {need!r} has no unit. Write it like 20GiB or 512MiB.")
    amount = float(found["number"]) * _UNITS[found["unit"]]
    if not 1 <= amount < math.inf:
        raise BadNeed(f"Its need {need!r} is nothing. Write it like 20GiB or 512MiB.")
    count = devices.strip() or "1"
    if not (count.isascii() and count.isdigit() and 1 <= int(count) <= DEVICES_MAX):
        raise BadNeed(
            f"Its number of devices is {devices!r}. Write a whole number from 1 to {DEVICES_MAX}."
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
    this one, which stays."""
    try:
        wanted = need_of(need, devices)
    except BadNeed as error:
        return Placement(reason=str(error))
    if before := tuple(placed_on):
        return Placement(devices=before, bytes_needed=wanted.bytes_needed)
    return place([_candidate(state, device) for device in state.devices.values()], wanted)


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
    shares = (client.devices.get(device) for client in tenant.clients.values())
    has = sum(share.bytes_allocated for share in shares if share is not None)
    return max(0, tenant.placement.bytes_needed - has) if tenant.placement else 0
