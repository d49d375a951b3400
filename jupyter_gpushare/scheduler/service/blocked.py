"""Why a tenant gets no turn although its devices are free, in words for its user, and for the user
of the tenant that is in its way. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jupyter_gpushare.core.space.requests import Obstacle

from .waits import length

_STEPS_S = (10, 30, 60, 120, 300, 600)
"""What is told does not change with each second: every change is news, and is sent to everybody."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def blocked_reason(
    tenant: dict[str, Any],
    devices: dict[str, dict[str, Any]],
    name_of: Callable[[str], str | None],
) -> str | None:
    """One sentence on what is in the way and one on what to do. `name_of` gives the name of a
    tenant, as far as the reader may know it."""
    obstacle = tenant["obstacle"]
    if obstacle is None:
        return _paused(tenant, devices) or _frozen(tenant, devices, name_of)
    device = devices[obstacle["device"]]
    whose = None if obstacle["tenant"] is None else name_of(obstacle["tenant"])
    wrong, remedy = _SENTENCES[obstacle["kind"]]
    if obstacle["kind"] == "foreign" and not device.get("bytes_contexts"):
        wrong = _FOREIGN_AND_CONTEXTS  # there are none, or they cannot be told apart
    if obstacle["kind"] == "contexts" and obstacle["tenant"] is not None:
        remedy += " {whose} has most of them."
    if (left_s := tenant.get("memory_wait_left_s")) is not None:
        within_s = next((each for each in _STEPS_S if left_s <= each), left_s)
        remedy += f" Else this notebook is out of memory within {length(within_s)}."
    return f"{wrong} {remedy}".format(
        amount=size(obstacle["bytes_in_the_way"]),
        short=size(obstacle["bytes_short"]),
        device=device["name"],
        whose=whose or "A notebook of another user",
    )


def _paused(tenant: dict[str, Any], devices: dict[str, dict[str, Any]]) -> str | None:
    if tenant["state"] != "waiting":
        return None
    opened = (devices[each["device"]] for each in tenant["memory"])
    paused = next((device for device in opened if device["mode"] != "open"), None)
    if paused is None:
        return None
    return f"An administrator has paused {paused['name']}. Wait until it goes on, or ask them."


def _frozen(
    tenant: dict[str, Any],
    devices: dict[str, dict[str, Any]],
    name_of: Callable[[str], str | None],
) -> str | None:
    if tenant["state"] != "waiting":
        return None
    for opened in tenant["memory"]:
        device = devices[opened["device"]]
        for holder in device["holders"]:
            if holder["frozen"]:
                whose = name_of(holder["tenant"]) or "A notebook of another user"
                return (
                    f"{whose} has {device['name']} and was stopped from outside, so it cannot give "
                    f"it back. Wait until it goes on, or ask an administrator to end it."
                )
    return None


def in_the_way(
    tenants: Iterable[dict[str, Any]], devices: dict[str, dict[str, Any]]
) -> dict[str, str]:
    """By tenant: that its memory keeps others from theirs, and what its user can do. It is not told
    whom."""
    told: dict[str, str] = {}
    for tenant in tenants:
        obstacle = tenant["obstacle"]
        sentences = None if obstacle is None else _SENTENCES_IN_THE_WAY.get(obstacle["kind"])
        if sentences and obstacle["tenant"] is not None:
            amount, device = size(obstacle["bytes_in_the_way"]), devices[obstacle["device"]]["name"]
            short = size(obstacle["bytes_short"])
            words = " ".join(sentences).format(amount=amount, short=short, device=device)
            told[obstacle["tenant"]] = words
    return told


def was_in_the_way(obstacle: Obstacle, device_name: str, whose: str | None) -> str:
    """What it was, for a wait that may be over. `whose` as far as the reader may know it."""
    return _SENTENCES_THEN[obstacle.kind.value].format(
        amount=size(obstacle.bytes_in_the_way),
        short=size(obstacle.bytes_short),
        device=device_name,
        whose=whose or "A notebook of another user",
    )


def without_what_is_gone(tenants: Iterable[dict[str, Any]]) -> None:
    """A refusal is told for minutes: where the tenant that was in the way has ended since, or keeps
    nothing there any more, nobody reads that it does."""
    told = list(tenants)
    by_id = {tenant["id"]: tenant for tenant in told}
    for tenant in told:
        obstacle = tenant["obstacle"]
        if obstacle is None or obstacle["tenant"] is None:
            continue
        whose = by_id.get(obstacle["tenant"])
        if whose is None or (
            obstacle["kind"] in _SENTENCES_IN_THE_WAY
            and not any(
                each.get(word)
                for each in whose["memory"]
                for word in _KEPT.get(obstacle["kind"], ("bytes_staying",))
                if each["device"] == obstacle["device"]
            )
        ):
            tenant["obstacle"] = None


def size(count: int) -> str:
    """As people read it: 61.0 GiB."""
    value, unit = float(count), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} bytes"


_SENTENCES = {
    "itself": (
        "This notebook has {amount} on {device}, {short} more than the device can give it.",
        "Free some of it, or shut down a process of this notebook.",
    ),
    "foreign": (
        "{amount} of {device} belong to programs that are not under gpushare and to the driver, "
        "and {short} are missing.",
        "End those programs or wait until they end, or free GPU memory in this notebook.",
    ),
    "contexts": (
        "CUDA contexts of notebooks take {amount} of {device}, and {short} are missing.",
        "Shut down notebooks that nobody needs, or wait until that is done.",
    ),
    "ended": (
        "Processes that have ended still have {amount} on {device}.",
        "Wait a moment. If they keep it, look for processes that hang.",
    ),
    "fixed": (
        "{whose} has {amount} on {device} that cannot be moved, and {short} are missing.",
        "Wait until they are freed, or let its owner restart it.",
    ),
    "failed": (
        "{whose} met an error from which CUDA cannot recover, and keeps {amount} of {device}.",
        "Let its owner restart it.",
    ),
    "silent": (
        "{whose} was asked to make room on {device} and keeps {amount}.",
        "Let its owner interrupt or restart it.",
    ),
    "host": (
        "{whose} has {amount} on {device} for which the host, or the memory limit of its server, "
        "has no room: at least {short} of host memory are missing.",
        "Raise that limit, free memory of the host, or shut down notebooks that are not needed.",
    ),
    "holder": (
        "{whose} works with {amount} of {device}, and {short} are missing.",
        "Wait until its turn ends.",
    ),
    "needed": (
        "{whose} has {amount} that could not come back to {device} beside one more CUDA context.",
        "Wait until it frees some, or shut down notebooks that nobody needs.",
    ),
    "retry": (
        "The memory of this notebook did not fit on {device} a moment ago.",
        "Wait. The scheduler tries again by itself.",
    ),
}

_FOREIGN_AND_CONTEXTS = (
    "{amount} of {device} belong to CUDA contexts, this notebook's too, and to programs that are "
    "not under gpushare, and {short} are missing."
)

_KEPT = {"contexts": ("bytes_context",), "needed": ("bytes_resident", "bytes_parked")}
"""What of a tenant is in the way; of other obstacles what stays."""

_SENTENCES_IN_THE_WAY = {
    "contexts": (
        "CUDA contexts, those of this notebook among them, take {amount} of {device}, and others "
        "wait for memory.",
        "Shut this notebook down if you do not need it.",
    ),
    "needed": (
        "Others wait to open a CUDA context on {device}, beside which {amount} of this notebook "
        "could not come back.",
        "Free some of it if you can spare it.",
    ),
    "fixed": (
        "{amount} of this notebook's memory on {device} cannot be moved, and others wait for it.",
        "Free it, or restart this notebook when you can spare it.",
    ),
    "failed": (
        "This notebook met an error from which CUDA cannot recover, and others wait for its "
        "{amount} of {device}.",
        "Restart it.",
    ),
    "silent": (
        "This notebook was asked to make room on {device} and keeps {amount}, and others wait for "
        "it.",
        "Interrupt or restart it.",
    ),
    "host": (
        "The host, or the memory limit of this server, has no room for {amount} of this notebook's "
        "memory on {device}, and others wait for it: at least {short} of host memory are missing.",
        "Free some of it, let somebody raise that limit, or restart this notebook when you can "
        "spare it.",
    ),
}

_SENTENCES_THEN = {
    "itself": "This notebook had {amount} on {device}, {short} more than the device could give it.",
    "foreign": "{amount} of {device} belonged to programs that are not under gpushare, or to CUDA "
    "contexts that could not be told from them, and {short} were missing.",
    "contexts": "CUDA contexts of notebooks took {amount} of {device}, and {short} were missing.",
    "ended": "Processes that had ended still had {amount} on {device}.",
    "fixed": "{whose} had {amount} on {device} that could not be moved, and {short} were missing.",
    "failed": "{whose} had met an error from which CUDA cannot recover, and kept {amount} of "
    "{device}.",
    "silent": "{whose} was asked to make room on {device} and kept {amount}.",
    "host": "{whose} had {amount} on {device} for which the host, or the memory limit of its "
    "server, had no room: at least {short} of host memory were missing.",
    "holder": "{whose} worked with {amount} of {device}, and {short} were missing.",
    "needed": "{whose} had {amount} that could not have come back to {device} beside one more CUDA "
    "context.",
    "retry": "The memory of this notebook had not fitted on {device} a moment before.",
}
