"""A hook and a scheduler that speak different versions of the protocol."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hook.runtime.process import GpuProcess
from tests.kernel.conftest import SharedGpu
from tests.support.tenant_programs import TenantPrograms
from tests.support.waits import wait_until

Bystanders = Callable[[], None]
HEADER_BYTES = 8
CANCELLED = 800


class OtherVersion:
    """Stands between a hook and the scheduler and raises the version of every frame by one, so that
    each side meets a peer of the next version."""

    def __init__(self, path: Path, scheduler: Path) -> None:
        self.path = path
        self.connections = 0
        self._scheduler = scheduler
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                hook, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            scheduler = socket.socket(socket.AF_UNIX)
            scheduler.connect(str(self._scheduler))
            for source, sink in ((hook, scheduler), (scheduler, hook)):
                threading.Thread(target=forward, args=(source, sink), daemon=True).start()


def forward(source: socket.socket, sink: socket.socket) -> None:
    """Frame by frame, until either side ends."""
    with source.makefile("rb") as frames:
        try:
            while header := frames.read(HEADER_BYTES):
                version = int.from_bytes(header[:2], "little") + 1
                body = frames.read(int.from_bytes(header[4:8], "little"))
                sink.sendall(version.to_bytes(2, "little") + header[2:] + body)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.fixture
def between(shared: SharedGpu, tmp_path: Path) -> Iterator[OtherVersion]:
    proxy = OtherVersion(tmp_path / "other.sock", shared.scheduler.directory / "hook.sock")
    yield proxy
    proxy.close()


TRIES_APART_S = 5.0
"""Who was refused tries no more often."""


def told(program: GpuProcess) -> str:
    """What the user reads, as soon as there is something."""
    wait_until(lambda: program.errors() != "", "the user is told")
    return program.errors()


@pytest.mark.promise("protocol-4")
@pytest.mark.promise(
    "bad-input-14",
    "A wrong protocol version: said to the user at once, no storm of connections",
)
def test_another_version_of_the_protocol(
    between: OtherVersion, tenant_programs: TenantPrograms, bystanders: Bystanders
) -> None:
    """The user reads at once that hook and scheduler do not fit, and what to do; the process lives,
    its calls wait and can be cancelled, it does not storm the scheduler, nobody else notices."""
    began_s = time.monotonic()
    program = tenant_programs.opened("newer", socket=between.path)
    program.say("0 spin d 1000")
    errors = told(program)
    assert errors.startswith("gpushare: ") and errors.count("\n") == 1, errors
    assert "another version" in errors
    assert errors.count(". ") == 1 and "estart" in errors, errors
    bystanders()
    assert between.connections <= 2 + (time.monotonic() - began_s) / TRIES_APART_S
    program.say("1 hook cancel_waits")
    program.expect(f"0 spin {CANCELLED}")
    assert program.finish() == 0
