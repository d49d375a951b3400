"""`jupyter gpushare run -- CMD`: a command that shares the GPU as a notebook does."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jupyter_gpushare.client import (
    ClientError,
    SchedulerClient,
    SchedulerUnavailable,
    TenantRegistration,
)
from jupyter_gpushare.kernel.environment import (
    SOCKET,
    TOKEN,
    LibraryMissing,
    tenant_environment,
    wish_of,
    without_gpushare,
)
from jupyter_gpushare.kernel.loadable import loadable_library

from .child import CannotStart, Child
from .errors import UsageError
from .options import add_runtime_dir, client_of

_DESCRIPTION = """Run a command that takes turns on the GPU with notebooks and other commands. All
processes that it starts belong to it. Signals are passed on, and the exit status is the command's
(128 plus the signal's number if a signal ended it; 127 or 126 if it cannot be started). In a
kernel, or in another `run`, the command belongs to that kernel or `run`."""
_FAREWELL_TIMEOUT_S = 2.0
_IF_AVAILABLE = "Or add --if-available: then the command runs without sharing the GPU."


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "run",
        help="run a command that shares the GPU: run -- python train.py",
        description=_DESCRIPTION,
        usage="jupyter gpushare run [--name NAME] [--class CLASS] [--if-available] "
        "[--runtime-dir DIR] -- CMD ...",
    )
    parser.add_argument("--name", help="its name in the status (default: made from the command)")
    parser.add_argument(
        "--class",
        dest="asked_class",
        metavar="CLASS",
        help="when it is served: realtime, interactive or batch (default: interactive)",
    )
    parser.add_argument(
        "--if-available",
        action="store_true",
        help="if no scheduler serves you, run the command without sharing the GPU",
    )
    add_runtime_dir(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    command: list[str] = arguments.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise UsageError("There is no command to run. Write `jupyter gpushare run -- CMD`.")
    if os.environ.get("GPUSHARE_DISABLE") == "1":
        return _run(command, without_gpushare(os.environ))
    if os.environ.get(TOKEN) and os.environ.get(SOCKET):
        return _run(command, os.environ)
    try:
        library = loadable_library()
    except LibraryMissing as problem:
        return _run_unshared(command, str(problem))
    client = client_of(arguments)
    try:
        name = arguments.name or name_of(command)
        asked = {"class": arguments.asked_class} if arguments.asked_class else {}
        wish = wish_of(os.environ, asked)
        tenant = client.register_tenant(name, "run", wish=wish)
    except ClientError as problem:
        if arguments.if_available:
            return _run_unshared(command, str(problem))
        if isinstance(problem, SchedulerUnavailable):
            raise SchedulerUnavailable(f"{problem} {_IF_AVAILABLE}") from problem
        raise
    for told in filter(None, (tenant.placement, tenant.class_note)):
        _say(told)
    env = tenant_environment(
        os.environ,
        socket=tenant.socket,
        token=tenant.token,
        library=library,
        visible_devices=tenant.visible_devices,
        placement=tenant.placement,
    )
    try:
        return _run(command, env)
    finally:
        _leave(client_of(arguments, timeout_s=_FAREWELL_TIMEOUT_S), tenant)


def name_of(command: Sequence[str]) -> str:
    """`python train.py` for `/usr/bin/python -u a/train.py --key 1`: arguments may be private."""
    words = [command[0], *(word for word in command[1:] if not word.startswith("-"))]
    return " ".join(Path(word).name for word in words[:2])


def _run(command: Sequence[str], env: Mapping[str, str]) -> int:
    try:
        return Child(command, env).wait()
    except CannotStart as problem:
        _say(str(problem))
        return problem.exit_status


def _run_unshared(command: Sequence[str], problem: str) -> int:
    _say(f"{problem} The command runs without sharing the GPU.")
    return _run(command, without_gpushare(os.environ))


def _leave(client: SchedulerClient, tenant: TenantRegistration) -> None:
    """Remove the tenant, unless processes that the command left behind still use the GPU: they
    keep their place, and the scheduler forgets the tenant with the last of them."""
    try:
        left = _processes_left(client, tenant.tenant_id)
        if left:
            _say(
                f"{left} of the command's processes still use the GPU. They keep sharing it; end "
                f"them if they are not meant to go on."
            )
        else:
            client.remove_tenant(tenant.tenant_id)
    except ClientError as problem:
        _say(f"The scheduler does not know that the command has ended: {problem}")


def _processes_left(client: SchedulerClient, tenant_id: str) -> int:
    tenants = client.status()["tenants"]
    return sum(len(tenant["clients"]) for tenant in tenants if tenant["id"] == tenant_id)


def _say(text: str) -> None:
    print(f"jupyter gpushare run: {text}", file=sys.stderr, flush=True)
