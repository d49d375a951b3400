"""`jupyter gpushare queue`: who holds each device, who waits, and for how long."""

from __future__ import annotations

import argparse
import uuid
from typing import Any

from jupyter_gpushare.client.memory import bytes_of_tenants

from .options import add_runtime_dir, client_of
from .text import duration, size

_UNKNOWN = "another user"
"""What the scheduler says where the caller may not know whose a tenant is."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("queue", help="show who holds each device and who waits, with times")
    add_runtime_dir(parser)
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    print(rendered(client_of(arguments).status()))
    return 0


def rendered(status: dict[str, Any]) -> str:
    """The queues as a person reads them. Pure."""
    if not status["devices"]:
        return no_gpu(status)
    return "\n\n".join(
        "\n".join([device_title(device), *queue_lines(device, status["tenants"])])
        for device in status["devices"]
    )


def no_gpu(status: dict[str, Any]) -> str:
    """With the reason. An older scheduler does not tell it."""
    return f"The scheduler has found no GPU. {status['scheduler'].get('no_gpu', '')}".rstrip()


def device_title(device: dict[str, Any]) -> str:
    """Name and UUID, the latter as nvidia-smi and CUDA_VISIBLE_DEVICES write it."""
    return f"{device['name']} ({uuid.UUID(device['id'])})"


def queue_lines(device: dict[str, Any], tenants: list[dict[str, Any]]) -> list[str]:
    """One line for each holder and each waiter of a device."""
    lines = [f"  held by {_holder(holder, tenants)}" for holder in device["holders"]]
    lines += [
        f"  {place}. {who(waiter, tenants)} has waited for {duration(waiter['waited_s'])}"
        f"{_estimate(waiter, tenants)}"
        for place, waiter in enumerate(device["queue"], start=1)
    ]
    return [*_mode_lines(device, tenants), *(lines or ["  free"])]


def _mode_lines(device: dict[str, Any], tenants: list[dict[str, Any]]) -> list[str]:
    """What an administrator has done to the device."""
    if device["mode"] == "open":
        return []
    if device["mode"] == "paused":
        return ["  paused: no turn begins"]
    if device["holders"]:
        return ["  drained: the present turn has been asked back"]
    left = bytes_of_tenants(device["id"], tenants)
    return [f"  drained: {size(left)} of tenants are left" if left else "  drained: empty"]


def who(place: dict[str, Any], tenants: list[dict[str, Any]]) -> str:
    """`ann: train.ipynb` where notebooks of several users are named."""
    owners = {tenant["id"]: tenant["owner"] for tenant in tenants}
    owner = owners.get(place["tenant"], place["name"])
    several = len(set(owners.values()) - {_UNKNOWN}) > 1
    return f"{owner}: {place['name']}" if several and owner != place["name"] else place["name"]


def _estimate(waiter: dict[str, Any], tenants: list[dict[str, Any]]) -> str:
    """When it starts, and why not now. Of other users' notebooks nothing is told."""
    tenant = next((each for each in tenants if each["id"] == waiter["tenant"]), {})
    estimate = tenant.get("estimate")
    return f". {estimate['when']} {estimate['why']}" if estimate else ""


def _holder(holder: dict[str, Any], tenants: list[dict[str, Any]]) -> str:
    words = f"{who(holder, tenants)} for {duration(holder['held_for_s'])}"
    if holder["hold_left_s"]:
        words += f", reserved by its user for {duration(holder['hold_left_s'])} more"
    if holder["frozen"]:
        words += ", frozen: it gives the turn back when it goes on"
    if holder["overdue"]:
        return f"{words}, overdue: it does not give the turn back"
    return f"{words}, asked to give it back" if holder["recalled"] else words
