"""`jupyter gpushare status`: devices, who holds them, and the tenants."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .options import add_runtime_dir, client_of
from .queue import queue_lines
from .text import duration, size, table


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("status", help="show devices, turns, tenants and settings")
    parser.add_argument("--json", action="store_true", help="print all that is known, as JSON")
    add_runtime_dir(parser)
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    status = client_of(arguments).status()
    print(json.dumps(status, indent=2) if arguments.json else rendered(status))
    return 0


def rendered(status: dict[str, Any]) -> str:
    """The status as a person reads it. Pure."""
    parts = [_scheduler_lines(status)]
    parts += ["\n".join(_device_lines(device)) for device in status["devices"]]
    if not status["devices"]:
        parts.append("No device is known yet.")
    parts.append(_tenant_table(status["tenants"]) if status["tenants"] else "No tenants.")
    return "\n\n".join(parts)


def _scheduler_lines(status: dict[str, Any]) -> str:
    process, settings = status["scheduler"], status["settings"]
    lines = [
        f"jupyter-gpushare {process['version']}, process {process['pid']} of {process['user']}, "
        f"up {duration(process['uptime_s'])}, serves {process['runtime_dir']}",
        f"quantum {duration(settings['quantum_s'])}, anti-thrash {settings['anti_thrash']}",
    ]
    if process["recovering"]:
        lines.append("waiting for the clients of the scheduler before this one")
    return "\n".join(lines)


def _device_lines(device: dict[str, Any]) -> list[str]:
    used = max(device["bytes_used"], device["bytes_allocated"])
    memory = f"{size(used)} of {size(device['bytes_total'])} used"
    head = f"{device['name']} ({device['id']}): {'LOST' if device['lost'] else memory}"
    return [head, *queue_lines(device)]


def _tenant_table(tenants: list[dict[str, Any]]) -> str:
    rows = [
        [
            tenant["name"],
            tenant["owner"],
            tenant["kind"],
            tenant["state"],
            str(len(tenant["clients"])),
            size(_bytes_allocated(tenant)),
            str(tenant["counters"]["turns"]),
            duration(tenant["counters"]["waited_s_total"]),
        ]
        for tenant in tenants
    ]
    head = ["TENANT", "OWNER", "KIND", "STATE", "PROCESSES", "MEMORY", "TURNS", "WAITED"]
    return table(head, rows)


def _bytes_allocated(tenant: dict[str, Any]) -> int:
    return sum(
        opened["bytes_allocated"] for client in tenant["clients"] for opened in client["devices"]
    )
