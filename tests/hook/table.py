"""The table of entry points that hook/spec/generate.py wrote with the build."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

PER_THREAD_FLAG = 2


@dataclass(frozen=True)
class Entry:
    exported_name: str
    base: str
    version: int
    variant: str
    kind: str
    gate: str

    @property
    def is_nvml(self) -> bool:
        return self.version == 0

    @property
    def wrapped(self) -> bool:
        return self.kind != "pass"


def read_table(path: Path) -> list[Entry]:
    with path.open() as file:
        return [
            Entry(
                exported_name=row["exported_name"],
                base=row["base"],
                version=int(row["version"]),
                variant=row["variant"],
                kind=row["class"],
                gate=row["gate"],
            )
            for row in csv.DictReader(file, delimiter="\t")
        ]


def expected_for(entries: list[Entry], symbol: str, cuda_version: int, flags: int) -> Entry | None:
    """What cuGetProcAddress answers to that request, by the rules of the real driver."""
    of_name = [entry for entry in entries if entry.base == symbol and not entry.is_nvml]
    per_thread = [entry for entry in of_name if entry.variant == "per_thread"]
    if flags & PER_THREAD_FLAG and per_thread:
        candidates = per_thread
    else:
        candidates = [entry for entry in of_name if entry.variant == "legacy"]
    known = [entry for entry in candidates if entry.version <= cuda_version]
    return max(known, key=lambda entry: entry.version, default=None)
