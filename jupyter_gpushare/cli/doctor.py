"""`jupyter gpushare doctor`: is everything in place here, and what to do where it is not."""

from __future__ import annotations

import argparse
import os
import sys

from jupyter_gpushare.kernel.environment import TOKEN, without_gpushare

from .options import add_runtime_dir

_DESCRIPTION = """Check everything that GPU sharing needs, and say what to do about each problem.
Run it as the user whose notebooks have the problem. Exit status 1 means that something does not
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
    # Imported here: Jupyter's own modules take longer to load than most verbs to run.
    from .checkup.findings import exit_status, findings
    from .checkup.report import as_json, gathered, rendered

    found = findings(gathered(os.environ, arguments.runtime_dir))
    print(as_json(found) if arguments.json else rendered(found))
    return exit_status(found)
