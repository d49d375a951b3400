"""A seat: what a container asks for to share its node's GPUs, and what it gets with it. Pure.

A seat is a place in host memory for what a pod parks, and no device: which GPU a pod has is
NVIDIA's to say. All seats are alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpushare.client.paths import (
    ENVIRONMENT_INSIDE,
    LIBRARY_INSIDE,
    TENANTS_DIR,
    TENANTS_INSIDE,
)

RESOURCE = "gpushare.jupyter.org/turn"
SEATS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of the node, read-only within a container."""

    inside: str
    on_node: str


@dataclass(frozen=True, slots=True)
class Grant:
    """What each container with a seat gets."""

    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]


def seat_ids(number: int) -> tuple[str, ...]:
    """Their names. A plugin that starts anew gives the same ones, so pods keep theirs."""
    return tuple(f"seat-{index}" for index in range(number))


def grant_of(runtime_dir: Path, library_dir: Path) -> Grant:
    """`runtime_dir` is the scheduler's and `library_dir` has the node's hook, both as the node
    itself names them. Of the former a container gets the tenants' sockets alone."""
    return Grant(
        ENVIRONMENT_INSIDE,
        (
            Mount(TENANTS_INSIDE, str(runtime_dir / TENANTS_DIR)),
            Mount(LIBRARY_INSIDE, str(library_dir)),
        ),
    )
