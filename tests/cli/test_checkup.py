"""How the doctor learns its facts: from files, processes and libraries as they are found."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from jupyter_gpushare.cli.checkup import servers
from jupyter_gpushare.cli.checkup.cgroups import tightest_limit
from jupyter_gpushare.cli.checkup.library import library_facts
from jupyter_gpushare.cli.checkup.machine import machine_facts
from jupyter_gpushare.cli.checkup.runtime import runtime_facts, scheduler_facts
from jupyter_gpushare.kernel.elf_versions import NotElf, needed_versions, newest_glibc, numbers
from jupyter_gpushare.version import __version__
from tests.support.paths import HOOK_LIBRARY
from tests.support.scheduler_process import SchedulerUnderTest

MIB = 1 << 20
GIB = 1 << 30


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# ---- the library -----------------------------------------------------------------------------


def test_symbol_versions_are_read_from_the_library() -> None:
    """The hook asks for versions of glibc's symbols; the newest of them is what it needs."""
    image = HOOK_LIBRARY.read_bytes()
    assert any(name.startswith("GLIBC_2.") for name in needed_versions(image))
    assert numbers("2.14") <= numbers(newest_glibc(image)) < numbers("3.0")


def test_versions_are_compared_as_numbers() -> None:
    """2.9 is older than 2.17, which is older than 2.17.1."""
    assert numbers("2.9") < numbers("2.17") < numbers("2.17.1")


@pytest.mark.parametrize("image", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01", b"\x7fELF\x02\x01"])
def test_what_is_no_library_is_told(image: bytes) -> None:
    """Text, 32-bit files and headers that were cut short are refused, not misread."""
    with pytest.raises(NotElf):
        newest_glibc(image)


def test_a_damaged_library_never_breaks_the_reader() -> None:
    """Cut anywhere, a library is either read or refused."""
    image = HOOK_LIBRARY.read_bytes()
    for end in range(0, len(image), max(1, len(image) // 50)):
        try:
            newest_glibc(image[:end])
        except NotElf:
            continue


def test_the_library_is_tried_in_a_program() -> None:
    """A program that was started with the hook has its functions, and the loader is silent."""
    facts = library_facts({**os.environ, "GPUSHARE_LIBRARY": str(HOOK_LIBRARY)})
    assert (facts.missing, facts.loader_says, facts.api_version) == ("", "", 1)
    assert facts.has_glibc and facts.is_for_this_processor
    assert facts.version == __version__


def test_what_the_loader_says_is_kept(tmp_path: Path) -> None:
    """A file that is no library is there, but no program can be started with it."""
    fake = put(tmp_path / "libgpushare.so", "no library")
    facts = library_facts({**os.environ, "GPUSHARE_LIBRARY": str(fake)})
    assert "ld.so" in facts.loader_says
    assert facts.api_version is None
    assert facts.unreadable


def test_a_missing_library_is_not_tried(tmp_path: Path) -> None:
    """The sentence is the one that a kernel's log has."""
    facts = library_facts({"GPUSHARE_LIBRARY": str(tmp_path / "none.so")})
    assert "does not exist" in facts.missing


# ---- the runtime directory -------------------------------------------------------------------


def test_the_runtime_directory_is_looked_at_without_following_links(tmp_path: Path) -> None:
    """A link in the directory's place is seen as one."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    facts = runtime_facts({}, tmp_path / "link", root=tmp_path)
    assert facts.directory.is_link
    assert not facts.directory.is_directory
    real = runtime_facts({}, tmp_path / "real", root=tmp_path).directory
    assert (real.is_directory, real.mode, real.uid) == (True, 0o700, os.getuid())


def test_sockets_are_told_from_files(tmp_path: Path) -> None:
    """What lies at a socket's path is a socket, or something else, or missing."""
    put(tmp_path / "hook.sock", "")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "http.sock"))
        hook, http = runtime_facts({}, tmp_path, root=tmp_path).sockets
    assert (hook.exists, hook.is_socket) == (True, False)
    assert (http.exists, http.is_socket) == (True, True)


def test_a_scheduler_that_nobody_uses_any_more_is_known_as_such(
    scheduler: SchedulerUnderTest, tmp_path: Path
) -> None:
    """It is asked; with a notebook it is one that others have to know of."""
    path = scheduler.directory / "hook.sock"
    line = f"0: 00000002 00000000 00010000 0001 01 1 {path}"
    put(tmp_path / "proc/net/unix", f"header\n{line}\n")
    assert runtime_facts({}, tmp_path, root=tmp_path).idle_others == {str(path)}
    scheduler.tenant("notebook")
    assert runtime_facts({}, tmp_path, root=tmp_path).idle_others == set()


def test_other_schedulers_are_found_by_their_sockets(tmp_path: Path) -> None:
    """Listening hook sockets of other directories count; connected ones and our own do not."""
    lines = [
        "Num       RefCount Protocol Flags    Type St Inode Path",
        "0: 00000002 00000000 00010000 0001 01 1 /run/other dir/hook.sock",
        "0: 00000002 00000000 00010000 0001 01 2 /run/other/http.sock",
        "0: 00000003 00000000 00000000 0001 03 3 /run/connected/hook.sock",
        "0: 00000002 00000000 00010000 0001 01 4 /run/mine/hook.sock",
        "0: 00000002 00000000 00010000 0001 01 5",
    ]
    put(tmp_path / "proc/net/unix", "\n".join(lines) + "\n")
    facts = runtime_facts({}, Path("/run/mine"), root=tmp_path)
    assert [other.path for other in facts.others] == ["/run/other dir/hook.sock"]


@pytest.mark.promise("cli-13")
def test_a_hubs_scheduler_is_one(tmp_path: Path) -> None:
    """It listens at two hook sockets, its own and its tenants', and neither is another's; such a
    one of somebody else is told once."""
    folders = ("/run/mine", "/run/mine/tenants", "/run/other", "/run/other/tenants")
    lines = [f"0: 00000002 00000000 00010000 0001 01 1 {each}/hook.sock" for each in folders]
    put(tmp_path / "proc/net/unix", "\n".join(["header", *lines]) + "\n")
    for own in folders[:2]:
        facts = runtime_facts({}, Path(own), root=tmp_path)
        assert [other.path for other in facts.others] == ["/run/other/hook.sock"]
    put(tmp_path / "proc/net/unix", f"header\n{lines[3]}\n")
    facts = runtime_facts({}, Path("/run/mine"), root=tmp_path)
    assert [other.path for other in facts.others] == ["/run/other/tenants/hook.sock"]


def test_a_scheduler_that_is_not_there_is_told_with_a_sentence(tmp_path: Path) -> None:
    """The client's own words."""
    assert "No scheduler serves" in scheduler_facts({}, tmp_path).problem


# ---- control groups --------------------------------------------------------------------------


def test_no_limit(tmp_path: Path) -> None:
    """Without control groups, or with `max` at every level, there is no limit."""
    assert tightest_limit(tmp_path).bytes_max is None
    put(tmp_path / "proc/self/cgroup", "0::/user\n")
    put(tmp_path / "sys/fs/cgroup/user/memory.max", "max\n")
    assert tightest_limit(tmp_path).bytes_max is None


@pytest.mark.promise(
    "cli-4",
    "The doctor knows memory limits of control groups of both versions, MPS, gateways and shared "
    "uids",
)
def test_the_tightest_level_of_version_2(tmp_path: Path) -> None:
    """Of a group and those above it, the one with the least room counts."""
    put(tmp_path / "proc/self/cgroup", "0::/hub/alice\n")
    base = tmp_path / "sys/fs/cgroup"
    put(base / "hub/alice/memory.max", f"{4 * GIB}\n")
    put(base / "hub/alice/memory.current", f"{GIB}\n")
    put(base / "hub/memory.max", f"{16 * GIB}\n")
    put(base / "hub/memory.current", f"{15 * GIB}\n")
    facts = tightest_limit(tmp_path)
    assert (facts.path, facts.version) == ("/sys/fs/cgroup/hub", 2)
    assert (facts.bytes_max, facts.bytes_used) == (16 * GIB, 15 * GIB)


@pytest.mark.promise("cli-4")
def test_version_1(tmp_path: Path) -> None:
    """The memory controller's own hierarchy counts; its huge number means no limit."""
    put(tmp_path / "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n")
    base = tmp_path / "sys/fs/cgroup/memory"
    put(base / "memory.limit_in_bytes", f"{(1 << 63) - 4096}\n")
    put(base / "docker/abc/memory.limit_in_bytes", f"{512 * MIB}\n")
    put(base / "docker/abc/memory.usage_in_bytes", f"{100 * MIB}\n")
    facts = tightest_limit(tmp_path)
    assert (facts.version, facts.bytes_max) == (1, 512 * MIB)


def test_a_group_whose_path_is_that_of_the_host(tmp_path: Path) -> None:
    """In a container whose group has another path outside, the mount's own level is looked at."""
    put(tmp_path / "proc/self/cgroup", "0::/kubepods/pod1\n")
    put(tmp_path / "sys/fs/cgroup/memory.max", f"{GIB}\n")
    assert tightest_limit(tmp_path).bytes_max == GIB


@pytest.mark.parametrize(
    ("line", "folder", "limit", "used", "key"),
    [
        ("0::/", "", "memory.max", "memory.current", "inactive_file"),
        ("0::/../../x", "", "memory.max", "memory.current", "inactive_file"),
        (
            "4:memory:/",
            "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ],
    ids=["2", "2, from another root", "1"],
)
def test_a_container_with_groups_of_its_own(
    tmp_path: Path, line: str, folder: str, limit: str, used: str, key: str
) -> None:
    """Its group is the root there. Files that the kernel drops when need be count as free."""
    put(tmp_path / "proc/self/cgroup", f"{line}\n")
    base = tmp_path / "sys/fs/cgroup" / folder
    put(base / limit, f"{GIB}\n")
    put(base / used, f"{512 * MIB}\n")
    put(base / "memory.stat", f"anon 1\n{key} {100 * MIB}\n")
    facts = tightest_limit(tmp_path)
    assert (facts.bytes_max, facts.bytes_used) == (GIB, 412 * MIB)


# ---- the hub, MPS ----------------------------------------------------------------------------


@pytest.mark.promise("hub-1", "Users who share a uid are told by the doctor")
@pytest.mark.promise("cli-4")
def test_users_of_the_hub_under_one_uid(tmp_path: Path) -> None:
    """Servers that run under our uid tell their users by their environments."""
    put(tmp_path / "proc/10/environ", "HOME=/\0JUPYTERHUB_USER=alice\0")
    put(tmp_path / "proc/11/environ", "JUPYTERHUB_USER=bob\0X=1\0")
    put(tmp_path / "proc/12/environ", "X=1\0")
    put(tmp_path / "proc/13/environ", "JUPYTERHUB_USER=\0")
    facts = servers.hub_facts({"JUPYTERHUB_USER": "alice"}, root=tmp_path)
    assert (facts.user, facts.other_users) == ("alice", {"bob"})
    assert servers.hub_facts({}, root=tmp_path).other_users == frozenset()


@pytest.mark.promise("cli-4")
def test_mps_is_known_by_its_daemon_and_by_its_pipe(tmp_path: Path) -> None:
    """Each of the two alone is enough; neither means no MPS."""
    assert machine_facts({}, root=tmp_path).mps == ""
    put(tmp_path / "proc/77/comm", "nvidia-cuda-mps\n")
    assert machine_facts({}, root=tmp_path).mps == "process 77"
    put(tmp_path / "pipes/control", "")
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "pipes")}
    assert "pipes/control" in machine_facts(environ, root=tmp_path / "none").mps


# ---- Jupyter's configuration -----------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which Jupyter looks for configuration here."""
    folder = tmp_path / "config"
    folder.mkdir()
    monkeypatch.setattr(servers, "jupyter_config_path", lambda: [str(folder)])
    for name in ("jupyter_core.application.jupyter_config_path", "jupyter_core.paths.jupyter_path"):
        monkeypatch.setattr(name, lambda *_: [str(folder)])
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folder))
    return folder


def test_the_extension_is_enabled_where_a_file_says_so(config: Path) -> None:
    """The file of the package enables it, and the user's own file has the last word."""
    assert servers.jupyter_facts({}).extension_enabled is None
    enabled = {"ServerApp": {"jpserver_extensions": {"jupyter_gpushare": True}}}
    put(config / "jupyter_server_config.d/jupyter_gpushare.json", json.dumps(enabled))
    assert servers.jupyter_facts({}).extension_enabled is True
    enabled["ServerApp"]["jpserver_extensions"]["jupyter_gpushare"] = False
    put(config / "jupyter_server_config.json", json.dumps(enabled))
    assert servers.jupyter_facts({}).extension_enabled is False


def test_the_extension_may_be_named_in_a_program(config: Path) -> None:
    """A Python file has the word over what the package's own file says."""
    enabled = {"ServerApp": {"jpserver_extensions": {"jupyter_gpushare": True}}}
    put(config / "jupyter_server_config.d/jupyter_gpushare.json", json.dumps(enabled))
    line = "c.ServerApp.jpserver_extensions = {'jupyter_gpushare': False}\n"
    put(config / "jupyter_server_config.py", line)
    assert servers.jupyter_facts({}).extension_enabled is False


@pytest.mark.promise("cli-4")
def test_configuration_is_read_as_a_server_does(config: Path) -> None:
    """The default provisioner and the gateway may stand in a Python file."""
    put(
        config / "jupyter_server_config.py",
        "c.KernelProvisionerFactory.default_provisioner_name = 'theirs'\n"
        "c.GatewayClient.url = 'http://far:8888'\n",
    )
    facts = servers.jupyter_facts({})
    assert facts.default_provisioner == "theirs"
    assert facts.gateway_url == "http://far:8888"
    assert "gpushare-provisioner" in facts.provisioners


@pytest.mark.parametrize(
    ("text", "told"),
    [("1/0\n", "ZeroDivisionError"), ("c.a. = 1\n", "SyntaxError"), ("exit(3)\n", "SystemExit")],
)
def test_a_broken_configuration_is_told(
    config: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    """A file that raises, does not parse or ends itself is reported, what it prints does not spoil
    the JSON, and nothing else is lost."""
    put(config / "jupyter_server_config.py", text)
    put(config / "jupyter_config.py", "print('hello')\n")
    facts = servers.jupyter_facts({"JUPYTER_GATEWAY_URL": "http://far"})
    assert told in facts.unreadable
    assert capsys.readouterr().out == ""
    assert facts.gateway_url == "http://far"
