"""Four notebooks share one GPU while you watch; `demo-report.json` and `demo-timeline.png` say
what happened. On a machine without a GPU it runs on the simulated one, and says so.
This is the form that needs no hub: a scheduler and four kernels."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.demo.memory import choose_small_machine, small_device
from tests.demo.options import Options, read_options
from tests.demo.performance import perform, run_to_the_end, summary, tell, write_down
from tests.demo.scenes import NAMES
from tests.demo.stage import Stage, new_view, print_device
from tests.support.kernels import Kernel, kernel_env
from tests.support.scheduler_process import running_scheduler


def set_up(stack: ExitStack) -> Stage:
    """Everything that it starts ends with the stack."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-demo-")))
    machine = choose_small_machine(folder)
    print_device(machine)
    scheduler = stack.enter_context(
        running_scheduler(folder / "run", env={"CUDA_VISIBLE_DEVICES": "0", **machine.env})
    )
    env = kernel_env(machine.env, scheduler.directory)
    kernels = [stack.enter_context(Kernel(env, name=name)) for name in NAMES]
    return Stage(machine, scheduler.client, kernels, new_view())


def run(options: Options) -> int:
    began_s = time.monotonic()
    with ExitStack() as stack:
        stage = set_up(stack)
        device_bytes = stack.enter_context(small_device(stage.machine))
        report, acts = perform(stage, options, device_bytes=device_bytes, began_s=began_s)
    write_down(report, acts, report.device, options)
    return tell(summary(report), report, options.folder)


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv, __doc__)
    return run_to_the_end(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
