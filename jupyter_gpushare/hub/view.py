"""What `setup(c)` adds for the view of all nodes (`c.GPUShare.view = True`): its service, and flags
with which the hub's own scheduler reports to it.

The tokens are made here, and kept: a hub that restarts changes none, so that a scheduler or a view
that it left behind and the new ones understand each other.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpushare.client.paths import TENANTS_DIR
from jupyter_gpushare.reports.node_tokens import TokensError, is_name, kept_token

from .errors import OptionError
from .scopes import ADMIN_SCOPE, USE_SCOPE

if TYPE_CHECKING:
    from .options import GPUShare

SERVICE = "gpushare-view"
ACCESS = f"access:services!service={SERVICE}"
TOKENS_FILE = "node-tokens"
OWN_TOKEN_FILE = "this-node.token"
_LOGGING_IN: dict[str, Any] = {
    # Whoever may open it need not agree once more.
    "oauth_no_confirm": True,
    "oauth_client_allowed_scopes": [USE_SCOPE, ADMIN_SCOPE],
}
COMMAND = [sys.executable, "-m", "jupyter_gpushare.cli.main", "view"]


def view_service(options: GPUShare) -> dict[str, Any]:
    """The service as the hub starts it, and starts it again when it ends."""
    directory = options.kept_view_dir
    flags = [f"--tokens={directory / TOKENS_FILE}", f"--data-dir={directory}", *options.view_args]
    return {
        "name": SERVICE,
        "url": f"http://127.0.0.1:{options.view_port}",
        "command": [*COMMAND, f"--hub-pid={os.getpid()}", *flags],
        **_LOGGING_IN,
    }


def with_our_view(services: list[Any], options: GPUShare) -> list[Any]:
    """Ours in the place that it has, else behind the others. One of that name that somebody else
    has defined runs elsewhere: what it needs for logging in is added where it is not there."""
    ours = view_service(options)
    found = list(services)
    for number, service in enumerate(found):
        if isinstance(service, Mapping) and service.get("name") == SERVICE:
            found[number] = ours if is_ours(service) else {**_LOGGING_IN, **service}
            return found
    return [*found, ours]


def is_ours(service: Mapping[str, Any]) -> bool:
    return list(service.get("command") or [])[: len(COMMAND)] == COMMAND


def runs_here(services: list[Any]) -> bool:
    """Whether the hub starts the view."""
    return any(isinstance(each, Mapping) and is_ours(each) for each in services)


def report_flags(options: GPUShare) -> list[str]:
    """Of the hub's own scheduler: straight to the view, on the same machine. Makes its token.
    Raises OptionError."""
    directory = options.kept_view_dir
    own = directory / OWN_TOKEN_FILE
    _check_hidden(options)
    _make_private(directory)
    try:
        kept_token(directory / TOKENS_FILE, own_name(), own)
    except TokensError as error:
        raise OptionError(str(error)) from error
    return [
        f"--report-to=http://127.0.0.1:{options.view_port}/",
        f"--report-token-file={own}",
        f"--report-platform={options.platform}",
    ]


def own_name() -> str:
    """Of the hub's machine among the nodes."""
    name = socket.gethostname()
    return name if is_name(name) else "hub"


def _check_hidden(options: GPUShare) -> None:
    """Root of a container could read whatever lies in a directory that is mounted there."""
    here = options.kept_view_dir.resolve()
    for seen in (options.kept_library_dir, options.directory / TENANTS_DIR):
        if here.is_relative_to(seen.resolve()):
            raise OptionError(
                f"c.GPUShare.view_dir is {here}, and containers see {seen}, which it lies in. Name "
                f"a directory that no container sees."
            )


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        raise OptionError(
            f"The directory {directory} cannot be made: {error.strerror}. Run this as the account "
            f"that runs the hub, or name another directory in c.GPUShare.view_dir."
        ) from error
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OptionError(
            f"Others may read or write {directory}, where tokens of nodes are kept. Run `chmod "
            f"700` on it as the account that runs the hub, or name another one in "
            f"c.GPUShare.view_dir."
        )
