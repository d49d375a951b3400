"""Servers are pods (KubeSpawner), on nodes that have a scheduler each (charts/gpushare).

A server that asks for a GPU of NVIDIA's gets a seat with it, wherever that is asked for: for all
servers, in a profile, or in a choice of one. The seat brings the sockets, the hook and the names
of both into the container, so nothing else is added here: a server without a seat has none of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

if TYPE_CHECKING:
    from ..options import GPUShare

SPAWNER = "KubeSpawner"
SEAT = "gpushare.jupyter.org/turn"
NVIDIA = "nvidia.com/"
LIMITS = "extra_resource_limits"
PROFILES = "profile_list"


def add_kubernetes(c: Config, options: GPUShare) -> None:
    """A seat with each GPU. What is not of KubeSpawner's own options is left alone: a
    `modify_pod_hook` that adds a GPU has to add the seat too."""
    section = c[SPAWNER]
    if isinstance(section.get(LIMITS), LazyConfigValue):
        added = section[LIMITS].to_dict().get("update", {})
        section[LIMITS].update(with_seat(added))
    elif LIMITS in section:
        section[LIMITS] = with_seat(section[LIMITS])
    if isinstance(section.get(PROFILES), list):
        section[PROFILES] = seated(section[PROFILES])
    elif callable(section.get(PROFILES)) and not isinstance(section[PROFILES], _Seated):
        section[PROFILES] = _Seated(section[PROFILES])


def with_seat(limits: Mapping[str, Any]) -> dict[str, Any]:
    """These limits of a container, with a seat if it has a GPU."""
    needs = any(str(name).startswith(NVIDIA) for name in limits)
    return {**({SEAT: "1"} if needs else {}), **limits}


def seated(value: Any) -> Any:
    """A copy of a list of profiles: each entry of limits in it, however deep, with its seat."""
    if isinstance(value, Mapping):
        return {
            name: with_seat(each) if name == LIMITS and isinstance(each, Mapping) else seated(each)
            for name, each in value.items()
        }
    return [seated(each) for each in value] if isinstance(value, list) else value


class _Seated:
    """An administrator's function that makes the list for a spawner, now or later."""

    def __init__(self, profiles: Callable[[Any], Any]) -> None:
        self._profiles = profiles

    async def __call__(self, spawner: Any) -> Any:
        made = self._profiles(spawner)
        return seated(await made if inspect.isawaitable(made) else made)
