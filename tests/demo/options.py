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


def arguments(
    program: str, description: str | None, *, cells: int, launches: int, launch_ms: float
) -> argparse.ArgumentParser:
    """What all forms of the demo can be told, with these defaults."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    add = parser.add_argument
    add("--cells", type=int, default=cells, help="cells in each notebook")
    add("--launches", type=int, default=launches, help="launches in each cell")
    add("--launch-ms", type=float, default=launch_ms, help="how long each takes")
    add("--output", type=Path, default=Path(), help="folder for the report")
    return parser


def read_options(argv: list[str] | None, description: str | None) -> Options:
    parser = arguments("python -m tests.demo", description, cells=8, launches=6, launch_ms=20.0)
    given = parser.parse_args(argv)
    return Options(
        given.cells,
        given.launches,
        given.launch_ms,
        given.output,
        keep=os.environ.get("KEEP", "") not in ("", "0"),
    )
