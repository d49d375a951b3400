"""A notebook whose environment preloads a library of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.paths import HOOK_LIBRARY

OWN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

static long calls;

long own_calls(void) { return calls; }

/* A library that watches a function of the C library, as profilers and allocators do. */
pid_t getppid(void) {
    calls++;
    return ((pid_t (*)(void))dlsym(RTLD_NEXT, "getppid"))();
}
"""


@pytest.mark.promise(
    "bad-input-5",
    "`LD_PRELOAD` already set: kept, in front, and both libraries work",
)
def test_an_own_preloaded_library_and_the_hook_both_work(shared: SharedGpu, tmp_path: Path) -> None:
    """The user's library stays first and does what it did; the kernel waits for its turn all the
    same."""
    source, own = tmp_path / "own.c", tmp_path / "libown.so"
    source.write_text(OWN)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", own, source, "-ldl"], check=True)
    holder = shared.kernel("holder.ipynb")
    kernel = shared.kernel("kernel.ipynb", env={"LD_PRELOAD": str(own)})
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    told = kernel.run("import os; os.environ['LD_PRELOAD']").ok().text
    assert told == f"'{own}:{HOOK_LIBRARY}'"
    code = "all_ = ctypes.CDLL(None)\nbefore = all_.own_calls()\nparent = os.getppid()\n"
    assert kernel.run(f"{code}(parent > 0, all_.own_calls() - before)").ok().text == "(True, 1)"
    held = holder.submit(gpu_cells.spin(20, 1000))
    shared.await_holder("holder.ipynb")
    waiting = kernel.submit(gpu_cells.fill_and_check(3))
    shared.await_waiter("kernel.ipynb")
    holder.interrupt()
    assert holder.wait(held).ename == "KeyboardInterrupt"
    kernel.wait(waiting).ok()
