"""The device plugin's process: it looks, asks registration.py what to do, and does it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpushare.client.paths import HTTP_SOCKET, TENANTS_DIR

from .device_plugin import (
    KUBELET_SOCKET,
    CannotRegister,
    CannotServe,
    Endpoint,
    Seats,
    identity_of,
    register,
)
from .metrics import PluginFigures, rendered
from .metrics_server import serve_metrics
from .pod_resources import KubeletSilent, node_devices
from .pods import SOCKET, mistakes
from .problems_file import WRITE_EVERY_S, write_problems
from .registration import (
    LOOK_S,
    UNHEALTHY_AFTER_S,
    Action,
    Advertise,
    End,
    Event,
    Identity,
    Looked,
    Open,
    Opened,
    OpenFailed,
    Register,
    Registered,
    RegisterFailed,
    Registration,
    SchedulerAnswered,
    Tell,
    WatchBegan,
    WatchEnded,
)
from .seats import Grant, grant_of

log = logging.getLogger(__name__)

ASK_EVERY_S = 2.0
ASK_S_MAX = 2.0
"""So often the scheduler is asked, and so long it may take to answer."""
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_QUESTION = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
"""Without a token. At a hub's scheduler the answer is 401, which says that somebody is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """All that the process is started with."""

    seats: int
    kubelet_dir: Path
    """The kubelet's directory for device plugins."""
    runtime_dir: Path
    """The scheduler's. It and the next one have the same names here and on the node."""
    library_dir: Path
    unhealthy_after_s: float = UNHEALTHY_AFTER_S
    metrics_port: int = 0
    """Where Prometheus is answered; 0: nowhere."""
    pods_socket: Path = SOCKET


class Plugin:
    """From `run` until a signal, or until somebody else takes its place. Seats and registrations
    age by `clock`, which is the event loop's unless a test has its own."""

    def __init__(self, options: PluginOptions, *, clock: Callable[[], float] | None = None) -> None:
        self._options = options
        self._clock = clock or asyncio.get_running_loop().time
        self._registration = Registration(
            now_s=self._clock(), unhealthy_after_s=options.unhealthy_after_s
        )
        self._seats = Seats(options.seats)
        self._endpoint = Endpoint(
            options.kubelet_dir,
            self._seats,
            grant=self._grant,
            watched=lambda began: self._submit(WatchBegan() if began else WatchEnded()),
        )
        self._metrics: asyncio.Server | None = None
        self._ending = asyncio.Event()
        self._deeds: set[asyncio.Task[None]] = set()
        self.error = ""

    async def run(self) -> int:
        """The exit status."""
        make_tenants_dir(self._options.runtime_dir)
        log.info("serving %d seats of this node", self._options.seats)
        if not await self._serve_metrics():
            return 1
        watching = [
            asyncio.ensure_future(each) for each in (self._look(), self._ask(), self._tell())
        ]
        try:
            ended = asyncio.ensure_future(self._ending.wait())
            await asyncio.wait([ended, *watching], return_when=asyncio.FIRST_COMPLETED)
            for task in watching:
                if task.done():
                    task.result()  # a mistake of ours: with its traceback
        finally:
            self.end()
            for task in (*watching, *self._deeds):
                task.cancel()
            await asyncio.gather(*watching, *self._deeds, return_exceptions=True)
            await self._endpoint.close()
            if self._metrics is not None:
                self._metrics.close()
        return 1 if self.error else os.EX_OK

    def end(self) -> None:
        self._ending.set()

    # ---- what Prometheus reads ----------------------------------------------------------------

    async def _serve_metrics(self) -> bool:
        if not self._options.metrics_port:
            return True
        try:
            self._metrics = await serve_metrics(self._options.metrics_port, self._figures)
        except OSError as error:
            self.error = (
                f"The port {self._options.metrics_port} cannot be opened: {error.strerror}. Give "
                f"--metrics-port another one."
            )
            return False
        return True

    async def _figures(self) -> str:
        """What the kubelet says of pods is asked in a thread: it may be slow."""
        try:
            devices = await asyncio.to_thread(node_devices, self._options.pods_socket)
            found = len(mistakes(devices))
        except KubeletSilent:
            found = None
        return rendered(
            PluginFigures(
                seats=self._options.seats,
                healthy=self._registration.healthy,
                watched=self._registration.is_watched,
                silent_s=self._registration.silent_s(self._clock()),
                mistakes=found,
            )
        )

    # ---- what is seen -------------------------------------------------------------------------

    async def _look(self) -> None:
        kubelet = self._options.kubelet_dir / KUBELET_SOCKET
        while not self._ending.is_set():
            self._submit(Looked(identity_of(kubelet), identity_of(self._endpoint.path)))
            await asyncio.sleep(LOOK_S)

    async def _ask(self) -> None:
        """Before Python 3.12, wait_for() may swallow that it is cancelled."""
        path = self._options.runtime_dir / TENANTS_DIR / HTTP_SOCKET
        while not self._ending.is_set():
            if await answers(path):
                self._submit(SchedulerAnswered())
            await asyncio.sleep(ASK_EVERY_S)

    async def _tell(self) -> None:
        """The scheduler reads what is wrong with pods. Where it cannot be known, or written, the
        file of before grows old, and counts no more."""
        while not self._ending.is_set():
            with contextlib.suppress(KubeletSilent, OSError):
                devices = await asyncio.to_thread(node_devices, self._options.pods_socket)
                write_problems(self._options.runtime_dir, mistakes(devices))
            await asyncio.sleep(WRITE_EVERY_S)

    def _grant(self) -> Grant:
        """The directory has to be there before a container is made: a runtime makes one that is
        missing by itself, as its own."""
        make_tenants_dir(self._options.runtime_dir)
        return grant_of(self._options.runtime_dir, self._options.library_dir)

    # ---- what is done -------------------------------------------------------------------------

    def _submit(self, event: Event) -> None:
        for action in self._registration.handle(event, now_s=self._clock()):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case Open():
                self._begin(self._open())
            case Register(kubelet):
                self._begin(self._register(kubelet))
            case Advertise(healthy):
                self._begin(self._seats.advertise(healthy))
            case Tell(text, is_wrong):
                log.log(logging.WARNING if is_wrong else logging.INFO, "%s", text)
            case End(text):
                self.error = text
                self.end()

    def _begin(self, deed: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(deed)
        self._deeds.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """A mistake of ours ends the process, which is started again: nobody waits for ever."""
        self._deeds.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a mistake in the plugin itself", exc_info=error)
            self.error = "The plugin has met a mistake of its own. Report what its log says."
            self.end()

    async def _open(self) -> None:
        try:
            self._submit(Opened(await self._endpoint.open()))
        except CannotServe as error:
            self._submit(OpenFailed(str(error)))

    async def _register(self, kubelet: Identity) -> None:
        try:
            await register(self._options.kubelet_dir / KUBELET_SOCKET)
        except CannotRegister as error:
            self._submit(RegisterFailed(str(error), refused=error.refused))
        else:
            self._submit(Registered(kubelet))


async def answers(path: Path) -> bool:
    """Whether anything that speaks HTTP is at this socket. One that hangs is not."""
    try:
        return await asyncio.wait_for(_first_bytes(path), ASK_S_MAX) == b"HTTP/"
    except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        return False


async def _first_bytes(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(os.fspath(path))
    try:
        writer.write(_QUESTION)
        return await reader.readexactly(5)
    finally:
        writer.close()


def make_tenants_dir(runtime_dir: Path) -> None:
    """As the scheduler makes it (runtime_dir.py), which may not have started yet."""
    with contextlib.suppress(OSError):  # the scheduler says what is wrong there
        (runtime_dir / TENANTS_DIR).mkdir(mode=0o711)
        (runtime_dir / TENANTS_DIR).chmod(0o711)


async def serve(options: PluginOptions) -> tuple[int, str]:
    """The exit status, and what was wrong."""
    plugin = Plugin(options)
    for number in _ENDING_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, plugin.end)
    return await plugin.run(), plugin.error
