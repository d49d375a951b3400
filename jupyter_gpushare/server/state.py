"""What the panel shows, made from what the scheduler tells and from this server's kernels. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpushare.client.memory import bytes_of_tenants, bytes_used, memory_of

STATE_VERSION = 1
"""Of the form below; a panel of another version says so instead of showing wrong data."""
ACTIONS = ("release", "hold", "evict", "trim")
"""What this server passes on for a kernel; a panel that is newer offers no more than these."""
_SIMULATED = "Simulated GPU"
"""How the names of devices begin that are no hardware."""
_KERNEL_STATES = {
    "idle": "idle",
    "waiting": "waits",
    "holding": "holds",
    "recalled": "holds",
    "stalled": "holds",
}

State = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKernel:
    """A kernel of this server. `why_unshared` says why it is not a tenant; empty when it is one."""

    kernel_id: str
    name: str
    path: str
    tenant_id: str | None
    why_unshared: str = ""
    cells: tuple[str, ...] = ()
    """The messages of the cells that it is executing, first come first."""
    trim: State | None = None
    """Where a wish for its unused GPU memory stands (trimming.py); None where there is none."""


def panel_state(
    *,
    scheduler: str,
    message: str,
    user: str,
    status: Mapping[str, Any] | None,
    age_s: float,
    kernels: Iterable[ServerKernel],
) -> State:
    """`scheduler` is up, down, starting or off; `status` is the last word of one that is up, and is
    `age_s` old."""
    ours = list(kernels)
    told = status or {"devices": [], "tenants": []}
    tenants = {tenant["id"]: tenant for tenant in told["tenants"]}
    rows = {kernel.tenant_id for kernel in ours if kernel.tenant_id}
    # The same person may have another server, and programs that no server has started.
    mine = rows | {each for each, tenant in tenants.items() if tenant.get("owner") == user}
    devices = [_device(device, tenants, rows, mine, age_s) for device in told["devices"]]
    return {
        "version": STATE_VERSION,
        "scheduler": scheduler,
        "message": message,
        # An older scheduler does not tell why.
        "no_gpu": "" if devices else told.get("scheduler", {}).get("no_gpu", ""),
        "user": user,
        "actions": list(ACTIONS),
        "hold_max_s": told.get("settings", {}).get("hold_max_s", 0.0),
        "devices": devices,
        "kernels": [_kernel(kernel, tenants, devices, age_s) for kernel in ours],
    }


def _device(
    device: Mapping[str, Any],
    tenants: Mapping[str, Mapping[str, Any]],
    rows: set[str],
    mine: set[str],
    age_s: float,
) -> dict[str, Any]:
    """`rows` are this server's tenants, each with a row of its own in the panel; `mine` are all of
    its user's."""

    def place(entry: Mapping[str, Any]) -> dict[str, Any]:
        tenant = tenants.get(entry["tenant"], {})
        return {
            "name": entry["name"],
            "owner": tenant.get("owner", ""),
            "mine": entry["tenant"] in mine,
            "tenant_id": entry["tenant"],
            "runs_as": tenant.get("runs_as", ""),
        }

    def waiter(entry: Mapping[str, Any]) -> dict[str, Any]:
        tenant = tenants.get(entry["tenant"], {})
        return {
            **place(entry),
            "waited_s": round(entry["waited_s"] + age_s, 1),
            # Of others the caller is told no more than the place, unless the caller administers.
            "wait": _wait(tenant, age_s),
            "why": "" if entry["tenant"] in rows else _blocked(tenant),  # its row says it
        }

    holders = [
        {
            **place(entry),
            "held_s": round(entry["held_for_s"] + age_s, 1),
            "hold_left_s": _left_s(entry, age_s),
            "turn_left_s": _turn_left_s(entry, age_s),
            "frozen": entry["frozen"],
        }
        for entry in device["holders"]
    ]
    queue = [
        {"position": position, **waiter(entry)} for position, entry in enumerate(device["queue"], 1)
    ]
    return {
        "id": device["id"],
        "name": device["name"],
        "bytes_total": device["bytes_total"],
        "bytes_used": bytes_used(device, tenants.values()),
        "bytes_tenants": bytes_of_tenants(device["id"], tenants.values()),
        "tenants": _whose_memory(device["id"], tenants, mine),
        "simulated": str(device["name"]).startswith(_SIMULATED),
        "bytes_foreign": device["bytes_foreign"],
        "bytes_contexts": device.get("bytes_contexts", 0),
        "bytes_reserved": device["bytes_reserved"],
        "lost": device["lost"],
        "mode": device.get("mode", "open"),
        "holder": holders[0] if holders else None,
        "queue": queue,
    }


def _whose_memory(
    device_id: str, tenants: Mapping[str, Mapping[str, Any]], mine: set[str]
) -> list[dict[str, Any]]:
    """Who has memory on the device: mine first, then who has the most."""
    found = [
        {
            "name": tenant.get("name", ""),
            "owner": tenant.get("owner", ""),
            "mine": tenant_id in mine,
            "tenant_id": tenant_id,
            "bytes_resident": bytes_of_tenants(device_id, [tenant]),
        }
        for tenant_id, tenant in tenants.items()
    ]
    having = [each for each in found if each["bytes_resident"] > 0]
    return sorted(having, key=lambda each: (not each["mine"], -each["bytes_resident"]))


def _turn_left_s(holder: Mapping[str, Any], age_s: float) -> float | None:
    """None while nobody waits, and where the scheduler is older."""
    left_s: float | None = holder.get("turn_left_s")
    return None if left_s is None else round(max(0.0, left_s - age_s), 1)


def _kernel(
    kernel: ServerKernel,
    tenants: Mapping[str, Mapping[str, Any]],
    devices: list[dict[str, Any]],
    age_s: float,
) -> dict[str, Any]:
    tenant = tenants.get(kernel.tenant_id or "")
    places = [
        waiter["position"]
        for device in devices
        for waiter in device["queue"]
        if waiter["tenant_id"] == kernel.tenant_id
    ]
    state, reason = _state_of(kernel, tenant, devices)
    opened, memory = _opened(tenant), memory_of(tenant)
    return {
        "kernel_id": kernel.kernel_id,
        "name": kernel.name,
        "path": kernel.path,
        "tenant_id": kernel.tenant_id,
        "state": state,
        "runs_as": (tenant or {}).get("runs_as", ""),
        "bytes_allocated": sum(each["bytes_allocated"] for each in opened),
        "memory": memory,
        "position": max(places) if places and state == "waits" else None,
        "wait": _wait(tenant, age_s) if state == "waits" else None,
        # Of a kernel that does not wait nobody asks, and a cell without GPU work is no news.
        "cells": list(kernel.cells) if _waits(state, memory) else [],
        "blocked": _blocked(tenant) if tenant and state == "waits" else "",
        "hold_left_s": _left_s(tenant or {}, age_s),
        "hold_to_come_s": (tenant or {}).get("hold_to_come_s", 0.0),
        "frozen": any(client.get("frozen") for client in (tenant or {}).get("clients", [])),
        "placement": (tenant or {}).get("placement") or "",
        "trim": kernel.trim,
        "reason": reason,
    }


def _waits(state: str, memory: Iterable[Mapping[str, Any]]) -> bool:
    """For its turn, or, with the turn, for its memory."""
    return state == "waits" or (state == "holds" and any(m["bytes_parked"] for m in memory))


def _wait(tenant: Mapping[str, Any] | None, age_s: float) -> dict[str, Any] | None:
    """When it starts or goes on, from now; None where the scheduler is older."""
    told = (tenant or {}).get("estimate")
    if not told:
        return None
    known = told["latest_s"] is not None
    return {
        "earliest_s": max(0.0, round(told["earliest_s"] - age_s, 1)) if known else None,
        "latest_s": max(0.0, round(told["latest_s"] - age_s, 1)) if known else None,
        "used_s": told["used_s"],
        "share": told["share"],
    }


def _state_of(
    kernel: ServerKernel,
    tenant: Mapping[str, Any] | None,
    devices: list[dict[str, Any]],
) -> tuple[str, str]:
    """One of the panel's words for it, and a sentence where there is something to say."""
    if kernel.tenant_id is None:
        return "unshared", kernel.why_unshared
    if tenant is None:
        return "idle", ""
    if any(each["failed"] for each in _opened(tenant)):
        return (
            "failed",
            "A GPU error has ended this kernel's work on the GPU. Restart the kernel, which also "
            "frees its GPU memory.",
        )
    state = _KERNEL_STATES.get(tenant["state"], "idle")
    if state == "waits":
        return state, _why_it_waits(tenant, devices)
    if tenant["state"] == "recalled":
        return state, "It has been asked to give the GPU back."
    # Of a kernel that waits no more: why it was refused memory, for some minutes.
    return state, str(next(filter(None, map(tenant.get, _NOTES)), ""))


_NOTES = ("in_the_way", "blocked_reason", "class_note", "hold_note")


def _why_it_waits(tenant: Mapping[str, Any], devices: list[dict[str, Any]]) -> str:
    """Whom it waits for, and the scheduler's sentence where that is not all."""
    blocked = _blocked(tenant)
    places = [
        (device, waiter)
        for device in devices
        for waiter in device["queue"]
        if waiter["tenant_id"] == tenant["id"]
    ]
    # Where it needs several devices, it waits for those that are held.
    for device, _ in places:
        if holder := device["holder"]:
            return f"Waiting for {_who(holder, tenant)}. {blocked}".rstrip()
    if blocked or not places:
        return blocked
    return f"The next in the queue gets {places[0][0]['name']} in a moment."


def _blocked(tenant: Mapping[str, Any]) -> str:
    """The scheduler's sentence on what is in the way besides the queue; empty if nothing."""
    if reason := tenant.get("blocked_reason"):
        return str(reason)
    estimate = tenant.get("estimate") or {"reason": "turn", "why": ""}
    return "" if estimate["reason"] == "turn" else str(estimate["why"])


def _who(holder: Mapping[str, Any], tenant: Mapping[str, Any]) -> str:
    """With its user, where that is another one and both are told."""
    owner, name = holder["owner"], holder["name"]
    return f"{owner}: {name}" if owner not in ("", name, tenant.get("owner")) else str(name)


def _left_s(told: Mapping[str, Any], age_s: float) -> float:
    """For how much longer a turn is kept by hand."""
    told_s: float = told["hold_left_s"] if told else 0.0
    return round(max(0.0, told_s - age_s), 1)


def _opened(tenant: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    clients = tenant["clients"] if tenant else []
    return [opened for client in clients for opened in client["devices"]]
