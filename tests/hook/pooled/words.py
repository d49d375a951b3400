"""Lines that the tests of stream-ordered memory run, and what they look at."""

from __future__ import annotations

from tests.hook.session import Session
from tests.support.sim import SimulatedMachine

OUT_OF_MEMORY, UNKNOWN = 2, 999
BUSY = "call('cuStreamQuery', c_void_p(s)) == 600"
SECOND = [
    "second = made('cuCtxCreate_v2', 0, 0)",
    "on = lambda context: call('cuCtxSetCurrent', c_void_p(context))",
    "assert second > 0 and on(CONTEXT) == 0",
]
"""Another context of the device."""
FILES = [
    "import os",
    "from pathlib import Path",
    "files = Path(os.environ['GPUSHARE_SIM_DIR'])",
    "def until(name):",
    "    while not (files / name).exists(): pass",
]
"""By which threads meet the simulated driver, and each other."""
OWN = "OWN = 2"
"""The thread's default stream."""

LATE = """
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *file(const char *name) {
    static _Thread_local char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("GPUSHARE_SIM_DIR"), name);
    return path;
}

int NAME(PARAMETERS) {
    void *driver = dlopen("libcudb.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*real)(PARAMETERS) = dlsym(driver, "NAME");
    const int result = real(ARGUMENTS);
    if (unlink(file("late")) != 0) return result;
    close(open(file("asked"), O_CREAT | O_WRONLY, 0600));
    while (access(file("go"), F_OK) != 0) usleep(1000);
    return result;
}
"""


def late(name: str, parameters: str, arguments: str) -> str:
    """A function of the driver that answers late where it is told to (by a file `late`), of what
    there was when it was asked (`asked`), when it may (`go`)."""
    named = LATE.replace("NAME", name).replace("PARAMETERS", parameters)
    return named.replace("ARGUMENTS", arguments)


def same_without_the_hook(program: Session, *lines: str) -> list[str]:
    """What the lines print, which is what they print where memory does not move."""
    answers = program.run(*lines)
    assert answers == program.run(*lines, FAKE_SWAP="0")
    return answers


def faults(machine: SimulatedMachine) -> list[object]:
    """Work that touched memory that was not there."""
    return [record for record in machine.journal() if record.kind.name == "FAULT"]
