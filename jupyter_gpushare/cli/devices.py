"""`jupyter gpushare pause`, `resume` and `drain`: whether turns begin on a device."""

from __future__ import annotations

import argparse

from .naming import devices_named
from .options import add_runtime_dir, client_of
from .queue import device_title, queue_lines

_VERBS = {
    "pause": ("paused", "grant no turn on a device, and ask for the present one"),
    "resume": ("open", "grant turns on a device again"),
    "drain": ("drained", "pause a device, and have the memory of all notebooks leave it"),
}


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for verb, (mode, help_) in _VERBS.items():
        parser = verbs.add_parser(verb, help=help_)
        parser.add_argument(
            "device",
            metavar="DEVICE",
            help="its UUID or name in `status` (a beginning is enough), its number there "
            "(from 0), or `all`",
        )
        add_runtime_dir(parser)
        parser.set_defaults(perform=perform, mode=mode)


def perform(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    named = [device["id"] for device in devices_named(client.status(), arguments.device)]
    for device_id in named:
        client.set_device_mode(device_id, arguments.mode)
    status = client.status()
    for device in status["devices"]:
        if device["id"] in named:
            lines = queue_lines(device, status["tenants"])
            print("\n".join([f"{device_title(device)}: {device['mode']}", *lines]))
    return 0
