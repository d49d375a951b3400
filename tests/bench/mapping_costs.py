"""What mapped memory costs on a real GPU, without the hook: the steps by which it comes and goes,
alone and beside another process, and what such a process costs its neighbours. The last part says
what a hand-over can reach at most: copies both ways beside a process that only makes and frees
memory at the same rate, or only maps and unmaps it.

`python -m tests.bench.mapping_costs` prints a table, and the figures as JSON in the last line. It
needs a GPU with 24 GiB free: the simulated one has no copy engines that processes compete for."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from tests.gpu.conftest import real_device_count
from tests.support.memory_tenants import built_tenant
from tests.support.paths import ROOT

MIB, GIB = 1 << 20, 1 << 30
BLOCKS_MIB = (2, 20, 64)
BLOCKS = 32
ROUNDS = 15
TRIMMED_GIB = (1, 8)
BESIDE_S = 3.0
HAND_OVER_GBPS = 45
RESTORES = ((2, 1), (2, 32), (20, 1), (20, 32), (64, 1), (64, 8))
"""The neighbour's block in MiB, and how many of them get their access by one call."""


class Programs:
    """The steps of mapping_costs.c."""

    def __init__(self) -> None:
        self._program = str(built_tenant(source=ROOT / "tests" / "bench" / "mapping_costs.c"))

    def measured(self, *arguments: object) -> dict[str, list[int]]:
        """Nanoseconds by step."""
        command = [self._program, *map(str, arguments)]
        lines = subprocess.check_output(command, text=True, timeout=300).splitlines()
        return {step: [int(each) for each in rest] for step, *rest in map(str.split, lines)}

    @contextmanager
    def beside(self, *arguments: object) -> Iterator[list[float]]:
        """Another process that moves memory for as long as the block lasts; afterwards the list
        has its GB/s."""
        command = [self._program, *map(str, arguments)]
        rate: list[float] = []
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout and process.stdout.readline() == "ready\n"
            try:
                yield rate
            finally:
                said, _ = process.communicate(timeout=60)
        _, moved, took_ns = said.split()
        rate.append(int(moved) / int(took_ns))


def mapping(programs: Programs) -> dict[str, float]:
    """Milliseconds for each mapping, by step."""
    figures = {}
    for beside in ("alone", "beside"):
        for block in BLOCKS_MIB:
            with programs.beside("copies", 0) if beside == "beside" else nullcontext():
                steps = programs.measured("map", block * MIB, BLOCKS, ROUNDS)
            for step, took_ns in steps.items():
                figures[f"{step}_ms_{block}mib_{beside}"] = (
                    statistics.median(took_ns[2:]) / BLOCKS / 1e6
                )
    return figures


def trimming(programs: Programs) -> dict[str, float]:
    """Milliseconds for each call."""
    figures = {}
    for beside in ("alone", "beside"):
        for size in TRIMMED_GIB:
            with programs.beside("copies", 0) if beside == "beside" else nullcontext():
                steps = programs.measured("trim", size << 30, ROUNDS)
            for step, took_ns in steps.items():
                figures[f"{step}_ms_{size}gib_{beside}"] = statistics.median(took_ns) / 1e6
    return figures


def neighbours(programs: Programs) -> dict[str, float]:
    """Medians, in milliseconds, of work beside restores, and the rates of these."""
    figures = {}
    kinds = ("compute", "copy", "alloc")
    for kind in kinds:
        for step, took_ns in programs.measured(kind, BESIDE_S).items():
            figures |= _summary(f"{step}_alone", took_ns)
    for block, batch in RESTORES:
        name = f"restore_{block}mib_by_{batch}"
        with programs.beside("restore", block * MIB, batch) as rate:
            time.sleep(BESIDE_S)
        figures[f"{name}_alone_gbps"] = rate[0]
        for kind in kinds:
            with programs.beside("restore", block * MIB, batch) as rate:
                steps = programs.measured(kind, BESIDE_S)
            figures[f"{name}_beside_{kind}_gbps"] = rate[0]
            for step, took_ns in steps.items():
                figures |= _summary(f"{step}_beside_{name}", took_ns)
    return figures


def hand_overs(programs: Programs) -> dict[str, float]:
    """GB/s each way of copies of 1 GiB both ways."""
    figures = {}
    for block in BLOCKS_MIB:
        for beside in ("alone", "churn", "remap"):
            neighbour = (beside, block * MIB, HAND_OVER_GBPS)
            with programs.beside(*neighbour) if beside != "alone" else nullcontext([]) as rate:
                (took_ns,) = programs.measured("both", BESIDE_S).values()
            figures[f"both_ways_gbps_{block}mib_{beside}"] = GIB / statistics.median(took_ns[1:])
            if rate:
                figures[f"{beside}_gbps_{block}mib"] = rate[0]
    return figures


def _summary(name: str, took_ns: list[int]) -> dict[str, float]:
    ordered = sorted(took_ns)
    return {
        f"{name}_ms_mean": statistics.mean(ordered) / 1e6,
        f"{name}_ms_p50": ordered[len(ordered) // 2] / 1e6,
        f"{name}_ms_p95": ordered[len(ordered) * 95 // 100] / 1e6,
    }


def main() -> int:
    """The whole measurement."""
    if not real_device_count():
        print("This measurement needs a real GPU. Run it on a machine that has one.")
        return 2
    programs = Programs()
    figures: dict[str, float] = {}
    for part in (mapping, trimming, neighbours, hand_overs):
        found = part(programs)
        for name, value in found.items():
            print(f"  {name:<52}{value:>12.4f}", flush=True)
        figures |= found
    print(json.dumps({name: round(value, 5) for name, value in figures.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
