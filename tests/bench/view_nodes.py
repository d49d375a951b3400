"""Nodes that report to the view, a thousand in one process, for its benchmark.

Each has devices and tenants that take turns: with each report a device has gone on to its next
tenant, and what is told is what has changed by that. The first report of a connection is whole.
Where the view is gone, a node comes again after as long as a scheduler waits (`Backoff`).

`python -m tests.bench.view_nodes URL NODES DEVICES TENANTS` reads orders from its standard input,
a JSON object a line, and answers each with one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_gpushare.reports.format import (
    DeviceRow,
    NodeHello,
    NodeRow,
    Place,
    Report,
    Seen,
    TenantRow,
    message_of,
    text_of,
)
from jupyter_gpushare.scheduler.report.link import CONNECT_S_MAX
from jupyter_gpushare.scheduler.report.standing import Backoff
from tests.bench.view_process import token_of
from tests.support.timeline import percentile

GIB = 1 << 30
OWNERS = 3000
"""Of all nodes together: users have notebooks on several."""
TOGETHER = 50
TOLD_EVERY = 15
"""So many reports after the one before, a tenant that holds tells what it has had."""


class SimulatedNode:
    """Its rows, which change as a scheduler's do."""

    def __init__(self, number: int, devices: int, tenants: int) -> None:
        self.name = f"node{number:04d}"
        self.boot = f"{number + 1:032x}"
        self.row = NodeRow(
            version="0.1.0", owners="hub", platform="slurm", bytes_host_available=400 * GIB
        )
        self._random = random.Random(number)
        self._lines = [
            deque(f"{number:016x}{d:08x}{t:08x}" for t in range(tenants)) for d in range(devices)
        ]
        self._ids = [f"GPU-{number:08x}-0000-0000-0000-{d:012x}" for d in range(devices)]
        self.devices = {id: self._device(d) for d, id in enumerate(self._ids)}
        self.tenants: dict[str, TenantRow] = {}
        for d, line in enumerate(self._lines):
            for t, id in enumerate(line):
                self.tenants[id] = self._tenant(number, d, t, tenants)

    def _tenant(self, number: int, device: int, place: int, tenants: int) -> TenantRow:
        counted = (number * len(self._lines) + device) * tenants + place
        return TenantRow(
            name=f"notebook-{counted}.ipynb",
            owner=f"user{counted % OWNERS:04d}",
            groups=("everybody", f"course-{counted % 40}"),
            kind="kernel",
            state="holding" if place == 0 else "waiting" if place < 4 else "idle",
            runs_as="interactive",
            devices=(self._ids[device],),
            bytes_resident=4 * GIB,
            bytes_parked=0 if place == 0 else 3 * GIB,
            turns=1,
            waits=1,
            waited_s=2.5,
            held_s=0.0,
        )

    def _device(self, number: int) -> DeviceRow:
        line = self._lines[number]
        return DeviceRow(
            name="NVIDIA H100 80GB HBM3",
            bytes_total=80 * GIB,
            bytes_used=self._random.randrange(20, 70) * GIB,
            bytes_usable=78 * GIB,
            bytes_outside=0,
            mode="open",
            lost=False,
            holders=(Place(tenant=line[0], for_s=0.1),),
            queue=tuple(Place(tenant=id, for_s=1.5) for id in itertools.islice(line, 1, 4)),
        )

    def whole(self) -> Report:
        return self._report(0, whole=True, devices=self.devices, tenants=self.tenants)

    def next(self, sequence: int) -> Report:
        """A turn goes on to the next tenant; now and then a holder tells what it has had."""
        number = self._random.randrange(len(self._lines))
        line, id = self._lines[number], self._ids[number]
        old = line[0]
        line.rotate(-1)
        told = [old, line[0]]
        self._changes(old, state="waiting", bytes_parked=3 * GIB)
        self._changes(line[0], state="holding", bytes_parked=0, turns=sequence, waited_s=3.0)
        if sequence % TOLD_EVERY == 0:
            told += [each[0] for each in self._lines]
        self._holds(told)
        self.devices[id] = self._device(number)
        return self._report(
            sequence,
            whole=False,
            devices={id: self.devices[id]},
            tenants={each: self.tenants[each] for each in told},
        )

    def _changes(self, id: str, **changes: Any) -> None:
        self.tenants[id] = replace(self.tenants[id], **changes)

    def _holds(self, ids: Sequence[str]) -> None:
        for id in ids:
            self._changes(id, held_s=self.tenants[id].held_s + 0.1)

    def _report(self, sequence: int, **rows: Any) -> Report:
        node = self.row if rows["whole"] else None
        return Report(boot=self.boot, sequence=sequence, sent_at=time.time(), node=node, **rows)


@dataclass
class Counted:
    """Of one order."""

    accept_ms: list[float] = field(default_factory=list)
    lost: int = 0
    """Connections that ended."""


class Sender:
    """A node's connection, made again whenever it ends."""

    def __init__(self, node: SimulatedNode, url: str, load: Load) -> None:
        self.node = node
        self._url = url
        self._load = load
        self._connection: WebSocketClientConnection | None = None
        self._backoff = Backoff(random.random)
        self._sequence = 0

    async def connect(self) -> None:
        """Until the whole report has been taken."""
        while self._connection is None:
            try:
                await self._come()
            except Exception:  # noqa: BLE001 - the view is gone, in one of many ways
                self._lost()
                await asyncio.sleep(self._backoff.next_s())
        self._backoff.worked()

    async def comes_back(self) -> None:
        """Once the view has ended."""
        if self._connection is not None:
            assert await self._connection.read_message() is None
        self._lost()
        await asyncio.sleep(self._backoff.next_s())
        await self.connect()

    async def _come(self) -> None:
        self._connection = await websocket_connect(
            HTTPRequest(
                self._url,
                headers={"Authorization": f"Bearer {token_of(self.node.name)}"},
                connect_timeout=CONNECT_S_MAX,
            )
        )
        await self._said(NodeHello(boot=self.node.boot, version="0.1.0"))
        await self._said(self.node.whole())
        self._sequence = 0

    async def report(self) -> None:
        self._sequence += 1
        text = text_of(self.node.next(self._sequence))
        began_s = time.perf_counter()
        try:
            seen = await self._said(text)
            assert not seen.again
        except Exception:  # noqa: BLE001 - the view is gone, in one of many ways
            self._lost()
            await self.connect()
        else:
            self._load.counted.accept_ms.append(1e3 * (time.perf_counter() - began_s))

    async def _said(self, message: NodeHello | Report | str) -> Seen:
        assert self._connection is not None
        text = message if isinstance(message, str) else text_of(message)
        await self._connection.write_message(text)
        answer = await self._connection.read_message()
        if answer is None:
            raise ConnectionError(self._connection.close_reason)
        seen = message_of(answer)
        assert isinstance(seen, Seen)
        return seen

    def _lost(self) -> None:
        self._load.counted.lost += 1
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def run(self, until_s: float, period_s: float) -> None:
        """A report each `period_s`; behind time, the next one goes out at once."""
        next_s = time.monotonic() + period_s * random.random()
        while next_s < until_s:
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            if time.monotonic() >= until_s:
                return
            await self.report()
            next_s = max(next_s + period_s, time.monotonic() - period_s)


class Load:
    def __init__(self, url: str, nodes: int, devices: int, tenants: int) -> None:
        self.counted = Counted()
        self.senders = [
            Sender(SimulatedNode(number, devices, tenants), url, self) for number in range(nodes)
        ]

    async def connect(self) -> dict[str, float]:
        """Not all in one moment: nodes are started one after the other."""
        began_s = time.monotonic()
        for n in range(0, len(self.senders), TOGETHER):
            await asyncio.gather(*(each.connect() for each in self.senders[n : n + TOGETHER]))
        return {"connect_s": time.monotonic() - began_s}

    async def report(self, seconds: float, period_s: float) -> dict[str, float]:
        """How many reports were taken, and how long the view took to answer."""
        self.counted = Counted()
        began_s = time.monotonic()
        await asyncio.gather(*(each.run(began_s + seconds, period_s) for each in self.senders))
        taken_ms, taken_s = self.counted.accept_ms, time.monotonic() - began_s
        return {
            "reports": len(taken_ms),
            "reports_per_s": len(taken_ms) / taken_s,
            "accept_ms_p50": percentile(taken_ms, 50),
            "accept_ms_p95": percentile(taken_ms, 95),
            "accept_ms_max": max(taken_ms),
            "lost": self.counted.lost,
        }

    async def come_back(self) -> dict[str, float]:
        """Once the view that they were connected to has ended, all at one time: when the last one
        is back."""
        await asyncio.gather(*(sender.comes_back() for sender in self.senders))
        return {"back_at": time.time()}


async def main(url: str, nodes: int, devices: int, tenants: int) -> None:
    load = Load(url, nodes, devices, tenants)
    loop = asyncio.get_running_loop()
    with contextlib.suppress(BrokenPipeError):
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            order = json.loads(line)
            answer = await getattr(load, order.pop("do"))(**order)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:5])))
