"""A process lives, and its connection does not: programs close descriptors that are not theirs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.codec import encode
from jupyter_gpushare.protocol.fields import Message
from jupyter_gpushare.protocol.messages import (
    CellBegan,
    Hello,
    TurnGranted,
    TurnRecalled,
)
from jupyter_gpushare.scheduler.hook import connection
from jupyter_gpushare.scheduler.hook.connection import Clients, HookConnection, Intake

PEER = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(bytes.fromhex(sys.argv[2]))
sys.stdin.readline()
sock.close()
print("closed", flush=True)
sys.stdin.readline()
"""
HELLO = Hello(token="t", pid=1, process_name="p", hook_version="0", held_turn_id=0, waiting=0)
GRANT = TurnGranted(turn_id=7, quantum_ms=1000, waiters=0, cause="test")


class Listener:
    """Has one connection, and remembers what becomes of it."""

    def __init__(self) -> None:
        self.is_greeted, self.is_lost = asyncio.Event(), asyncio.Event()
        self.lost_by = ""
        self.connection: HookConnection

    def opened(self, its: HookConnection) -> None:
        self.connection = its

    def greeted(self, its: HookConnection, hello: Hello) -> None:
        self.is_greeted.set()

    def lost(self, its: HookConnection, cause: str) -> None:
        self.lost_by = cause
        self.is_lost.set()

    def received(self, client: int, message: Message) -> None:
        pass


async def lost_by(folder: Path, *, grants: bool, waits: bool = False) -> list[str]:
    """Why the client counts as lost once it has closed its connection (empty: it does not), and
    once its process has ended as well. `waits`: until it does."""
    listener, loop = Listener(), asyncio.get_running_loop()
    intake = Intake(loop)
    server = await loop.create_unix_server(
        lambda: HookConnection(
            listener, 1, received=listener.received, intake=intake, message_deadline_s=600
        ),
        folder / "sock",
    )
    peer = subprocess.Popen(
        [sys.executable, "-c", PEER, str(folder / "sock"), encode(HELLO).hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert peer.stdin and peer.stdout
    await listener.is_greeted.wait()
    if grants:
        assert listener.connection.send(GRANT)
    peer.stdin.write(b"\n")
    peer.stdin.flush()
    await loop.run_in_executor(None, peer.stdout.readline)
    while not listener.is_lost.is_set() and not listener.connection.is_cut_off:
        await asyncio.sleep(0.001)
    if waits:
        await listener.is_lost.wait()
    first = listener.lost_by
    reached = listener.connection.send(TurnRecalled(turn_id=7, cause="test"))
    assert reached is not listener.is_lost.is_set()
    peer.communicate()
    await listener.is_lost.wait()
    server.close()
    return [first, listener.lost_by]


@pytest.mark.promise(
    "bad-input-82",
    "A process that lives and closes the hook's connection keeps its turn for a moment, in which "
    "its work ends or it connects again",
)
def test_a_turn_stands_while_its_process_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next one would compute beside what it has in flight. It ends with the process."""
    monkeypatch.setattr(connection, "WORK_ENDS_S", 600.0)
    causes = asyncio.run(lost_by(tmp_path, grants=True))
    assert causes == ["", "its process ended"]


class FailingListener(Listener):
    """Fails at each Hello or at each other message."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at, self.messages = at, 0

    def greeted(self, its: HookConnection, hello: Hello) -> None:
        if self.at == "hello":
            raise KeyError("a bug")
        super().greeted(its, hello)

    def received(self, client: int, message: Message) -> None:
        self.messages += 1
        if self.at == "message":
            raise KeyError("a bug")


async def heard_by(folder: Path, listener: FailingListener) -> int:
    """How many messages of a holder, and why it counts as lost when its process has ended."""
    loop, clients = asyncio.get_running_loop(), Clients()
    intake = Intake(loop)
    server = await loop.create_unix_server(
        lambda: HookConnection(
            listener, 1, received=listener.received, intake=intake, message_deadline_s=600
        ),
        folder / "sock",
    )
    said = encode(replace(HELLO, held_turn_id=7)) + 2 * encode(CellBegan())
    peer = subprocess.Popen(
        [sys.executable, "-c", PEER, str(folder / "sock"), said.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    if listener.at == "order":
        await listener.is_greeted.wait()
        clients.add(listener.connection)
        clients.renew(1)
    while not hasattr(listener, "connection") or not listener.connection.is_cut_off:
        await asyncio.sleep(0.001)
    assert not listener.is_lost.is_set()
    peer.communicate()
    await listener.is_lost.wait()
    assert listener.lost_by == "its process ended"
    server.close()
    return listener.messages


@pytest.mark.promise("bad-input-82")
@pytest.mark.parametrize(("at", "messages"), [("hello", 0), ("message", 1), ("order", 2)])
def test_a_turn_stands_where_we_end_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, messages: int
) -> None:
    """For an error of ours, say. Nothing more is heard from it then."""
    monkeypatch.setattr(connection, "WORK_ENDS_S", 600.0)
    assert asyncio.run(heard_by(tmp_path, FailingListener(at))) <= messages


@pytest.mark.promise("bad-input-82")
def test_the_moment_is_over_some_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WORK_ENDS_S", 0.0)
    first, then = asyncio.run(lost_by(tmp_path, grants=True, waits=True))
    assert first == then != "its process ended"


@pytest.mark.promise("bad-input-82")
def test_who_has_no_turn_is_lost_at_once(tmp_path: Path) -> None:
    causes = asyncio.run(lost_by(tmp_path, grants=False))
    assert causes == ["it closed the connection"] * 2
