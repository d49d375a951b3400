"""How long HTTP requests take while one of many clients floods the scheduler."""

from __future__ import annotations

import argparse
import contextlib
import math
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpushare.protocol.codec import encode
from jupyter_gpushare.protocol.messages import CellBegan, DeviceOpened, MemoryQueried
from tests.bench.bars import Bar
from tests.support.hook_client import DEVICE, ScriptedClient
from tests.support.scheduler_process import running_scheduler
from tests.support.timeline import median

HTTP_MS_P999_BAR = 100.0
TENANTS = 200
RUNS = 3
REQUESTS = 1000
_HALVES = 64
"""How often the flooder stops in the middle of a frame, in one round of its flood."""
_STATUS_EVERY = 10


class Flooder:
    """Sends as fast as the scheduler takes it, and reads what it is answered."""

    def __init__(self, client: ScriptedClient) -> None:
        self._client = client
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._flood, name="flooder")
        self.rounds = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._thread.join()

    def _flood(self) -> None:
        question = encode(MemoryQueried(device=DEVICE))
        opened = encode(DeviceOpened(device=DEVICE, name="Scripted GPU", bytes_total=1))
        cells = (encode(CellBegan()) + question) * 4096
        halves = [part for _ in range(_HALVES) for part in (opened[:9], opened[9:])]
        while not self._ending.is_set():
            self._send(cells)
            for part in halves:
                self._send(part)
            self.rounds += 1

    def _send(self, data: bytes) -> None:
        sock = self._client.socket
        sock.setblocking(False)
        while data and not self._ending.is_set():
            readable, writable, _ = select.select([sock], [sock], [], 0.1)
            if readable and not sock.recv(1 << 16):
                raise RuntimeError("The scheduler closed the flooder; this measures nothing.")
            if writable:
                data = data[sock.send(data) :]


@dataclass(frozen=True)
class FloodOptions:
    """How long the flood is measured."""

    requests: int
    runs: int

    @staticmethod
    def add_to(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--flood-requests", type=int, default=REQUESTS)
        parser.add_argument("--flood-runs", type=int, default=RUNS, help="their median counts")

    @staticmethod
    def of(options: argparse.Namespace) -> FloodOptions:
        return FloodOptions(options.flood_requests, options.flood_runs)


def measure_flood(folder: Path, options: FloodOptions) -> float:
    """The median of some runs, in milliseconds."""
    print(f"{TENANTS} tenants, one floods, {options.requests} requests", flush=True)
    return median(
        [
            http_ms_p999_under_flood(
                folder / f"flood-{run}", tenants=TENANTS, requests=options.requests
            )
            for run in range(options.runs)
        ]
    )


def flood_bar(http_ms: float) -> Bar:
    """What the figure is held to."""
    name = f"HTTP, {TENANTS} tenants, one floods"
    return Bar(name, http_ms, at_most=HTTP_MS_P999_BAR, unit="ms")


def http_ms_p999_under_flood(folder: Path, *, tenants: int, requests: int) -> float:
    """The slowest of a thousand requests beside so many tenants, one of which floods: starts and
    ends of kernels, and the status now and then."""
    with running_scheduler(folder, check=False) as scheduler, contextlib.ExitStack() as stack:
        for number in range(tenants - 1):
            stack.enter_context(scheduler.joined(f"idle {number}"))
        flooder = Flooder(stack.enter_context(scheduler.joined("flooder")))
        taken_ms: list[float] = []
        ran_before_s, queued_before_s = seconds_on_core(scheduler.process.pid)
        with flooder.running():
            client = scheduler.client
            while len(taken_ms) < requests:
                before_s = time.perf_counter()
                tenant = client.register_tenant("asker", "kernel")
                between_s = time.perf_counter()
                client.remove_tenant(tenant.tenant_id)
                after_s = time.perf_counter()
                taken_ms += [1e3 * (between_s - before_s), 1e3 * (after_s - between_s)]
                if len(taken_ms) % _STATUS_EVERY == 0:
                    client.status()
                    taken_ms.append(1e3 * (time.perf_counter() - after_s))
        ran_s, queued_s = seconds_on_core(scheduler.process.pid)
        if not flooder.rounds:
            raise RuntimeError("Nothing was flooded; this measures nothing.")
    taken_ms.sort()
    found_ms = taken_ms[math.ceil(0.999 * len(taken_ms)) - 1]
    ran_s, queued_s = ran_s - ran_before_s, queued_s - queued_before_s
    on_core = f"the scheduler ran for {ran_s:.1f} s and waited {queued_s:.1f} s for a core"
    print(f"{found_ms:.1f} ms; {on_core}", flush=True)
    return found_ms


def seconds_on_core(pid: int) -> tuple[float, float]:
    """How long the process's main thread has run, and how long it was ready to run while other
    programs had the cores. On a busy machine the second makes most of what requests wait."""
    ran_ns, queued_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran_ns) / 1e9, int(queued_ns) / 1e9
