"""Programs that close all their descriptors and use the numbers for files of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.environment import tenant_environment
from tests.kernel.conftest import SharedGpu
from tests.support.paths import HOOK_LIBRARY
from tests.support.tenant_programs import TenantPrograms
from tests.support.waits import WAIT_S_MAX, wait_until

Bystanders = Callable[[], None]


@pytest.mark.promise(
    "bad-input-1",
    "A program that closes all descriptors: its files are never written to, it goes on with turns",
)
def test_a_program_that_closes_all_descriptors_keeps_its_files(
    shared: SharedGpu, tenant_programs: TenantPrograms, bystanders: Bystanders, tmp_path: Path
) -> None:
    """Its files stay as they were and open, it goes on with turns, and so does everybody else."""
    file = tmp_path / "users-file"
    # A debug log opens its file for each line, at the lowest number: docs/limits.md.
    program = tenant_programs.start("closer", "closes_all", file, env={"GPUSHARE_LOG": "error"})
    program.expect("launched")
    program.say("close")
    program.expect("closed")
    bystanders()
    for _ in range(3):
        program.say("launch")
        program.expect("launched")
        bystanders()
    shared.scheduler.eventually(lambda s: clients_named(s, "closer") == [program.pid])
    assert program.finish() == 0
    assert file.read_bytes() == b"mine"
    assert program.errors() == ""


def clients_named(status: dict[str, object], name: str) -> list[int]:
    tenants = status["tenants"]
    assert isinstance(tenants, list)
    return [c["pid"] for t in tenants if t["name"] == name for c in t["clients"]]


USES_NUMBER_TWO = """
import ctypes, os, sys, time
ready, go, own, result = sys.argv[1:]
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096)) == 0
file = os.open(own, os.O_CREAT | os.O_RDWR, 0o600)
numbers = range(16)
for number in numbers:  # no number is free in between: threads of the hook open files, too
    os.dup2(file, number)
os.closerange(16, 1024)
os.close(os.open(ready, os.O_CREAT | os.O_WRONLY, 0o600))
while not os.path.exists(go):
    time.sleep(0.02)
kept = [os.path.realpath(f"/proc/self/fd/{number}") == own for number in numbers]
freed = cuda.cuMemFree_v2(pointer)
with open(result, "w") as file:
    file.write(f"{all(kept)} {freed}")
"""


@pytest.mark.promise("hook-1", "Messages to the user never end up in a file of the program")
@pytest.mark.promise("bad-input-1")
def test_a_file_in_the_place_of_stderr_is_not_written_to(
    shared: SharedGpu, bystanders: Bystanders, tmp_path: Path
) -> None:
    """A program that has closed its stderr too, as daemons do, and uses the number 2 for data: what
    the hook has to say meanwhile (here, that the tenant is gone) does not end up among them."""
    ready, go, own, result = (tmp_path / name for name in ("ready", "go", "own", "result"))
    log = tmp_path / "hook.log"
    registration = shared.scheduler.tenant("daemon", "run")
    env = tenant_environment(
        shared.machine.env,
        socket=registration.socket,
        token=registration.token,
        library=HOOK_LIBRARY,
    )
    env |= {"GPUSHARE_LOG": "error", "GPUSHARE_LOG_FILE": str(log)}
    command = [sys.executable, "-c", USES_NUMBER_TWO, *map(str, (ready, go, own, result))]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as daemon:
        try:
            wait_until(
                lambda: ready.exists() or ended(daemon, own), "it has closed its descriptors"
            )
            shared.scheduler.client.remove_tenant(registration.tenant_id)
            bystanders()
            wait_until(lambda: log.exists() or ended(daemon, own), "the hook has something to say")
        finally:
            go.touch()
        assert daemon.wait(WAIT_S_MAX) == 0
    assert result.read_text() == "True 0"
    assert own.read_bytes() == b""
    assert " error: " in log.read_text()


def ended(process: subprocess.Popen[bytes], own: Path) -> bool:
    """False; what the process said, also into its own file, is the error when it has ended."""
    if process.poll() is None:
        return False
    assert process.stderr
    said = process.stderr.read() + (own.read_bytes() if own.exists() else b"")
    raise AssertionError(f"ended with {process.returncode}: {said.decode(errors='replace')}")
