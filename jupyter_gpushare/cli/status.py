"""`jupyter gpushare status`: devices, who holds them, and the notebooks."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from jupyter_gpushare.client.memory import (
    bytes_used,
    kinds_that_move,
    kinds_that_stay,
    memory_of,
)

from .options import add_runtime_dir, client_of
from .queue import device_title, no_gpu, queue_lines
from .text import duration, moment, short, size, table
from .watch import watch

_KINDS = ("resident", "parked")


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("status", help="show GPUs, turns, notebooks and settings")
    parser.add_argument("--json", action="store_true", help="print all that is known, as JSON")
    parser.add_argument(
        "--watch", action="store_true", help="refresh it every second, until Ctrl-C"
    )
    add_runtime_dir(parser)
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    if arguments.watch:
        return watch(client.status, json.dumps if arguments.json else rendered)
    status = client.status()
    print(json.dumps(status, indent=2) if arguments.json else rendered(status))
    return 0


def rendered(status: dict[str, Any]) -> str:
    """The status as a person reads it. Pure."""
    parts = [_scheduler_lines(status)]
    for device in status["devices"]:
        lines = [*_device_lines(device, status["tenants"]), *_share_lines(device, status)]
        parts.append("\n".join(lines))
    if not status["devices"]:
        parts.append(no_gpu(status))
    tenants = status["tenants"]
    parts.append(_tenant_table(tenants) if tenants else "No notebook uses a GPU.")
    notes = [line for tenant in tenants for line in _notes(tenant)] + _host_lines(status)
    return "\n\n".join(parts + (["\n".join(notes)] if notes else []))


def _scheduler_lines(status: dict[str, Any]) -> str:
    process, settings = status["scheduler"], status["settings"]
    lines = [
        f"jupyter-gpushare {process['version']}, process {process['pid']} of {process['user']}, "
        f"up {duration(process['uptime_s'])}, serves {process['runtime_dir']}",
        f"turns {settings['turns']}, quantum {_quantum(settings)}",
    ]
    if process["recovering"]:
        lines.append("waiting for the clients of the previous scheduler")
    if reports := process.get("reports"):
        lines.append(_reports_line(reports))
    return "\n".join(lines)


def _reports_line(reports: dict[str, Any]) -> str:
    """Whether the view of all nodes hears of this scheduler. An older one tells nothing of it."""
    since = moment(reports["since"])
    how = f"ok, since {since}" if reports["ok"] else f"not since {since}. {reports['why']}"
    return f"reports to {reports['to']}: {how}"


def _quantum(settings: dict[str, Any]) -> str:
    if settings["quantum_s"]:
        return duration(settings["quantum_s"])
    return f"{duration(settings['quantum_min_s'])} to {duration(settings['quantum_max_s'])}"


def _device_lines(device: dict[str, Any], tenants: list[dict[str, Any]]) -> list[str]:
    memory = f"{size(bytes_used(device, tenants))} of {size(device['bytes_total'])} used"
    if contexts := device.get("bytes_contexts", 0):
        others = max(0, device["bytes_foreign"] - contexts)
        memory += f" ({size(contexts)} by CUDA contexts, {size(others)} by other programs)"
    state = "LOST" if device["lost"] else memory
    return [f"{device_title(device)}: {state}", *queue_lines(device, tenants)]


def _share_lines(device: dict[str, Any], status: dict[str, Any]) -> list[str]:
    """What users have had of what they may have. An older scheduler tells nothing of it."""
    lines = []
    for share in status.get("shares", []):
        if share["device"] != device["id"]:
            continue
        told = [f"{share[word]:.0%} {shown}" for word, shown, none in _PARTS if share[word] != none]
        if share["violations"]:
            told.append(f"guarantee violated in {share['violations']} windows")
        window = duration(status["settings"]["share_window_s"])
        had = f"{share['had']:.0%} of the last {window}"
        lines.append(f"  {share['owner']}: {had} ({', '.join(told)})")
    return lines


_PARTS = (("request", "guaranteed", 0), ("limit", "limit", 1), ("hard_limit", "hard limit", 1))


def _tenant_table(tenants: list[dict[str, Any]]) -> str:
    rows = [
        [
            short(tenant["name"]),
            tenant["owner"],
            tenant["kind"],
            _state(tenant),
            str(len(tenant["clients"])),
            _memory(tenant),
            *_had(tenant["counters"]),
        ]
        for tenant in tenants
    ]
    head = ["NOTEBOOK", "OWNER", "KIND", "STATE", "PROCESSES", "MEMORY", "TURNS", "WAITED"]
    return table(head, rows)


def _had(counters: dict[str, Any] | None) -> list[str]:
    """Turns and time waited; of another user's tenant they may be hidden."""
    if counters is None:
        return ["-", "-"]
    return [str(counters["turns"]), duration(counters["waited_s_total"])]


def _state(tenant: dict[str, Any]) -> str:
    """The scheduler's word; one that has no process cannot do anything on a device yet."""
    if not tenant["clients"]:
        return "no GPU used"
    if any(client["frozen"] for client in tenant["clients"]):
        return f"{tenant['state']}, frozen"
    if tenant.get("runs_as", "interactive") != "interactive":
        return f"{tenant['state']}, {tenant['runs_as']}"
    if tenant["boosted"]:
        return f"{tenant['state']}, next"
    return "failed" if _failed_bytes(tenant) and tenant["state"] == "idle" else tenant["state"]


def _failed_bytes(tenant: dict[str, Any]) -> list[int]:
    """What each failed context keeps."""
    opened = (device for client in tenant["clients"] for device in client["devices"])
    return [device["bytes_allocated"] for device in opened if device["failed"]]


_NOTES = ("blocked_reason", "in_the_way", "placement", "class_note", "hold_note")


def _notes(tenant: dict[str, Any]) -> list[str]:
    """What is wrong with it, and what to do. An older scheduler tells less."""
    told = (tenant.get(word) for word in _NOTES)
    reasons = [f"{tenant['name']}: {sentences}" for sentences in told if sentences]
    return _failure_lines(tenant) + _kinds_lines(tenant) + _unpinned_lines(tenant) + reasons


def _failure_lines(tenant: dict[str, Any]) -> list[str]:
    kept = _failed_bytes(tenant)
    if not kept:
        return []
    return [
        f"{tenant['name']} met an error from which CUDA cannot recover. Restart it; that frees "
        f"{size(sum(kept))}."
    ]


def _kinds_lines(tenant: dict[str, Any]) -> list[str]:
    """Of which kinds what can be moved is, where it is not all plain; what cannot be, and why."""
    kinds: Counter[str] = Counter()
    for each in memory_of(tenant):
        kinds.update(each["kinds"])
    lines = []
    for words, found in (
        ("has memory of these kinds", kinds_that_move(kinds)),
        ("has memory that cannot be moved", kinds_that_stay(kinds)),
    ):
        told = ", ".join(f"{size(count)} {kind}" for kind, count in found)
        lines += [f"{tenant['name']} {words}: {told}."] if found else []
    return lines


def _unpinned_lines(tenant: dict[str, Any]) -> list[str]:
    """An older scheduler tells nothing of it."""
    if not tenant.get("bytes_unpinned"):
        return []
    return [
        f"{tenant['name']} has {size(tenant['bytes_unpinned'])} parked in host memory that could "
        "not be pinned, so it moves more slowly. Raise the limit of locked memory (ulimit -l)."
    ]


def _host_lines(status: dict[str, Any]) -> list[str]:
    """A machine that is slow to park for the first time. An older scheduler tells nothing of it."""
    host = status.get("host", {})
    if not host.get("slow"):
        return []
    return [
        f"Host memory of this machine becomes ready at {size(host['bytes_ready_per_s'])} a second, "
        "so memory that parks for the first time is slow. Switch transparent huge pages on "
        "(/sys/kernel/mm/transparent_hugepage/enabled), or allow its notebooks more processors."
    ]


def _memory(tenant: dict[str, Any]) -> str:
    """On devices, and in host memory where some had to make room."""
    told = memory_of(tenant)
    resident, parked = (sum(each[f"bytes_{kind}"] for each in told) for kind in _KINDS)
    return f"{size(resident)} + {size(parked)} parked" if parked else size(resident)
