"""The process of the view: it listens, lets time pass, and ends well."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tornado.web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from jupyter_gpushare.reports.node_tokens import TokensError
from jupyter_gpushare.scheduler.descriptors import raise_descriptor_limit
from jupyter_gpushare.scheduler.parent import watch_parent

from .api import ViewState
from .app import make_app, make_reports_app
from .callers import MetricsToken, Viewers
from .credentials import Credentials, EitherOf, FileTokens
from .fleet import Fleet
from .receiver import RECHECK_S, Receiver
from .token_reviews import AUDIENCE, ApiServer, TokenReviews, api_server
from .usage_file import UsageFileError

log = logging.getLogger(__name__)

TICK_S = 0.1
LOOK_S = 1.0
DEFAULT_PREFIX = "/services/gpushare-view/"
DEFAULT_URL = "http://127.0.0.1:10150"
IDLE_S_MAX = 120.0
HEADER_BYTES_MAX = 64 << 10
BODY_BYTES_MAX = 64 << 10
END_S_MAX = 5.0
_COLLECTIONS = (20_000, 10, 100)
_SWITCH_S = 0.0005
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ViewError(Exception):
    """The view cannot start: one sentence on what is wrong, and one on what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """All that the process is started with."""

    host: str
    port: int
    prefix: str
    tokens: Path | None = None
    kubernetes: bool = False
    api_server: ApiServer | None = None
    """Where the view is no pod of the cluster."""
    audience: str = AUDIENCE
    service_accounts: tuple[str, ...] = ()
    accounts_are_users: bool = False
    data_dir: Path | None = None
    metrics_token_file: Path | None = None
    report_port: int = 0
    """Where nodes alone are served, by TLS; 0: nowhere but with all others."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    hub_pid: int = 0
    environ: Mapping[str, str] = field(default_factory=dict)


def place_of(environ: Mapping[str, str]) -> tuple[str, int, str]:
    """Host, port and prefix, as the hub says them to its services. Raises ViewError."""
    url = environ.get("JUPYTERHUB_SERVICE_URL") or DEFAULT_URL
    prefix = environ.get("JUPYTERHUB_SERVICE_PREFIX") or DEFAULT_PREFIX
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or urlsplit(url).scheme != "http":
        raise ViewError(
            f"JUPYTERHUB_SERVICE_URL is {url!r}, which is not such as {DEFAULT_URL}. Give the "
            f"service a url with http, a host and a port."
        )
    return host, port, f"/{prefix.strip('/')}/".replace("//", "/")


def credentials_of(options: ViewOptions) -> Credentials:
    """Raises ViewError."""
    kinds: list[Credentials] = []
    if options.kubernetes:
        server = options.api_server or api_server(options.environ)
        if server is None:
            raise ViewError(
                "This is not a pod of Kubernetes with a service account, so nobody can say whose a "
                "token is. Start the view by the chart, or give --api-server (docs/view.md)."
            )
        kinds.append(TokenReviews(server, options.service_accounts, audience=options.audience))
    if options.tokens is not None:
        try:
            kinds.append(FileTokens(options.tokens))
        except TokensError as error:
            raise ViewError(str(error)) from error
    return EitherOf(kinds)


class View:
    """From `start` to `end`. Tests give it other callers, other credentials and another clock."""

    def __init__(
        self,
        options: ViewOptions,
        callers: Viewers,
        credentials: Credentials,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.fleet = Fleet()
        self.state = ViewState(
            fleet=self.fleet,
            callers=callers,
            prefix=options.prefix,
            clock_s=clock_s,
            wall_s=time.time,
            accounts_are_users=options.accounts_are_users,
            data_dir=options.data_dir,
            metrics_token=MetricsToken(options.metrics_token_file),
        )
        self.receiver = Receiver(
            self.fleet,
            credentials,
            clock_s=self.state.clock_s,
            wall_s=self.state.wall_s,
            counters=self.state.counters,
        )
        self.port = options.port
        self.report_port = options.report_port
        self._servers: list[HTTPServer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._tls: ssl.SSLContext | None = None
        self._tls_seen: tuple[int, int] | None = None

    def start(self) -> None:
        """Raises ViewError."""
        options = self.options
        try:
            app = make_app(self.state, self.receiver)
        except UsageFileError as error:
            raise ViewError(str(error)) from error
        self.port = self._listen(app, options.host, options.port)
        if options.report_port:
            host = "" if options.tls_cert else "127.0.0.1"
            self._look_at_tls()
            app = make_reports_app(self.state, self.receiver)
            self.report_port = self._listen(app, host, options.report_port, self._tls)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(each) for each in (self._tick(), self._look(), self._tidy())
        ]

    async def end(self) -> None:
        """Streams and connections are told; what is kept is written."""
        for server in self._servers:
            server.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tell(self.fleet.take_changed())
        self.receiver.end()
        for close in self.state.closers:
            try:
                close()
            except Exception:  # the others have to end, too
                log.exception("a part of the view has met a mistake of its own")
        for server in self._servers:
            try:
                await asyncio.wait_for(server.close_all_connections(), END_S_MAX)
            except asyncio.TimeoutError:
                log.warning("connections were still open after %s s", END_S_MAX)

    def _listen(
        self,
        app: tornado.web.Application,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """The port; 0 means any."""
        server = HTTPServer(
            app,
            xheaders=False,
            ssl_options=tls,
            idle_connection_timeout=IDLE_S_MAX,
            max_header_size=HEADER_BYTES_MAX,
            max_body_size=BODY_BYTES_MAX,
        )
        try:
            sockets = bind_sockets(port, host or None)
        except OSError as error:
            raise ViewError(
                f"The view cannot listen at {host or 'all addresses'}, port {port}: "
                f"{error.strerror}. Stop what listens there, or choose another port."
            ) from error
        server.add_sockets(sockets)
        self._servers.append(server)
        found: int = sockets[0].getsockname()[1]
        return found

    # ---- time passes --------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if changed := self.fleet.take_changed():
                self._tell(changed)

    def _tell(self, changed: set[str]) -> None:
        for listener in list(self.state.listeners):
            try:
                listener(changed)
            except Exception:  # one part's mistake is not the others'
                log.exception("a part of the view has met a mistake of its own")

    async def _look(self) -> None:
        while True:
            self.fleet.note_time(self.state.clock_s())
            await asyncio.sleep(LOOK_S)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            self.fleet.forget_silent(self.state.clock_s())
            self.receiver.tidy()
            try:
                self._look_at_tls()
            except ViewError as error:
                log.warning("%s", error)
            await self.receiver.recheck()

    def _look_at_tls(self) -> None:
        """A certificate that has been replaced counts for whoever comes from now on."""
        cert, key = self.options.tls_cert, self.options.tls_key
        if cert is None:
            return
        try:
            seen = (cert.stat().st_mtime_ns, (key or cert).stat().st_mtime_ns)
            if seen == self._tls_seen:
                return
            context = self._tls or ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(cert, key)
        except OSError as error:  # an SSLError is one
            raise ViewError(
                f"The certificate {cert} cannot be used: {error.strerror or error}. Give "
                f"--tls-cert and --tls-key two files in PEM format that belong together."
            ) from error
        self._tls, self._tls_seen = context, seen


async def serve(options: ViewOptions, callers: Viewers) -> None:
    """Until a signal, or until the hub that started us is gone. Raises ViewError."""
    raise_descriptor_limit()
    tune_interpreter()
    view = View(options, callers, credentials_of(options))
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _ENDING_SIGNALS:
        loop.add_signal_handler(number, ending.set)
    if options.hub_pid:
        watch_parent(ending.set, parent=options.hub_pid)
    view.start()
    log.info("the view of all nodes is at http://%s:%d%s", options.host, view.port, options.prefix)
    try:
        await ending.wait()
    finally:
        await view.end()


def tune_interpreter() -> None:
    """For short pauses of the loop.

    Rows of nodes are in no cycles, so counts of references free them. Collections at Python's own
    thresholds would look at all rows of a thousand nodes each second, for half a second. And while
    another thread works (it writes GPU-hours, or makes the figures), the loop would have to wait
    5 ms for each message of a node."""
    gc.set_threshold(*_COLLECTIONS)
    sys.setswitchinterval(_SWITCH_S)


def make_private_dir(directory: Path) -> None:
    """For what the view keeps. Raises ViewError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ViewError(
            f"The directory {directory} cannot be used: {error.strerror}. Name one in --data-dir "
            f"that belongs to the account of the view."
        ) from error


def options_for(arguments: Any, environ: Mapping[str, str]) -> ViewOptions:
    """Raises ViewError."""
    host, port, prefix = place_of(environ)
    return ViewOptions(
        host=host,
        port=port,
        prefix=prefix,
        tokens=arguments.tokens,
        kubernetes=arguments.kubernetes,
        api_server=_named_api_server(arguments),
        audience=arguments.audience,
        service_accounts=tuple(arguments.service_account or ()),
        accounts_are_users=arguments.accounts_are_users,
        data_dir=arguments.data_dir,
        metrics_token_file=arguments.metrics_token_file,
        report_port=arguments.report_port or 0,
        tls_cert=arguments.tls_cert,
        tls_key=arguments.tls_key,
        hub_pid=arguments.hub_pid or 0,
        environ=environ,
    )


def _named_api_server(arguments: Any) -> ApiServer | None:
    if arguments.api_server is None:
        return None
    return ApiServer(
        url=arguments.api_server.rstrip("/"),
        token_file=arguments.api_token_file,
        ca_file=arguments.api_ca,
    )
