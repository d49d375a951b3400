"""All facts, and the findings as people and programs read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from .cgroups import tightest_limit
from .facts import Facts
from .finding import Finding, Level
from .findings import exit_status
from .job_environment import job_facts
from .library import library_facts
from .machine import machine_facts
from .node_devices import node_facts
from .place_environment import place_facts
from .runtime import runtime_facts, scheduler_facts
from .servers import hub_facts, jupyter_facts

_MARKS = {Level.OK: "ok", Level.WARNING: "WARNING", Level.PROBLEM: "PROBLEM"}


def gathered(environ: Mapping[str, str], directory: Path | None) -> Facts:
    """Everything that the checks want to know; a few seconds at most."""
    return Facts(
        library=library_facts(environ),
        runtime=runtime_facts(environ, directory),
        scheduler=scheduler_facts(environ, directory),
        jupyter=jupyter_facts(environ),
        machine=machine_facts(environ),
        cgroup=tightest_limit(),
        hub=hub_facts(environ),
        job=job_facts(environ),
        node=node_facts(),
        place=place_facts(environ),
    )


def rendered(found: list[Finding]) -> str:
    """The findings as a person reads them, and how many are bad. Pure."""
    width = max(len(mark) for mark in _MARKS.values())
    lines = []
    for finding in found:
        lines.append(f"{_MARKS[finding.level]:<{width}}  {finding.check}: {finding.what}")
        if finding.remedy:
            lines.append(f"{'':<{width}}  {finding.remedy}")
    return "\n".join([*lines, "", _summary(found)])


def as_json(found: list[Finding]) -> str:
    """The same for programs; `ok` is what the exit status says. Pure."""
    entries = [
        {"check": f.check, "level": f.level.value, "what": f.what, "remedy": f.remedy}
        for f in found
    ]
    return json.dumps({"ok": exit_status(found) == 0, "findings": entries}, indent=2)


def _summary(found: list[Finding]) -> str:
    problems = sum(finding.level is Level.PROBLEM for finding in found)
    warnings = sum(finding.level is Level.WARNING for finding in found)
    if not problems and not warnings:
        return "Everything is in place."
    return f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
