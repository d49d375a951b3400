"""What a notebook shows of a status: sentences, and a table. Pure, but for the clock."""

import html
from typing import Any

from .words import clock, duration, kinds_that_move, kinds_that_stay, length, size

_BAR_LETTERS = 20
NOTHING: Any = {"devices": [], "tenants": []}


def story_of(kernel: Any) -> str:
    """How this kernel stands, in a sentence or two. Pure."""
    if kernel["contexts_failed"]:
        return (
            "This kernel met an error from which CUDA cannot recover. Restart it to use the GPU "
            "again."
        )
    if not kernel["running"] or not kernel["tenant"]:
        return str(kernel["problem"] or "This kernel has not used the GPU yet.")
    if not kernel["connected"]:
        return f"This kernel has lost the scheduler and looks for it. {kernel['problem']}"
    if kernel["phase"] == "held":
        return "This kernel has the GPU."
    if kernel["phase"] == "closing":
        return "This kernel gives the GPU back."
    if kernel["phase"] == "asked":
        holder = kernel["holder"]
        ahead = f", after {holder}" if holder else ""
        place = kernel["queue_position"]
        return f"This kernel is number {place} in the queue for the GPU{ahead}."
    return "This kernel does not use the GPU now."


def notes_on_waiting(status: Any, tenant: str) -> "list[str]":
    """What a kernel that waits should know besides its place, and one for whose memory others wait,
    a sentence each. Pure, but for the clock. An older scheduler tells nothing of all this."""
    held = [
        "{} has reserved it until {}.".format(
            _who(holder, _tenants(status)), clock(holder["hold_left_s"])
        )
        for device in (status or NOTHING)["devices"]
        if any(waiter["tenant"] == tenant for waiter in device["queue"])
        for holder in device["holders"]
        if holder.get("hold_left_s")
    ]
    own = own_of(status, tenant)
    if own.get("estimate"):
        held += [str(own["estimate"][word]) for word in ("when", "why")]
    if own.get("hold_to_come_s"):
        held.append(
            "It will keep the GPU for {} once it has it; `%gpushare release` cancels that.".format(
                length(own["hold_to_come_s"])
            )
        )
    told = (own.get(word) for word in ("blocked_reason", "in_the_way", "class_note", "hold_note"))
    return [*held, *(str(sentences) for sentences in told if sentences)]


def notes_on_memory(status: Any, tenant: str) -> "list[str]":
    """What this kernel has on each device and parked, and how much it may have. Pure."""
    names = {device["id"]: device["name"] for device in (status or NOTHING)["devices"]}
    lines = []
    for memory in own_of(status, tenant).get("memory") or []:
        parts = [
            "{} on {}".format(size(memory["bytes_resident"]), names.get(memory["device"], "?"))
        ]
        if memory["bytes_parked"]:
            parts.append("parked {}".format(size(memory["bytes_parked"])))
        kinds = memory.get("kinds") or {}
        moving = kinds_that_move(kinds)
        if moving:
            parts.append("by kind {}".format(_listed(moving, " + ")))
        if memory["bytes_fixed"]:
            why = _listed(kinds_that_stay(kinds), ", ")
            parts.append(
                "fixed {}{}".format(size(memory["bytes_fixed"]), f" ({why})" if why else "")
            )
        if memory["cap_bytes"]:
            parts.append("limit {}".format(size(memory["cap_bytes"])))
        if memory["bytes_resident"] or memory["bytes_parked"]:
            lines.append("Memory of this kernel: {}.".format(", ".join(parts)))
    return lines


def _listed(kinds: "list[tuple[str, int]]", between: str) -> str:
    return between.join(f"{size(count)} {kind}" for kind, count in kinds)


def _tenants(status: Any) -> Any:
    return (status or NOTHING)["tenants"]


def own_of(status: Any, tenant: str) -> Any:
    """What the scheduler tells of this kernel's tenant; empty when nothing."""
    return next((each for each in _tenants(status) if each["id"] == tenant), {})


HEAD = ("", "who", "for", "")


class NotebookView:
    """What a notebook shows: text, and a small table where there is HTML."""

    def __init__(self, story: str, status: Any, tenant: str, *, with_memory: bool = True) -> None:
        memory = notes_on_memory(status, tenant) if with_memory else []
        self._lines = [line for line in (story, *memory) if line]
        self._devices = [] if status is None else status["devices"]
        self._tenants = [] if status is None else status["tenants"]
        self._tenant = tenant
        self._silent = status is None

    def __repr__(self) -> str:
        lines = list(self._lines)
        for device in self._devices:
            lines += ["", device["name"], "  " + memory_bar(device, self._tenants)]
            rows = rows_of(device, self._tenant, self._tenants)
            widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
            for row in rows:
                cells = (cell.ljust(width) for cell, width in zip(row, widths))  # noqa: B905
                lines.append(("  " + "  ".join(cells)).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(line)}</p>" for line in self._lines]
        for device in self._devices:
            rows = "".join(_html_row(row) for row in rows_of(device, self._tenant, self._tenants))
            name = html.escape(device["name"])
            bar = html.escape(memory_bar(device, self._tenants))
            # Jupyter's own style centres captions and tables, and puts cells to the right.
            parts.append(f"<p><b>{name}</b><br>{bar}</p>")
            parts.append(f'<table style="margin-left: 0">{rows}</table>')
        return "".join(parts)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        bundle = {"text/plain": repr(self)}
        if not self._silent:
            bundle["text/html"] = self._repr_html_()
        return bundle


def rows_of(device: Any, tenant: str, tenants: Any) -> "list[tuple[str, str, str, str]]":
    """Holders, then who waits, in order: what, who, for how long, and what else. Pure."""
    rows = []
    for holder in device["holders"]:
        hold_left_s = holder.get("hold_left_s")  # an older scheduler does not tell
        held = "reserved until " + clock(hold_left_s) if hold_left_s else ""
        note = held or ("asked to give it back" if holder["recalled"] else "")
        rows.append(("has it", _who(holder, tenants, tenant), duration(holder["held_for_s"]), note))
    for place, waiter in enumerate(device["queue"], start=1):
        rows.append((str(place), _who(waiter, tenants, tenant), duration(waiter["waited_s"]), ""))
    return rows or [("lost" if device["lost"] else "free", "", "", "")]


def memory_bar(device: Any, tenants: Any) -> str:
    """How full the device is, by everybody, as a bar and in figures. Pure.

    NVML is asked now and then; tenants tell of what they take at once."""
    total = device["bytes_total"]
    resident = sum(
        memory["bytes_resident"]
        for tenant in tenants
        for memory in tenant.get("memory") or []
        if memory["device"] == device["id"]
    )
    known = resident + device.get("bytes_foreign", 0)
    used = min(max(device["bytes_used"], known, 0), total)
    full = min(_BAR_LETTERS, round(_BAR_LETTERS * used / total)) if total > 0 else 0
    bar = "█" * full + "░" * (_BAR_LETTERS - full)
    return f"{bar} {size(used)} of {size(total)} in use"


def _who(place: Any, tenants: Any, tenant: str = "") -> str:
    """`ann: train.ipynb` where notebooks of several users are named."""
    owners = {each["id"]: each["owner"] for each in tenants}
    owner, name = owners.get(place["tenant"], place["name"]), place["name"]
    several = len(set(owners.values()) - {"another user"}) > 1
    shown = f"{owner}: {name}" if several and owner != name else name
    return f"{shown} (this kernel)" if place["tenant"] == tenant else str(shown)


def _html_row(row: "tuple[str, ...]") -> str:
    cells = "".join(f'<td style="text-align: left">{html.escape(cell)}</td>' for cell in row)
    return f"<tr>{cells}</tr>"
