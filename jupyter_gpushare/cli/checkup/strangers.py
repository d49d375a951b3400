"""Who uses a device without taking turns: a server whose image lacks the package, or a program that
somebody has started by itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jupyter_gpushare.kubelet.pods import Container, without_notebooks

from .facts import DeviceFacts, Facts
from .finding import Finding, ok, warning

_GIB = 1 << 30
_CONTEXT_BYTES = _GIB
"""What a context may keep on a device besides allocations, at most."""
_CHECK = "foreign-memory"
_NAMED_MAX = 5


def check_foreign_memory(facts: Facts) -> Iterator[Finding]:
    """By process where all are seen and numbered as here; else by what is left over in bytes."""
    status = facts.scheduler.status
    if status is None:
        return
    for device in facts.machine.devices:
        known = _known_device(status, device)
        if known is None:
            continue  # not served here, or divided into MIG instances that are
        own = _clients_on(status, known["id"])
        foreign = _foreign_pids(facts, device, own)
        if foreign:
            yield from _told_by_process(facts, device, foreign)
            continue
        on_device = known["bytes_allocated"] - _parked_bytes(own, known["id"])
        left_over = device.bytes_used - on_device - _CONTEXT_BYTES * (1 + len(own))
        if left_over > 0:
            yield _left_over(facts, device, left_over)
        else:
            yield ok(_CHECK, f"All memory in use on {device.name} is accounted for.")


def _told_by_process(facts: Facts, device: DeviceFacts, foreign: list[int]) -> Iterator[Finding]:
    """Kernels apart: what their servers lack is most often the package."""
    kernels = [pid for pid in foreign if _is_a_plain_kernel(facts, pid)]
    others = [pid for pid in foreign if pid not in kernels]
    if kernels:
        who = ", ".join(
            f"{_named(facts, pid)} of {facts.machine.origins[pid].user}'s server" for pid in kernels
        )
        yield warning(
            "package",
            f"Notebooks that do not take turns use {device.name}: {who}.",
            "Install jupyter-gpushare in the image of that server and restart it; if it is there, "
            "run `jupyter-gpushare doctor` in the server.",
        )
    if others:
        yield warning(
            _CHECK,
            f"Processes that do not take turns use {device.name}: "
            f"{', '.join(_named(facts, pid) for pid in others)}.",
            "Start them with `jupyter gpushare run -- COMMAND`, or end them.",
        )


def _is_a_plain_kernel(facts: Facts, pid: int) -> bool:
    """Of a hub's server, started without us, and not because somebody wants it so."""
    origin = facts.machine.origins.get(pid)
    if origin is None or origin.is_switched_off or origin.is_tenants:
        return False
    return origin.is_kernels and bool(origin.user)


def _named(facts: Facts, pid: int) -> str:
    return f"{pid} ({facts.machine.names_of_pids[pid]})"


def _left_over(facts: Facts, device: DeviceFacts, left_over: int) -> Finding:
    what = (
        f"About {left_over / _GIB:.1f} GiB on {device.name} belong to processes that do not take "
        f"turns."
    )
    silent = _silent_seats(facts)
    if not silent:
        return warning(
            _CHECK,
            what,
            "Find them with `nvidia-smi` on the host, and start them with "
            "`jupyter gpushare run -- COMMAND`.",
        )
    pods = ", ".join(f"{each.namespace}/{each.pod}" for each in silent[:_NAMED_MAX])
    more = f" and {len(silent) - _NAMED_MAX} more" if len(silent) > _NAMED_MAX else ""
    first = silent[0]
    return warning(
        "package",
        f"{what[:-1]}, and no notebook of these pods, which have seats, is known: {pods}{more}.",
        f"Run `kubectl -n {first.namespace} exec {first.pod} -- jupyter-gpushare doctor`: it says "
        f"what is wrong there, and is not found in an image without the package.",
    )


def _silent_seats(facts: Facts) -> list[Container]:
    """On a node of Kubernetes: containers with a seat whose users have no notebook here."""
    owners = {str(each.get("owner") or "") for each in (facts.scheduler.status or {})["tenants"]}
    return without_notebooks(facts.node.devices, owners)


def _known_device(status: dict[str, Any], device: DeviceFacts) -> dict[str, Any] | None:
    digits = device.uuid.removeprefix("GPU-").replace("-", "").lower()
    return next((known for known in status["devices"] if known["id"] == digits), None)


def _clients_on(status: dict[str, Any], device_id: str) -> list[dict[str, Any]]:
    return [
        client
        for tenant in status["tenants"]
        for client in tenant["clients"]
        if any(opened["device"] == device_id for opened in client["devices"])
    ]


def _parked_bytes(clients: list[dict[str, Any]], device_id: str) -> int:
    """What of their memory is in host memory. An older scheduler moves none, and tells nothing."""
    opened = (device for client in clients for device in client["devices"])
    return sum(each.get("bytes_parked", 0) for each in opened if each["device"] == device_id)


def _foreign_pids(facts: Facts, device: DeviceFacts, own: list[dict[str, Any]]) -> list[int]:
    """Empty where our own processes are hidden, or are not among NVML's: then it counts in another
    pid namespace, and its numbers say nothing."""
    pids = {client["pid"] for client in own}
    if None in pids or (pids and not pids & set(device.pids)):
        return []
    return [pid for pid in device.pids if pid not in pids and facts.machine.names_of_pids[pid]]
