"""The command line of the demo on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.demo.options import arguments

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
USERS_MIN, USERS_MAX = 4, len(NAMES)
"""Two on each node, so that somebody waits on both; a node has four shards."""


@dataclass(frozen=True)
class ClusterOptions:
    users: tuple[str, ...]
    cells: int
    launches: int
    launch_ms: float
    thinking_s: float
    seed: int
    folder: Path


def read_options(argv: list[str] | None, description: str | None) -> ClusterOptions:
    program = "python -m tests.demo.cluster"
    parser = arguments(program, description, cells=8, launches=10, launch_ms=40.0)
    numbers = range(USERS_MIN, USERS_MAX + 1)
    add = parser.add_argument
    add("--users", type=int, default=6, choices=numbers, help="on two nodes, in turn")
    add("--thinking-s", type=float, default=1.5, help="the mean between two cells of a user")
    add("--seed", type=int, default=14, help="of the thinking times")
    given = parser.parse_args(argv)
    return ClusterOptions(
        NAMES[: given.users],
        given.cells,
        given.launches,
        given.launch_ms,
        given.thinking_s,
        given.seed,
        given.output,
    )
