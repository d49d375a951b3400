"""Options that several verbs have, and the client made from them."""

from __future__ import annotations

import argparse
from pathlib import Path

from jupyter_gpushare.client import HTTP_SOCKET, SchedulerClient, runtime_dir


def add_runtime_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime-dir",
        type=Path,
        metavar="DIR",
        help="the scheduler's runtime directory (default: $GPUSHARE_RUNTIME_DIR, else "
        "$XDG_RUNTIME_DIR/jupyter-gpushare, else /tmp/jupyter-gpushare-UID)",
    )


def client_of(arguments: argparse.Namespace, *, timeout_s: float = 5.0) -> SchedulerClient:
    directory: Path = arguments.runtime_dir or runtime_dir()
    return SchedulerClient(directory / HTTP_SOCKET, timeout_s=timeout_s)
