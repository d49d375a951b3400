"""Turns of 20 ms among programs whose work waits, in each way that the window knows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.hook.conftest import headers
from tests.hook.runtime.conftest import programs
from tests.hook.runtime.process import Programs
from tests.support.memory_tenants import MemoryTenants, faults, swapping_scheduler
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

__all__ = ["headers", "programs"]

SETTINGS = ("--GPUShareScheduler.quantum_s=0.02", "--GPUShareScheduler.drain_stall_ms=100")
ROUNDS = 20
WAITS_FOR_ITSELF = {"own stream": f"rounds 1 {ROUNDS} 40", "default stream": f"rounds d {ROUNDS} 3"}
"""Each round needs what its program does after it has launched more."""
GOES_ON = {
    "one stream": "loop 1",
    "default stream of a thread": "loop p",
    "two streams": "twins",
    "many streams": "many",
}
SPIN_NS = 300_000
TURNS = 5
NO_EVENTS = "fail cuEventRecord nth=1 times=0 result=2 thread=shell"
"""Of the program's threads: neither the window's nor those of a free. The drain has its own."""


def turns_of(machine: SimulatedMachine) -> Counter[int]:
    """By process, how often its launches come after another one's."""
    spins = sorted((r.started_ns, r.pid) for r in machine.journal() if r.name == "spin")
    pids = [pid for _, pid in spins]
    return Counter(pid for before, pid in pairwise([0, *pids]) if pid != before)


@pytest.mark.promise(
    "hook-61",
    "Programs whose work waits for what they do later, and others that launch without end into "
    "one, two or many streams, share a device in turns of 20 ms, also where the driver refuses the "
    "window's events: each goes on, and no two compute at once",
)
@pytest.mark.parametrize("plan", ["", NO_EVENTS], ids=["events", "no events"])
def test_all_go_on_in_turns_of_20_ms(tmp_path: Path, programs: Programs, plan: str) -> None:
    machine = SimulatedMachine(tmp_path / "machine")
    env = {"GPUSHARE_SIM_FAULTS": plan} if plan else {}
    with (
        swapping_scheduler(tmp_path / "run", machine.env(), *SETTINGS, check=True) as scheduler,
        MemoryTenants(
            scheduler, machine.env(), tmp_path, program=programs.built("shell")
        ) as tenants,
    ):
        shells = {}
        for name in (*GOES_ON, *WAITS_FOR_ITSELF):
            shell = shells[name] = tenants.start(name, env=env, opened="").process
            shell.say("0 open")
            shell.expect("0 open 0")
            shell.say("0 create 1")
            shell.expect("0 create 0")
        for name, command in GOES_ON.items():
            more = " 20" if name == "many streams" else ""
            shells[name].say(f"0 {command} {SPIN_NS}{more}")
        for name, command in WAITS_FOR_ITSELF.items():
            shells[name].say(f"0 {command}")
        for name in WAITS_FOR_ITSELF:
            shells[name].expect("0 rounds 0")
        pids = [shells[name].pid for name in GOES_ON]
        wait_until(lambda: min(turns_of(machine)[pid] for pid in pids) >= TURNS)
    assert faults(machine) == []
    assert machine.computing_overlaps() == []
