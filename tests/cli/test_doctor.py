"""`jupyter gpushare doctor` itself, on a simulated machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.cli.checkup.findings import findings
from jupyter_gpushare.cli.checkup.report import as_json, rendered
from tests.cli.conftest import Command
from tests.cli.machines import HEALTHY, machine_with
from tests.support.paths import HOOK_LIBRARY
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.sim import SimulatedMachine

PLAIN_KERNEL = {"JUPYTERHUB_USER": "bob", "JPY_PARENT_PID": "1"}
STRANGER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
print(cuda.cuInit(0) or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0), flush=True)
sys.stdin.read()
"""
"""Opens the device without the hook, says so, and keeps it until its input ends."""


def by_check(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim")


@pytest.fixture
def served(sim: SimulatedMachine, runtime: Path) -> Iterator[SchedulerUnderTest]:
    with running_scheduler(runtime, env=sim.env({"CUDA_VISIBLE_DEVICES": "0"})) as running:
        yield running


@pytest.mark.promise("cli-13")
def test_a_machine_with_everything_running(
    sim: SimulatedMachine, served: SchedulerUnderTest, gpushare: Command
) -> None:
    """Library, sockets, scheduler, versions, driver and device memory are all found in order."""
    env = {**sim.env(), "GPUSHARE_LIBRARY": str(HOOK_LIBRARY)}
    found = by_check(gpushare("doctor", "--json", env=env))
    for check in (
        "library",
        "symbol-versions",
        "runtime-directory",
        "sockets",
        "scheduler",
        "version",
        "driver",
        "foreign-memory",
    ):
        assert found[check]["level"] == "ok", found[check]
    assert "CUDA 13" in found["driver"]["what"]


@pytest.mark.promise("cli-13")
def test_a_machine_with_nothing_running(gpushare: Command) -> None:
    """Without driver and scheduler the exit status is 1, and each has its remedy."""
    done = gpushare("doctor", "--json", env={"LD_LIBRARY_PATH": ""})
    found = by_check(done)
    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False
    assert found["driver"]["level"] == "problem"
    assert found["runtime-directory"]["level"] == "warning"
    assert found["scheduler"]["level"] in ("problem", "warning")
    for finding in found.values():
        assert bool(finding["remedy"]) == (finding["level"] != "ok")


@pytest.mark.promise(
    "cli-5",
    "The doctor names processes that use a device without the hook, and accuses nobody on numbers "
    "that say nothing",
)
@pytest.mark.promise("cli-9")
@pytest.mark.parametrize(
    ("environ", "check", "words"),
    [({}, "foreign-memory", ""), (PLAIN_KERNEL, "package", "of bob's server")],
    ids=["program", "kernel"],
)
def test_a_process_without_the_hook_is_found(
    sim: SimulatedMachine,
    served: SchedulerUnderTest,
    gpushare: Command,
    environ: dict[str, str],
    check: str,
    words: str,
) -> None:
    """A program that opened the device by itself is named, with its pid. A kernel of a server whose
    image lacks the package is no other program, and has its user's name."""
    with subprocess.Popen(
        [sys.executable, "-c", STRANGER],
        env=sim.env(environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as stranger:
        assert stranger.stdin and stranger.stdout
        assert stranger.stdout.readline() == "0\n"
        found = by_check(gpushare("doctor", "--json", env=sim.env()))
        stranger.stdin.close()
    assert found[check]["level"] == "warning"
    assert str(stranger.pid) in found[check]["what"] and words in found[check]["what"]


def test_the_text_says_what_to_do() -> None:
    """Each finding is a line, what to do about it the next, and the last line counts."""
    text = rendered(findings(machine_with("machine", mps="process 5", devices=())))
    lines = text.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("WARNING  mps: "))
    assert lines[place + 1].startswith("         Stop it")
    assert lines[-1] == "1 problem, 1 warning."
    assert rendered(findings(HEALTHY)).endswith("Everything is in place.")


@pytest.mark.promise("cli-13")
def test_json_is_the_same_for_programs() -> None:
    """Every finding with its four fields, and whether all is well."""
    document = json.loads(as_json(findings(HEALTHY)))
    assert document["ok"] is True
    assert {"check", "level", "what", "remedy"} == set(document["findings"][0])
