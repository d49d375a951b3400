"""What the hook costs: launches, instructions, and the start of a process that never uses CUDA.

usage: python -m tests.bench.bench_overhead [--rounds N] [--starts N]
Prints a table and, as the last line, one JSON object; the status is 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.bars import Bar, exit_status
from tests.support.machine import Machine, choose_machine
from tests.support.paths import BUILD, BUILTINS_PTX, HOOK_LIBRARY, ROOT
from tests.support.tenants import Tenants, tenants

KINDS = {
    "cuLaunchKernel": "launch",
    "cuLaunchKernel/default": "launch_default",
    "cuLaunchKernelEx": "launch_ex",
    "cuGraphLaunch": "graph_launch",
}
BATCHES = 1500
LAUNCHES_PER_BATCH = 48
COUNTED_LAUNCHES = 4
WARM_UP_LAUNCHES, COUNTED_BATCHES = 5 * 48, 6
"""As in launch_loop.c."""
PROCESSES = 3
ALONE_NS_BAR, SHARED_NS_BAR = 60.0, 150.0
INSTRUCTIONS_BAR = 71.0
PRELOAD_MS_BAR = 0.3
LOOP = BUILD / "bench" / "launch_loop"
STEPPER = BUILD / "bench" / "count_steps"


def build_programs() -> None:
    """Compile launch_loop.c and count_steps.c, with the headers that the hook is built with or
    CUDA's own."""
    LOOP.parent.mkdir(parents=True, exist_ok=True)
    folders = [*ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cu13/include")]
    folders.append(Path("/usr/local/cuda/include"))
    includes = [f"-I{folder}" for folder in folders if (folder / "cuda.h").exists()]
    lookup = ROOT / "hook" / "src" / "base" / "elf_lookup.c"
    for program, more in ((LOOP, [lookup]), (STEPPER, [])):
        sources = [ROOT / "tests" / "bench" / f"{program.name}.c", *more]
        newest = max(source.stat().st_mtime for source in sources)
        if not program.exists() or program.stat().st_mtime < newest:
            command = [
                "cc",
                "-O2",
                "-g",
                "-D_GNU_SOURCE",
                f"-iquote{ROOT / 'hook' / 'src'}",
                *includes,
                *sources,
                "-o",
                program,
                "-ldl",
            ]
            subprocess.run(command, check=True)


def count_loop(env: Mapping[str, str], prefix: tuple[str, ...]) -> str:
    """What a tool prints that counts in launch_loop."""
    command = [*prefix, str(LOOP), str(BUILTINS_PTX), str(COUNTED_LAUNCHES)]
    result = subprocess.run(
        command, env=dict(env), check=True, capture_output=True, text=True, timeout=600
    )
    return result.stdout


class Loop:
    """A hooked process that launches, and compares itself with the driver's own functions."""

    def __init__(self, env: Mapping[str, str]) -> None:
        command = [str(LOOP), str(BUILTINS_PTX), str(BATCHES), str(LAUNCHES_PER_BATCH)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)

    def measure(self) -> dict[str, tuple[float, float]]:
        """Median nanoseconds a launch of each kind, bare and hooked."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        rows = [self._process.stdout.readline().split() for _ in KINDS]
        return {kind: (float(bare), float(hooked)) for kind, bare, hooked in rows}

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()


@contextmanager
def second_tenant(scheduler: Tenants, machine_env: Mapping[str, str]) -> Iterator[None]:
    """A tenant that has opened the device and does nothing, so that the window is active."""
    program = (
        "import sys; from cuda.bindings import driver as d\n"
        "d.cuInit(0); d.cuDevicePrimaryCtxRetain(d.cuDeviceGet(0)[1])\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    with scheduler.passing("second tenant", machine_env) as env:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout and process.stdout.readline() == "ready\n"
            yield
        finally:
            process.communicate()


def measure_launches(
    machine: Machine, scheduler: Tenants, hooked_env: Mapping[str, str], rounds: int
) -> dict[str, float]:
    """Rounds alone and beside a second tenant, in several processes. What is added is counted
    from bare launches of the same round."""
    samples: dict[str, dict[str, list[float]]] = {
        kind: {"bare": [], "hooked": [], "added_shared": []} for kind in KINDS
    }
    for _ in range(PROCESSES):
        with Loop(hooked_env) as loop:
            for _ in range(rounds):
                alone = loop.measure()
                with second_tenant(scheduler, machine.env):
                    beside = loop.measure()
                for kind, (bare, hooked) in alone.items():
                    samples[kind]["bare"].append(bare)
                    samples[kind]["hooked"].append(hooked)
                for kind, (bare, hooked) in beside.items():
                    samples[kind]["added_shared"].append(hooked - bare)
    return {
        f"{key}_ns_{what}": round(statistics.median(samples[kind][what]), 1)
        for kind, key in KINDS.items()
        for what in samples[kind]
    }


def callgrind_instructions(env: Mapping[str, str], folder: Path) -> dict[str, float]:
    """Instructions per launch inside `measured_*`, callees included, counted by callgrind."""
    counts = {}
    for kind, key in KINDS.items():
        output = folder / "callgrind.out"
        tool = ("valgrind", "--tool=callgrind", "--collect-atstart=no", "--quiet")
        options = (f"--toggle-collect=measured_{key}", f"--callgrind-out-file={output}")
        count_loop(env, (*tool, *options))
        total = re.search(r"^(?:summary|totals): (\d+)", output.read_text(), re.M)
        assert total, "callgrind wrote no total"
        counts[kind] = int(total[1]) / (WARM_UP_LAUNCHES + COUNTED_BATCHES * COUNTED_LAUNCHES)
    return counts


def stepped_instructions(env: Mapping[str, str]) -> dict[str, float]:
    """The same without the driver's own, counted by single-stepping the launching thread. Now and
    then the hook records an event: the cheapest of a kind's batches counts."""
    marked = {**env, "LAUNCH_LOOP_MARKS": "1"}
    output = count_loop(marked, (str(STEPPER),))
    steps = [int(field) for field in output.splitlines()[-1].split()[1:]]
    return {
        kind: min(steps[i * COUNTED_BATCHES : (i + 1) * COUNTED_BATCHES]) / COUNTED_LAUNCHES
        for i, kind in enumerate(KINDS)
    }


def measure_instructions(
    machine: Machine, hooked_env: Mapping[str, str], folder: Path
) -> dict[str, float]:
    """Instructions that the hook adds to a launch while the turn is held. callgrind counts them
    where it is installed; it cannot run a real driver, which is stepped instead."""
    if machine.simulated and shutil.which("valgrind"):
        bare = callgrind_instructions(machine.env, folder)
        hooked = callgrind_instructions(hooked_env, folder)
    else:
        bare, hooked = stepped_instructions(machine.env), stepped_instructions(hooked_env)
    return {
        f"{key}_instructions_added": round(hooked[kind] - bare[kind], 1)
        for kind, key in KINDS.items()
    }


def start_ms(env: Mapping[str, str]) -> float:
    """Milliseconds from the start to the end of a process that does nothing."""
    started = time.perf_counter()
    pid = os.posix_spawn("/bin/true", ["true"], env)
    os.waitpid(pid, 0)
    return (time.perf_counter() - started) * 1e3


def preload_ms_added(starts: int) -> float:
    """Median difference of interleaved starts with and without the preload."""
    bare_env = {"PATH": os.environ["PATH"]}
    hooked_env = {**bare_env, "LD_PRELOAD": str(HOOK_LIBRARY)}
    for _ in range(20):
        start_ms(bare_env), start_ms(hooked_env)
    return statistics.median(start_ms(hooked_env) - start_ms(bare_env) for _ in range(starts))


def print_table(report: Mapping[str, object]) -> None:
    print(f"device: {report['device']}")
    print(f"{'call':24}{'bare ns':>10}{'hooked ns':>11}{'shared +ns':>12}{'instructions +':>16}")
    for kind, key in KINDS.items():
        print(
            f"{kind:24}{report[f'{key}_ns_bare']:>10}{report[f'{key}_ns_hooked']:>11}"
            f"{report[f'{key}_ns_added_shared']:>12}{report[f'{key}_instructions_added']:>16}"
        )
    print(f"start of a process that never uses CUDA: +{report['preload_ms_added']} ms")


def run(rounds: int, starts: int) -> dict[str, object]:
    """All figures of the report."""
    build_programs()
    with tempfile.TemporaryDirectory() as folder:
        machine = choose_machine(Path(folder))
        with tenants(Path(folder) / "run", machine.env) as scheduler:
            hooked_env = scheduler.env("benchmark", machine.env)  # one tenant: it is alone
            report: dict[str, object] = {"device": machine.device}
            report |= measure_launches(machine, scheduler, hooked_env, rounds)
            report |= measure_instructions(machine, hooked_env, Path(folder))
    report["preload_ms_added"] = round(preload_ms_added(starts), 3)
    return report


def bars_of(report: Mapping[str, Any]) -> list[Bar]:
    """What the figures are held to."""
    bars = []
    for kind, key in KINDS.items():
        alone = round(report[f"{key}_ns_hooked"] - report[f"{key}_ns_bare"], 1)
        shared = report[f"{key}_ns_added_shared"]
        counted = report[f"{key}_instructions_added"]
        bars += [
            Bar(f"{kind}, added alone", alone, at_most=ALONE_NS_BAR, unit="ns"),
            Bar(f"{kind}, added shared", shared, at_most=SHARED_NS_BAR, unit="ns"),
            Bar(f"{kind}, added", counted, at_most=INSTRUCTIONS_BAR, unit="instructions"),
        ]
    preload = report["preload_ms_added"]
    return [*bars, Bar("start of a process", preload, at_most=PRELOAD_MS_BAR, unit="ms")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds in each process")
    parser.add_argument("--starts", type=int, default=400, help="interleaved pairs of starts")
    options = parser.parse_args()
    report = run(options.rounds, options.starts)
    print_table(report)
    status = exit_status(bars_of(report))
    print(json.dumps(report))
    return status


if __name__ == "__main__":
    sys.exit(main())
