"""The conformance suite of the driver, as a tenant whose memory follows the turn: programs get the
same answers as without the hook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nursery import Nursery, Order
from tests.support.paths import ROOT
from tests.support.sim import GIB, SimulatedMachine
from tests.support.tenants import tenants

# What a program does with memory, with everything that has to do with it.
SHORT = (
    "test_memory",
    "test_plain_memory",
    "test_pointers",
    "test_mapped_memory",
    "test_pool_memory",
)
# About the simulated machine, what tools see of it, and how a driver is found: no answers of CUDA.
NOT_OF_CUDA = (
    *("test_simulated_*", "test_nvml*", "test_proc_address*", "test_runtime_library*"),
    "test_cuda_python*",  # needs the real driver's private tables
    "test_plain_or_mapped*",  # under the hook plain memory is mapped
)
# A tenant's free memory is not the device's: what others take of that makes room again. What its
# own other processes and the contexts take is taken off a moment later, when that has been told:
# any two answers may differ by it.
FREE_MEMORY = (
    "test_memory.py::test_free_memory_follows_allocations",
    "test_contexts.py::test_destroying_a_context_frees_its_memory",
    "test_processes.py::test_memory_of_other_processes_is_not_free",
    "test_processes.py::test_memory_of_killed_processes_comes_back",
    "test_visible_devices.py::test_devices_have_memory_of_their_own",
    "test_pool_memory.py::test_what_a_pool_keeps_is_not_free",
    "test_pool_reuse.py::test_memory_of_a_destroyed_pool_comes_back",
    "test_pool_segments.py::test_other_memory_takes_what_pools_keep",
    "test_mapped_memory.py::test_reserved_addresses_take_no_memory",
    "test_mapped_memory.py::test_memory_is_used_from_creation_to_release",
    "test_mapped_memory.py::test_released_chunk_is_free_once_it_is_unmapped",
    "test_shared_memory.py::test_an_import_takes_no_more_of_the_device",
    "test_shared_memory.py::test_what_an_importer_has_is_not_free",
)
# The hook answers these otherwise than the driver, for reasons of its own that are to go: it sets
# no mark of synchronous operations for its own, does not count what only a descriptor keeps, and
# does not know what other streams wait for when it hands out freed memory.
UNLIKE_THE_DRIVER = (
    "test_pointers.py::test_synchronous_operations_are_a_mark_of_the_memory",
    "test_descriptors.py::test_an_exported_descriptor_keeps_memory",
    "test_descriptors.py::test_a_copy_of_a_descriptor_keeps_memory_too",
    "test_descriptors.py::test_a_dma_buf_keeps_memory",
    "test_pool_segments.py::test_a_part_of_what_was_freed_before_an_event",
    "test_mapped_handles.py::test_handles_are_no_addresses",  # ours are larger than the driver's
)


def run_suite(folder: Path, *arguments: str) -> str:
    """The suite as a tenant of a scheduler of its own; what it printed."""
    machine = SimulatedMachine(folder / "machine", devices=2, bytes_per_device=4 * GIB)
    options = [f"--deselect=tests/driver/{case}" for case in (*FREE_MEMORY, *UNLIKE_THE_DRIVER)]
    # A folder of its own: to make one in the folder of all, pytest would close that to other users,
    # for whom tests beside this one have opened it.
    options.append(f"--basetemp={folder / 'tmp'}")
    logged = {"GPUSHARE_LOG": "debug", "GPUSHARE_LOG_FILE": str(folder / "hook.log")}
    named = machine.env({"GPUSHARE_DRIVER": "named", "CUDA_MODULE_LOADING": "EAGER"})
    with tenants(folder / "run", named, settings={"memory_mode": "swap"}) as scheduler:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", *options, *arguments],
            cwd=ROOT,
            env={**scheduler.env("conformance", named), **logged},
            capture_output=True,
            text=True,
            check=False,
        )
    logs = f"The logs of the hook and of the scheduler, and the journal, are in {folder}."
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{logs}"
    return done.stdout


@pytest.mark.promise(
    "backing-43",
    "The driver's conformance suite holds for a tenant whose memory follows the turn",
)
def test_memory_answers_as_without_the_hook(tmp_path: Path) -> None:
    """Allocations, queries, mapped and stream-ordered memory: every case holds."""
    assert " passed" in run_suite(tmp_path, *(f"tests/driver/{name}.py" for name in SHORT))


@pytest.mark.promise("backing-43")
@pytest.mark.full
def test_everything_answers_as_without_the_hook(tmp_path: Path) -> None:
    """All cases about CUDA hold."""
    ignored = [f"--ignore-glob=tests/driver/{pattern}" for pattern in NOT_OF_CUDA]
    assert " passed" in run_suite(tmp_path, "tests/driver", *ignored)


def test_a_case_that_does_not_end_says_where_it_is() -> None:
    """Each of its threads."""
    with pytest.raises(subprocess.TimeoutExpired) as late:
        Nursery().run(Order("signal:pause"), env=os.environ, timeout=1.0)
    assert "Thread " in late.value.output
