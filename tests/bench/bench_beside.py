"""What cells of a notebook, and bursts of work outside cells, take beside a training in another
notebook of the same user: real kernels under the hook and the scheduler with its default settings.

    make bench-beside

Each length of cell is run alone first, then beside the training, so that the cells want a third of
the device at most. `plain` is the same with turns switched off: both run at once, as without
gpushare. Bursts come from a thread of a kernel, as those of `interact` or a web server; they come
beside a program of another user, too.

The last line is JSON; the status is 1 where a bar is missed. Times in it are in seconds.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from jupyter_gpushare.client import SchedulerClient
from tests.bench.bars import Bar, exit_status
from tests.demo.training import training_cell
from tests.support import gpu_cells
from tests.support.kernels import Kernel, kernel_env
from tests.support.machine import Machine, choose_machine
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.tenants import Tenants
from tests.support.timeline import percentile

WORKS_S = (0.2, 0.5, 1.0, 2.0, 4.0)
LAUNCH_MS = 20.0
BURST_S = 0.2
BURST_EVERY_S = 2.0
ALONE = 3
LEAD_S = 30.0
"""So long the training has had the device before the first cell: it is an old one."""
SLACK_S = 0.1
CELL_BAR, BURST_BAR = 1.15, 1.3
TRAINING_BAR, TRAINING_BUSY_BAR = 0.97, 0.90
ANSWER_S_MAX = 600.0


@dataclass(frozen=True)
class Taken:
    """What work of one length took."""

    work_s: float
    count: int
    alone_s: float
    """In the median."""
    p50_s: float
    p95_s: float
    plain_p95_s: float | None = None

    @property
    def by_alone(self) -> float:
        """A tenth of a second is free."""
        return (self.p95_s - SLACK_S) / self.alone_s


@dataclass(frozen=True)
class Result:
    """The last line."""

    device: str
    cells: list[Taken]
    bursts: Taken
    bursts_beside_another: Taken
    """Beside a program of another user."""
    training_share: float
    """Of what one cell of 1 s each 10 s leaves, by what the training does alone."""
    training_share_busy: float
    """Of what cells of 0.2 s back to back leave."""


def cell(work_s: float) -> str:
    """It launches one piece after the other, and waits for each, as training loops do."""
    return gpu_cells.spin(LAUNCH_MS, round(work_s * 1000 / LAUNCH_MS))


def timed_s(kernel: Kernel, code: str) -> float:
    began_s = time.monotonic()
    kernel.run(code, ANSWER_S_MAX).ok()
    return time.monotonic() - began_s


def took_s(kernel: Kernel, work_s: float, count: int, gap_s: float) -> list[float]:
    found = []
    for _ in range(count):
        time.sleep(gap_s)
        found.append(timed_s(kernel, cell(work_s)))
    return found


@contextmanager
def training(kernel: Kernel, folder: Path) -> Iterator[Path]:
    """It counts its steps in the file."""
    stop, steps = folder / "stop", folder / "steps"
    stop.unlink(missing_ok=True)
    steps.write_text("0")
    code = training_cell(stop).replace(
        "import pathlib\n", f"import pathlib\nsteps, counted = pathlib.Path({str(steps)!r}), 0\n"
    )
    code += "\n    counted += 1\n    steps.write_text(str(counted))"
    sent = kernel.submit(code)
    try:
        time.sleep(LEAD_S)
        yield steps
    finally:
        stop.touch()
        kernel.wait(sent, ANSWER_S_MAX).ok()


@contextmanager
def program_of_another(
    scheduler: SchedulerUnderTest, machine: Machine, folder: Path
) -> Iterator[None]:
    """It trains until the block ends, outside any notebook."""
    stop = folder / "ended"
    env = Tenants(scheduler).env_of("somebody-else", "program", machine.env)
    code = f"{gpu_cells.setup()}\n{training_cell(stop)}"
    process = subprocess.Popen([sys.executable, "-c", code], env=env)
    try:
        time.sleep(LEAD_S)
        yield
    finally:
        stop.touch()
        process.wait(ANSWER_S_MAX)


def steps_a_second(steps: Path, during: float) -> float:
    before, began_s = int(steps.read_text() or 0), time.monotonic()
    time.sleep(during)
    return (int(steps.read_text() or 0) - before) / (time.monotonic() - began_s)


def cells_beside(
    explore: Kernel, train: Kernel, scheduler: SchedulerClient, folder: Path, count: int
) -> list[Taken]:
    alone = {work_s: took_s(explore, work_s, ALONE, 0.2) for work_s in WORKS_S}
    beside: dict[str, dict[float, list[float]]] = {}
    counts = {"on": count, "off": max(ALONE, count // 4)}
    for turns in counts:
        scheduler.change_settings({"turns": turns})
        with training(train, folder):
            beside[turns] = {
                work_s: took_s(explore, work_s, counts[turns], 1.0 + 2 * work_s)
                for work_s in WORKS_S
            }
    scheduler.change_settings({"turns": "on"})
    return [
        taken(work_s, alone[work_s], beside["on"][work_s], beside["off"][work_s])
        for work_s in WORKS_S
    ]


def taken(
    work_s: float, alone: Sequence[float], beside: Sequence[float], plain: Sequence[float] = ()
) -> Taken:
    return Taken(
        work_s=work_s,
        count=len(beside),
        alone_s=round(percentile(list(alone), 50), 4),
        p50_s=round(percentile(list(beside), 50), 4),
        p95_s=round(percentile(list(beside), 95), 4),
        plain_p95_s=round(percentile(list(plain), 95), 4) if plain else None,
    )


def bursts(kernel: Kernel, count: int) -> list[float]:
    """From a thread that sleeps between them, while no cell runs."""
    kernel.run(
        "import threading, time\n"
        "burst_times = []\n"
        "def burst_for_a_while():\n"
        "    checked(cu.cuCtxSetCurrent(gpu.context))\n"
        f"    for _ in range({count}):\n"
        f"        time.sleep({BURST_EVERY_S})\n"
        "        began = time.monotonic()\n"
        f"        {cell(BURST_S)}\n"
        "        burst_times.append(time.monotonic() - began)\n"
        "bursting = threading.Thread(target=burst_for_a_while)\n"
        "bursting.start()"
    ).ok()
    time.sleep(count * (BURST_EVERY_S + BURST_S))
    said = kernel.run("bursting.join()\nprint(burst_times)", ANSWER_S_MAX).ok().text
    return [float(text) for text in re.findall(r"[0-9.e-]+", said)]


def shares_of_training(explore: Kernel, train: Kernel, folder: Path) -> tuple[float, float]:
    """Beside one cell of 1 s each 10 s, and beside cells of 0.2 s back to back."""
    with training(train, folder) as steps:
        alone = steps_a_second(steps, 5.0)
        shares = []
        for work_s, gap_s, count in ((1.0, 9.0, 2), (0.2, 0.0, 40)):
            before, began_s = int(steps.read_text() or 0), time.monotonic()
            used_s = sum(took_s(explore, work_s, count, gap_s))
            left_s = time.monotonic() - began_s - used_s
            done = int(steps.read_text() or 0) - before
            # Back to back, a cell leaves the training what its own answer takes.
            left_s = max(left_s, time.monotonic() - began_s - count * work_s)
            shares.append(round(done / left_s / alone, 3))
    return shares[0], shares[1]


def measure(machine: Machine, folder: Path, count: int) -> Result:
    with ExitStack() as stack:
        scheduler = stack.enter_context(
            running_scheduler(folder / "run", env={"CUDA_VISIBLE_DEVICES": "0", **machine.env})
        )
        env = kernel_env(machine.env, scheduler.directory)
        names = ("explore.ipynb", "train.ipynb")
        explore, train = (stack.enter_context(Kernel(env, name=name)) for name in names)
        for kernel in (explore, train):
            kernel.run(gpu_cells.setup()).ok()
            kernel.run(cell(LAUNCH_MS / 1000)).ok()
        cells = cells_beside(explore, train, scheduler.client, folder, count)
        alone = bursts(explore, ALONE)
        with training(train, folder):
            beside = bursts(explore, count)
        with program_of_another(scheduler, machine, folder):
            beside_another = bursts(explore, count)
        shares = shares_of_training(explore, train, folder)
    return Result(
        device=machine.device,
        cells=cells,
        bursts=taken(BURST_S, alone, beside),
        bursts_beside_another=taken(BURST_S, alone, beside_another),
        training_share=shares[0],
        training_share_busy=shares[1],
    )


def bars_of(result: Result) -> list[Bar]:
    cells = [
        Bar(f"cells of {each.work_s:g} s: p95, by alone", each.by_alone, at_most=CELL_BAR)
        for each in result.cells
    ]
    return [
        *cells,
        Bar("bursts: p95, by alone", result.bursts.by_alone, at_most=BURST_BAR),
        Bar(
            "bursts beside another user's program",
            result.bursts_beside_another.by_alone,
            at_most=BURST_BAR,
        ),
        Bar("training, of what is left", result.training_share, at_least=TRAINING_BAR),
        Bar("beside short cells", result.training_share_busy, at_least=TRAINING_BUSY_BAR),
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_beside")
    parser.add_argument("--count", type=int, default=20, help="so many cells of each length")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as text:
        machine = choose_machine(Path(text))
        print(f"{machine.device}: {options.count} cells of each length", flush=True)
        result = measure(machine, Path(text), options.count)
    print(f"\n  {'work s':<12}{'alone':>9}{'p50':>9}{'p95':>9}{'plain p95':>12}")
    for each in (*result.cells, result.bursts, result.bursts_beside_another):
        plain = "" if each.plain_p95_s is None else f"{each.plain_p95_s:.3f}"
        times = f"{each.alone_s:>9.3f}{each.p50_s:>9.3f}{each.p95_s:>9.3f}"
        print(f"  {each.work_s:<12g}{times}{plain:>12}")
    print()
    status = exit_status(bars_of(result))
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
