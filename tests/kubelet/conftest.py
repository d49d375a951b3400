"""A node: the kubelet's directory, the scheduler's, and the plugin in this process's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.kubelet.plugin import Plugin, PluginOptions
from tests.kubelet.fake_kubelet import FakeKubelet
from tests.support.waits import WAIT_S_MAX

SEATS = 4


class Clock:
    """The plugin's, with which the test lets time pass: half a second each time that it is asked.
    In larger steps the plugin would take itself for one that did not run."""

    def __init__(self) -> None:
        self.runs = False
        self._now_s = 1000.0

    def __call__(self) -> float:
        self._now_s += 0.5 if self.runs else 0.0
        return self._now_s


class Node:
    """One machine. Its directories lie at short paths, as sockets need."""

    def __init__(self, root: Path) -> None:
        self.kubelet_dir = root / "plugins"
        self.runtime_dir = root / "run"
        self.library_dir = root / "lib"
        self.pods_socket = root / "pods.sock"
        for each in (self.kubelet_dir, self.runtime_dir, self.library_dir):
            each.mkdir()

    def kubelet(
        self, *, versions: tuple[str, ...] = ("v1beta1",), answers_s: float = 0.0
    ) -> FakeKubelet:
        return FakeKubelet(self.kubelet_dir, versions=versions, answers_s=answers_s)

    def plugin(
        self, *, seats: int = SEATS, metrics_port: int = 0, clock: Clock | None = None
    ) -> RunningPlugin:
        options = PluginOptions(
            seats=seats,
            kubelet_dir=self.kubelet_dir,
            runtime_dir=self.runtime_dir,
            library_dir=self.library_dir,
            metrics_port=metrics_port,
            pods_socket=self.pods_socket,
        )
        return RunningPlugin(options, clock)

    @contextlib.contextmanager
    def scheduler(self) -> Iterator[None]:
        """Something that answers at the tenants' socket as a hub's scheduler does."""

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_error(401)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        tenants = self.runtime_dir / "tenants"
        tenants.mkdir(exist_ok=True)
        path = tenants / "http.sock"
        path.unlink(missing_ok=True)
        server = socketserver.ThreadingUnixStreamServer(str(path), Answer)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class RunningPlugin:
    """The plugin in a thread of its own, from `with` to its end."""

    def __init__(self, options: PluginOptions, clock: Clock | None) -> None:
        self._options = options
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._made = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.plugin: Plugin | None = None
        self.exit_status: int | None = None

    def __enter__(self) -> RunningPlugin:
        self._thread.start()
        assert self._made.wait(WAIT_S_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.plugin is not None
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self.plugin.end)
        self.join()

    def join(self) -> int:
        """Its exit status, once it has ended."""
        self._thread.join(WAIT_S_MAX)
        assert not self._thread.is_alive()
        assert self.exit_status is not None
        return self.exit_status

    def _run(self) -> None:
        async def main() -> int:
            self.plugin = Plugin(self._options, clock=self._clock)
            self._made.set()
            return await self.plugin.run()

        self.exit_status = self._loop.run_until_complete(main())
        self._loop.close()


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="gpushare-") as root:
        yield Node(Path(root))
