"""What cells of a notebook, and bursts of work outside cells, take beside a training in another
notebook of the same user: real kernels under the hook and the scheduler with its default settings.

    make bench-beside

Each length of cell is run alone first, then beside the training, so that the cells want a third of
the device at most. `plain` is the same with turns switched off: both run at once, as without
gpushare. Bursts come from a thread of a kernel, as those of a web server, and callbacks from
messages, as those of `interact`. Bursts come beside a program of another user, too.

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
BUSY_S = 60.0
"""Longer than the credit of a notebook whose cells never rest lasts."""
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
    callbacks: Taken
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
        yield
    finally:
        stop.touch()
        process.wait(ANSWER_S_MAX)


def steps_of(steps: Path) -> int:
    """The file is empty for a moment while it is written."""
    while not (text := steps.read_text()):
        time.sleep(0.001)
    return int(text)


def steps_a_second(steps: Path, during: float) -> float:
    before, began_s = steps_of(steps), time.monotonic()
    time.sleep(during)
    return (steps_of(steps) - before) / (time.monotonic() - began_s)


@dataclass
class Beside:
    """What was measured beside the training, with turns or without."""

    cells: dict[float, list[float]]
    bursts: list[float]
    callbacks: list[float]


def look_beside(explore: Kernel, count: int) -> Beside:
    return Beside(
        {each: took_s(explore, each, count, 1.0 + 2 * each) for each in WORKS_S},
        bursts(explore, count),
        callbacks(explore, count),
    )


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


def callbacks(kernel: Kernel, count: int) -> list[float]:
    """From messages as those of `interact`, each handled when it comes."""
    kernel.run(
        "def when_opened(comm, message):\n"
        "    @comm.on_msg\n"
        "    def slide(message):\n"
        f"        {cell(BURST_S)}\n"
        "get_ipython().kernel.comm_manager.register_target('slider', when_opened)"
    ).ok()
    kernel.send("comm_open", {"comm_id": "slider", "target_name": "slider", "data": {}})
    found = []
    for _ in range(count):
        time.sleep(BURST_EVERY_S)
        began_s = time.monotonic()
        sent = kernel.send("comm_msg", {"comm_id": "slider", "data": {}})
        printed = kernel.wait_until_handled(sent, ANSWER_S_MAX)
        assert not printed.stderr and not printed.errors, printed
        found.append(time.monotonic() - began_s)
    return found


def shares_of_training(explore: Kernel, steps: Path, alone: float) -> tuple[float, float]:
    """Beside one cell of 1 s each 10 s, and beside cells of 0.2 s back to back."""
    shares = []
    for work_s, gap_s, seconds in ((1.0, 9.0, 20.0), (0.2, 0.0, BUSY_S)):
        before, began_s, done_s = steps_of(steps), time.monotonic(), 0.0
        while time.monotonic() < began_s + seconds:
            took_s(explore, work_s, 1, gap_s)
            done_s += work_s
        left_s = time.monotonic() - began_s - done_s
        shares.append(round((steps_of(steps) - before) / left_s / alone, 3))
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
        alone = look_beside(explore, ALONE)
        say("alone", alone)
        with training(train, folder) as steps:
            time.sleep(LEAD_S)
            steps_alone = steps_a_second(steps, 5.0)
            beside = look_beside(explore, count)
            say("beside the training", beside)
            shares = shares_of_training(explore, steps, steps_alone)
            print(f"the training's shares: {shares}", flush=True)
        with program_of_another(scheduler, machine, folder):
            time.sleep(LEAD_S)
            beside_another = bursts(explore, count)
        scheduler.client.change_settings({"turns": "off"})
        with training(train, folder):
            plain = look_beside(explore, max(ALONE, count // 4))
        say("plain", plain)
    return Result(
        device=machine.device,
        cells=[
            taken(each, alone.cells[each], beside.cells[each], plain.cells[each])
            for each in WORKS_S
        ],
        bursts=taken(BURST_S, alone.bursts, beside.bursts, plain.bursts),
        callbacks=taken(BURST_S, alone.callbacks, beside.callbacks, plain.callbacks),
        bursts_beside_another=taken(BURST_S, alone.bursts, beside_another),
        training_share=shares[0],
        training_share_busy=shares[1],
    )


def say(title: str, found: Beside) -> None:
    """What was found so far: all of it takes a quarter of an hour."""
    works = {f"cells of {work_s:g} s": times for work_s, times in found.cells.items()}
    works |= {"bursts": found.bursts, "callbacks": found.callbacks}
    for name, times in works.items():
        print(f"{title}, {name}: {' '.join(f'{each:.3f}' for each in times)}", flush=True)


def bars_of(result: Result) -> list[Bar]:
    cells = [
        Bar(f"cells of {each.work_s:g} s: p95, by alone", each.by_alone, at_most=CELL_BAR)
        for each in result.cells
    ]
    return [
        *cells,
        Bar("bursts: p95, by alone", result.bursts.by_alone, at_most=BURST_BAR),
        Bar("callbacks: p95, by alone", result.callbacks.by_alone, at_most=BURST_BAR),
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
    print(f"\n  {'work':<24}{'alone s':>9}{'p50':>9}{'p95':>9}{'plain p95':>12}")
    rows = {f"cells of {each.work_s:g} s": each for each in result.cells}
    rows |= {"bursts of a thread": result.bursts, "callbacks": result.callbacks}
    rows |= {"bursts beside another's": result.bursts_beside_another}
    for name, each in rows.items():
        plain = "" if each.plain_p95_s is None else f"{each.plain_p95_s:.3f}"
        times = f"{each.alone_s:>9.3f}{each.p50_s:>9.3f}{each.p95_s:>9.3f}"
        print(f"  {name:<24}{times}{plain:>12}")
    print()
    status = exit_status(bars_of(result))
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
