"""What an allocation costs under the hook: its time, and the device memory that small ones take.

`alloc_ratio` is a cuMemAlloc of 2 MiB and its cuMemFree, hooked by bare, medians of interleaved
batches; `small_memory_ratio` is what NVML counts for 10,000 allocations of 4 KiB, likewise.
`query_under_park_ratio` is what 99 of 100 questions about an address take at most while another
process makes the asking one park, by the same while nothing moves, the median of three. Raw samples
go to `alloc-samples.json` beside the report. The last line is JSON; the status is
1 where a bar is missed.

The other kinds of memory, hooked by bare, too: `async_alloc_ratio` is a cuMemAllocAsync of 2 MiB
and its cuMemFreeAsync in one stream; `mapped_create_ratio` is a life of memory of the driver's
mapped kind (create, map, set access, unmap, release), the worse of 2 and 64 MiB, and
`mapped_create_large_ratio` one of 256 MiB. `live_100k_ratio` is an allocation of 4 KiB and its free
beside 100,000 live ones, by the same beside 100, both hooked. Bare and hooked calls come from one
CPU: where one CPU is slower than another, the choice of CPUs would decide.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
ASYNC_RATIO_BAR = 2.0
MAPPED_RATIO_BAR, MAPPED_LARGE_RATIO_BAR = 1.5, 4.0
LIVE_RATIO_BAR = 2.0
QUERY_ROUNDS = 3
HELD_BYTES, RIVAL_BYTES = 1 * GIB, 1280 * MIB
PAIRS_PER_BATCH = 100
SMALL_COUNT, SMALL_BYTES = 10_000, 4096
FEW_LIVE, MANY_LIVE = 100, 100_000
SETTLED_S = 0.5
OTHER_KINDS = {
    "async": f"pairs_async {PAIRS_PER_BATCH} {2 * MIB}",
    "mapped": f"pairs_mapped {PAIRS_PER_BATCH} {2 * MIB}",
    "mapped_64": f"pairs_mapped {PAIRS_PER_BATCH} {64 * MIB}",
    "mapped_256": f"pairs_mapped {PAIRS_PER_BATCH} {256 * MIB}",
}
"""Commands that time them."""


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
    async_alloc_ratio: float
    mapped_create_ratio: float
    mapped_create_large_ratio: float
    live_100k_ratio: float


@dataclass(frozen=True)
class Samples:
    bare_ns: list[int]
    hooked_ns: list[int]
    other_kinds_ns: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """By kind, `bare` and `hooked`."""
    live_ns: dict[int, list[int]] = field(default_factory=dict)
    """By the number of allocations beside."""
    query_idle_ns: list[int] = field(default_factory=list)
    query_under_park_ns: list[int] = field(default_factory=list)


def time_pairs(bare: MemoryTenant, hooked: MemoryTenant, batches: int) -> Samples:
    """Interleaved, so that a change of the machine's mood meets both alike."""
    samples = Samples([], [])
    for _ in range(batches):
        samples.bare_ns.extend(bare.ok(f"pairs {PAIRS_PER_BATCH} {2 * MIB}"))
        samples.hooked_ns.extend(hooked.ok(f"pairs {PAIRS_PER_BATCH} {2 * MIB}"))
    return samples


@contextmanager
def on_one_cpu(*clients: MemoryTenant) -> Iterator[None]:
    """The threads that call, alone: what works for them may be anywhere."""
    cpu = max(os.sched_getaffinity(0))
    for client in clients:
        client.ok(f"pin {cpu}")
    yield
    for client in clients:
        client.ok("unpin")


def time_other_kinds(
    bare: MemoryTenant, hooked: MemoryTenant, samples: Samples, batches: int
) -> None:
    """Interleaved, too. The first of each warms up."""
    clients = {"bare": bare, "hooked": hooked}
    for kind, command in OTHER_KINDS.items():
        taken = samples.other_kinds_ns[kind] = {name: [] for name in clients}
        for client in clients.values():
            client.ok(command)
        for _ in range(batches):
            for name, client in clients.items():
                taken[name] += client.ok(command)


def time_beside_live_ones(hooked: MemoryTenant, samples: Samples, batches: int) -> None:
    """Small ones, beside few that stay and beside many."""
    there = 0
    for count in (FEW_LIVE, MANY_LIVE):
        hooked.ok(f"ballast {count - there} {SMALL_BYTES}", within_s=120)
        there = count
        hooked.ok(f"pairs {PAIRS_PER_BATCH} {SMALL_BYTES}")
        took_ns = samples.live_ns[count] = []
        for _ in range(batches):
            took_ns += hooked.ok(f"pairs {PAIRS_PER_BATCH} {SMALL_BYTES}")


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
        with on_one_cpu(bare, hooked):
            samples = time_pairs(bare, hooked, batches)
            time_other_kinds(bare, hooked, samples, batches)
        small = [small_bytes(client, used) for client in (bare, hooked)]
        rival = tenants.start("rival")
        time_questions(hooked, rival, used, samples, query_rounds)
        hooked.ok("begin")
        hooked.ok("free 0")
        time_beside_live_ones(hooked, samples, batches)
        hooked.ok("end")
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
        async_alloc_ratio=kind_ratio(samples, "async"),
        mapped_create_ratio=max(kind_ratio(samples, "mapped"), kind_ratio(samples, "mapped_64")),
        mapped_create_large_ratio=kind_ratio(samples, "mapped_256"),
        live_100k_ratio=round(
            statistics.median(samples.live_ns[MANY_LIVE])
            / statistics.median(samples.live_ns[FEW_LIVE]),
            3,
        ),
    )
    return result, samples


def kind_ratio(samples: Samples, kind: str) -> float:
    """Hooked by bare."""
    taken = samples.other_kinds_ns[kind]
    return round(statistics.median(taken["hooked"]) / statistics.median(taken["bare"]), 3)


def bars_of(result: Result, simulated: bool) -> list[Bar]:
    """Most are shares of what the driver takes by itself. The simulated one takes 0.2 us for an
    allocation in a stream and its free, so of that device their share says nothing."""
    small = result.small_memory_ratio
    bars = [
        Bar("2 MiB allocated and freed", result.alloc_ratio, at_most=ALLOC_RATIO_BAR),
        Bar("10,000 x 4 KiB, device bytes", small, at_most=SMALL_MEMORY_RATIO_BAR),
        Bar("questions during a park", result.query_under_park_ratio, at_most=QUERY_RATIO_BAR),
        Bar("mapped, to 64 MiB", result.mapped_create_ratio, at_most=MAPPED_RATIO_BAR),
        Bar("mapped, 256 MiB", result.mapped_create_large_ratio, at_most=MAPPED_LARGE_RATIO_BAR),
        Bar("4 KiB beside 100,000, by 100", result.live_100k_ratio, at_most=LIVE_RATIO_BAR),
    ]
    if not simulated:
        bars.append(Bar("2 MiB in a stream", result.async_alloc_ratio, at_most=ASYNC_RATIO_BAR))
    return bars


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
    status = exit_status(bars_of(result, machine.simulated))
    print(f"samples: {options.output / 'alloc-samples.json'}")
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
