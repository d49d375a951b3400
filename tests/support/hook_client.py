"""A client of hook.sock that does what a test tells it: the hook's place in the conversation."""

from __future__ import annotations

import os
import select
import socket
import time
from pathlib import Path
from typing import TypeVar

from jupyter_gpushare.protocol.codec import FrameDecoder, encode
from jupyter_gpushare.protocol.fields import Message, Side
from jupyter_gpushare.protocol.messages import (
    DeviceOpened,
    DropReason,
    Hello,
    MemoryReported,
    Refused,
    TurnDropped,
    TurnGranted,
    TurnRequested,
    Welcome,
)
from tests.support.waits import WAIT_S_MAX

M = TypeVar("M", bound=Message)
ANSWER_S_MAX = WAIT_S_MAX
DEVICE = bytes(range(16))
GIB = 1 << 30


def memory_reported(
    device: bytes,
    allocated: int,
    *,
    parked: int = 0,
    fixed: int = 0,
    room: int = 0,
    serial: int = 0,
    kept: int = 0,
    copied: int = 0,
    to_copy: int = 0,
) -> MemoryReported:
    """What a client has on a device, in bytes."""
    return MemoryReported(
        device=device,
        bytes_allocated=allocated,
        bytes_parked=parked,
        bytes_fixed=fixed,
        bytes_host_room=room,
        host_limit=0,
        budget_serial=serial,
        bytes_kept=kept,
        bytes_copied=copied,
        bytes_to_copy=to_copy,
    )


class ScriptedClient:
    """Blocking; every wait has a limit. `received` holds all that came, in order."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(ANSWER_S_MAX)
        self.socket.connect(str(path))
        self._decoder = FrameDecoder(receiver=Side.HOOK)
        self._unread: list[Message] = []
        self.received: list[Message] = []

    def send(self, *messages: Message) -> None:
        self.socket.sendall(b"".join(encode(message) for message in messages))

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hello(self, token: str, *, held_turn_id: int = 0, waiting: int = 0) -> None:
        self.send(
            Hello(
                token=token,
                pid=os.getpid(),
                process_name="scripted",
                hook_version="0",
                held_turn_id=held_turn_id,
                waiting=waiting,
            )
        )

    def join(
        self, token: str, *, device: bytes = DEVICE, held_turn_id: int = 0, waiting: int = 0
    ) -> Welcome:
        """Hello, and a context on a device."""
        self.hello(token, held_turn_id=held_turn_id, waiting=waiting)
        welcome = self.expect(Welcome)
        self.send(DeviceOpened(device=device, name="Scripted GPU", bytes_total=8 * GIB))
        return welcome

    def ask(self, cause: str = "cuLaunchKernel") -> None:
        self.send(TurnRequested(request_id=1, cause=cause))

    def take_turn(self) -> TurnGranted:
        self.ask()
        return self.expect(TurnGranted)

    def drop(self, turn_id: int, reason: DropReason = DropReason.CELL_END) -> None:
        self.send(TurnDropped(turn_id=turn_id, reason=reason, closed_at_ns=0, drained_at_ns=0))

    def expect(self, kind: type[M], *, within_s: float = ANSWER_S_MAX) -> M:
        """The next message of this kind; others on the way are passed over."""
        until_s = time.monotonic() + within_s
        while True:
            while self._unread:
                message = self._unread.pop(0)
                if isinstance(message, kind):
                    return message
            if not self._read(until_s):
                raise AssertionError(f"closed before {kind.__name__}: {self.received}")

    def expect_refused(self, *, within_s: float = ANSWER_S_MAX) -> Refused:
        """Refused, and then the end of the connection."""
        refused = self.expect(Refused, within_s=within_s)
        assert self.is_closed(within_s=within_s)
        return refused

    def has_within(self, kind: type[Message], *, within_s: float) -> bool:
        """Whether such a message comes in this time; for what must not come."""
        try:
            self.expect(kind, within_s=within_s)
        except TimeoutError:
            return False
        return True

    def heard(self, kind: type[Message], *, within_s: float = 0.0) -> bool:
        """Whether such a message has come by now; waits for at most one piece of news."""
        while select.select([self.socket], [], [], within_s)[0]:
            within_s = 0.0
            if not self._read(time.monotonic() + ANSWER_S_MAX):
                break
        return any(isinstance(message, kind) for message in self.received)

    def is_closed(self, *, within_s: float = ANSWER_S_MAX) -> bool:
        """Read until the other side closes."""
        until_s = time.monotonic() + within_s
        while self._read(until_s):
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def _read(self, until_s: float) -> bool:
        self.socket.settimeout(max(0.001, until_s - time.monotonic()))
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        messages = self._decoder.feed(data)
        self._unread += messages
        self.received += messages
        return bool(data)

    def __enter__(self) -> ScriptedClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
