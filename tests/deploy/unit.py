"""The systemd unit of a node's scheduler, read as systemd reads it: tests start what it starts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

UNIT = ROOT / "deploy" / "systemd" / "jupyter-gpushare.service"
PLACEHOLDER = "/opt/jupyter"
"""Where an administrator puts the folder of their own environment."""


def entries(section: str, *, text: str | None = None) -> dict[str, str]:
    """What a section says; each key stands there once."""
    found: dict[str, str] = {}
    for key, value in _lines_of(section, UNIT.read_text() if text is None else text):
        assert key not in found, f"{key} stands there twice"
        found[key] = value
    return found


def start_command(*, text: str | None = None) -> list[str]:
    """What systemd starts."""
    return shlex.split(entries("Service", text=text)["ExecStart"])


def scheduler_flags() -> list[str]:
    """Of `jupyter gpushare scheduler`, as the unit starts it."""
    program, verb, *flags = start_command()
    assert (program, verb) == (f"{PLACEHOLDER}/bin/jupyter-gpushare", "scheduler")
    return flags


def as_the_unit_bounds_it(command: list[str]) -> list[str]:
    """The command with the unit's capabilities, for root."""
    names = entries("Service")["CapabilityBoundingSet"].lower().split()
    kept = "".join(f",+{name.removeprefix('cap_')}" for name in names)
    return ["setpriv", f"--bounding-set=-all{kept}", "--no-new-privs", *command]


def installed_text(prefix: Path) -> str:
    """The unit of an administrator whose environment is `prefix`."""
    return UNIT.read_text().replace(PLACEHOLDER, str(prefix))


def _lines_of(section: str, text: str) -> Iterator[tuple[str, str]]:
    current = ""
    for line in text.splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif current == section and line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            yield key.strip(), value.strip()
