"""Servers in containers on the hub's own machine: DockerSpawner, and spawners made from it.

A container gets two directories of this machine, both read-only: the tenants' sockets, and this
machine's hook, so that hook and scheduler are of one version whatever the image has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from jupyter_gpushare.client.kept_library import CannotKeep, keep_library
from jupyter_gpushare.client.paths import (
    ENVIRONMENT_INSIDE,
    LIBRARY_INSIDE,
    TENANTS_DIR,
    TENANTS_INSIDE,
)

from ..errors import OptionError
from ..spawners import SPAWNER, Ours, add_environment, spawner_sections

if TYPE_CHECKING:
    from ..options import GPUShare

_DOCKER = "DockerSpawner"
_VOLUMES = "read_only_volumes"


def add_docker(c: Config, options: GPUShare) -> None:
    """Add the mounts, and where they are, to what the administrator has configured."""
    library = options.kept_library_dir
    try:
        keep_library(library, named_in="c.GPUShare.library_dir")
    except CannotKeep as error:
        raise OptionError(str(error)) from error
    for name in _sections_with_volumes(c):
        _add_volume(c, name, options.directory / TENANTS_DIR, TENANTS_INSIDE)
        _add_volume(c, name, library, LIBRARY_INSIDE)
    add_environment(c, ENVIRONMENT_INSIDE)


def _sections_with_volumes(c: Config) -> Iterator[str]:
    """Those that have some, for an entry there hides that of a class above; and the one that all
    spawners of containers look into, unless it would hide what `c.Spawner` has."""
    having = [name for name in spawner_sections(c) if _VOLUMES in c[name]]
    yield from having
    if not {SPAWNER, _DOCKER} & set(having):
        yield _DOCKER


def _add_volume(c: Config, name: str, here: Path, inside: str) -> None:
    """Unless the administrator has mounted something of their own there, or this elsewhere: Docker
    mounts no two things at one place, and no dictionary has two entries of one name."""
    # A spawner fills in names of users, and reads a doubled brace as a single one.
    source = str(here).replace("{", "{{").replace("}", "}}")
    section = c[name]
    there = _given(section, _VOLUMES)
    if not isinstance(there.get(source, Ours()), Ours) or inside in _places(c):
        return
    if isinstance(section.get(_VOLUMES), Mapping):
        section[_VOLUMES] = {**section[_VOLUMES], source: Ours(inside)}
    else:  # a class's own default stays: this is added to it when the spawner is made
        section[_VOLUMES].update({source: Ours(inside)})


def _places(c: Config) -> set[str]:
    """Where the administrator has mounted something, by any of DockerSpawner's ways."""
    sections = [c[name] for name in spawner_sections(c)]
    volumes = [_given(each, kind) for each in sections for kind in ("volumes", _VOLUMES)]
    places = [place for each in volumes for place in each.values() if not isinstance(place, Ours)]
    bound = [place.get("bind") if isinstance(place, Mapping) else place for place in places]
    mounts = [mount.get("target") for each in sections for mount in _listed(each, "mounts")]
    return {str(place).rstrip("/") for place in (*bound, *mounts)}


def _given(section: Any, name: str) -> Mapping[str, Any]:
    """What a dictionary has been set to, or what has been added to it."""
    value = section.get(name, {})
    if isinstance(value, LazyConfigValue):  # whose get_value() must be left to the spawner
        value = value.to_dict().get("update", {})
    return value if isinstance(value, Mapping) else {}


def _listed(section: Any, name: str) -> list[Mapping[str, Any]]:
    """The same for a list of dictionaries."""
    value = section.get(name, [])
    if isinstance(value, LazyConfigValue):
        added = value.to_dict()
        inserted = [each for _, each in added.get("inserts", [])]
        value = [*added.get("extend", []), *added.get("prepend", []), *inserted]
    return [each for each in value if isinstance(each, Mapping)]
