"""Several threads, forked children, several processes on one device."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, alone, code, ok
from tests.support.paths import ROOT

HOLD_MEMORY = """
import sys
from tests.driver.harness import MIB, Gpu, driver_under_test
with driver_under_test():
    gpu = Gpu()
    gpu.allocate(512 * MIB)
    print("holding", flush=True)
    sys.stdin.readline()
"""

FIRST_THREAD_ENDS = """
import ctypes, os, sys, threading, time
from cuda.bindings import driver as cuda
from tests.driver.harness import MIB, Gpu, driver_under_test, ok
with driver_under_test():
    gpu = Gpu()
    gpu.allocate(512 * MIB)

    def work():
        try:
            while open(f"/proc/{os.getpid()}/stat").read().rpartition(") ")[2][0] != "Z":
                time.sleep(0.01)
            print("alone", flush=True)
            sys.stdin.readline()
            ok(cuda.cuCtxSetCurrent(gpu.context))
            print(gpu.download(gpu.upload([5]), 1).tolist(), flush=True)
        finally:
            os._exit(0)

    threading.Thread(target=work).start()
    ctypes.CDLL(None).pthread_exit(None)
"""


def in_forked_child(work: Callable[[], bool]) -> bool:
    """Whether `work` is true in a child that was forked from this process."""
    child = os.fork()
    if child == 0:
        answer = False
        try:
            answer = work()
        finally:
            os._exit(0 if answer else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.promise("simulated-5")
@alone
def test_threads_with_streams_of_their_own(gpu: Gpu) -> None:
    """Eight threads that launch, copy and allocate at once all get their own results."""
    failures: list[str] = []

    def work(number: int) -> None:
        ok(cuda.cuCtxSetCurrent(gpu.context))
        stream, sums = ok(cuda.cuStreamCreate(1)), np.zeros(1, dtype=np.uint64)
        for round_ in range(20):
            n, value = 500 + number, 100 * number + round_
            pointer, out = int(ok(cuda.cuMemAlloc(4 * n))), int(ok(cuda.cuMemAlloc(8)))
            gpu.launch("fill", pointer, value, n, stream=stream)
            gpu.launch("checksum", out, pointer, n, stream=stream)
            ok(cuda.cuMemcpyDtoHAsync(sums, out, 8, stream))
            ok(cuda.cuStreamSynchronize(stream))
            if sums[0] != value * n * n:
                failures.append(f"thread {number}, round {round_}: {sums[0]}")
            ok(cuda.cuMemFree(pointer))
            ok(cuda.cuMemFree(out))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.promise("simulated-28", "A fork leaves parent and child as the driver would")
@alone
def test_children_forked_after_init_have_no_cuda(gpu: Gpu) -> None:
    """CUDA that was initialised before a fork does not work in the child, and stays so."""

    def work() -> bool:
        answers = {code(call()) for call in (lambda: cuda.cuInit(0), cuda.cuCtxSynchronize)}
        return answers == {R.CUDA_ERROR_NOT_INITIALIZED}

    assert in_forked_child(work)
    assert gpu.download(gpu.upload([5]), 1).tolist() == [5]


@pytest.mark.promise("simulated-28")
@alone
def test_children_forked_before_init_have_cuda() -> None:
    """A child forked before the parent opened CUDA uses the device, and so does the parent."""

    def work() -> bool:
        gpu = Gpu()
        return gpu.download(gpu.upload([5]), 1).tolist() == [5]

    assert in_forked_child(work)
    assert work()


@pytest.mark.promise("simulated-35")
@alone
def test_memory_of_other_processes_is_not_free(gpu: Gpu) -> None:
    """Free memory shrinks by what another process holds, and comes back when it has ended."""
    before, _ = ok(cuda.cuMemGetInfo())
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_MEMORY],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout and other.stdin
        assert other.stdout.readline() == "holding\n"
        during, _ = ok(cuda.cuMemGetInfo())
        other.stdin.close()
    after, _ = ok(cuda.cuMemGetInfo())
    assert other.returncode == 0
    assert before - during >= 512 * MIB
    assert abs(after - before) < 64 * MIB, (before, during, after)


@pytest.mark.promise("simulated-29", "A killed process gives everything back, for others to use")
@alone
def test_memory_of_killed_processes_comes_back(gpu: Gpu) -> None:
    """What a killed process held is free again, without anybody cleaning up."""
    before, _ = ok(cuda.cuMemGetInfo())
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_MEMORY],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "holding\n"
        other.kill()
    after, _ = ok(cuda.cuMemGetInfo())
    assert abs(after - before) < 64 * MIB, (before, after)


@pytest.mark.promise(
    "simulated-50", "A process lives as long as one of its threads, also where its first has ended"
)
@alone
def test_a_process_whose_first_thread_has_ended_goes_on(gpu: Gpu) -> None:
    """Others, who look for processes that have ended, leave it what it has: its work ends."""
    with subprocess.Popen(
        [sys.executable, "-c", FIRST_THREAD_ENDS],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout and other.stdin
        assert other.stdout.readline() == "alone\n"
        assert gpu.download(gpu.upload([7]), 1).tolist() == [7]
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "[5]\n"
    assert other.returncode == 0
