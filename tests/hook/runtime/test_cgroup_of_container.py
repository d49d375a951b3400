"""How much host memory the hook finds in a container that has control groups of its own: there the
path of its group is `/`, and the root of what is mounted is its group."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT, hook_source
from tests.support.sim import GIB, MIB

SOURCE = ROOT / "hook" / "src"
NO_LIMIT_OF_VERSION_1 = (1 << 63) - 4096
GROUPS_OF_ITS_OWN = ["unshare", "--user", "--map-root-user", "--cgroup"]
VERSIONS = {
    1: ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("", "memory.max", "memory.current", "inactive_file"),
}


@pytest.fixture
def look(program: Callable[..., Path]) -> Path:
    sources = (hook_source("cgroup.c"), hook_source("cgroup_parse.c"))
    return program("cgroup_room", *sources, "-D_GNU_SOURCE", "-iquote", str(SOURCE), "-Werror")


@pytest.mark.promise(
    "park-23",
    "In a container parked memory stays within its own limit, of control groups of both versions",
)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_root_is_its_own_group(look: Path, tmp_path: Path, version: int) -> None:
    """Of 8 GiB 3 are used, and 1 of these is files: 6 GiB, less a reserve."""
    is_known = version == 2 or ":memory:" in Path("/proc/self/cgroup").read_text()
    folder, limit, used, reclaimable = VERSIONS[version]
    group = tmp_path / folder
    group.mkdir(parents=True, exist_ok=True)
    (group / limit).write_text(f"{8 * GIB}\n")
    (group / used).write_text(f"{3 * GIB}\n")
    (group / "memory.stat").write_text(f"anon 5\n{reclaimable} {GIB}\n")
    (tmp_path / "memory.high").write_text("max\n")
    said = subprocess.check_output([*GROUPS_OF_ITS_OWN, look, tmp_path], text=True)
    room, number = map(int, said.split())
    if is_known:
        assert (room, number) == (6 * GIB - 8 * GIB // 20, group.stat().st_ino)
    else:  # this machine has no version 1, so nothing there limits a process
        assert number == 0


def test_without_a_limit_the_machine_counts(look: Path, tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    for path in (tmp_path / "memory.max", tmp_path / "memory" / "memory.limit_in_bytes"):
        text = "max" if path.name == "memory.max" else str(NO_LIMIT_OF_VERSION_1)
        path.write_text(f"{text}\n")
    room, number = map(
        int, subprocess.check_output([*GROUPS_OF_ITS_OWN, look, tmp_path], text=True).split()
    )
    assert number == 0 and room > MIB
