"""The demo's command line."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    cells: int
    launches: int
    launch_ms: float
    folder: Path
    """Where report and picture go."""
    keep: bool
    """Leave the hub up at the end."""


def read_options(argv: list[str] | None, description: str | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=description)
    parser.add_argument("--cells", type=int, default=8, help="cells in each notebook")
    parser.add_argument("--launches", type=int, default=6, help="launches in each cell")
    parser.add_argument("--launch-ms", type=float, default=20.0, help="how long each takes")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the report")
    given = parser.parse_args(argv)
    return Options(
        given.cells,
        given.launches,
        given.launch_ms,
        given.output,
        keep=os.environ.get("KEEP", "") not in ("", "0"),
    )
