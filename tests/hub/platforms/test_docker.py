"""`c.GPUShare.platform = "docker"`: what setup(c) adds for the real DockerSpawner, and leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
from dockerspawner import DockerSpawner, SwarmSpawner, SystemUserSpawner
from traitlets.config import Config

from jupyter_gpushare.hub import setup
from jupyter_gpushare.hub.options import GPUShare, OptionError

INSIDE = "/run/jupyter-gpushare"
LIBRARY_INSIDE = "/usr/lib/jupyter-gpushare"
SPAWNERS = (DockerSpawner, SystemUserSpawner, SwarmSpawner)


@pytest.fixture
def c(tmp_path: Path) -> Config:
    c = Config()
    c.GPUShare.platform = "docker"
    c.GPUShare.runtime_dir = str(tmp_path / "run")
    c.GPUShare.library_dir = str(tmp_path / "library")
    return c


class User:
    """As much of a hub's user as a spawner asks for a name."""

    name = "ann"
    url = "/user/ann/"
    settings: ClassVar[dict[str, Any]] = {}


def spawner(c: Config, kind: type[DockerSpawner] = DockerSpawner) -> Any:
    made = kind(config=c, user=User())
    made.host_homedir_format_string = "/home/{username}"
    return made


def mounts(c: Config, kind: type[DockerSpawner] = DockerSpawner) -> dict[str, tuple[str, str]]:
    """By what Docker is told: source → (place, mode)."""
    made = spawner(c, kind)
    return {
        source: (each["bind"], each.get("mode", "rw")) for source, each in made.volume_binds.items()
    }


def ours(tmp_path: Path) -> dict[str, tuple[str, str]]:
    return {
        str(tmp_path / "run/tenants"): (INSIDE, "ro"),
        str(tmp_path / "library"): (LIBRARY_INSIDE, "ro"),
    }


@pytest.mark.promise(
    "hub-9",
    'With `platform = "docker"` servers in containers have the sockets and the hub\'s own hook, '
    "read-only, and nothing else of the hub's",
)
@pytest.mark.parametrize("kind", SPAWNERS, ids=lambda kind: kind.__name__)
def test_what_a_container_gets(c: Config, tmp_path: Path, kind: type[DockerSpawner]) -> None:
    """Two mounts, and where they are; the directory with the key is not among them."""
    setup(c)
    found = mounts(c, kind)
    assert ours(tmp_path).items() <= found.items()
    assert str(tmp_path / "run") not in found
    environment = spawner(c, kind).environment
    assert environment["GPUSHARE_RUNTIME_DIR"] == INSIDE
    assert environment["GPUSHARE_LIBRARY"] == f"{LIBRARY_INSIDE}/libgpushare.so"
    assert environment["GPUSHARE_SCHEDULER_UID"] == str(os.getuid())


@pytest.mark.promise("hub-9")
def test_swarm_is_told_the_same(c: Config, tmp_path: Path) -> None:
    """Its services have mounts of another form."""
    setup(c)
    told = {
        each["Source"]: (each["Target"], each["ReadOnly"])
        for each in spawner(c, SwarmSpawner).mounts
    }
    assert told == {source: (place, True) for source, (place, _) in ours(tmp_path).items()}


@pytest.mark.promise("hub-12")
def test_called_twice(c: Config) -> None:
    c.SystemUserSpawner.read_only_volumes = {"/data": "/data"}
    c.DockerSpawner.volumes.update({"/more": "/more"})
    setup(c)
    once = repr(c)
    setup(c)
    assert repr(c) == once


GIVEN: dict[str, dict[str, Any]] = {
    "of all": {"Spawner": {"read_only_volumes": {"/data": "/data"}}},
    "of DockerSpawner": {"DockerSpawner": {"read_only_volumes": {"/data": "/data"}}},
    "of the subclass": {"SystemUserSpawner": {"read_only_volumes": {"/data": "/data"}}},
    "of both": {
        "DockerSpawner": {"read_only_volumes": {"/hidden": "/hidden"}},
        "SystemUserSpawner": {"read_only_volumes": {"/data": {"bind": "/data", "mode": "ro"}}},
    },
}


@pytest.mark.promise("hub-12")
@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("lazily", [False, True], ids=["set", "added"])
def test_mounts_of_the_administrator_stay(
    c: Config, tmp_path: Path, given: dict[str, dict[str, Any]], lazily: bool
) -> None:
    """Wherever and however they are configured, theirs and ours are there."""
    for name, entries in given.items():
        for entry, value in entries.items():
            if lazily:
                c[name][entry].update(value)
            else:
                c[name][entry] = value
    c.DockerSpawner.volumes = {"work-{username}": "/home/work"}
    setup(c)
    found = mounts(c, SystemUserSpawner)
    assert found["/data"] == ("/data", "ro")
    assert found["work-ann"] == ("/home/work", "rw")
    assert ours(tmp_path).items() <= found.items()


@pytest.mark.promise("hub-12")
@pytest.mark.parametrize("kind", ["volumes", "read_only_volumes", "mounts", "mounts, added"])
def test_their_own_mount_at_our_place(c: Config, tmp_path: Path, kind: str) -> None:
    """Docker starts no container with two mounts at one place: theirs stays, the other one of ours
    is there."""
    if kind == "mounts":
        c.DockerSpawner.mounts = [{"source": "/theirs", "target": INSIDE, "type": "bind"}]
    elif kind == "mounts, added":
        c.DockerSpawner.mounts.append({"source": "/theirs", "target": INSIDE, "type": "bind"})
    else:
        c.DockerSpawner[kind] = {"/theirs": {"bind": INSIDE + "/", "mode": "ro"}}
    setup(c)
    setup(c)
    found = mounts(c)
    assert str(tmp_path / "run/tenants") not in found
    assert found[str(tmp_path / "library")] == (LIBRARY_INSIDE, "ro")


@pytest.mark.promise("hub-12")
def test_variables_of_their_own(c: Config) -> None:
    """A variable that the administrator has set wins; theirs of a subclass has ours beside it."""
    c.Spawner.environment = {"GPUSHARE_SCHEDULER_UID": "65534"}
    c.SystemUserSpawner.environment = {"GPUSHARE_RUNTIME_DIR": "/theirs"}
    setup(c)
    assert spawner(c).environment["GPUSHARE_SCHEDULER_UID"] == "65534"
    theirs = spawner(c, SystemUserSpawner).environment
    assert theirs["GPUSHARE_RUNTIME_DIR"] == "/theirs"
    assert theirs["GPUSHARE_LIBRARY"] == f"{LIBRARY_INSIDE}/libgpushare.so"


def test_a_directory_with_braces(c: Config, tmp_path: Path) -> None:
    """Spawners fill in what stands in braces."""
    c.GPUShare.runtime_dir = str(tmp_path / "{username}")
    setup(c)
    assert str(tmp_path / "{username}" / "tenants") in mounts(c)


@pytest.mark.promise("hub-16")
def test_switched_off(c: Config, tmp_path: Path) -> None:
    """Containers get nothing of ours any more, and nothing is written."""
    c.GPUShare.enabled = False
    setup(c)
    assert mounts(c) == {}
    assert "GPUSHARE_LIBRARY" not in spawner(c).environment
    assert not (tmp_path / "library").exists()


@pytest.mark.parametrize("name", ["nomad", "Docker", ""])
def test_no_such_platform(c: Config, name: str) -> None:
    c.GPUShare.platform = name
    with pytest.raises(OptionError, match=r"platform cannot be .*Use one of: docker, kubernetes"):
        setup(c)


def test_local_has_no_mounts(c: Config, tmp_path: Path) -> None:
    """As before: nothing is written, and the environment says the directory itself."""
    c.GPUShare.platform = "machine"
    setup(c)
    assert mounts(c) == {}
    assert spawner(c).environment["GPUSHARE_RUNTIME_DIR"] == str(tmp_path / "run")
    assert not (tmp_path / "library").exists()


# ---- the library's copy ----------------------------------------------------------------------


def test_a_relative_directory(c: Config) -> None:
    c.GPUShare.library_dir = "library"
    with pytest.raises(OptionError, match=r"c.GPUShare.library_dir is 'library', which is not an"):
        setup(c)


def test_where_it_is_by_default() -> None:
    home = Path("/var/lib") if os.getuid() == 0 else Path.home() / ".local/share"
    assert GPUShare().kept_library_dir == home / "jupyter-gpushare"


def test_a_directory_that_cannot_be_used(c: Config, tmp_path: Path) -> None:
    """The hub does not start, and says what to do (tests/kernel/test_kept_library.py has more)."""
    (tmp_path / "library").touch()
    with pytest.raises(OptionError, match=r"cannot be copied to .* c.GPUShare.library_dir"):
        setup(c)
