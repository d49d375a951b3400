"""Reads the journal of a simulated machine: what each process did on which device, and when."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

MAGIC = 0x4C4E524A4D495355
HEADER = struct.Struct("<QQQ")
HEADER_BYTES = 64
RECORD = struct.Struct("<QQQIIIIQ16s")


class Kind(IntEnum):
    LAUNCH = 1
    COPY_H2D = 2
    COPY_D2H = 3
    COPY_D2D = 4
    MEMSET = 5
    HOST_FUNCTION = 6
    GRAPH_LAUNCH = 7
    ALLOC = 8
    FREE = 9
    MAP = 10
    UNMAP = 11
    CONTEXT_CREATE = 12
    CONTEXT_DESTROY = 13
    PREFETCH = 14
    FAULT = 15  # memory was taken from under work that ran


# What keeps the device busy. A graph's nodes have records of their own; its own one spans them.
DEVICE_WORK = frozenset({Kind.LAUNCH, Kind.COPY_H2D, Kind.COPY_D2H, Kind.COPY_D2D, Kind.MEMSET})
# What computes. Where memory follows the turn, copies of one process may run beside another's.
COMPUTING = frozenset({Kind.LAUNCH, Kind.COPY_D2D, Kind.MEMSET})


@dataclass(frozen=True)
class Record:
    submitted_ns: int  # CLOCK_MONOTONIC, as time.monotonic_ns()
    started_ns: int
    ended_ns: int
    pid: int
    device: int  # index in the machine
    kind: Kind
    stream: int
    amount: int  # bytes; for spin its nanoseconds
    name: str


def read_journal(sim_dir: str | Path) -> list[Record]:
    """All finished records, in the order in which they were written; [] without a journal."""
    path = Path(sim_dir) / "journal.bin"
    if not path.exists() or path.stat().st_size < HEADER_BYTES:
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        magic, capacity, written = HEADER.unpack_from(data, 0)
        if magic != MAGIC:
            raise ValueError(
                f"{path} is no journal of a simulated GPU. Give the machine's directory."
            )
        records = []
        for index in range(max(0, written - capacity), written):
            fields = RECORD.unpack_from(data, HEADER_BYTES + index % capacity * RECORD.size)
            submitted_ns, started_ns, ended_ns, pid, device, kind, stream, amount, name = fields
            if kind == 0:  # reserved by a process that died, or is about to finish it
                continue
            text = name.rstrip(b"\0").decode("ascii", "replace")
            records.append(
                Record(
                    submitted_ns,
                    started_ns,
                    ended_ns,
                    pid,
                    device,
                    Kind(kind),
                    stream,
                    amount,
                    text,
                )
            )
        return records


def records_written(sim_dir: str | Path) -> int:
    """How many there are, those included that are about to be finished: told in no time."""
    with (Path(sim_dir) / "journal.bin").open("rb") as file:
        written: int = HEADER.unpack(file.read(HEADER.size))[2]
    return written


def overlaps(
    records: list[Record], kinds: frozenset[Kind] = DEVICE_WORK
) -> list[tuple[Record, Record]]:
    """Pairs of device work of different processes that ran on one device at the same time."""
    found = []
    running: list[Record] = []
    for record in sorted(
        (r for r in records if r.kind in kinds), key=lambda r: (r.started_ns, r.ended_ns)
    ):
        running = [other for other in running if other.ended_ns > record.started_ns]
        found += [
            (other, record)
            for other in running
            if other.device == record.device and other.pid != record.pid
        ]
        running.append(record)
    return found
