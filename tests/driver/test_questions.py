"""The program that asks what the documentation leaves open."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver.asked.stale import deadly_calls
from tests.driver.harness import driver_kind
from tests.support.paths import ROOT
from tests.support.sim import SimulatedMachine

KEPT = Path(__file__).parent / "asked" / "h200.json"


@pytest.mark.parametrize(
    "subjects",
    [
        ["mapped", "pooled", "graphs", "shared", "managed", "gone", "ends", "captures"],
        pytest.param(["stale"], marks=pytest.mark.full),
    ],
    ids=["all but stale", "stale"],
)
def test_every_question_is_answered(subjects: list[str], tmp_path: Path) -> None:
    """No question fails by itself, whatever the driver says."""
    kept = tmp_path / "answers.json"
    asked = [sys.executable, "-m", "tests.driver.questions", "--json", str(kept)]
    options = ["--workers", "2", "--each", "60", "--all", "600", "--subjects", *subjects]
    printed = subprocess.run(
        [*asked, *options], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    answers = json.loads(kept.read_text())
    unanswered = ("raised", "not asked")  # a crash is an answer
    assert len(answers) > 70
    assert {n: a for n, a in answers.items() if a.startswith(unanswered)} == {}
    assert all(name in printed for name in answers)


HARSHER = {"context": {"cuCtxPushCurrent_v2"}}
"""Calls that kill here alone: the device takes the context, and then refuses whatever is done."""


@pytest.mark.skipif(driver_kind() != "sim", reason="what is held to the device is the simulation")
@pytest.mark.promise(
    "simulated-51",
    "Each call that can end a process on a device, because a stream, an event, an array or a "
    "chunk is gone, ends it on the simulated one, with a line that names call and handle",
)
def test_calls_that_kill_on_a_device_kill_here(tmp_path: Path) -> None:
    """The kept answers of an H200 say which: never those of graphs, modules, functions, pools."""
    asked = [sys.executable, "-m", "tests.driver.questions", "--subjects", "stale"]
    kept = tmp_path / "answers.json"
    options = ["--only", "destroyed-left", "--each", "60", "--all", "600", "--json", str(kept)]
    subprocess.run([*asked, *options], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    there = calls_of(KEPT)
    assert set(there) == {"stream", "event", "array", "chunk"}
    here = calls_of(kept)
    for kind in {*there, *here}:
        expected = there.get(kind, set()) | HARSHER.get(kind, set())
        assert here.get(kind, set()) == expected, kind


def test_the_call_and_the_handle_are_named(tmp_path: Path) -> None:
    """On standard error, before the process ends."""
    text = """
from cuda.bindings import driver as cuda
from tests.driver.harness import Gpu, ok
gpu = Gpu()
stream = ok(cuda.cuStreamCreate(0))
ok(cuda.cuStreamDestroy(stream))
print(hex(int(stream)), flush=True)
cuda.cuStreamQuery(stream)
"""
    machine = SimulatedMachine(tmp_path / "machine")
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=machine.env({"GPUSHARE_DRIVER": "named"}),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGSEGV
    handle = done.stdout.strip()
    assert f"simulated driver: cuStreamQuery of the destroyed handle {handle}" in done.stderr


def calls_of(answers: Path) -> dict[str, set[str]]:
    deadly = deadly_calls(json.loads(answers.read_text()))
    return {kind: set(calls) for kind, calls in deadly.items()}
