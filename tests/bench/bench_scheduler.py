"""What an event costs the scheduler's core, and what the status costs, with 10 to 10,000 tenants;
and how long HTTP requests wait while one of 200 tenants floods the real process.

The mix (tests/bench/mix.py, docs/scheduling-costs.md) is always the same: four tenants of each
device work at one moment, in short turns, of which more than one in five is recalled; more than one
event in four leads to a grant; memory follows the turn, and beside ten tenants or a hundred there
is more of it than the devices have. Two nodes are measured, since an event could cost more for two
reasons:

- `node`: 8 devices, however many tenants there are, so that ever more tenants share a device;
- `fleet`: a device for 25 tenants, so that there are ever more devices.

Of both, the worse figure counts. Times are of the processor, on one core: those of `handle` alone,
with all that keeps a failed event from leaving anything behind. The last line is JSON; the status
is 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf, nan
from pathlib import Path

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Command
from jupyter_gpushare.core.ids import Seconds
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from tests.bench.bars import Bar, exit_status
from tests.bench.flood import FloodOptions, flood_bar, measure_flood
from tests.bench.mix import Mix
from tests.support.timeline import median, percentile

EVENTS_PER_S_BAR = 5000.0
DECISION_US_P99_BAR = 1000.0
GROWTH_BAR = 3.0
STATUS_MS_BAR = 5.0
GRANTS_PER_EVENT_BAR = 0.25
RECALLS_PER_GRANT_BAR = 0.2
TENANTS = (10, 100, 1_000, 10_000)
WARM_UP_S = 1.5
"""Of virtual time: all processes have answered what they were told at the start."""
EVENTS = 20_000
STATUS_EVERY = 500
SHAPES: dict[str, Callable[[int], int]] = {
    "node": lambda tenants: min(8, max(1, tenants // 5)),
    "fleet": lambda tenants: max(1, tenants // 25),
}
"""How many devices there are."""


@dataclass(frozen=True)
class Cost:
    """Of one node."""

    shape: str
    tenants: int
    devices: int
    events_per_s: float
    decision_us_p50: float
    decision_us_p99: float
    decision_us_max: float
    status_ms: float
    grants_per_event: float
    recalls_per_grant: float

    def line(self) -> str:
        """For a table."""
        return (
            f"  {self.shape:<6}{self.tenants:>7,}{self.devices:>8}{self.events_per_s:>11,.0f}"
            f"{self.decision_us_p50:>9.0f}{self.decision_us_p99:>9.0f}"
            f"{self.decision_us_max:>10,.0f}{self.status_ms:>11.2f}"
            f"{self.grants_per_event:>9.2f}{self.recalls_per_grant:>10.2f}"
        )


HEAD = (
    f"  {'':<6}{'tenants':>7}{'devices':>8}{'events/s':>11}{'p50 us':>9}{'p99 us':>9}"
    f"{'max us':>10}{'status ms':>11}{'grants':>9}{'recalls':>10}"
)


@dataclass(frozen=True)
class Result:
    """The last line; None for what was not measured."""

    events_per_s_1000: float | None
    decision_us_p99_1000: float | None
    growth_100_to_10000: float | None
    status_ms_1000: float | None
    grants_per_event: float
    recalls_per_grant: float
    http_ms_p999_under_flood: float


def measure(shape: str, tenants: int, events: int) -> Cost:
    """A node with so many tenants, after it has warmed up."""
    scheduler = Scheduler(
        SchedulerSettings(memory_mode=MemoryMode.SWAP, quantum_s=2, clients_max=2 * tenants)
    )
    taken_ns: list[int] = []

    def handle(event: ev.Event, now_s: Seconds) -> list[Command]:
        before_ns = time.thread_time_ns()
        commands = scheduler.handle(event, now_s=now_s)
        taken_ns.append(time.thread_time_ns() - before_ns)
        return commands

    devices = SHAPES[shape](tenants)
    mix = Mix(handle, tenants=tenants, devices=devices)
    until_s = mix.now_s + WARM_UP_S
    while mix.now_s < until_s:
        mix.step()
    scheduler.snapshot(mix.now_s)
    gc.collect()
    for counted in (taken_ns, mix.events, mix.commands):
        counted.clear()
    status_ms = []
    for _ in range(events // STATUS_EVERY):
        mix.run(STATUS_EVERY)
        before_ns = time.thread_time_ns()
        scheduler.snapshot(mix.now_s)
        status_ms.append((time.thread_time_ns() - before_ns) / 1e6)
    grants = mix.commands["GrantTurn"]
    return Cost(
        shape=shape,
        tenants=tenants,
        devices=devices,
        events_per_s=1e9 * len(taken_ns) / sum(taken_ns),
        decision_us_p50=percentile(taken_ns, 50) / 1e3,
        decision_us_p99=percentile(taken_ns, 99) / 1e3,
        decision_us_max=max(taken_ns) / 1e3,
        status_ms=median(status_ms),
        grants_per_event=grants / mix.events.total(),
        recalls_per_grant=mix.commands["RecallTurn"] / grants,
    )


def growth(costs: list[Cost]) -> float | None:
    """How many times more an event costs with 10,000 tenants than with 100, on the worse node."""
    rates = {(cost.shape, cost.tenants): cost.events_per_s for cost in costs}
    found = [
        rates[shape, 100] / rates[shape, 10_000]
        for shape in SHAPES
        if {(shape, 100), (shape, 10_000)} <= rates.keys()
    ]
    return max(found, default=None)


def result_of(costs: list[Cost], http_ms: float) -> Result:
    """The worse of both nodes."""
    thousand = [cost for cost in costs if cost.tenants == 1_000]
    return Result(
        events_per_s_1000=_rounded(min((c.events_per_s for c in thousand), default=None), 0),
        decision_us_p99_1000=_rounded(max((c.decision_us_p99 for c in thousand), default=None), 1),
        growth_100_to_10000=_rounded(growth(costs), 2),
        status_ms_1000=_rounded(max((c.status_ms for c in thousand), default=None), 3),
        grants_per_event=round(min(cost.grants_per_event for cost in costs), 3),
        recalls_per_grant=round(min(cost.recalls_per_grant for cost in costs), 3),
        http_ms_p999_under_flood=round(http_ms, 1),
    )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def bars_of(result: Result) -> list[Bar]:
    """What the figures are held to; those that were not measured miss their bars."""

    def bar(
        name: str, value: float | None, unit: str, *, at_least: float = -inf, at_most: float = inf
    ) -> Bar:
        return Bar(
            name, nan if value is None else value, at_least=at_least, at_most=at_most, unit=unit
        )

    return [
        bar(
            "events, 1,000 tenants",
            result.events_per_s_1000,
            "a second",
            at_least=EVENTS_PER_S_BAR,
        ),
        bar(
            "an event, 99 of 100, 1,000 tenants",
            result.decision_us_p99_1000,
            "us",
            at_most=DECISION_US_P99_BAR,
        ),
        bar(
            "an event, 10,000 by 100 tenants",
            result.growth_100_to_10000,
            "times",
            at_most=GROWTH_BAR,
        ),
        bar("status, 1,000 tenants", result.status_ms_1000, "ms", at_most=STATUS_MS_BAR),
        bar("grants", result.grants_per_event, "an event", at_least=GRANTS_PER_EVENT_BAR),
        bar("recalls", result.recalls_per_grant, "a grant", at_least=RECALLS_PER_GRANT_BAR),
        flood_bar(result.http_ms_p999_under_flood),
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_scheduler")
    parser.add_argument("--events", type=int, default=EVENTS, help="of each node")
    parser.add_argument("--tenants", type=int, nargs="+", default=TENANTS)
    FloodOptions.add_to(parser)
    options = parser.parse_args(argv)
    print(HEAD, flush=True)
    costs = []
    for shape in SHAPES:
        for tenants in options.tenants:
            costs.append(measure(shape, tenants, options.events))
            print(costs[-1].line(), flush=True)
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as folder:
        http_ms = measure_flood(Path(folder), FloodOptions.of(options))
    result = result_of(costs, http_ms)
    print()
    status = exit_status(bars_of(result))
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
