"""Host memory for what is parked: when it is asked for, how much of it is used, what is told."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.runtime.memory_shell import MIB, MemoryShell, Opened, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.hook.test_from_the_issue_host import arena
from tests.support.compiled import compiled_library
from tests.support.fake_cgroup import FakeCgroup, own_path
from tests.support.fake_scheduler import FakeScheduler
from tests.support.paths import HOOK_LIBRARY
from tests.support.sim import GIB, SimulatedMachine
from tests.support.waits import wait_until

OUT_OF_MEMORY = 2
SEGMENT = 64 * MIB
RESERVE = 256 * MIB
LATE_PAGES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int ending, given_back;

/* Pages are there when the handlers of exit have run, and not before. */
int madvise(void *address, size_t bytes, int advice) {
    int (*real)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    pthread_mutex_lock(&lock);
    if (advice == 23) write(1, "makes pages\n", 12);
    while (advice == 23 && !ending)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    return real(address, bytes, advice);
}

int munmap(void *address, size_t bytes) {
    int (*real)(void *, size_t) = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap");
    pthread_mutex_lock(&lock);
    given_back = given_back || (ending && bytes == 64 << 20);
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    return real(address, bytes);
}

/* The last thing that a process does. */
__attribute__((destructor)) static void wait_for_the_mover(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&lock);
    ending = 1;
    pthread_cond_broadcast(&change);
    while (!given_back && pthread_cond_timedwait(&change, &lock, &until) == 0)
        ;
    write(1, given_back ? "given back\n" : "kept\n", given_back ? 11 : 5);
    pthread_mutex_unlock(&lock);
}
"""

# A control group that knows at once what its processes have. Pages of theirs are counted in the
# file GROUP, in bytes: those that are there, the most that ever were, and those that others take as
# soon as these processes begin. Making them takes no time.
COUNTED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PARTS = 4096 };

/* There, at most, about to be taken by others; how many us a look at it takes the mover, and how
 * often it has looked. */
static _Atomic int64_t *group;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char *from; size_t bytes; } parts[PARTS];
static int parts_used;
static int (*real_madvise)(void *, size_t, int);
static int (*real_munmap)(void *, size_t);
static int (*real_open)(const char *, int, ...);

__attribute__((constructor)) static void begin(void) {
    real_madvise = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    real_munmap = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap");
    real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    const int file = real_open(getenv("GROUP"), O_RDWR);
    group = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

static void count(int64_t bytes) {
    const int64_t there = __atomic_add_fetch(&group[0], bytes, __ATOMIC_SEQ_CST);
    int64_t most = group[1];
    while (there > most && !__atomic_compare_exchange_n(&group[1], &most, there, 0,
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

int madvise(void *address, size_t bytes, int advice) {
    if (advice != 23) return real_madvise(address, bytes, advice);
    __atomic_add_fetch(&group[0], __atomic_exchange_n(&group[2], 0, __ATOMIC_SEQ_CST),
                       __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&lock);
    parts[parts_used].from = address;
    parts[parts_used++].bytes = bytes;
    count((int64_t)bytes);
    pthread_mutex_unlock(&lock);
    return 0;
}

int munmap(void *address, size_t bytes) {
    pthread_mutex_lock(&lock);
    for (int i = parts_used; i-- > 0;) {
        if (parts[i].from < (char *)address || parts[i].from >= (char *)address + bytes) continue;
        count(-(int64_t)parts[i].bytes);
        parts[i] = parts[--parts_used];
    }
    pthread_mutex_unlock(&lock);
    return real_munmap(address, bytes);
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const int mode = va_arg(arguments, int);
    va_end(arguments);
    const size_t length = strlen(path);
    if (length < 15 || strcmp(path + length - 15, "/memory.current") != 0)
        return real_open(path, flags, mode);
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (strcmp(name, "gpushare-mem") == 0) {
        usleep((useconds_t)group[3]);
        __atomic_add_fetch(&group[4], 1, __ATOMIC_SEQ_CST);
    }
    const int text = memfd_create("memory.current", MFD_CLOEXEC);
    dprintf(text, "%lld\n", (long long)group[0]);
    lseek(text, 0, SEEK_SET);
    return text;
}
"""


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    """A device that is large enough."""
    return SimulatedMachine(tmp_path / "sim", bytes_per_device=2 * GIB)


@pytest.fixture
def opens(start: Callable[..., GpuProcess], scheduler: FakeScheduler) -> Opened:
    """Starts a shell whose memory follows the turn."""
    return lambda **options: open_memory_shell(start, scheduler.accept, **options)


def shim(source: str) -> str:
    """What makes a process preload this before the hook."""
    return f"{compiled_library(source, '-O1', '-pthread', '-ldl')}:{HOOK_LIBRARY}"


@pytest.mark.promise("bad-memory-16")
def test_the_driver_is_left_alone_once_the_handlers_of_exit_run(
    opens: Opened, tmp_path: Path
) -> None:
    """Host memory whose pages are made while the process ends is not registered any more."""
    faults = f"fail cuMemHostRegister nth=1 result={OUT_OF_MEMORY} times=0"
    env = {"LD_PRELOAD": shim(LATE_PAGES), "GPUSHARE_SIM_FAULTS": faults}
    memory = opens(env=env)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    assert memory.run(f"new 0 {SEGMENT}") == 0
    memory.budget(2**40, hint_bytes=SEGMENT)
    memory.shell.expect("makes pages")
    assert memory.shell.finish() == 0
    memory.shell.expect("given back")
    assert memory.shell.log_lines("arena: the driver answers") == []


class Group:
    """A control group with an exact account, of processes that are started with `env`."""

    def __init__(self, folder: Path) -> None:
        self._cgroup = FakeCgroup(folder / "group")
        self._account = folder / "account"
        self._account.write_bytes(bytes(4096))
        preload = shim(COUNTED)
        self.env = {**self._cgroup.env(), "LD_PRELOAD": preload, "GROUP": str(self._account)}
        self.knobs = folder / "group" / own_path().lstrip("/")

    def leave(self, room: int) -> None:
        """So much may be taken beside the reserve."""
        self._cgroup.limit(room + RESERVE)

    def have(self, size: int) -> None:
        """So much is used by others."""
        self._write(0, size)

    def others_take(self, size: int) -> None:
        """So much more, as soon as one of the processes begins to make pages."""
        self._write(16, size)

    def look_takes(self, seconds: float) -> None:
        """A mover that looks at what is used."""
        self._write(24, int(seconds * 1e6))

    def looks(self) -> int:
        """How often movers have done so."""
        return int.from_bytes(self._account.read_bytes()[32:40], "little")

    def _write(self, offset: int, size: int) -> None:
        with self._account.open("r+b") as file:
            file.seek(offset)
            file.write(struct.pack("q", size))

    def taken(self) -> tuple[int, int]:
        """Now, and at most."""
        now, most = struct.unpack("qq", self._account.read_bytes()[:16])
        return now, most


def filled(memory: MemoryShell, *sizes_mib: int) -> MemoryShell:
    """It has given its turn back and has tensors of these sizes on the device."""
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for number, size in enumerate(sizes_mib):
        assert memory.run(f"new {number} {size * MIB}") == 0
    memory.take_turn()
    return memory


@pytest.mark.promise("park-51")
@pytest.mark.parametrize("sizes_mib", [(64,), (100,), (272,), (290, 290), (20, 340), (500,)])
def test_host_memory_is_hardly_more_than_what_is_parked(
    opens: Opened, sizes_mib: tuple[int, ...]
) -> None:
    """Whatever the sizes of the allocations are: a segment that is not full, and a tenth."""
    memory = filled(opens(), *sizes_mib)
    parked = memory.park_to(0).bytes_parked
    assert parked == sum(sizes_mib) * MIB
    assert arena(memory.shell.pid)[0] < parked * 1.1 + SEGMENT


@pytest.mark.promise("park-51")
@pytest.mark.parametrize(
    "sizes_mib", [(20, 340), (22, 24, 26, 28, 30), (36, 62, 50), (66, 66, 66), (20,) * 8]
)
def test_a_first_park_makes_as_much_host_memory_as_it_needs(
    opens: Opened, tmp_path: Path, sizes_mib: tuple[int, ...]
) -> None:
    """Not a page more, in whatever order chunks of several sizes leave. When all has come back and
    leaves again, it is hardly more."""
    group = Group(tmp_path)
    group.leave(2 * GIB)
    memory = filled(opens(env=group.env), *sizes_mib)
    parked = memory.park_to(0).bytes_parked
    assert group.taken() == (parked, parked) == (sum(sizes_mib) * MIB,) * 2
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.take_turn()
    assert memory.park_to(0).bytes_parked == parked
    assert group.taken()[1] < parked * 1.1 + SEGMENT


@pytest.mark.promise("park-51")
def test_what_is_made_ahead_of_need_is_of_use_for_all_that_leaves(
    opens: Opened, tmp_path: Path
) -> None:
    """Chunks of several sizes: the host memory that was made ready while the turn was held is
    enough for each of them, whichever leaves first."""
    sizes_mib = (34, 64, 64, 64, 64)
    group = Group(tmp_path)
    group.leave(2 * GIB)
    memory = opens(env=group.env, kind="mapped")
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for number, size in enumerate(sizes_mib):
        assert memory.run(f"new {number} {size * MIB}") == 0
    memory.budget(2**40, hint_bytes=sum(sizes_mib) * MIB)
    wait_until(lambda: group.taken()[0] >= sum(sizes_mib) * MIB)
    memory.take_turn()
    parked = memory.park_to(0).bytes_parked
    assert group.taken()[1] < parked * 1.1 + SEGMENT


@pytest.mark.promise("park-50")
def test_all_that_is_told_as_room_can_be_used(opens: Opened, tmp_path: Path) -> None:
    """272 MiB leave the device where there is room for them and a segment."""
    group = Group(tmp_path)
    group.leave(5 * SEGMENT)
    memory = filled(opens(env=group.env), 272)
    assert memory.park_to(0).bytes_parked == 272 * MIB
    assert group.taken()[1] == 272 * MIB


@pytest.mark.promise("park-50")
def test_room_in_pieces_that_are_too_small_is_not_told(opens: Opened, tmp_path: Path) -> None:
    """A park that ends for want of host memory has used all that was told; when there is more
    again, the rest leaves too."""
    group = Group(tmp_path)
    group.leave(3 * SEGMENT)
    memory = filled(opens(env=group.env), 20, 300, 20)
    memory.budget(0)
    report = memory.client.expect_memory(lambda report: report.bytes_parked == 148 * MIB)
    if report.bytes_host_room > 0:
        report = memory.client.expect_memory(lambda report: report.bytes_host_room == 0)
    assert report.bytes_parked == 148 * MIB
    group.leave(6 * SEGMENT)
    memory.client.expect_memory(lambda report: report.bytes_parked == 340 * MIB)


@pytest.fixture
def unfit(opens: Opened, tmp_path: Path) -> tuple[MemoryShell, Group]:
    """It has given its turn back, has 256 MiB on the device, in chunks of 64 MiB, and host memory
    that was made for others, of 40 MiB: 240 MiB of it, in which none of them finds a place. The
    system leaves 160 MiB."""
    group = Group(tmp_path)
    group.leave(400 * MIB)
    memory = opens(env=group.env)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for number in range(6):
        assert memory.run(f"new {number} {40 * MIB}") == 0
    memory.budget(2**40, hint_bytes=240 * MIB)
    wait_until(lambda: group.taken()[0] == 240 * MIB)
    for number in range(6):
        assert memory.run(f"drop {number}") == 0
    for number in range(4):
        assert memory.run(f"new {number} {SEGMENT}") == 0
    memory.take_turn()
    return memory, group


@pytest.mark.promise("park-50")
def test_host_memory_in_which_nothing_finds_a_place_is_room_too(
    unfit: tuple[MemoryShell, Group],
) -> None:
    """It goes back for what has to leave, so it is told as room: else nobody would wait for it."""
    memory, group = unfit
    memory.budget(2**40, hint_bytes=240 * MIB)
    memory.client.expect_memory(lambda report: report.bytes_host_room == 400 * MIB)
    assert memory.park_to(0, hint_bytes=240 * MIB).bytes_parked == 256 * MIB
    assert group.taken()[1] <= 400 * MIB


@pytest.mark.promise("park-50")
def test_host_memory_in_which_nothing_finds_a_place_gives_way(
    unfit: tuple[MemoryShell, Group],
) -> None:
    """Others take most of what the system has left, just before this process has to park."""
    memory, group = unfit
    group.leave(270 * MIB)
    assert memory.park_to(0, hint_bytes=240 * MIB).bytes_parked == 256 * MIB
    assert group.taken()[1] <= 270 * MIB


@pytest.mark.promise("park-50")
def test_memory_that_others_of_the_group_take_is_seen_at_once(
    opens: Opened, tmp_path: Path
) -> None:
    """There was room for four segments; while the first one is made others take the rest, and no
    second one is begun. The rest of the park goes on when they give it back."""
    group = Group(tmp_path)
    group.leave(4 * SEGMENT)
    memory = filled(opens(env=group.env), 300)
    group.others_take(3 * SEGMENT)
    memory.budget(0)
    memory.client.expect_memory(
        lambda report: (report.bytes_parked, report.bytes_host_room) == (SEGMENT, 0)
    )
    assert group.taken() == (4 * SEGMENT, 4 * SEGMENT)
    group.leave(8 * SEGMENT)
    memory.client.expect_memory(lambda report: report.bytes_parked == 300 * MIB)


@pytest.mark.promise("park-50")
def test_processes_of_one_group_keep_to_its_room_together(opens: Opened, tmp_path: Path) -> None:
    """Two of them park at once, more than there is room for: a segment at most goes into the
    reserve, which either of them had seen free."""
    group = Group(tmp_path)
    group.leave(4 * SEGMENT)
    memories = [filled(opens(env=group.env), 256) for _ in range(2)]
    for memory in memories:
        memory.budget(0)
    wait_until(lambda: group.taken()[0] >= 4 * SEGMENT)
    for memory in memories:
        memory.limit(1)  # by then it has looked again
    assert group.taken()[1] <= 5 * SEGMENT


@pytest.mark.promise("park-50")
def test_pages_of_files_that_nobody_uses_make_way(opens: Opened, tmp_path: Path) -> None:
    """They count as free, for what is told and for what is taken."""
    group = Group(tmp_path)
    group.leave(3 * SEGMENT)
    group.have(2 * SEGMENT)
    (group.knobs / "memory.stat").write_text(f"anon 5\ninactive_file {2 * SEGMENT}\n")
    memory = filled(opens(env=group.env), 300)
    assert memory.limit(2**40).bytes_host_room == 3 * SEGMENT
    memory.budget(0)
    memory.client.expect_memory(
        lambda report: (report.bytes_parked, report.bytes_host_room) == (3 * SEGMENT, 0)
    )


@pytest.mark.promise("park-50")
@pytest.mark.parametrize("limit", ["max", str(4 * GIB)])
def test_a_level_is_left_before_the_kernel_slows_it_down(
    opens: Opened, tmp_path: Path, limit: str
) -> None:
    """What `memory.high` leaves is the room, where that is less than `memory.max` leaves."""
    group = Group(tmp_path)
    (group.knobs / "memory.max").write_text(f"{limit}\n")
    (group.knobs / "memory.high").write_text(f"{RESERVE + 2 * SEGMENT}\n")
    memory = filled(opens(env=group.env), 300)
    assert memory.limit(2**40).bytes_host_room == 2 * SEGMENT
    memory.budget(0)
    memory.client.expect_memory(
        lambda report: (report.bytes_parked, report.bytes_host_room) == (2 * SEGMENT, 0)
    )
    (group.knobs / "memory.high").write_text("max\n")
    memory.client.expect_memory(lambda report: report.bytes_parked == 300 * MIB)
