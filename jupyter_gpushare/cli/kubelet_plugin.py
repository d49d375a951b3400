"""`jupyter gpushare kubelet-plugin`: the seats of a node of Kubernetes, in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from jupyter_gpushare.client.kept_library import CannotKeep, keep_library
from jupyter_gpushare.kubelet.registration import UNHEALTHY_AFTER_S
from jupyter_gpushare.kubelet.seats import RESOURCE, SEATS_MAX

from .errors import UsageError

KUBELET_DIR = Path("/var/lib/kubelet/device-plugins")
RUNTIME_DIR = Path("/run/jupyter-gpushare")
LIBRARY_DIR = Path("/var/lib/jupyter-gpushare")
_DESCRIPTION = f"""Offer the seats of this node to Kubernetes, as the resource {RESOURCE}. A pod
with a seat gets the scheduler's socket and this installation's hook, both read-only. Run it beside
the node's scheduler, as charts/gpushare does. Directories have the same names here and on the
node."""
_LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "kubelet-plugin",
        help="the device plugin of a Kubernetes node, in the foreground",
        description=_DESCRIPTION,
    )
    parser.add_argument(
        "--seats",
        type=int,
        required=True,
        metavar="N",
        help="how many pods may share this node's GPUs: as many as its memory can park",
    )
    for flag, default, what in (
        ("--runtime-dir", RUNTIME_DIR, "the runtime directory of the node's scheduler"),
        ("--library-dir", LIBRARY_DIR, "where the node's copy of the hook's library is kept"),
        ("--kubelet-dir", KUBELET_DIR, "the kubelet's directory of device plugins"),
    ):
        parser.add_argument(
            flag, type=Path, default=default, metavar="DIR", help=f"{what} (default: {default})"
        )
    parser.add_argument(
        "--unhealthy-after-s",
        type=float,
        default=UNHEALTHY_AFTER_S,
        metavar="S",
        help="how long no scheduler may answer before new pods get no seat (default: %(default)g)",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=0,
        metavar="PORT",
        help="answer Prometheus at /metrics on this port (default: nowhere)",
    )
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    _check(arguments)
    try:
        from jupyter_gpushare.kubelet.plugin import PluginOptions, serve
    except ImportError as error:
        raise UsageError(
            f"The plugin cannot speak to a kubelet: {error}. Install jupyter-gpushare[kubernetes]."
        ) from error
    options = PluginOptions(
        seats=arguments.seats,
        kubelet_dir=arguments.kubelet_dir,
        runtime_dir=arguments.runtime_dir,
        library_dir=arguments.library_dir,
        unhealthy_after_s=arguments.unhealthy_after_s,
        metrics_port=arguments.metrics_port,
    )
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
    try:
        keep_library(options.library_dir, named_in="--library-dir")
    except CannotKeep as error:
        raise UsageError(str(error)) from error
    status, problem = asyncio.run(serve(options))
    if problem:
        print(f"jupyter gpushare: {problem}", file=sys.stderr)
    return status


def _check(arguments: argparse.Namespace) -> None:
    if not 1 <= arguments.seats <= SEATS_MAX:
        raise UsageError(
            f"A node cannot have {arguments.seats} seats. Give --seats a number from 1 to "
            f"{SEATS_MAX}."
        )
    if not arguments.unhealthy_after_s > 0:
        raise UsageError(
            f"Seats cannot turn unhealthy after {arguments.unhealthy_after_s:g} s. Give "
            f"--unhealthy-after-s a positive number."
        )
    if not 0 <= arguments.metrics_port <= 65535:
        raise UsageError(
            f"There is no port {arguments.metrics_port}. Give --metrics-port a number from 1 to "
            f"65535."
        )
    for name in ("runtime_dir", "library_dir", "kubelet_dir"):
        path: Path = getattr(arguments, name)
        if not path.is_absolute():
            raise UsageError(
                f"{path} is not an absolute path, and pods get mounts by it. Give "
                f"--{name.replace('_', '-')} a path that starts with a slash."
            )
    if not arguments.kubelet_dir.is_dir():
        raise UsageError(
            f"There is no directory {arguments.kubelet_dir}. Run this on a node of Kubernetes with "
            f"that directory mounted, or name the kubelet's in --kubelet-dir."
        )
