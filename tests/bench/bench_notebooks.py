"""How long notebooks wait whose memory does not fit on the device at once: eight tenants that have
1.14 of its memory in all, people who think for an exponential time, and cells that touch all their
memory and compute.

The scheduler and the hook are those of production, with their default settings. Each notebook is a
process (notebook.c); each cell checks a fourth of its bytes and
writes an eighth of them anew, and in the end all bytes are checked. Sizes follow
from the device: on a real one that is all of its memory, or what is free where somebody else uses
it. Nothing here is managed memory, and the hooks keep to the scheduler's budgets, so that all
processes together never ask for more than the device has.

- `latency_s`: from the beginning of a cell to the end of its work, by the process's clock.
- `ideal_s`: the same arrivals and the same work with free transfers. Each cell of the run comes at
  the moment at which it really came, to the scheduler's core in virtual time, on a device on which
  all memory is always there. Its work is what a cell takes alone with its memory there, the median
  of some cells before the run. People wait for their cells before they think again, so a slow run
  has fewer arrivals, and a lower ideal, than a fast one: a ratio is never better for that.
- `ahead_share`, `bytes_moved_ratio` (to the least that any choice of victims needs) and
  `bytes_moved_blind_ratio` (to what a choice without knowledge of the future needs): from the
  scheduler's journal (moves.py).
- `work_slower_percent`: how much longer than alone the cells' own work took in the run, of cells
  that were not paused in the middle.
- `interference_percent`: how much longer such cells computed while another notebook's memory came
  back.
  Where that happens to too few cells, plain processes stand in on a real device (beside.py).
  `beside` says which it was. The bars are for a restore ahead, which makes way, and do not count
  for a stand-in.
- `interference_copy_percent` and `alloc_ms_p95_beside`: of cells that copy, or allocate, while
  another notebook with parked memory is next (beside_ahead.py).
- A figure that could not be measured is null, and `unmeasured` says why.

The last line is JSON; the status is 1 where a bar is missed or a byte was wrong. Raw samples go to
`notebooks-samples.json`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from tests.bench.bench_swap import touch_host_memory
from tests.bench.beside import measure_beside
from tests.bench.beside_ahead import measure_beside_ahead
from tests.bench.moves import History, history_of, read_journal
from tests.bench.notebook_people import Person, at_work
from tests.bench.notebook_plan import (
    Plan,
    arguments,
    device_memory,
    host_bytes_available,
    planned,
    settings_of,
    simulated_device,
)
from tests.bench.notebook_report import Result, Samples, result_of, tell
from tests.support.machine import Machine, choose_machine
from tests.support.memory_tenants import MemoryTenants, built_tenant, swapping_scheduler
from tests.support.paths import ROOT
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import GIB

ALONE_CELLS = 3
HOST_TOUCHED = 0.4
"""Of the notebooks' memory: so much of the host's is used once before anything is timed."""
READY_S = 120.0


# ---- the run ------------------------------------------------------------------------------------


def play(
    machine: Machine, folder: Path, plan: Plan, *, started_s: float
) -> tuple[Samples, History]:
    """All cells, and what the scheduler's journal says. The benchmark began at `started_s`."""
    journal = folder / "journal.jsonl"
    options = [f"--journal={journal}", *settings_of(plan, machine.simulated)]
    program = built_tenant(source=ROOT / "tests" / "bench" / "notebook.c")
    samples = Samples()
    with (
        swapping_scheduler(folder / "run", machine.env, *options) as scheduler,
        MemoryTenants(scheduler, machine.env, folder, program=program) as tenants,
    ):
        people = [
            Person(
                number,
                tenants.start(f"notebook-{number}", opened=""),
                seed=plan.seed,
                thinking_s=plan.thinking_s,
            )
            for number in range(plan.tenants)
        ]
        samples.pids = [person.tenant.process.pid for person in people]
        set_up(people, plan, samples)
        park_everybody(people, scheduler)
        at_work(people, plan.warm_up_s, plan.work_s)
        samples.from_s = time.monotonic()
        seconds = plan.seconds_that_count(samples.from_s - started_s)
        print(f"{seconds:.1f} s count", flush=True)
        samples.ran = at_work(people, seconds, plan.work_s)
        samples.to_s = time.monotonic()
        if not samples.ran:
            raise SystemExit("No cell began in the time that counts. Give more --seconds.")
        for person in people:
            person.run_cell(0.0)
        samples.intact = True  # a wrong byte has ended it
    return samples, history_of(read_journal(journal))


def set_up(people: Sequence[Person], plan: Plan, samples: Samples) -> None:
    """Everybody's memory is there and written, and the first cells tell what one takes alone."""
    for person in people:
        person.tenant.say("open")
    for person in people:
        result, *_ = person.tenant.heard("open", within_s=READY_S)
        if result:
            raise RuntimeError(f"the device cannot be opened: {result}")
    for person in people:
        person.tenant.ok(f"hold {plan.blocks} {plan.block_bytes}", within_s=READY_S)
        person.run_cell(0.0)
        samples.alone += [person.run_cell(plan.work_s) for _ in range(ALONE_CELLS)]


def park_everybody(people: Sequence[Person], scheduler: SchedulerUnderTest) -> None:
    """The first park of a process waits for the host to make memory ready, once. Notebooks live for
    hours, so each has been parked, and has come back, before anything counts."""
    for person in people:
        tenant = person.tenant.tenant_id
        scheduler.client.evict_tenant(tenant)

        def is_parked(status: dict[str, Any], tenant: str = tenant) -> bool:
            (row,) = (each for each in status["tenants"] if each["id"] == tenant)
            return all(m["bytes_resident"] <= m["bytes_fixed"] for m in row["memory"])

        scheduler.eventually(is_parked)
        person.run_cell(0.0)


@contextmanager
def ended_in_order(limit_s: float) -> Iterator[None]:
    """Where somebody ends the benchmark, or it takes longer than that, it ends by an exception. No
    process of it is left then, whatever it was doing."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)

    def end(number: int, frame: FrameType | None) -> None:
        for each in numbers:  # what tidies up is not ended
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(f"The benchmark was ended by {signal.Signals(number).name}.")

    before = [signal.signal(number, end) for number in numbers]
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    except BaseException:
        for child in children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def children() -> list[int]:
    """The processes that this one has started and that are still there."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            after_name = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == os.getpid():
                found.append(int(entry.parent.name))
    return found


def save(folder: Path, result: Result, plan: Plan, samples: Samples, history: History) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "notebooks.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
    raw = {
        "plan": asdict(plan),
        **asdict(samples),
        "turns": [asdict(t) for t in history.turns if t.asked_at_s >= samples.from_s],
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    (folder / "notebooks-samples.json").write_text(json.dumps(raw, indent=1) + "\n")


def main(argv: list[str] | None = None) -> int:
    options, started_s = arguments().parse_args(argv), time.monotonic()
    with (
        ended_in_order(options.limit_s),
        tempfile.TemporaryDirectory(prefix="gpushare-bench-") as text,
    ):
        folder = Path(text)
        simulated_one = simulated_device(options)
        machine = choose_machine(folder, **simulated_one)
        size = simulated_one["bytes_per_device"]
        total, free = (size, size) if machine.simulated else device_memory()
        plan = planned(options, total_bytes=total, free_bytes=free)
        print(
            f"{machine.device}: {total / GIB:.2f} GiB, {free / GIB:.2f} of them free. "
            f"{plan.tenants} notebooks of {plan.tenant_bytes / GIB:.2f} GiB on "
            f"{plan.device_bytes / GIB:.2f} GiB, seed {plan.seed}",
            flush=True,
        )
        needed = plan.host_bytes + (plan.all_bytes if machine.simulated else 0)
        if needed > (available := host_bytes_available()):
            print(
                f"This takes {needed / GIB:.1f} GiB of host memory, and {available / GIB:.1f} are "
                f"available. Give a smaller --device-gib."
            )
            return 2
        if not machine.simulated:
            touch_host_memory(int(plan.all_bytes * HOST_TOUCHED))
        beside = measure_beside(machine, options.beside_s, free)
        beside_ahead = {} if beside.why else measure_beside_ahead(machine, folder)
        samples, history = play(machine, folder, plan, started_s=started_s)
    result = result_of(
        machine.device,
        plan,
        samples,
        history,
        beside,
        beside_ahead=beside_ahead,
        simulated=machine.simulated,
    )
    save(options.output, result, plan, samples, history)
    status = tell(result, machine.simulated)
    print(f"samples: {options.output / 'notebooks-samples.json'}")
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
