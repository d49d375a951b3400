"""Host memory for what is parked: when it is asked for, how much of it is used, what is told."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.runtime.memory_shell import MIB, Opened, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import FakeScheduler
from tests.support.paths import HOOK_LIBRARY
from tests.support.sim import GIB, SimulatedMachine

OUT_OF_MEMORY = 2
SEGMENT = 64 * MIB
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


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    """A device that is large enough."""
    return SimulatedMachine(tmp_path / "sim", bytes_per_device=2 * GIB)


@pytest.fixture
def opens(start: Callable[..., GpuProcess], scheduler: FakeScheduler) -> Opened:
    """Starts a shell whose memory follows the turn."""
    return lambda **options: open_memory_shell(start, scheduler.accept, **options)


def shim(folder: Path, source: str) -> str:
    """What makes a process preload this before the hook."""
    (folder / "shim.c").write_text(source)
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c"]
    subprocess.run([*map(str, command), "-ldl", "-pthread"], check=True)
    return f"{folder / 'shim.so'}:{HOOK_LIBRARY}"


def test_the_driver_is_left_alone_once_the_handlers_of_exit_run(
    opens: Opened, tmp_path: Path
) -> None:
    """Host memory whose pages are made while the process ends is not registered any more."""
    faults = f"fail cuMemHostRegister nth=1 result={OUT_OF_MEMORY} times=0"
    env = {"LD_PRELOAD": shim(tmp_path, LATE_PAGES), "GPUSHARE_SIM_FAULTS": faults}
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
