"""What every spawner gives to the servers that it starts.

Only names and paths that are no secret, and only by `Spawner.environment`, which every spawner
hands on: those too that start a server from an empty environment (sudo, systemd, batch systems).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from jupyter_gpushare.client.paths import RUNTIME_DIR, SCHEDULER_UID, WITHOUT_HUB

from .roles import with_our_scope

SPAWNER = "Spawner"
SWITCHED_OFF = {"GPUSHARE_DISABLE": "1", "GPUSHARE_DISABLED_BY": "administrator"}
"""For servers of a hub that shares no longer: neither they nor their kernels do so on their own."""


def server_environment(directory: Path, without_hub: str) -> dict[str, str]:
    """Where the scheduler is, whose account it must run under to be believed, and what new kernels
    do while the hub cannot be reached."""
    return {
        RUNTIME_DIR: str(directory),
        SCHEDULER_UID: str(os.getuid()),
        WITHOUT_HUB: without_hub,
    }


def add_environment(c: Config, environment: Mapping[str, str]) -> None:
    """Add to what every class of spawner is configured with. A variable that the administrator
    has set for a class of its own stays as it is."""
    for name in spawner_sections(c):
        section = c[name]
        if name == SPAWNER or _is_set(section, "environment"):
            _add_environment(section, environment)


def add_scopes(c: Config) -> None:
    """Ours, where the administrator says which scopes the servers' tokens have."""
    for name in spawner_sections(c):
        section = c[name]
        if "server_token_scopes" in section:
            scopes = section["server_token_scopes"]
            if isinstance(scopes, LazyConfigValue):
                scopes = scopes.get_value([])
            section["server_token_scopes"] = with_our_scope(scopes) or []


def spawner_sections(c: Config) -> list[str]:
    """`c.Spawner`, and those of its subclasses: an entry there wins over the one here. The one that
    spawners of batch systems have in common is called BatchSpawnerBase."""
    ends = (SPAWNER, f"{SPAWNER}Base")
    return [SPAWNER, *(n for n in c if n.endswith(ends) and n != SPAWNER)]


def _is_set(section: Any, name: str) -> bool:
    return name in section and not isinstance(section[name], LazyConfigValue)


def _add_environment(section: Any, environment: Mapping[str, str]) -> None:
    if _is_set(section, "environment"):
        section["environment"] = {**section["environment"], **_missing(section, environment)}
    else:  # a class's own default stays: this is added to it when the spawner is made
        section.environment.update(_missing(section, environment))


def _missing(section: Any, environment: Mapping[str, str]) -> dict[str, str]:
    """Ours, without those that the administrator has set to something else."""
    there = section.environment
    if isinstance(there, LazyConfigValue):  # whose get_value() must be left to the spawner
        there = there.to_dict().get("update", {})
    return {
        name: Ours(value)
        for name, value in environment.items()
        if isinstance(there.get(name, Ours()), Ours)
    }


class Ours(str):
    """A value that an earlier call of `setup` has put there, which a later one may change."""

    __slots__ = ()
