"""Where a notebook would find a GPU, in a sentence for each node. Pure.

Everybody may read it: it names nodes and no people.
"""

from __future__ import annotations

from typing import Any

from .fleet import Fleet, Node
from .glance import Glance, Glances, unused_of

SENTENCES_MAX = 3
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: int) -> str:
    """Three digits are enough to compare by: `61 GiB`, `3.2 GiB`."""
    amount, unit = float(max(0, count)), 0
    while amount >= 1023.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.{1 if unit and amount < 9.95 else 0}f} {_UNITS[unit]}"


def advice_of(fleet: Fleet, now_s: float, glances: Glances) -> list[dict[str, Any]]:
    """The nodes with most unused memory on a free device; where no device is free, the node whose
    queue is shortest for its devices."""
    live = [(node, glances.of(node)) for node in fleet.nodes.values() if _serves(node, now_s)]
    free = [(node, glance) for node, glance in live if glance.free]
    if free:
        free.sort(key=lambda each: (-each[1].bytes_unused_max(), -len(each[1].free), each[0].name))
        return [_said(node, _free_sentence(node, each)) for node, each in free[:SENTENCES_MAX]]
    serving = [(node, glance, _open(glance)) for node, glance in live]
    serving = [each for each in serving if each[2]]
    if not serving:
        return []
    node, glance, count = min(serving, key=lambda e: (e[1].waiting / e[2], -e[2], e[0].name))
    return [_said(node, _queue_sentence(node, glance, count))]


def _said(node: Node, sentence: str) -> dict[str, Any]:
    return {"node": node.name, "sentence": sentence}


def _serves(node: Node, now_s: float) -> bool:
    """A node from which more is known than that it is there, and that shares its devices by
    turns."""
    row = node.row
    if row is None or row.recovering or not row.turns_on:
        return False
    return not (node.is_silent(now_s) or node.is_in_conflict(now_s))


def _open(glance: Glance) -> int:
    """Devices on which turns begin."""
    return sum(each.mode == "open" and not each.lost for each in glance.devices.values())


def _free_sentence(node: Node, glance: Glance) -> str:
    unused = size(max(unused_of(device) for device in glance.free))
    if len(glance.free) == 1:
        queue = "its queue is empty" if not glance.waiting else "nobody waits for it"
        return f"{node.name} has a free GPU with {unused}; {queue}."
    return f"{node.name} has {len(glance.free)} free GPUs, one of them with {unused}."


def _queue_sentence(node: Node, glance: Glance, count: int) -> str:
    gpus = "1 GPU" if count == 1 else f"{count} GPUs"
    if glance.waiting == 0:
        return f"No GPU is free now. On {node.name} nobody waits for its {gpus}."
    waits = "1 notebook waits" if glance.waiting == 1 else f"{glance.waiting} notebooks wait"
    return f"No GPU is free now. On {node.name}, {waits} for {gpus}: that is the shortest queue."
