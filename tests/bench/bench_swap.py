"""How fast memory follows the turn: two clients, each of which holds as much as the device has for
all of them, hand the device over to each other; beside the plain pinned copy of the same run.

Hand-overs are timed from the giver's end of cell (its drop) to the taker's first launch, by the
clients' clocks; parks and restores alone by NVML's used bytes, as an onlooker sees them. Raw
samples go to `swap-samples.json` beside the report. The last line is JSON; the status is 1 where a
bar is missed or a byte was wrong.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import subprocess
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
    built_tenant,
    swapping_scheduler,
)
from tests.support.paths import BUILD, ROOT
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import GIB, MIB

SIMULATED_BAR = 0.85
FIRST_PARK_GBPS_BAR = 12.0
FIRST_PARK_CORES = 16
CHUNK_BYTES = 64 * MIB  # CHUNK_BYTES_MAX of hook/src/memory/chunks.h
KINDS = {"plain": 0, "mapped": 1, "async": 2}  # as memory_tenant.c numbers them
BLOCKS = {"2MiB": 2 * MIB, "20MiB": 20 * MIB, "64MiB": 64 * MIB, "1GiB": GIB}
STEP_S = 300.0
CLEANED_BYTES_PER_S = 100e9
"""A driver cleans what was freed, with a copy engine. 16 GiB take an H200 80 ms, in which plain
copies to the device go at half their speed, too; a restore that is timed alone begins later."""
HOST_PARTS = 8
"""So many processes touch the host's memory before anything is timed."""


@dataclass(frozen=True)
class Held:
    """What each client allocates."""

    blocks: int
    block_bytes: int
    kind: int = 0

    @property
    def size(self) -> int:
        return self.blocks * self.block_bytes


@dataclass(frozen=True)
class Result:
    """The last line. Rates are medians, in 10^9 bytes per second; `copy_gbps_limit` is the plain
    copy's, each way of both at once."""

    device: str
    bytes_each_way: int
    copy_gbps_limit: float
    handoff_gbps: float
    ratio_to_limit: float
    park_gbps: float
    restore_gbps: float
    first_park_gbps: float
    checksums_ok: bool
    park_ratio: float
    restore_ratio: float


@dataclass(frozen=True)
class Floors:
    """What a real device has to reach at least, of the plain copies' rates."""

    hand_over: float
    park: float
    restore: float


LARGE = Floors(hand_over=0.90, park=0.97, restore=0.97)
SMALLER = {
    20 * MIB: Floors(hand_over=0.60, park=0.95, restore=0.95),
    2 * MIB: Floors(hand_over=0.45, park=0.80, restore=0.65),
}
"""Blocks that are chunks of their own. Each is mapped by itself, which waits for the copies of the
other process; docs/results.md has what was measured before these were written."""


def floors_of(held: Held) -> Floors:
    """A pool has its memory in segments of 64 MiB, whatever is allocated from it."""
    is_pooled = held.kind == KINDS["async"]
    return LARGE if is_pooled else SMALLER.get(held.block_bytes, LARGE)


@dataclass(frozen=True)
class Moved:
    """So many bytes in so much time."""

    bytes: int
    ns: int

    @property
    def gbps(self) -> float:
        return self.bytes / self.ns


@dataclass
class Samples:
    """All that was measured."""

    plain_ns: dict[str, list[int]] = field(default_factory=dict)
    first_park: list[Moved] = field(default_factory=list)
    handoffs: list[Moved] = field(default_factory=list)
    parks: list[Moved] = field(default_factory=list)
    restores: list[Moved] = field(default_factory=list)


def plain_copies(machine: Machine, size: int, rounds: int) -> dict[str, list[int]]:
    """Nanoseconds for `size` bytes: out, in, and both ways at once."""
    program = built_tenant(source=ROOT / "tests" / "bench" / "plain_copy.c")
    command = [str(program), str(size), str(rounds)]
    output = subprocess.check_output(command, env=machine.env, text=True, timeout=STEP_S)
    rows = (line.split() for line in output.splitlines())
    return {kind: [int(ns) for ns in times] for kind, *times in rows}


class Contest:
    """Two clients and what an onlooker sees of the device. Each holds so many blocks."""

    def __init__(
        self,
        scheduler: SchedulerUnderTest,
        tenants: MemoryTenants,
        used: UsedBytes,
        held: Held,
    ) -> None:
        self._scheduler = scheduler
        self._used = used
        self._held = held
        self._size = held.size
        self.samples = Samples()
        self.clients = [tenants.start(name) for name in ("alice", "bob")]
        for client in self.clients:
            client.ok(f"kind {held.kind}")

    def verify(self) -> bool:
        """Whether both still have what they wrote."""
        intact = []
        for client in self.clients:
            client.ok("begin")
            intact.append(client.sums(within_s=STEP_S) == client.expected())
            client.ok("end")
        return all(intact)

    def fill_the_device(self) -> None:
        """Alice takes it all and Bob takes it after her: the first park there is, arena cold."""
        alice, bob = self.clients
        self._take_all(alice, seed=1)
        self.samples.first_park.append(self._park_for(bob))
        bob.ok("free 0")
        bob.ok("sync")
        self._fill(bob, seed=1_000_000)
        bob.ok("end")

    def hand_over(self, giver: MemoryTenant, taker: MemoryTenant) -> None:
        """Both ways at once: the giver has the turn and all of the device until its cell ends."""
        self._nobody_holds()
        giver.ok("begin")
        giver.ok("stamp", within_s=STEP_S)
        moved = self._bytes_parked(taker)
        taker.ok("begin")
        taker.say("stamp")
        self._scheduler.eventually(lambda status: status["devices"][0]["queue"])
        (dropped_ns,) = giver.ok("end")
        result, _, through_ns, _ = taker.heard("stamp", within_s=STEP_S)
        assert result == 0, result
        taker.ok("end")
        self.samples.handoffs.append(Moved(moved, through_ns - dropped_ns))

    def one_way(self, resident: MemoryTenant, other: MemoryTenant) -> None:
        """`resident` has all of the device. The other one frees what it has, parks it by an
        allocation, frees that, and lets it come back."""
        self._free(other)
        self._nobody_holds()
        self.samples.parks.append(self._park_for(other))
        other.ok("free 0")
        other.ok("sync")
        other.ok("end")
        self._nobody_holds()
        time.sleep(self._size / CLEANED_BYTES_PER_S)
        resident.ok("begin")
        asked_ns, through_ns, _ = resident.ok("stamp", within_s=STEP_S)
        resident.ok("end")
        came = self._used.at(through_ns) - self._used.at(asked_ns)
        self.samples.restores.append(Moved(came, through_ns - asked_ns))
        self._take_all(other, seed=len(self.samples.parks))
        resident.cell("stamp")

    def _take_all(self, client: MemoryTenant, seed: int) -> None:
        self._nobody_holds()
        client.ok("begin")
        self._fill(client, seed)
        client.ok("end")

    def _fill(self, client: MemoryTenant, seed: int) -> None:
        client.ok(f"alloc_many {self._held.blocks} {self._held.block_bytes}", within_s=STEP_S)
        client.ok(f"fill_many {self._held.blocks} {seed}", within_s=STEP_S)
        client.held = {
            slot: (seed + slot, self._held.block_bytes) for slot in range(self._held.blocks)
        }

    def _free(self, client: MemoryTenant) -> None:
        client.ok(f"free_many {self._held.blocks}", within_s=STEP_S)
        client.ok("sync")  # then a pool gives back what it has
        client.held.clear()

    def _park_for(self, newcomer: MemoryTenant) -> Moved:
        """The newcomer allocates all of the device at once; it begins a cell and does not end
        it."""
        newcomer.ok("begin")
        asked_ns, had_ns = newcomer.ok(f"alloc_timed 0 {self._size}", within_s=STEP_S)
        lowest = self._used.lowest(asked_ns, had_ns)
        return Moved(self._used.at(asked_ns) - lowest.bytes_used, lowest.at_ns - asked_ns)

    def _nobody_holds(self) -> None:
        """A cell that begins before the turn of the one before it went back would run in that."""
        self._scheduler.eventually(lambda status: not status["devices"][0]["holders"])

    def _bytes_parked(self, client: MemoryTenant) -> int:
        """What the client will have to bring back."""
        tenants = self._scheduler.status()["tenants"]
        (tenant,) = [tenant for tenant in tenants if tenant["name"] == client.name]
        return sum(d["bytes_parked"] for c in tenant["clients"] for d in c["devices"])


@contextmanager
def contest(machine: Machine, folder: Path, held: Held, period_s: float) -> Iterator[Contest]:
    """A scheduler for whom the device is as large as one client's memory and a bit."""
    size = held.size
    limit = f"--GPUShareScheduler.device_bytes_max={size + overhead_bytes(machine, size)}"
    slow = (
        "--GPUShareScheduler.device_reserve_bytes=0",
        "--GPUShareScheduler.quantum_s=600",
        "--GPUShareScheduler.idle_ms=600000",
    )
    with (
        swapping_scheduler(folder / "run", machine.env, limit, *slow) as scheduler,
        watched(folder / "used.txt", machine.env, period_s=period_s) as used,
        MemoryTenants(scheduler, machine.env, folder) as tenants,
    ):
        yield Contest(scheduler, tenants, used, held)


def overhead_bytes(machine: Machine, size: int) -> int:
    """What is on the device besides a client's memory: two contexts with a module, and room for two
    chunks that are on their way."""
    return 2 * CHUNK_BYTES if machine.simulated else max(2 * GIB, size // 16)


def touch_host_memory(size: int) -> None:
    """Use as much of the host's memory once as the run will: a virtual machine that has just
    started gets its pages from its own host only now, which is not what a first park takes."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    touch = f"import mmap; mmap.mmap(-1, {size // HOST_PARTS}, flags={int(flags)})"
    parts = [subprocess.Popen([sys.executable, "-c", touch]) for _ in range(HOST_PARTS)]
    try:
        for part in parts:
            part.wait(timeout=STEP_S)
    finally:
        for part in parts:
            part.kill()


def measure(machine: Machine, folder: Path, held: Held, rounds: int) -> tuple[Samples, bool]:
    """All samples, and whether every checksum was right."""
    if not machine.simulated:
        touch_host_memory(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") * 3 // 4)
    plain = plain_copies(machine, held.size, rounds)
    period_s = 0.002 if machine.simulated else 0.0005
    with contest(machine, folder, held, period_s) as match:
        match.samples.plain_ns = plain
        match.fill_the_device()
        intact = match.verify()
        alice, bob = match.clients
        for _ in range(rounds):
            match.hand_over(bob, alice)
            match.hand_over(alice, bob)
            print(f"hand-over: {match.samples.handoffs[-1].gbps:.2f} GB/s each way", flush=True)
        intact &= match.verify()
        for _ in range(rounds):
            match.one_way(bob, alice)
        intact &= match.verify()
        return match.samples, intact


def result_of(device: str, size: int, samples: Samples, intact: bool) -> Result:
    """Medians of what was measured."""

    def gbps(moved: list[Moved]) -> float:
        return statistics.median(m.gbps for m in moved)

    def plain(kind: str) -> float:
        return size / statistics.median(samples.plain_ns[kind])

    handoff, park, restore = map(gbps, (samples.handoffs, samples.parks, samples.restores))
    return Result(
        device=device,
        bytes_each_way=min(m.bytes for m in samples.handoffs),
        copy_gbps_limit=round(plain("both"), 3),
        handoff_gbps=round(handoff, 3),
        ratio_to_limit=round(handoff / plain("both"), 3),
        park_gbps=round(park, 3),
        restore_gbps=round(restore, 3),
        first_park_gbps=round(gbps(samples.first_park), 3),
        checksums_ok=intact,
        park_ratio=round(park / plain("out"), 3),
        restore_ratio=round(restore / plain("in"), 3),
    )


def bars_of(result: Result, held: Held, simulated: bool) -> list[Bar]:
    """What the figures are held to. Simulated copies take their time by the clock, whoever makes
    them: of that device only the hand-over of large blocks says something."""
    floors = floors_of(held)
    bars = [Bar("checksums that are right", float(result.checksums_ok), at_least=1)]
    if simulated:
        least = SIMULATED_BAR if floors is LARGE else 0
        return [*bars, Bar("hand-over / plain both ways", result.ratio_to_limit, at_least=least)]
    bars += [
        Bar("hand-over / plain both ways", result.ratio_to_limit, at_least=floors.hand_over),
        Bar("park / plain copy out", result.park_ratio, at_least=floors.park),
        Bar("restore / plain copy in", result.restore_ratio, at_least=floors.restore),
    ]
    if (os.cpu_count() or 1) >= FIRST_PARK_CORES:
        first = result.first_park_gbps
        bars.append(Bar("first park", first, at_least=FIRST_PARK_GBPS_BAR, unit="GB/s"))
    return bars


def save(folder: Path, result: Result, samples: Samples) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "swap.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
    raw = {**asdict(samples), "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    (folder / "swap-samples.json").write_text(json.dumps(raw, indent=1) + "\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_swap")
    parser.add_argument("--mib", type=int, default=0, help="what each client holds")
    parser.add_argument("--block", choices=BLOCKS, help="in allocations of so much; else one")
    parser.add_argument("--kind", choices=KINDS, default="plain", help="how they allocate")
    parser.add_argument("--rounds", type=int, default=5, help="hand-overs each way")
    parser.add_argument("--output", type=Path, default=BUILD / "bench", help="for the samples")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as text:
        folder = Path(text)
        machine = choose_machine(folder, bytes_per_device=2 * GIB, context_bytes=0)
        size = options.mib * MIB or (2 * GIB - 2 * CHUNK_BYTES if machine.simulated else 16 * GIB)
        block_bytes = BLOCKS.get(options.block, size)
        blocks = size // block_bytes
        text = f"{size / GIB:.2f} GiB each, in {blocks} blocks ({options.kind})"
        print(f"{machine.device}: two clients of {text}", flush=True)
        held = Held(blocks, block_bytes, KINDS[options.kind])
        samples, intact = measure(machine, folder, held, options.rounds)
    result = result_of(machine.device, blocks * block_bytes, samples, intact)
    save(options.output, result, samples)
    print(f"\n{result.device}, {result.bytes_each_way / GIB:.2f} GiB each way")
    status = exit_status(bars_of(result, held, machine.simulated))
    print(f"samples: {options.output / 'swap-samples.json'}")
    print(json.dumps(asdict(result)))
    return status


if __name__ == "__main__":
    sys.exit(main())
