"""How much host memory a process may take, from the kernel's files."""

from __future__ import annotations

import pytest

from tests.hook.runtime.pure import Cgroup, Pure

MIB = 1 << 20
GIB = 1 << 30

VERSION_2 = "0::/user.slice/session-3.scope\n"
HYBRID = "9:name=systemd:/s\n4:memory:/docker/a1\n3:cpuset:/\n2:cpu,cpuacct:/c\n0::/v2\n"


@pytest.fixture
def cgroup(pure: Pure) -> Cgroup:
    return Cgroup(pure)


@pytest.mark.promise("park-50")
def test_limits_of_both_versions(cgroup: Cgroup) -> None:
    """`max` of version 2 and the largest number of version 1 are no limit; nor is nonsense."""
    assert cgroup.limit("1073741824\n") == GIB
    assert cgroup.limit("max\n") == Cgroup.NO_LIMIT
    assert cgroup.limit("9223372036854771712\n") == Cgroup.NO_LIMIT
    assert cgroup.limit("") == Cgroup.NO_LIMIT


def test_lines_of_statistics(cgroup: Cgroup) -> None:
    """A key is a whole word at the start of its line."""
    text = "total_inactive_file 5\ninactive_file 7\nfile 9\n"
    assert cgroup.stat(text, "inactive_file") == 7
    assert cgroup.stat(text, "total_inactive_file") == 5
    assert cgroup.stat(text, "absent") == 0
    assert cgroup.meminfo("MemTotal:  16 kB\nMemAvailable:    8 kB\n", "MemAvailable") == 8192


@pytest.mark.promise("park-50")
def test_the_path_of_a_group(cgroup: Cgroup) -> None:
    """By controller in version 1, the line without one in version 2."""
    assert cgroup.path(VERSION_2, "") == "/user.slice/session-3.scope"
    assert cgroup.path(VERSION_2, "memory") is None
    assert cgroup.path(HYBRID, "memory") == "/docker/a1"
    assert cgroup.path(HYBRID, "cpuacct") == "/c"
    assert cgroup.path(HYBRID, "") == "/v2"
    assert cgroup.path("0::/../../other\n", "") == "/", "outside of what can be seen"
    assert cgroup.path("0::/long\n", "", room=4) is None
    for nonsense in ("", "\n", "memory", "4:memory", ":::", "0::"):
        assert cgroup.path(nonsense, "memory") is None


@pytest.mark.promise("park-50")
def test_every_level_up_to_the_root(cgroup: Cgroup) -> None:
    """The root is the last."""
    assert cgroup.parents("/a/b") == ["/a/b", "/a", "/"]
    assert cgroup.parents("/") == ["/"]


@pytest.mark.promise("park-50")
def test_a_level_leaves_its_limit_less_use_and_reserve(cgroup: Cgroup) -> None:
    """The reserve is 256 MiB or 5 %; pages of files that nobody uses count as free."""
    assert cgroup.room(GIB, 512 * MIB) == 256 * MIB
    assert cgroup.room(GIB, 900 * MIB) == 0
    assert cgroup.room(GIB, 900 * MIB, 600 * MIB) == GIB - 300 * MIB - 256 * MIB
    assert cgroup.room(100 * GIB, 0) == 95 * GIB
    assert cgroup.room(GIB, 2 * GIB) == 0
    assert cgroup.room(Cgroup.NO_LIMIT, 5) == Cgroup.NO_LIMIT


def test_a_level_is_short_when_half_of_the_reserve_is_gone(cgroup: Cgroup) -> None:
    """Not at once when there is no room left: what was made ready would come and go."""
    assert not cgroup.is_short(GIB, GIB - 256 * MIB)
    assert not cgroup.is_short(GIB, GIB - 128 * MIB)
    assert cgroup.is_short(GIB, GIB - 127 * MIB)
    assert not cgroup.is_short(GIB, GIB - 127 * MIB, MIB)
    assert not cgroup.is_short(Cgroup.NO_LIMIT, GIB)
