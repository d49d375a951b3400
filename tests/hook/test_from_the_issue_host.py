"""Host memory of what is parked, from the outside: made ready in parallel and ahead of need,
registered once, used again, given back, and seen by nobody else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.hook.test_from_the_issue_movable import HELD, eventually, room
from tests.support.fake_cgroup import FakeCgroup
from tests.support.memory_tenants import OUT_OF_MEMORY
from tests.support.sim import GIB, MIB

pytestmark = pytest.mark.full  # the same by other means is in the short tests
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A machine of sixteen processors, as far as the hook can see. */
int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
    (void)pid;
    memset(set, 0, bytes);
    for (int i = 0; i < 16; i++)
        CPU_SET_S(i, bytes, set);
    return 0;
}

/* Who makes pages of how much memory. */
int madvise(void *address, size_t bytes, int advice) {
    static int (*real)(void *, size_t, int);
    if (real == NULL) real = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    if (advice == 23 && getenv("FAULTS_TO") != NULL) {
        FILE *file = fopen(getenv("FAULTS_TO"), "a");
        fprintf(file, "%p %zu %d\n", address, bytes, gettid());
        fclose(file);
    }
    return real(address, bytes, advice);
}
"""


def arena(pid: int) -> tuple[int, int]:
    """Bytes in mappings that neither a child nor a core file gets, and how much of it is there."""
    size = resident = marked = marked_resident = 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        word, _, rest = line.partition(":")
        if word == "Size":
            size = int(rest.split()[0]) * 1024
        elif word == "Rss":
            resident = int(rest.split()[0]) * 1024
        elif word == "VmFlags" and {"dc", "dd"} <= set(rest.split()):
            marked, marked_resident = marked + size, marked_resident + resident
    return marked, marked_resident


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    """A library that lies about the processors and tells who makes pages."""
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.mark.promise(
    "together-11",
    "Host memory is ready before anybody asks for the device, made by several threads, registered "
    "once and used again, given back when its group runs short, and kept from children and core "
    "files",
)
def test_host_memory_is_ready_before_anybody_asks_for_the_device(tmp_path: Path) -> None:
    """While a tenant works in its turn, and nobody waits, the host memory is made ready for all
    that would have to leave if the others came back; nothing of the device is moved for that."""
    with room(tmp_path) as shared:
        alice, bob = shared.start("alice"), shared.start("bob")
        bob.hold("b", 1)
        with alice.cell():
            alice.do(f"a = alloc({HELD} * MIB)")
            assert alice.ask(f"fill(a, 7, {HELD} * MIB)") == 0
            lacking = 2 * HELD * MIB - 62 * MIB
            eventually(lambda: arena(alice.pid)[1] >= lacking, "it is ready ahead of need")
            assert shared.moved(alice, "UNMAP") == 0
            assert shared.records(alice, "COPY_D2H") == []


@pytest.mark.promise("together-11")
def test_host_memory_is_made_by_several_threads(tmp_path: Path, shim: Path) -> None:
    """On a machine with sixteen processors eight threads make the pages of each piece, each its own
    part of it, and together all of it."""
    faults = tmp_path / "faults"
    with room(tmp_path, device_bytes=100 * MIB) as shared:
        alice = shared.start("alice", LD_PRELOAD=str(shim), FAULTS_TO=str(faults))
        bob = shared.start("bob")
        alice.hold("a", 7, 64)
        bob.hold("b", 1, 64)
        assert shared.moved(alice, "UNMAP") > 0
        assert alice.holds("a", 7, 64)
    made = [line.split() for line in faults.read_text().splitlines()]
    first = made[:8]
    assert len({thread for _, _, thread in first}) == 8
    assert sum(int(size) for _, size, _ in first) == 64 * MIB
    assert len({address for address, _, _ in first}) == 8


@pytest.mark.promise("together-11")
def test_host_memory_is_registered_once_and_used_again(tmp_path: Path) -> None:
    """A driver that registers nothing after the first time: hand-overs go on all the same, each of
    them parks, and the host memory is no more than it was after the first."""
    with room(tmp_path) as shared:
        once = f"fail cuMemHostRegister nth=2 result={OUT_OF_MEMORY} times=0"
        alice, bob = (shared.start(each, GPUSHARE_SIM_FAULTS=once) for each in ("alice", "bob"))
        alice.hold("a", 7)
        bob.hold("b", 1)
        sizes = set()
        for _ in range(5):
            before = shared.moved(alice, "UNMAP")
            assert alice.holds("a", 7) and bob.holds("b", 1)
            assert shared.moved(alice, "UNMAP") > before
            sizes.add(arena(alice.pid)[0])
        assert sizes == {HELD * MIB}


@pytest.mark.promise("park-56")
@pytest.mark.promise("together-11")
def test_all_that_is_parked_lies_where_no_child_and_no_core_file_has_it(tmp_path: Path) -> None:
    """The mappings that are left out of both hold at least every parked byte; a child, forked while
    all that is there, has none of them."""
    with room(tmp_path, device_bytes=GIB // 4) as shared:
        alice, bob = shared.start("alice"), shared.start("bob")
        alice.hold("a", 7, 150)
        bob.hold("b", 1, 200)
        eventually(lambda: shared.memory("alice", "parked") >= 90 * MIB, "alice is parked")
        assert arena(alice.pid)[1] >= shared.memory("alice", "parked")
        alice.do("import os, signal", "child = os.fork() or signal.pause()")
        child = alice.ask("child")
        assert arena(child) == (0, 0)
        alice.do("os.kill(child, signal.SIGKILL)", "os.waitpid(child, 0)")
        assert alice.holds("a", 7, 150)


@pytest.mark.promise("together-11")
def test_host_memory_goes_back_when_the_group_runs_short(tmp_path: Path) -> None:
    """Memory that is ready and not in use goes back to the system when the tenant's control group
    has too little left, by whoever in it; what is parked stays where it is, whole."""
    group = FakeCgroup(tmp_path / "group")
    group.limit(4 * GIB)
    with room(tmp_path) as shared:
        alice, bob = shared.start("alice", **group.env()), shared.start("bob")
        alice.hold("a", 7)
        bob.hold("b", 1)
        assert alice.holds("a", 7)
        assert arena(alice.pid)[1] > 0
        group.limit(MIB)
        eventually(lambda: arena(alice.pid)[0] == 0, "all of it goes back")
        assert alice.holds("a", 7) and bob.process.finish() == 0
