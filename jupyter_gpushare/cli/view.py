"""`jupyter gpushare view`: one view of all nodes, as a service of a hub, and tokens for nodes."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpushare.reports.node_tokens import TokensError, new_token

from .errors import UsageError

if TYPE_CHECKING:
    from jupyter_gpushare.view.callers import Viewers

AUDIENCE = "gpushare"
_DESCRIPTION = """Show all nodes in one place: who has which GPU, and who waits. Schedulers report
to it (`jupyter gpushare scheduler --report-to`), people read it through JupyterHub. The hub starts
it with c.GPUShare.view = True; docs/view.md says what it needs elsewhere."""
_TOKEN_DESCRIPTION = """Make a token for a node and print it. The file gets its digest alone; a
token that the node has had ends. Put what is printed into a file on the node that the scheduler
alone may read, and name it there in --report-token-file."""
_LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "view", help="one view of all nodes, as a service of a hub", description=_DESCRIPTION
    )
    _add_flags(parser)
    parser.set_defaults(perform=perform)
    what = parser.add_subparsers(title="verbs", metavar="VERB")
    token = what.add_parser("token", help="make a token for a node", description=_TOKEN_DESCRIPTION)
    token.add_argument("node", metavar="NODE", help="the name under which the node is shown")
    token.add_argument(
        "--tokens",
        dest="token_file",
        type=Path,
        required=True,
        metavar="FILE",
        help="the file that the view reads; it is made where there is none",
    )
    token.set_defaults(perform=perform_token)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    def add(flag: str, metavar: str, what: str, kind: type = Path) -> None:
        parser.add_argument(flag, type=kind, metavar=metavar, help=what)

    add("--tokens", "FILE", "the tokens of nodes: lines of a name and a digest")
    parser.add_argument(
        "--kubernetes",
        action="store_true",
        help="let the API server say which node a token is of (in a pod with the right to create "
        "tokenreviews, or with --api-server)",
    )
    parser.add_argument(
        "--api-server",
        metavar="URL",
        help="with --kubernetes, outside of the cluster: where its API server is",
    )
    add("--api-token-file", "FILE", "with --api-server: the token that the view shows there")
    add("--api-ca", "FILE", "with --api-server: the authority of its certificate")
    parser.add_argument(
        "--service-account",
        action="append",
        metavar="NAMESPACE:NAME",
        help="with --kubernetes: the account of the schedulers; may be given again",
    )
    parser.add_argument(
        "--audience",
        default=AUDIENCE,
        metavar="TEXT",
        help="with --kubernetes: what nodes' tokens are made for (default: %(default)s)",
    )
    parser.add_argument(
        "--accounts-are-users",
        action="store_true",
        help="an account of a node is the hub's user of the same name, on all nodes: users see the "
        "notebooks of their accounts (default: administrators alone do)",
    )
    add("--data-dir", "DIR", "where the use of GPUs is kept over restarts (default: nowhere)")
    add("--metrics-token-file", "FILE", "a token with which Prometheus may read the metrics")
    add("--report-port", "PORT", "serve nodes alone at this port too, by TLS", int)
    add("--tls-cert", "FILE", "the certificate for --report-port, with its chain")
    add("--tls-key", "FILE", "its key, if it is not in the same file")
    add("--hub-pid", "PID", "end when this parent process does", int)


def perform(arguments: argparse.Namespace) -> int:
    _check(arguments)
    from jupyter_gpushare.hub.auth import HubUnavailable
    from jupyter_gpushare.view.service import (
        ViewError,
        make_private_dir,
        options_for,
        serve,
    )
    from jupyter_gpushare.view.usage_file import UsageFileError

    logging.basicConfig(level=logging.WARNING, format=_LOG_FORMAT)
    logging.getLogger("jupyter_gpushare").setLevel(logging.INFO)
    try:
        options = options_for(arguments, os.environ)
        if options.data_dir is not None:
            make_private_dir(options.data_dir)
        callers = _hub_callers(os.environ)
        asyncio.run(serve(options, callers))
    except (HubUnavailable, UsageFileError, ViewError) as error:
        raise UsageError(str(error)) from error
    return os.EX_OK


def _hub_callers(environ: Mapping[str, str]) -> Viewers:
    """For a service of a hub; raises HubUnavailable where there is no hub to ask."""
    from jupyter_gpushare.hub.auth import HubUnavailable, hub_tokens

    tokens = hub_tokens(environ)
    for name in ("JUPYTERHUB_API_TOKEN", "JUPYTERHUB_CLIENT_ID"):
        if not environ.get(name):
            raise HubUnavailable(
                f"{name} is not set, so nobody could log in. Let JupyterHub start the view as a "
                f"service (c.GPUShare.view = True), or set what docs/view.md lists."
            )
    from jupyter_gpushare.view.oauth import OAuthCallers

    return OAuthCallers(tokens)


def perform_token(arguments: argparse.Namespace) -> int:
    try:
        print(new_token(arguments.token_file, arguments.node))
    except TokensError as error:
        raise UsageError(str(error)) from error
    return os.EX_OK


def _check(arguments: argparse.Namespace) -> None:
    accounts = arguments.service_account or []
    if arguments.tokens is None and not arguments.kubernetes:
        raise UsageError(
            "No node could report: the view knows no credentials. Give --tokens FILE, or "
            "--kubernetes in a pod."
        )
    if arguments.kubernetes and not accounts:
        raise UsageError(
            "With --kubernetes any pod of the cluster could be a node. Name the account of the "
            "schedulers in --service-account NAMESPACE:NAME."
        )
    for account in accounts:
        if account.count(":") != 1 or not all(account.split(":")):
            raise UsageError(
                f"{account!r} names no service account. Give --service-account NAMESPACE:NAME."
            )
    _check_api_server(arguments)
    port = arguments.report_port
    if port is not None and not 1 <= port <= 65535:
        raise UsageError(f"There is no port {port}. Give --report-port a number from 1 to 65535.")
    if (port is None) != (arguments.tls_cert is None) or (
        arguments.tls_key is not None and arguments.tls_cert is None
    ):
        raise UsageError(
            "--report-port and --tls-cert go together: nodes report from other machines by TLS "
            "alone. Give both, or neither."
        )


def _check_api_server(arguments: argparse.Namespace) -> None:
    server, token, authority = arguments.api_server, arguments.api_token_file, arguments.api_ca
    if server is None and token is None and authority is None:
        return
    if not arguments.kubernetes or server is None or token is None:
        raise UsageError(
            "A view outside of the cluster has to know where the API server is, and needs a token "
            "for it. Give --kubernetes, --api-server URL and --api-token-file FILE together."
        )
    if not server.startswith("https://"):
        raise UsageError(
            f"Tokens would go to {server} for everybody on the network to read. Give --api-server "
            f"an address that begins with https."
        )
