"""Two notebooks share one GPU while you watch; `demo-report.json` and `demo-timeline.png` say what
happened. On a machine without a GPU it runs on the simulated one, and says so."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from jupyter_gpushare.client import ClientError, SchedulerClient
from tests.demo.live import LiveView
from tests.demo.picture import Act, draw
from tests.demo.report import Report, make_report
from tests.support import gpu_cells
from tests.support.kernels import Kernel, Reply, kernel_env
from tests.support.machine import choose_machine
from tests.support.observed import ObservedKernels
from tests.support.scheduler_process import running_scheduler

NAMES = ("alice.ipynb", "bob.ipynb")
LOOK_EVERY_S = 0.04
CELL_TIMEOUT_S = 60.0
WITH_TURNS, WITHOUT_TURNS = "With turns", "Control run without turns"


@dataclass(frozen=True)
class Options:
    """The command line."""

    cells: int
    launches: int
    launch_ms: float
    folder: Path


class Demo:
    """Two kernels, one scheduler, and the two acts they play."""

    def __init__(self, stack: ExitStack, options: Options) -> None:
        self._options = options
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-demo-")))
        self.machine = choose_machine(folder)
        self._print_device()
        scheduler = stack.enter_context(
            running_scheduler(folder / "run", env={"CUDA_VISIBLE_DEVICES": "0", **self.machine.env})
        )
        self._client: SchedulerClient = scheduler.client
        env = kernel_env(self.machine.env, scheduler.directory)
        kernels = [stack.enter_context(Kernel(env, name=name)) for name in NAMES]
        self.observed = ObservedKernels(self.machine, kernels)
        self._view = LiveView(NAMES, sys.stdout)
        self._view.headline("Both notebooks open the GPU.")
        self.observed.set_up()

    def _print_device(self) -> None:
        if self.machine.simulated:
            print("There is no NVIDIA GPU here: this is the SIMULATED GPU of hook/sim.")
        else:
            print(f"Device: {self.machine.device}")

    def play(self, title: str, *, anti_thrash: str) -> Act:
        """Send all cells to both kernels at once, and look on until they are done."""
        self._client.change_settings({"anti_thrash": anti_thrash})
        self._view.headline(f"{title}: {self._options.cells} cells in each notebook, all at once.")
        self.observed.begin()
        cells = [
            (number, self.observed.submit(number, self._code(number, turn)))
            for turn in range(self._options.cells)
            for number in range(len(NAMES))
        ]
        deadline_s = time.monotonic() + CELL_TIMEOUT_S
        for number, cell in cells:
            while not self.observed.kernels[number].done(cell):
                self._view.show(self._client.status())
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"{NAMES[number]} has not answered in {CELL_TIMEOUT_S} s")
                time.sleep(LOOK_EVERY_S)
            self.observed.collect(number, cell)
        self._view.show(self._client.status())
        return Act(title, list(self.observed.cells), self.observed.works())

    def _code(self, number: int, turn: int) -> str:
        """A cell's work; its checksum is wrong when anybody touched its memory."""
        return gpu_cells.fill_and_check(
            1000 * number + turn + 1,
            milliseconds=self._options.launch_ms,
            count=self._options.launches,
        )

    def waits_told(self) -> dict[str, int]:
        """The scheduler's own count of waits, for comparison."""
        tenants = self._client.status()["tenants"]
        return {t["name"]: t["counters"]["waits"] for t in tenants if t["name"] in NAMES}


def run(options: Options) -> Report:
    """The whole demo; everything that it started has ended when it returns."""
    began_s = time.monotonic()
    with ExitStack() as stack:
        demo = Demo(stack, options)
        shared = demo.play(WITH_TURNS, anti_thrash="on")
        waits_told, failed = demo.waits_told(), list(demo.observed.failed)
        control = demo.play(WITHOUT_TURNS, anti_thrash="off")
        failed += demo.observed.failed
        print_failures(failed)
        report = make_report(
            device=demo.machine.device,
            simulated=demo.machine.simulated,
            judged_by=demo.observed.judged_by,
            names=NAMES,
            cells=shared.cells,
            works=shared.works,
            works_without_turns=control.works,
            cells_all=2 * options.cells * len(NAMES),
            cells_failed=len(failed),
            waits_told=waits_told,
            seconds=time.monotonic() - began_s,
        )
    draw([shared, control], NAMES, options.folder / "demo-timeline.png", report.device)
    path = options.folder / "demo-report.json"
    path.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    return report


def print_failures(replies: list[Reply]) -> None:
    """The end of each failed cell's traceback."""
    for reply in replies:
        print(f"A cell failed: {reply.ename}: {reply.evalue}", file=sys.stderr)


def print_summary(report: Report) -> None:
    waits = ", ".join(f"{name} {count}" for name, count in report.waits.items())
    rows = [
        ("device", report.device),
        ("judged by", report.judged_by),
        ("cells", f"{report.cells}, of which {report.cells_failed} failed"),
        ("overlaps with turns", str(report.overlaps)),
        ("overlaps without turns", str(report.overlaps_without_turns)),
        ("waits served", waits),
        ("hand-overs", f"{report.hand_overs}, {report.handoff_ms_p50} ms in the median"),
        ("in all", f"{report.seconds} s"),
    ]
    print()
    for name, value in rows:
        print(f"  {name:<24}{value}")


def read_options(argv: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--cells", type=int, default=8, help="cells in each notebook")
    parser.add_argument("--launches", type=int, default=6, help="launches in each cell")
    parser.add_argument("--launch-ms", type=float, default=20.0, help="how long each takes")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the report")
    given = parser.parse_args(argv)
    return Options(given.cells, given.launches, given.launch_ms, given.output)


def end_politely(number: int, frame: FrameType | None) -> None:
    """SIGTERM and a closed terminal stop everything as Ctrl-C does."""
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_politely)
    try:
        report = run(options)
    except KeyboardInterrupt:
        print("\nStopped; everything that the demo started has ended.", file=sys.stderr)
        return 130
    except (AssertionError, ClientError, OSError, RuntimeError) as error:
        print(f"\nThe demo could not run to its end: {error}", file=sys.stderr)
        return 1
    print_summary(report)
    complaints = report.complaints()
    for complaint in complaints:
        print(f"\nThis does not hold: {complaint}", file=sys.stderr)
    print(f"\nWritten: {options.folder / 'demo-report.json'}, demo-timeline.png")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
