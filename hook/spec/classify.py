"""Reads cuda_api.toml and gives every entry point its rule."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CLASSES = ("gate", "memory", "report", "lifecycle", "pass")
GATES = ("launch", "sync", "alloc", "claim", "look")
_KEYS = {
    "class",
    "why",
    "names",
    "gate",
    "stream",
    "room",
    "other",
    "within",
    "before",
    "after",
    "beside",
}


class SpecError(Exception):
    """cuda_api.toml and the headers do not fit."""


@dataclass(frozen=True)
class Rule:
    kind: str
    why: str
    names: tuple[str, ...]
    gate: str | None
    stream: str | None
    room: str | None
    other: str | None
    within: str | None
    before: str | None
    after: str | None
    beside: str | None

    @property
    def wraps(self) -> bool:
        return self.kind != "pass"


def _rule(table: dict[str, object]) -> Rule:
    names = table.get("names")
    unknown = set(table) - _KEYS
    if unknown or not isinstance(names, list) or not table.get("why"):
        raise SpecError(f"a rule needs class, why and names, and knows no {sorted(unknown)}")
    texts = {key: str(value) for key, value in table.items() if key != "names"}
    rule = Rule(
        kind=texts["class"],
        why=texts["why"],
        names=tuple(str(name) for name in names),
        gate=texts.get("gate"),
        stream=texts.get("stream"),
        room=texts.get("room"),
        other=texts.get("other"),
        within=texts.get("within"),
        before=texts.get("before"),
        after=texts.get("after"),
        beside=texts.get("beside"),
    )
    if rule.kind not in CLASSES or (rule.gate is not None and rule.gate not in GATES):
        raise SpecError(f"rule {rule.why!r}: class {rule.kind}, gate {rule.gate} is not known")
    inside = rule.other is not None or rule.within is not None
    if inside and (rule.gate is None or rule.room is not None):
        raise SpecError(f"rule {rule.why!r}: only gated calls that need no room do more inside")
    if rule.beside is not None and (rule.gate != "launch" or rule.room is None):
        raise SpecError(f"rule {rule.why!r}: only a launch that may need room has another way")
    if rule.wraps != bool(rule.gate or rule.room or rule.before or rule.after):
        raise SpecError(f"rule {rule.why!r}: a wrapper that does nothing, or a pass that does")
    return rule


def read_rules(path: Path, section: str) -> dict[str, Rule]:
    """The rules of one section of the file, by name."""
    with path.open("rb") as file:
        tables = tomllib.load(file)[section]
    rules: dict[str, Rule] = {}
    for rule in map(_rule, tables):
        for name in rule.names:
            if name in rules:
                raise SpecError(f"{name} is classified twice. Remove it from one rule.")
            rules[name] = rule
    return rules


def check_complete(rules: dict[str, Rule], bases: Iterable[str], file_name: str) -> None:
    """Every entry point has a rule, and every rule an entry point."""
    known = set(bases)
    unclassified = sorted(known - set(rules))
    if unclassified:
        names = ", ".join(unclassified)
        raise SpecError(f"unclassified entry points: {names}. Name each in a rule of {file_name}.")
    unheard_of = sorted(set(rules) - known)
    if unheard_of:
        names = ", ".join(unheard_of)
        raise SpecError(f"no header has: {names}. Remove each from {file_name}.")
