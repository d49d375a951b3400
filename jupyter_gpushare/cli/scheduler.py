"""`jupyter gpushare scheduler`: run the scheduler in the foreground."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

VERB = "scheduler"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Only for the list of verbs: the application reads its own flags."""
    verbs.add_parser(VERB, help="run the scheduler in the foreground (see `scheduler --help`)")


def run(argv: Sequence[str]) -> int:
    # Imported here: the other verbs need nothing of the scheduler's process.
    from jupyter_gpushare.scheduler.app import main

    return main(argv)
