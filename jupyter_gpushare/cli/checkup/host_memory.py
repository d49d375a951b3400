"""Whether the memory limit of this server leaves room for what its notebooks park. Pure.

The same sums as the hook's (swap/cgroup_parse.c): a reserve of the limit is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator

from .facts import CgroupFacts, Facts
from .finding import Finding, ok, warning

_GIB = 1 << 30
_RESERVE_MIN = 256 << 20
_RESERVE_PART = 20
_CHECK = "host-memory"


def check_host_memory(facts: Facts) -> Iterator[Finding]:
    """Nothing in the container of a node's scheduler, for no kernel runs under its limit."""
    if facts.node.socket:
        return
    group = facts.cgroup
    if group.bytes_max is None:
        yield ok(_CHECK, "No control group limits the host memory of kernels.")
        return
    room = group.bytes_max - group.bytes_used
    limit = f"{group.bytes_max / _GIB:.1f} GiB (control groups version {group.version})"
    on_devices = _on_devices(facts)
    advice = _advice(group, on_devices)
    parked = f"{parkable(group) / _GIB:.1f} GiB"
    how = " (--mem, or c.SlurmSpawner.req_memory)" if facts.job.id else ""
    raising = f"Raise the limit{how}"
    if room < _GIB:
        yield warning(
            _CHECK,
            f"{group.path} limits host memory to {limit} and has {max(room, 0) / _GIB:.1f} GiB "
            f"left, so kernels may be killed, and their GPU memory cannot be parked there to make "
            f"room for others.",
            f"{raising}, or shut down kernels that are not needed.{advice}",
        )
    elif on_devices > parkable(group):
        yield warning(
            _CHECK,
            f"{group.path} limits host memory to {limit}, which leaves {parked} for parked GPU "
            f"memory; notebooks of this server have {on_devices / _GIB:.1f} GiB on GPUs. What "
            f"finds no room stays there, and others may wait for it.",
            f"{raising}, or let the notebooks free memory.{advice}",
        )
    else:
        yield ok(
            _CHECK,
            f"{group.path} limits it to {limit}, {room / _GIB:.1f} GiB left, of which parked GPU "
            f"memory may take {parked}.",
        )


def parkable(group: CgroupFacts) -> int:
    """Bytes that may still be parked under its limit."""
    limit = group.bytes_max or 0
    return max(0, limit - group.bytes_used - max(_RESERVE_MIN, limit // _RESERVE_PART))


def limit_for(bytes_needed: int) -> int:
    """The limit under which so much fits, with the reserve."""
    with_a_part = bytes_needed * _RESERVE_PART // (_RESERVE_PART - 1)
    return max(bytes_needed + _RESERVE_MIN, with_a_part)


def _advice(group: CgroupFacts, on_devices: int) -> str:
    if not on_devices:
        return ""
    gib = -(-limit_for(group.bytes_used + on_devices) // _GIB)
    return f" For what it has now, it needs {gib} GiB."


def _on_devices(facts: Facts) -> int:
    """What kernels of this server have on devices and could have to park. Known in a server of a
    hub and in a job of Slurm, where the limit that we see is theirs too."""
    status = facts.scheduler.status
    if status is None or not (facts.hub.user or facts.job.id):
        return 0
    clients = [client for tenant in status["tenants"] for client in tenant["clients"]]
    opened = [each for client in clients if client["pid"] is not None for each in client["devices"]]
    return sum(
        max(0, each["bytes_allocated"] - each.get("bytes_parked", 0) - each.get("bytes_fixed", 0))
        for each in opened
    )
