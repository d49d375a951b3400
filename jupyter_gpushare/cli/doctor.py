"""`jupyter gpushare doctor`: is everything in place here, and what to do where it is not."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpushare.kernel.environment import TOKEN, without_gpushare

from .checkup.cgroups import tightest_limit
from .checkup.facts import Facts
from .checkup.findings import Finding, Level, exit_status, findings
from .checkup.library import library_facts
from .checkup.machine import machine_facts
from .checkup.runtime import runtime_facts, scheduler_facts
from .checkup.servers import hub_facts, jupyter_facts
from .options import add_runtime_dir

_MARKS = {Level.OK: "ok", Level.WARNING: "WARNING", Level.PROBLEM: "PROBLEM"}
_DESCRIPTION = """Look at everything that sharing the GPU depends on, and say what to do about what
is wrong. Run it as the user whose notebooks are in question. Exit status 1: something does not
work."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "doctor", help="find out what is wrong, and what to do", description=_DESCRIPTION
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    add_runtime_dir(parser)
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    if TOKEN in os.environ:
        # In a notebook's cell: the hook would tell this process what a tenant may see of a device.
        command = [sys.executable, "-m", "jupyter_gpushare.cli.main", *sys.argv[1:]]
        os.execve(sys.executable, command, without_gpushare(os.environ))
    found = findings(gathered(os.environ, arguments.runtime_dir))
    print(as_json(found) if arguments.json else rendered(found))
    return exit_status(found)


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
