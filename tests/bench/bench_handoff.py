"""How long the device is idle between the end of one kernel's cell and the first launch of another
kernel's cell that waits for it; what a scheduler costs that nobody needs; and how long it lets HTTP
requests wait while one of its clients floods it.

Times are the device's: the simulated one's journal, or stamps that a real one writes. A round
counts only when the taker's cell had begun well before the giver's work ended. The last line is
JSON; the status is 1 where a bar is missed.

Rounds of their own say where the time goes (handoff_steps.py). They are not counted above, because
the hooks' logs and the scheduler's journal, which tell the moments, cost some time themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench import handoff_steps
from tests.bench.bars import Bar, exit_status
from tests.bench.flood import FloodOptions, flood_bar, measure_flood
from tests.support import gpu_cells
from tests.support.kernels import Kernel, kernel_env
from tests.support.machine import Machine, choose_machine
from tests.support.observed import ObservedKernels
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.timeline import HandOver, hand_overs, overlaps, percentile

HANDOFF_MS_P50_BAR, HANDOFF_MS_P99_BAR = 1.5, 3.0
SIMULATED_MS_P50_BAR, SIMULATED_MS_P99_BAR = 3.0, 15.0
"""The machines with a simulated device have two cores, which they share."""
IDLE_CPU_PERCENT_BAR = 0.5
WAITED_MS_MIN = 2.0
"""A taker that waited less may not have come to its first launch when the giver's work ended."""
CELL_MS = 20.0
WARM_UP_ROUNDS = 10


@dataclass(frozen=True)
class Result:
    """The last line."""

    device: str
    rounds: int
    handoff_ms_p50: float
    handoff_ms_p99: float
    scheduler_idle_cpu_percent: float
    http_ms_p999_under_flood: float
    steps_ms_p50: dict[str, float] = field(default_factory=dict)


def alternate(observed: ObservedKernels, rounds: int) -> list[HandOver]:
    """Both kernels always have a cell that runs or waits, until so many rounds are there."""
    observed.begin()
    total = rounds + WARM_UP_ROUNDS
    last = [observed.submit(number, gpu_cells.spin(CELL_MS)) for number in (0, 1)]
    for turn in range(total):
        giver = turn % 2
        observed.collect(giver, last[giver]).ok()
        last[giver] = observed.submit(giver, gpu_cells.spin(CELL_MS))
    for number in (0, 1):
        observed.collect(number, last[number]).ok()
    works = observed.works()
    if overlaps(works):
        raise RuntimeError("Work of both kernels was on the device at once; this measures nothing.")
    found = hand_overs(works, observed.cells)[WARM_UP_ROUNDS:]
    return [h for h in found if h.waited_ns - (h.started_ns - h.ended_ns) >= WAITED_MS_MIN * 1e6]


def measure_handoff(machine: Machine, scheduler: SchedulerUnderTest, rounds: int) -> list[float]:
    """At least so many hand-overs, in milliseconds."""
    env = kernel_env(machine.env, scheduler.directory)
    with Kernel(env, name="even.ipynb") as even, Kernel(env, name="odd.ipynb") as odd:
        observed = ObservedKernels(machine, [even, odd])
        observed.set_up()
        gaps_ms: list[float] = []
        while len(gaps_ms) < rounds:
            found = alternate(observed, min(rounds, rounds - len(gaps_ms) + WARM_UP_ROUNDS))
            if not found:
                raise RuntimeError("No cell ever waited for the other one; this measures nothing.")
            gaps_ms += [hand_over.gap_ms for hand_over in found]
    return gaps_ms


def measure_steps(machine: Machine, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Each step of hand-overs between two kernels of a scheduler of their own, in milliseconds."""
    log, journal = folder / "hooks.log", folder / "journal.jsonl"
    env = {"CUDA_VISIBLE_DEVICES": "0", **machine.env}
    with running_scheduler(
        folder / "steps", f"--journal={journal}", env=env, check=False
    ) as scheduler:
        telling = {"GPUSHARE_LOG": "debug", "GPUSHARE_LOG_FILE": str(log)}
        env = kernel_env(machine.env, scheduler.directory) | telling
        with Kernel(env, name="even.ipynb") as even, Kernel(env, name="odd.ipynb") as odd:
            observed = ObservedKernels(machine, [even, odd])
            observed.set_up()
            found = alternate(observed, rounds)
            cells, pids = list(observed.cells), [even.pid, odd.pid]
    moments = handoff_steps.hook_moments(log) + handoff_steps.journal_moments(journal)
    return handoff_steps.steps_ms(found, cells=cells, moments=moments, pids=pids)


def cpu_seconds(pid: int) -> float:
    """What a process has used of the CPUs so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_idle_cpu(
    machine: Machine, scheduler: SchedulerUnderTest, kernels: int, seconds: float
) -> float:
    """The scheduler's share of one CPU, in percent, while so many kernels have the device open and
    do nothing."""
    env = kernel_env(machine.env, scheduler.directory)
    with ExitStack() as stack:
        for number in range(kernels):
            kernel = stack.enter_context(Kernel(env, name=f"idle-{number}.ipynb"))
            kernel.run(gpu_cells.setup() + gpu_cells.spin(1)).ok()
        time.sleep(1)
        before_s, began_s = cpu_seconds(scheduler.process.pid), time.monotonic()
        time.sleep(seconds)
        used_s = cpu_seconds(scheduler.process.pid) - before_s
        return 100 * used_s / (time.monotonic() - began_s)


def bars_of(result: Result, idle_kernels: int, *, simulated: bool) -> list[Bar]:
    """What the figures are held to."""
    idle = result.scheduler_idle_cpu_percent
    p50_bar = SIMULATED_MS_P50_BAR if simulated else HANDOFF_MS_P50_BAR
    p99_bar = SIMULATED_MS_P99_BAR if simulated else HANDOFF_MS_P99_BAR
    return [
        Bar("hand-over, median", result.handoff_ms_p50, at_most=p50_bar, unit="ms"),
        Bar("hand-over, 99 of 100", result.handoff_ms_p99, at_most=p99_bar, unit="ms"),
        Bar(
            f"scheduler, {idle_kernels} idle kernels",
            idle,
            at_most=IDLE_CPU_PERCENT_BAR,
            unit="% of a CPU",
        ),
        flood_bar(result.http_ms_p999_under_flood),
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_handoff")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--step-rounds", type=int, default=100)
    parser.add_argument("--idle-kernels", type=int, default=20)
    parser.add_argument("--idle-s", type=float, default=60.0)
    FloodOptions.add_to(parser)
    options = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-bench-")))
        machine = choose_machine(folder)
        env = {"CUDA_VISIBLE_DEVICES": "0", **machine.env}
        scheduler = stack.enter_context(running_scheduler(folder / "run", env=env, check=False))
        print(f"{machine.device}: {options.rounds} rounds of cells that alternate", flush=True)
        gaps_ms = measure_handoff(machine, scheduler, options.rounds)
        print(f"{options.step_rounds} rounds that tell their steps", flush=True)
        steps = measure_steps(machine, folder, options.step_rounds)
        print(f"{options.idle_kernels} idle kernels for {options.idle_s:g} s", flush=True)
        idle = measure_idle_cpu(machine, scheduler, options.idle_kernels, options.idle_s)
        http_ms = measure_flood(folder, FloodOptions.of(options))
    result = Result(
        device=machine.device,
        rounds=len(gaps_ms),
        handoff_ms_p50=round(percentile(gaps_ms, 50), 3),
        handoff_ms_p99=round(percentile(gaps_ms, 99), 3),
        scheduler_idle_cpu_percent=round(idle, 3),
        http_ms_p999_under_flood=round(http_ms, 1),
        steps_ms_p50={name: round(percentile(ms, 50), 3) for name, ms in steps.items()},
    )
    fastest, slowest = min(gaps_ms), max(gaps_ms)
    print(f"\n{result.device}, {result.rounds} rounds, {fastest:.3f} to {slowest:.3f} ms")
    print(f"\nSteps of {len(steps[handoff_steps.STEPS[0][0]])} rounds, p50 and p99:")
    print("\n".join(handoff_steps.table(steps)))
    status = exit_status(bars_of(result, options.idle_kernels, simulated=machine.simulated))
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
