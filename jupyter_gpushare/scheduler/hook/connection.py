"""One client's connection: bytes in, messages out, and every way in which it can go wrong.

Nothing that a peer does, or fails to do, costs more than its own connection: a frame that was begun
has a deadline, a reader that does not read has a bound, and the process is watched by its own
descriptor, because a forked child may keep the socket open after it.

A client may send hundreds of messages at once, and the core looks at every tenant for some of them.
So one turn of the event loop handles messages for a bounded time, one message of each client after
the other (`Intake`); everything else on the loop, HTTP above all, comes in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol, cast

from jupyter_gpushare.core.records import WORK_ENDS_S
from jupyter_gpushare.protocol.codec import FrameDecoder, ProtocolError, encode
from jupyter_gpushare.protocol.fields import Message, Side
from jupyter_gpushare.protocol.messages import (
    Hello,
    RefusalCode,
    Refused,
    TurnDropped,
    TurnGranted,
)

from ..identity.admission import Refusal
from ..identity.peer import Peer, open_pidfd, peer_of

log = logging.getLogger(__name__)

LINGER_S = 1.0
"""How long a refused peer has to read why."""
UNSENT_BYTES_MAX = 64 << 10
"""Bytes that may wait for a peer that does not read, beyond the socket's own buffer."""
WORK_S = 0.002
"""How long one turn of the event loop handles messages, of all clients together. A message that
takes longer is paid for by the turns that follow."""
MESSAGES_MAX = 64
"""So many messages one turn of the loop handles, however fast they are."""


class Source(Protocol):
    """A connection with messages."""

    def handle_next(self) -> bool:
        """Handle one message; False when none is left."""


class Intake:
    """Shared by all connections. `spent_s` measures the loop's time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop = loop
        self._spent_s = spent_s
        self._waiting: deque[Source] = deque()
        self._left_s = WORK_S
        self._next_turn_is_set = False

    def offer(self, source: Source) -> None:
        """The source has messages. They are handled now where this turn of the loop has time left
        for them, else in the turns that follow."""
        self._waiting.append(source)
        self._work()

    def _work(self) -> None:
        while self._waiting and self._left_s > 0:
            began_s = self._spent_s()
            source = self._waiting.popleft()
            if source.handle_next():
                self._waiting.append(source)
            self._left_s -= max(self._spent_s() - began_s, WORK_S / MESSAGES_MAX)
        if not self._next_turn_is_set:
            self._next_turn_is_set = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._next_turn_is_set = False
        self._left_s = min(WORK_S, self._left_s + WORK_S)
        if self._waiting:
            self._work()


class Handler(Protocol):
    """Where a connection turns to; the listener is one."""

    def opened(self, connection: HookConnection) -> None:
        """A peer has connected; raises Refusal."""

    def greeted(self, connection: HookConnection, hello: Hello) -> None:
        """Its Hello is here; raises Refusal."""

    def lost(self, connection: HookConnection, cause: str) -> None:
        """Nothing can be heard from it any more. Called once, for each that was opened."""


_incoming = bytearray(4096)
"""The buffer of one read. All connections share it, for it is emptied at once. A connection is not
read again before its messages are handled, so this bounds the backlog of a client that floods."""


class HookConnection(asyncio.BufferedProtocol):
    """`client` is the number under which the core knows it. `received` is told of each message
    after the first, and may raise Refusal. `message_deadline_s` is for the first message, and for
    the rest of one that was begun."""

    def __init__(
        self,
        handler: Handler,
        client: int,
        *,
        received: Callable[[int, Message], None],
        intake: Intake,
        message_deadline_s: float,
    ) -> None:
        self.client = client
        self.peer = Peer(pid=0, uid=-1)
        self._handler = handler
        self._received = received
        self._intake = intake
        self._message_deadline_s = message_deadline_s
        self._decoder = FrameDecoder(receiver=Side.SCHEDULER)
        self._loop = asyncio.get_running_loop()
        self._greeted = False
        self._has_turn = False
        self._over = False
        self._turn_ends: asyncio.TimerHandle | None = None
        self._has_unhandled = False
        """Bytes were read that have not been looked at: others' messages come before."""
        self._has_progressed = False
        """A message was complete since the socket was read last."""
        self._pidfd: int | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    # ---- what asyncio calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        sock = cast(socket.socket, transport.get_extra_info("socket"))
        self.peer = peer_of(sock)
        try:
            self._pidfd = open_pidfd(sock, self.peer)
        except ProcessLookupError:
            self._over = True
            self._transport.abort()
            return
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self._end, "its process ended")
        self._set_deadline("did not say who it is")
        try:
            self._handler.opened(self)
        except Refusal as refusal:
            self.refuse(refusal.code, str(refusal))

    def get_buffer(self, sizehint: int) -> bytearray:
        return _incoming

    def buffer_updated(self, nbytes: int) -> None:
        if self._over:
            return
        self._decoder.receive(memoryview(_incoming)[:nbytes])
        self._has_unhandled, self._has_progressed = True, False
        self._intake.offer(self)
        if self._has_unhandled and not self._over:
            self._transport.pause_reading()

    def handle_next(self) -> bool:
        """One message, when its turn among all clients' messages has come; False when none is left
        here."""
        if self._over:
            return False
        try:
            message = self._decoder.next_message()
        except ProtocolError as fault:
            self.refuse(fault.refusal, str(fault))
            return False
        if message is not None:
            self._has_progressed = True
            self._take(message)
            return not (self._over or self.is_cut_off)
        self._has_unhandled = False
        self._transport.resume_reading()
        if self._greeted:
            self._watch_frame(progress=self._has_progressed)
        return False

    def eof_received(self) -> None:
        self.cut_off("it closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self.cut_off(f"the connection broke ({exc})" if exc else "the connection closed")

    def pause_writing(self) -> None:
        log.warning("client %s does not read what it is sent; its connection ends", self.client)
        self._end("it does not read")

    # ---- what the listener calls ----

    @property
    def is_cut_off(self) -> bool:
        """Its process lives, its connection does not, and its turn stands for a moment."""
        return self._turn_ends is not None

    def send(self, message: Message) -> bool:
        """Write at once, into the socket if it takes it; False when the client is gone."""
        if self._over:
            return False
        self._has_turn |= isinstance(message, TurnGranted)
        if not self.is_cut_off:
            self._transport.write(encode(message))
        return not self._over

    def refuse(self, code: RefusalCode, message: str) -> None:
        """Tell the peer why, and end the connection."""
        if self._over:
            return
        log.info("client %s (%s) is refused: %s", self.client, self.peer, message)
        self._transport.write(encode(Refused(code=code, message=message)))
        self._end(f"refused: {code.name.lower()}", linger_s=LINGER_S)

    def cut_off(self, cause: str) -> None:
        """Nothing more is heard from it. Its turn is over at once where its process has ended."""
        if self._over or self.is_cut_off:
            return
        if self._pidfd is None or not self._has_turn:
            self._end(cause)
            return
        self._clear_deadline()
        # It connects again: programs close descriptors that are not theirs, and we have bugs.
        self._turn_ends = self._loop.call_later(WORK_ENDS_S, self._end, cause)
        self._transport.abort()

    def kill(self) -> None:
        """End the peer's process, if it can be named safely."""
        if self._pidfd is None:
            log.warning("client %s cannot be killed: its process is not visible here", self.client)
            return
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except OSError as error:
            log.warning("client %s cannot be killed: %s", self.client, error.strerror)

    # ---- the inside ----

    def _take(self, message: Message) -> None:
        try:
            if self._greeted:
                if isinstance(message, Hello):
                    raise Refusal(RefusalCode.BAD_PROTOCOL, _SECOND_HELLO)
                self._has_turn &= not isinstance(message, TurnDropped)
                self._received(self.client, message)
            else:
                if not isinstance(message, Hello):
                    raise Refusal(RefusalCode.BAD_PROTOCOL, _NO_HELLO)
                self._has_turn = message.held_turn_id != 0
                self._handler.greeted(self, message)
                self._greeted = True
                self._clear_deadline()
        except Refusal as refusal:
            self.refuse(refusal.code, str(refusal))
        except Exception:
            # What it said is lost. It connects again and says what it has.
            log.exception("client %s: %s failed", self.client, type(message).__name__)
            self.cut_off("the scheduler failed at its message")

    def _watch_frame(self, *, progress: bool) -> None:
        """A begun frame has a deadline of its own, which single bytes do not put off."""
        if progress or not self._decoder.bytes_waiting:
            self._clear_deadline()
        if self._decoder.bytes_waiting and self._deadline is None:
            self._set_deadline("began a message and did not end it")

    def _set_deadline(self, fault: str) -> None:
        self._deadline = self._loop.call_later(self._message_deadline_s, self._too_late, fault)

    def _clear_deadline(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self, fault: str) -> None:
        if self._has_unhandled:  # what was awaited may be among it
            self._set_deadline(fault)
            return
        self.refuse(
            RefusalCode.BAD_PROTOCOL,
            f"The peer {fault} within {self._message_deadline_s:g} seconds. Let only the gpushare "
            f"hook speak on this socket.",
        )

    def _end(self, cause: str, *, linger_s: float = 0.0) -> None:
        """The one way out, gone through once."""
        if self._over:
            return
        self._over = True
        self._clear_deadline()
        if self._turn_ends is not None:
            self._turn_ends.cancel()
        if linger_s and self._transport.get_write_buffer_size():
            self._transport.close()
            self._loop.call_later(linger_s, self._transport.abort)
        elif linger_s:
            self._transport.close()
        else:
            self._transport.abort()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            with contextlib.suppress(OSError):
                os.close(self._pidfd)
            self._pidfd = None
        self._handler.lost(self, cause)


_NO_HELLO = (
    "The first message of a connection has to be Hello. Let only the gpushare hook speak on this "
    "socket."
)
_SECOND_HELLO = "A connection says Hello once. Let only the gpushare hook speak on this socket."


class Clients:
    """Connections that have been let in, by number."""

    def __init__(self) -> None:
        self._connections: dict[int, HookConnection] = {}

    def __iter__(self) -> Iterator[HookConnection]:
        return iter(list(self._connections.values()))

    def add(self, connection: HookConnection) -> None:
        self._connections[connection.client] = connection

    def remove(self, connection: HookConnection) -> bool:
        """Whether it was there."""
        return self._connections.pop(connection.client, None) is not None

    def send(self, client: int, message: Message) -> bool:
        """False when the client is gone."""
        connection = self._connections.get(client)
        return connection is not None and connection.send(message)

    def close(self, client: int, code: RefusalCode, message: str) -> None:
        if connection := self._connections.get(client):
            connection.refuse(code, message)

    def renew(self, client: int) -> None:
        """End the connection as if the scheduler had: the process comes back with its turn."""
        if connection := self._connections.get(client):
            connection.cut_off("it is to connect again")

    def kill(self, client: int) -> None:
        if connection := self._connections.get(client):
            connection.kill()
