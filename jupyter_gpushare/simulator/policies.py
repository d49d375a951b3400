"""The policies by their names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from .base.errors import SimulationError
from .base.kernel import Policy
from .base.loop import Loop
from .base.world import World
from .baselines.devices import EachDevice
from .baselines.gemini import GeminiDevice
from .baselines.nvshare import NvshareDevice
from .baselines.reservation import ReservationNode
from .baselines.timeslicing import TimeslicingDevice
from .ours.node import SimulatedNode
from .run import MakePolicy


def _ours(devices: range, loop: Loop, world: World) -> Policy:
    return SimulatedNode(
        devices,
        loop=loop,
        settings=world.settings,
        hardware=world.hardware,
        device_bytes=world.device_bytes,
    )


def _nvshare(devices: range, loop: Loop, world: World) -> Policy:
    return EachDevice(devices, lambda: NvshareDevice(loop, world))


def _gemini(devices: range, loop: Loop, world: World) -> Policy:
    return EachDevice(devices, lambda: GeminiDevice(loop, world))


def _timeslicing(devices: range, loop: Loop, world: World) -> Policy:
    return EachDevice(devices, lambda: TimeslicingDevice(loop, world))


POLICIES: dict[str, MakePolicy] = {
    "ours": _ours,
    "nvshare": _nvshare,
    "gemini": _gemini,
    "reservation": ReservationNode,
    "timeslicing": _timeslicing,
}


def named(names: str) -> Sequence[str]:
    """The policies of a list with commas, each once; raises SimulationError."""
    chosen = list(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in chosen:
        if name not in POLICIES:
            raise SimulationError(f"There is no policy {name!r}. {suggestion(name, POLICIES)}")
    return chosen


def suggestion(given: str, names: Sequence[str] | dict[str, MakePolicy]) -> str:
    """What a name that does not exist was probably meant to be; else all of them."""
    near = difflib.get_close_matches(given, names, n=1)
    return f"Did you mean {near[0]}?" if near else f"Give one of: {', '.join(names)}."
