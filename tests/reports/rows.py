"""Rows and reports for tests: plain ones, and strategies for any that a node may send."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from jupyter_gpushare.reports.format import (
    NUMBER_MAX,
    TEXT_CHARACTERS_MAX,
    WAIT_BOUNDS_S,
    DeviceRow,
    NodeHello,
    NodeRow,
    Place,
    Report,
    Seen,
    TenantRow,
    Waits,
)

BOOT = "a" * 32
OTHER_BOOT = "b" * 32


def a_node(**changes: Any) -> NodeRow:
    return NodeRow(**{"version": "1.0", "owners": "hub", **changes})


def a_device(**changes: Any) -> DeviceRow:
    plain = {
        "name": "NVIDIA H100",
        "bytes_total": 80 << 30,
        "bytes_used": 0,
        "bytes_usable": 79 << 30,
        "bytes_outside": 0,
        "mode": "shared",
        "lost": False,
    }
    return DeviceRow(**{**plain, **changes})


def a_tenant(**changes: Any) -> TenantRow:
    plain = {
        "name": "train.ipynb",
        "owner": "alice",
        "groups": (),
        "kind": "kernel",
        "state": "idle",
        "runs_as": "interactive",
        "devices": (),
        "bytes_resident": 0,
        "bytes_parked": 0,
        "turns": 0,
        "waits": 0,
        "waited_s": 0.0,
        "held_s": 0.0,
    }
    return TenantRow(**{**plain, **changes})


def a_report(sequence: int = 0, **changes: Any) -> Report:
    whole = changes.get("whole", sequence == 0)
    plain = {
        "boot": BOOT,
        "sequence": sequence,
        "whole": whole,
        "sent_at": 1000.0,
        "node": a_node() if whole else None,
    }
    return Report(**{**plain, **changes})


# ---- any that may be sent --------------------------------------------------------------------

letters = st.characters(exclude_categories=("C", "Z"), include_characters=" ").filter(
    str.isprintable
)
texts = st.text(letters, max_size=12) | st.just("x" * TEXT_CHARACTERS_MAX)
keys = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=36)
boots = st.text("0123456789abcdef", min_size=32, max_size=32)
amounts = st.integers(-1, int(NUMBER_MAX) - 1)
seconds = st.floats(0, 1e15, allow_nan=False)
places = st.builds(
    Place,
    tenant=texts,
    for_s=seconds,
    recalled=st.booleans(),
    overdue=st.booleans(),
    frozen=st.booleans(),
)
few_places = st.lists(places, max_size=3).map(tuple)
few_texts = st.lists(texts, max_size=3).map(tuple)
devices = st.builds(
    DeviceRow,
    name=texts,
    bytes_total=amounts,
    bytes_used=amounts,
    bytes_usable=amounts,
    bytes_outside=amounts,
    mode=texts,
    lost=st.booleans(),
    holders=few_places,
    queue=few_places,
)
tenants = st.builds(
    TenantRow,
    name=texts,
    owner=texts,
    groups=few_texts,
    kind=texts,
    state=texts,
    runs_as=texts,
    devices=few_texts,
    bytes_resident=amounts,
    bytes_parked=amounts,
    turns=amounts,
    waits=amounts,
    waited_s=seconds,
    held_s=seconds,
    why=texts,
)
classes = len(WAIT_BOUNDS_S) + 1
waits = st.builds(
    Waits,
    counts=st.lists(st.integers(0, 1 << 40), min_size=classes, max_size=classes).map(tuple),
    sum_s=seconds,
)
nodes = st.builds(
    NodeRow,
    version=texts,
    owners=texts,
    platform=texts,
    started_at=seconds,
    recovering=st.booleans(),
    turns_on=st.booleans(),
    bytes_host_available=amounts,
    problems=few_texts,
    waits=waits,
)
reports = st.builds(
    Report,
    boot=boots,
    sequence=amounts,
    whole=st.booleans(),
    sent_at=seconds,
    node=st.none() | nodes,
    devices=st.dictionaries(keys, st.none() | devices, max_size=3),
    tenants=st.dictionaries(keys, st.none() | tenants, max_size=3),
)
hellos = st.builds(NodeHello, boot=boots, version=texts, format=st.integers(0, 9))
seens = st.builds(Seen, sequence=amounts, again=st.booleans())
messages = st.one_of(reports, hellos, seens)
