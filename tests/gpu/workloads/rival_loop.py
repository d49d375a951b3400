"""A training loop that never stops asking for the GPU: the rival of every shared run.

usage: rival_loop LAUNCH_MS SECONDS. Each launch keeps the device busy for LAUNCH_MS; the loop only
synchronises at the end, so it queues as much as it is allowed to."""

from __future__ import annotations

import sys
import time

import torch

from tests.gpu.workloads.report import report


def cycles_per_ms() -> int:
    """How many clock cycles of `torch.cuda._sleep` make one millisecond on this device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)
    start.record()
    torch.cuda._sleep(20_000_000)
    end.record()
    end.synchronize()
    return int(20_000_000 / start.elapsed_time(end))


if __name__ == "__main__":
    launch_ms, seconds = float(sys.argv[1]), float(sys.argv[2])
    cycles = int(cycles_per_ms() * launch_ms)
    print("ready", flush=True)
    ends_s = time.monotonic() + seconds
    launches = 0
    while time.monotonic() < ends_s:
        torch.cuda._sleep(cycles)
        launches += 1
    torch.cuda.synchronize()
    report(workload="rival_loop", launches=launches)
