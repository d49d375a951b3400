"""A rival that wants memory as well as time: it holds MIB of it, looks at all of it in every turn,
and never stops asking.

usage: rival_memory MIB SECONDS. Prints `ready`, and a report when it ends by itself."""

from __future__ import annotations

import sys
import time

import torch

from tests.gpu.workloads.report import report

PART_WORDS = 64 << 20

if __name__ == "__main__":
    mib, seconds = int(sys.argv[1]), float(sys.argv[2])
    firsts = range(0, mib << 18, PART_WORDS)
    sizes = [min(PART_WORDS, (mib << 18) - first) for first in firsts]
    parts = [
        torch.full((size,), number, device="cuda", dtype=torch.int32)
        for number, size in enumerate(sizes)
    ]
    print("ready", flush=True)
    ends_s = time.monotonic() + seconds
    looks = 0
    while time.monotonic() < ends_s:
        for number, part in enumerate(parts):
            if not bool((part == number).all()):
                sys.exit(f"part {number} is not what it was, after {looks} looks")
        looks += 1
    report(workload="rival_memory", looks=looks)
