"""A scheduler for the hook's tests: it does what the test says, and nothing by itself.

It shares no code with the real one but the protocol. Every wait has a limit."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from jupyter_gpushare.protocol.codec import FrameDecoder, encode
from jupyter_gpushare.protocol.fields import Message, Side
from jupyter_gpushare.protocol.messages import (
    Ahead,
    Contention,
    Fallback,
    GateReopened,
    Hello,
    MemoryBudget,
    MemoryMode,
    MemoryNeeded,
    MemoryReported,
    RefusalCode,
    Refused,
    RoomAnswered,
    RoomRequested,
    Settings,
    TurnDropped,
    TurnGranted,
    TurnRecalled,
    TurnRequested,
    WaitCancelled,
    Welcome,
)
from tests.support.waits import WAIT_S_MAX

M = TypeVar("M", bound=Message)
ANSWER_S_MAX = WAIT_S_MAX
UNLIMITED = 2**64 - 1


class ClientGone(AssertionError):
    """The hook closed the connection."""


class HookedClient:
    """The scheduler's end of one connection. `received` holds all that came, in order."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._decoder = FrameDecoder(receiver=Side.SCHEDULER)
        self._unread: list[Message] = []
        self.received: list[Message] = []
        self.last_turn_id = 0
        self.last_serial = 0

    # ---- what it says ----

    def send(self, *messages: Message) -> None:
        """Raises ClientGone when the process has ended meanwhile."""
        try:
            self.socket.sendall(b"".join(encode(message) for message in messages))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ClientGone(str(error)) from error

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def welcome(
        self,
        *,
        idle_ms: int = 50,
        window_ms: int = 20,
        drain_stall_ms: int = 200,
        reconnect_s: int = 30,
        fallback: Fallback = Fallback.WAIT,
        tenants: int = 2,
        waiters: int = 0,
        turns: int = 1,
        memory_mode: MemoryMode = MemoryMode.OFF,
        reclaim_ms: int = 0,
    ) -> Hello:
        """Takes the Hello and answers as the real scheduler does: two tenants, unless told else."""
        hello = self.expect(Hello)
        self.settings = Settings(
            turns=turns,
            idle_ms=idle_ms,
            window_ms=window_ms,
            drain_stall_ms=drain_stall_ms,
            reconnect_s=reconnect_s,
            fallback=fallback,
            memory_mode=memory_mode,
            reclaim_ms=reclaim_ms,
        )
        self.send(
            Welcome(scheduler_version="fake", tenant_id="tenant"),
            self.settings,
            Contention(waiters=waiters, tenants=tenants, idle_ms=0),
        )
        return hello

    def change_settings(self, **changes: Any) -> None:
        """The others stay as they were welcomed with."""
        self.settings = replace(self.settings, **changes)
        self.send(self.settings)

    def contention(self, *, waiters: int, tenants: int = 2) -> None:
        self.send(Contention(waiters=waiters, tenants=tenants, idle_ms=0))

    def grant(self, turn_id: int | None = None, *, waiters: int = 0) -> int:
        self.last_turn_id = self.last_turn_id + 1 if turn_id is None else turn_id
        self.send(
            TurnGranted(turn_id=self.last_turn_id, quantum_ms=1000, waiters=waiters, cause="test")
        )
        return self.last_turn_id

    def grant_request(self, *, waiters: int = 0) -> int:
        """Waits for a request and grants it."""
        self.expect(TurnRequested)
        return self.grant(waiters=waiters)

    def budget(
        self,
        device: bytes,
        budget_bytes: int,
        *,
        usable_bytes: int = UNLIMITED,
        hint_bytes: int = 0,
        ahead: Ahead = Ahead.RESTORE,
        refused: bool | int = False,
    ) -> int:
        """The serial number that reports are to name from then on. `refused`: the need that was
        heard last, or the one of that number."""
        self.last_serial += 1
        self.send(
            MemoryBudget(
                device=device,
                serial=self.last_serial,
                budget_bytes=budget_bytes,
                usable_bytes=usable_bytes,
                park_hint_bytes=hint_bytes,
                ahead=ahead,
                refused_need=self._last_need() if refused is True else int(refused),
            )
        )
        return self.last_serial

    def room(self, device: bytes, *, made: bool, request: int | None = None) -> None:
        """Answers the request that was heard last, or the one of that number."""
        if request is None:
            asked = next(one for one in reversed(self.received) if isinstance(one, RoomRequested))
            request = asked.request
        self.send(RoomAnswered(device=device, request=request, made=int(made)))

    def _last_need(self) -> int:
        return next(
            one.need
            for one in reversed(self.received)
            if isinstance(one, MemoryNeeded) and one.bytes
        )

    def recall(self, turn_id: int | None = None) -> None:
        self.send(TurnRecalled(turn_id=turn_id or self.last_turn_id, cause="test"))

    def recall_and_drop(self) -> TurnDropped:
        self.recall()
        return self.expect(TurnDropped)

    def reopen(self) -> None:
        self.send(GateReopened(turn_id=self.last_turn_id, cause="test"))

    def cancel(self) -> None:
        self.send(WaitCancelled(cause="test"))

    def refuse(self, code: RefusalCode, message: str) -> None:
        self.send(Refused(code=code, message=message))
        self.close()

    # ---- what it hears ----

    def expect(self, kind: type[M], *, within_s: float = ANSWER_S_MAX) -> M:
        """The next message of this kind; others on the way are passed over."""
        until_s = time.monotonic() + within_s
        while True:
            while self._unread:
                message = self._unread.pop(0)
                if isinstance(message, kind):
                    return message
            self._read(until_s, kind.__name__)

    def expect_memory(
        self, when: Callable[[MemoryReported], bool], *, within_s: float = ANSWER_S_MAX
    ) -> MemoryReported:
        """The next report of memory for which this holds."""
        until_s = time.monotonic() + within_s
        while True:
            report = self.expect(MemoryReported, within_s=until_s - time.monotonic())
            if when(report):
                return report

    def hears(self, kind: type[Message], *, unless: Callable[[], bool]) -> bool:
        """True with the next such message; False when this holds and there is none."""
        is_over = False
        while True:
            try:
                self.expect(kind, within_s=0.05)
            except TimeoutError:
                if is_over:
                    return False
                is_over = unless()
            else:
                return True

    def hears_none(self, kind: type[Message], *, for_s: float) -> bool:
        """True when no such message comes in this time."""
        try:
            self.expect(kind, within_s=for_s)
        except TimeoutError:
            return True
        return False

    def wait_closed(self, *, within_s: float = ANSWER_S_MAX) -> None:
        """Reads until the hook closes the connection."""
        until_s = time.monotonic() + within_s
        try:
            while True:
                self._read(until_s, "the end")
        except ClientGone:
            return

    def read_more(self, until_s: float) -> None:
        """One more piece of what comes."""
        self._read(until_s, "news")

    def count(self, kind: type[Message]) -> int:
        return sum(isinstance(message, kind) for message in self.received)

    def close(self) -> None:
        self.socket.close()

    def _read(self, until_s: float, wanted: str) -> None:
        self.socket.settimeout(max(0.001, until_s - time.monotonic()))
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        except TimeoutError:
            raise TimeoutError(f"no {wanted}; heard {self.received[-12:]}") from None
        if not data:
            raise ClientGone(f"closed before {wanted}; heard {self.received[-12:]}")
        messages = self._decoder.feed(data)
        self._unread += messages
        self.received += messages


class FakeScheduler:
    """Listens at `path`; `stop` and `start` again are a scheduler that comes and goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clients: list[HookedClient] = []
        self._listener: socket.socket | None = None

    def start(self) -> FakeScheduler:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        return self

    def accept(self, *, within_s: float = ANSWER_S_MAX) -> HookedClient:
        """The next connection, before its Hello."""
        assert self._listener
        self._listener.settimeout(within_s)
        connection, _ = self._listener.accept()
        client = HookedClient(connection)
        self.clients.append(client)
        return client

    def has_caller(self) -> bool:
        """Somebody has connected and is not accepted yet."""
        assert self._listener
        return bool(select.select([self._listener], [], [], 0)[0])

    def accepts_none(self, *, for_s: float) -> bool:
        """True when nobody connects in this time."""
        try:
            self.accept(within_s=for_s)
        except TimeoutError:
            return True
        return False

    def stop(self) -> None:
        if self._listener:
            self._listener.close()
            self._listener = None
            self.path.unlink(missing_ok=True)
        for client in self.clients:
            client.close()
        self.clients.clear()

    def env(self, *, hook: Path, log: Path | None = None) -> dict[str, str]:
        """What leads a child process to this scheduler, under that hook library."""
        variables = {
            "LD_PRELOAD": str(hook),
            "GPUSHARE_SOCKET": str(self.path),
            "GPUSHARE_TOKEN": f"token-of-{os.getpid()}",
        }
        if log:
            variables |= {"GPUSHARE_LOG": "debug", "GPUSHARE_LOG_FILE": str(log)}
        return variables

    def __enter__(self) -> FakeScheduler:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
