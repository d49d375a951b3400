"""The simulated machine as the place where exclusivity is judged: its journal, its clock that runs
across processes, its fault plan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver.harness import Conversation, run_program
from tests.support.paths import SIM_DRIVER
from tests.support.sim import MIB, SimulatedMachine

pytestmark = pytest.mark.skipif(not SIM_DRIVER.exists(), reason="run `make build` first")

ROUNDS_MAX = 100

WORKER = """
import sys
from tests.driver.harness import *
ok(cuda.cuInit(0))
gpu = Gpu()
print("ready", flush=True)
while sys.stdin.readline():
    gpu.launch("spin", 20_000_000, grid=(1, 1, 1), block=(1, 1, 1))
    ok(cuda.cuCtxSynchronize())
    print("done", flush=True)
"""

ONE_OF_EACH = """
from tests.driver.harness import *
gpu = Gpu()
pointer, words = gpu.allocate(1 << 20), np.zeros(1 << 18, dtype=np.uint32)
gpu.launch("fill", pointer, 1, 1 << 18)
gpu.download(pointer, 1 << 18)
ok(cuda.cuMemcpyHtoD(pointer, words, 1 << 20))
"""

WITHOUT_DESCRIPTORS = """
import os, resource
from cuda.bindings import driver as cuda
cuda.cuInit(0)
cuda.cuCtxCreate(None, 0, 0)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    os.dup(0)
except OSError:
    print(*(int(cuda.cuMemAlloc(2 << 20)[0]) for _ in range(4)))
"""

PITCHED = """
from tests.driver.harness import *
gpu = Gpu()
print(code(cuda.cuMemAllocPitch((1 << 63) + (1 << 20), 2, 4)).name)
"""

ALLOCATE = """
from cuda.bindings import driver as cuda
cuda.cuInit(0)
cuda.cuCtxCreate(None, 0, 0)
print(*(int(cuda.cuMemAlloc(2 << 20)[0]) for _ in range(4)))
"""


EXEC = """
import os, sys
from cuda.bindings import driver as cuda
cuda.cuInit(0)
cuda.cuCtxCreate(None, 0, 0)
print(int(cuda.cuMemGetInfo()[1]), int(cuda.cuMemAlloc(1 << 30)[0]), flush=True)
if "again" not in sys.argv:
    os.execv(sys.executable, [*sys.orig_argv, "again"])
"""


FAILED_GRAPH = """
import ctypes, sys
from tests.driver.harness import *
ok(cuda.cuInit(0))
for free_is_captured in (True, False):
    context = ok(cuda.cuCtxCreate(None, 0, 0))
    module = ok(cuda.cuModuleLoadData(BUILTINS_PTX.read_bytes() + b"\\0"))
    hold, fail = (
        ok(cuda.cuModuleGetFunction(module, name)) for name in (b"poll_flag", b"assert_fail")
    )
    stream, flag = ok(cuda.cuStreamCreate(1)), PinnedWord()
    ok(cuda.cuStreamBeginCapture(stream, 2))
    pointer = ok(cuda.cuMemAllocAsync(64 << 20, stream))
    polled = arguments("poll_flag", flag.device)
    ok(cuda.cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, stream, polled, 0))
    ok(cuda.cuLaunchKernel(fail, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
    if free_is_captured:
        ok(cuda.cuMemFreeAsync(pointer, stream))
    graph = ok(cuda.cuStreamEndCapture(stream))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    ok(cuda.cuGraphLaunch(executable, stream))
    if not free_is_captured:
        ok(cuda.cuMemFreeAsync(pointer, stream))
    flag.value = 1
    assert code(cuda.cuStreamSynchronize(stream)) is R.CUDA_ERROR_ASSERT
    cuda.cuCtxDestroy(context)
    ok(cuda.cuGraphExecDestroy(executable))
    ok(cuda.cuGraphDestroy(graph))
    ok(cuda.cuDeviceGraphMemTrim(0))
    print(int(ok(cuda.cuDeviceGetGraphMemAttribute(0, cuda.CUgraphMem_attribute(2)))))
"""


RELEASED = """
import os, sys, threading
from tests.driver.harness import *
ok(cuda.cuInit(0))
gpu = Gpu()
properties = cuda.CUmemAllocationProp()
properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
properties.requestedHandleTypes = cuda.CUmemAllocationHandleType(1)
size, descriptor = 256 << 20, ctypes.c_int(-1)
handle = ok(cuda.cuMemCreate(size, properties, 0))
export = raw().cuMemExportToShareableHandle
asked = (ctypes.byref(descriptor), ctypes.c_uint64(int(handle)), 1, ctypes.c_uint64(0))
answers = []
exporter = threading.Thread(target=lambda: answers.append(export(*asked)))

def is_being_exported():
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            pass
    return any("gpushare-sim-chunk" in link for link in links)

exporter.start()
while not is_being_exported():
    pass
ok(cuda.cuMemRelease(handle))
exporter.join()
print(*answers, os.fstat(descriptor.value).st_size >= size)
"""


class Worker:
    """A process that spins 20 ms on the device each time it is told to go."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._program = Conversation(machine.env({"GPUSHARE_DRIVER": "named"}), WORKER)
        self.pid = self._program.process.pid
        self.expect("ready")

    def expect(self, word: str) -> None:
        assert self._program.hear() == word

    def go(self) -> None:
        self._program.say()

    def end(self) -> None:
        assert self._program.end() == 0


def run(machine: SimulatedMachine, program: str, **extra: str) -> str:
    """What a process on this machine prints."""
    done = run_program(machine.env({"GPUSHARE_DRIVER": "named", **extra}), program)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.promise(
    "simulated-31",
    "Two processes' launches overlap when nothing stops them, and share the device's time",
)
def test_launches_of_two_processes_overlap_when_nothing_stops_them(sim: SimulatedMachine) -> None:
    """Two processes that launch at once are seen to overlap, and share the device's time. On a busy
    machine one may have done its work before the other one begins: then they launch again."""
    workers = [Worker(sim), Worker(sim)]
    longest_ns = rounds = 0
    while longest_ns <= 25_000_000 and rounds < ROUNDS_MAX:
        rounds += 1
        for worker in workers:
            worker.go()
        for worker in workers:
            worker.expect("done")
        shared = [r.ended_ns - r.started_ns for pair in sim.overlaps() for r in pair]
        longest_ns = max(shared, default=0)
    for worker in workers:
        worker.end()
    assert longest_ns > 25_000_000
    spins = [record for record in sim.journal() if record.name == "spin"]
    assert len(spins) == 2 * rounds
    assert {record.pid for record in spins} == {worker.pid for worker in workers}


@pytest.mark.promise("simulated-32")
def test_launches_one_after_the_other_do_not_overlap(sim: SimulatedMachine) -> None:
    """Two processes that take turns leave a journal without overlaps."""
    workers = [Worker(sim), Worker(sim)]
    for _ in range(5):
        for worker in workers:
            worker.go()
            worker.expect("done")
    for worker in workers:
        worker.end()
    assert len([record for record in sim.journal() if record.name == "spin"]) == 10
    assert sim.overlaps() == []


@pytest.mark.promise(
    "simulated-32",
    "A journal tells of every launch and copy: process, device, start and end",
)
def test_the_journal_tells_launches_and_copies(sim: SimulatedMachine) -> None:
    """Launches and copies are recorded in order, each with its begin and end."""
    run(sim, ONE_OF_EACH)
    kinds = [record.kind.name for record in sim.journal()]
    work = [kind for kind in kinds if kind == "LAUNCH" or kind.startswith("COPY")]
    assert work == ["LAUNCH", "COPY_D2H", "COPY_H2D"]
    for record in sim.journal():
        assert record.submitted_ns <= record.started_ns <= record.ended_ns


@pytest.mark.promise("simulated-33", "Copies take the time of their rate")
def test_copies_take_the_time_of_their_rate(tmp_path: Path) -> None:
    """A megabyte at 100 MB/s takes ten milliseconds."""
    machine = SimulatedMachine(tmp_path, copy_bytes_per_s=100_000_000)
    run(machine, ONE_OF_EACH)
    copies = [record for record in machine.journal() if record.kind.name.startswith("COPY")]
    assert [record.amount for record in copies] == [MIB, MIB]
    assert all(record.ended_ns - record.started_ns >= 10_000_000 for record in copies)


@pytest.mark.promise(
    "simulated-34",
    "A fault plan fails the Nth call of a kind, and a file lists the faults that took effect",
)
@pytest.mark.parametrize(
    ("plan", "answers"),
    [
        ("fail cuMemAlloc nth=2 result=2", "0 2 0 0"),
        ("fail cuMemAlloc nth=2 result=2 times=2", "0 2 2 0"),
        ("fail cuMemAlloc nth=3 result=999 times=0", "0 0 999 999"),
    ],
)
def test_fault_plans(sim: SimulatedMachine, plan: str, answers: str) -> None:
    """A fault plan fails just the calls that it names; what of it took effect is told, and no
    more."""
    later = "fail cuMemFree nth=1000"
    assert run(sim, ALLOCATE, GPUSHARE_SIM_FAULTS=f"{plan};{later}").strip() == answers
    assert sim.happened() == ["fail cuMemAlloc"]


@pytest.mark.promise(
    "simulated-35",
    "Each device enforces its capacity in bytes, across all processes",
)
def test_capacity_is_shared_by_all_processes(tmp_path: Path) -> None:
    """What one process holds, another cannot have; nor one that has no descriptor to see whether
    the first one lives."""
    machine = SimulatedMachine(tmp_path, bytes_per_device=64 * MIB, context_bytes=2 * MIB)
    holds = ALLOCATE.replace("2 << 20", "14 << 20").replace("))\n", "), flush=True)\n")
    holder = Conversation(machine.env(), holds + "input()\n")
    assert holder.hear() == "0 0 0 0"
    assert run(machine, ALLOCATE).strip() == "0 0 2 2"
    assert run(machine, WITHOUT_DESCRIPTORS).strip() == "0 0 2 2"
    holder.say()
    assert holder.end() == 0
    assert run(machine, ALLOCATE).strip() == "0 0 0 0"


def test_a_program_has_nothing_of_the_one_that_it_replaces(sim: SimulatedMachine) -> None:
    """After an exec, the process is charged for what the new program has, and for no more."""
    done = subprocess.run(
        [sys.executable, "-c", EXEC], env=sim.env(), check=True, stdout=subprocess.PIPE, text=True
    )
    before, after = done.stdout.splitlines()
    assert before == after
    assert before.endswith(" 0")


def test_pitched_memory_has_room_for_its_rows(sim: SimulatedMachine) -> None:
    """Two rows whose bytes are 2 MiB beyond 2^64 are refused: the driver gives 2 MiB for them."""
    assert run(sim, PITCHED).strip() == "CUDA_ERROR_OUT_OF_MEMORY"


def test_a_graph_that_fails_frees_its_memory(sim: SimulatedMachine) -> None:
    """What comes behind an error in a stream does nothing, but memory is not lost by that."""
    assert run(sim, FAILED_GRAPH).split() == ["0", "0"]


def test_memory_that_is_released_while_it_is_exported_is_exported(sim: SimulatedMachine) -> None:
    """By another thread, as soon as the descriptor is there, before its bytes are."""
    assert run(sim, RELEASED).split() == ["0", "True"]
