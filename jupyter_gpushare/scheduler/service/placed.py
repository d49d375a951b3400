"""What a tenant needs, and where it was put before it opened CUDA, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_gpushare.core.placement import WISH_CHARACTERS_MAX, size

from ..base.names import printable_line

NO_NEED = ("0", "none")
"""A tenant that runs takes its need back with these."""


def wish_of(request: Mapping[str, Any]) -> tuple[str, str]:
    """The need and the number of devices in a request. Whatever stands there, the tenant is
    registered: what cannot be read is told to it as the reason why it was not placed."""
    need, devices = (request.get(name) for name in ("need", "need_devices"))
    return _text(need), _text(devices)


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return printable_line(text)[:WISH_CHARACTERS_MAX].strip() or "?" * bool(text)


def placement_sentence(
    placement: Mapping[str, Any] | None, devices: Sequence[Mapping[str, Any]]
) -> str | None:
    """`devices` in the order in which the status numbers them, from 0."""
    if placement is None:
        return None
    if placement["reason"]:
        return f"Not placed on a GPU. {placement['reason']}"
    numbers = {device["id"]: number for number, device in enumerate(devices)}
    known = [str(numbers[each]) for each in placement["devices"] if each in numbers]
    if not known:
        return "Placed on a GPU that is gone. Restart the kernel to have it placed anew."
    names = "GPU " + known[0] if len(known) == 1 else "GPUs " + " and ".join(known)
    if not placement["bytes_needed"]:
        return f"Placed on {names}."
    each = " on each" if len(known) > 1 else ""
    return f"Placed on {names}: needs {size(placement['bytes_needed'])}{each}."


def needed_bytes(placement: Mapping[str, Any] | None) -> int:
    """On each of its devices; 0 if it has no need."""
    return int(placement["bytes_needed"]) if placement and placement["devices"] else 0
