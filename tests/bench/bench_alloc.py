"""What an allocation costs under the hook: its time, and the device memory that small ones take.

`alloc_ratio` is a cuMemAlloc of 2 MiB and its cuMemFree, hooked by bare, medians of interleaved
batches; `small_memory_ratio` is what NVML counts for 10,000 allocations of 4 KiB, likewise.
`query_under_park_ratio` is what 99 of 100 questions about an address take at most while another
process makes the asking one park, by the same while nothing moves, the median of three. Raw samples
go to `alloc-samples.json` beside the report. The last line is JSON; the status is
1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench.bars import Bar, exit_status
from tests.bench.device_memory import UsedBytes, watched
from tests.support.machine import Machine, choose_machine
from tests.support.memory_tenants import (
    MemoryTenant,
    MemoryTenants,
    bare_tenant,
    swapping_scheduler,
)
from tests.support.paths import BUILD
from tests.support.sim import GIB, MIB

ALLOC_RATIO_BAR = 2.0
SMALL_MEMORY_RATIO_BAR = 1.10
QUERY_RATIO_BAR = 2.0
QUERY_ROUNDS = 3
HELD_BYTES, RIVAL_BYTES = 1 * GIB, 1280 * MIB
PAIRS_PER_BATCH = 100
SMALL_COUNT, SMALL_BYTES = 10_000, 4096
SETTLED_S = 0.5


@dataclass(frozen=True)
class Result:
    """The last line."""

    device: str
    alloc_us_bare: float
    alloc_us_hooked: float
    alloc_ratio: float
    small_bytes_bare: int
    small_bytes_hooked: int
    small_memory_ratio: float
    query_idle_ns: int
    query_under_park_ns: int
    query_under_park_ratio: float


@dataclass(frozen=True)
class Samples:
    bare_ns: list[int]
    hooked_ns: list[int]
    query_idle_ns: list[int] = field(default_factory=list)
    query_under_park_ns: list[int] = field(default_factory=list)


def time_pairs(bare: MemoryTenant, hooked: MemoryTenant, batches: int) -> Samples:
    """Interleaved, so that a change of the machine's mood meets both alike."""
    samples = Samples([], [])
    for _ in range(batches):
        samples.bare_ns.extend(bare.ok(f"pairs {PAIRS_PER_BATCH} {2 * MIB}"))
        samples.hooked_ns.extend(hooked.ok(f"pairs {PAIRS_PER_BATCH} {2 * MIB}"))
    return samples


def small_bytes(client: MemoryTenant, used: UsedBytes) -> int:
    """What so many small allocations take of the device."""
    before = settled(used)
    client.ok(f"alloc_many {SMALL_COUNT} {SMALL_BYTES}")
    taken = settled(used) - before
    for slot in range(SMALL_COUNT):
        client.say(f"free {slot}")
    for _ in range(SMALL_COUNT):
        assert client.heard("free")[0] == 0
    return taken


def slowest_answer(client: MemoryTenant) -> int:
    """Of 99 in 100; enough were asked for the number to mean something."""
    client.say("!enough")
    result, took_ns, count = client.heard("questions")
    assert result == 0 and count > 10_000, (result, count)
    return took_ns


def time_questions(
    hooked: MemoryTenant, rival: MemoryTenant, used: UsedBytes, samples: Samples, rounds: int
) -> None:
    """Both together have more than the device, so that the rival makes the other's memory leave."""
    scale = max(1, hooked.ok("info")[1] // (2 * GIB))
    hooked.ok(f"alloc 0 {HELD_BYTES * scale}")
    hooked.ok("end")
    for _ in range(rounds):
        hooked.say("questions 0")
        time.sleep(SETTLED_S)
        samples.query_idle_ns.append(slowest_answer(hooked))
        rival.ok("begin")
        hooked.say("questions 0")
        rival.ok(f"alloc 0 {RIVAL_BYTES * scale}", within_s=60)
        samples.query_under_park_ns.append(slowest_answer(hooked))
        rival.ok("free 0")
        rival.ok("end")
        settled(used)
        hooked.cell("spin 0")  # brings it back


def settled(used: UsedBytes) -> int:
    """The used bytes, once they have not changed for a while that begins now."""
    began_ns = time.monotonic_ns()
    while time.monotonic_ns() - max(began_ns, used.samples()[-1].at_ns) < SETTLED_S * 1e9:
        time.sleep(0.05)
    return used.samples()[-1].bytes_used


def measure(
    machine: Machine, folder: Path, batches: int, query_rounds: int
) -> tuple[Result, Samples]:
    """The hooked client holds its turn throughout, and nobody waits."""
    with (
        swapping_scheduler(folder / "run", machine.env) as scheduler,
        watched(folder / "used.txt", machine.env, period_s=0.01) as used,
        MemoryTenants(scheduler, machine.env, folder) as tenants,
        bare_tenant(machine.env) as bare,
    ):
        hooked = tenants.start("hooked")
        hooked.ok("begin")
        for client in (bare, hooked):
            client.ok("stamp")
            client.ok(f"pairs {PAIRS_PER_BATCH} {2 * MIB}")  # warms up
        samples = time_pairs(bare, hooked, batches)
        small = [small_bytes(client, used) for client in (bare, hooked)]
        rival = tenants.start("rival")
        time_questions(hooked, rival, used, samples, query_rounds)
    bare_us, hooked_us = (
        statistics.median(ns) / 1e3 for ns in (samples.bare_ns, samples.hooked_ns)
    )
    result = Result(
        device=machine.device,
        alloc_us_bare=round(bare_us, 2),
        alloc_us_hooked=round(hooked_us, 2),
        alloc_ratio=round(hooked_us / bare_us, 3),
        small_bytes_bare=small[0],
        small_bytes_hooked=small[1],
        small_memory_ratio=round(small[1] / small[0], 3),
        query_idle_ns=int(statistics.median(samples.query_idle_ns)),
        query_under_park_ns=int(statistics.median(samples.query_under_park_ns)),
        query_under_park_ratio=round(
            statistics.median(samples.query_under_park_ns)
            / statistics.median(samples.query_idle_ns),
            3,
        ),
    )
    return result, samples


def bars_of(result: Result) -> list[Bar]:
    """The first two are shares of what the driver takes by itself."""
    small = result.small_memory_ratio
    return [
        Bar("2 MiB allocated and freed", result.alloc_ratio, at_most=ALLOC_RATIO_BAR),
        Bar("10,000 x 4 KiB, device bytes", small, at_most=SMALL_MEMORY_RATIO_BAR),
        Bar("questions during a park", result.query_under_park_ratio, at_most=QUERY_RATIO_BAR),
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_alloc")
    parser.add_argument("--batches", type=int, default=20, help="interleaved, of each kind")
    parser.add_argument("--query-rounds", type=int, default=QUERY_ROUNDS, help="parks asked during")
    parser.add_argument("--output", type=Path, default=BUILD / "bench", help="for the samples")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as text:
        machine = choose_machine(Path(text), bytes_per_device=2 * GIB)
        result, samples = measure(machine, Path(text), options.batches, options.query_rounds)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "alloc-samples.json").write_text(json.dumps(asdict(samples)) + "\n")
    print(f"\n{result.device}, hooked / the driver's own")
    status = exit_status(bars_of(result))
    print(f"samples: {options.output / 'alloc-samples.json'}")
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
