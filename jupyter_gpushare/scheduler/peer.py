"""Who is at the other end of a unix socket, as the kernel of the machine says."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

_CREDENTIALS = struct.Struct("3i")
_SO_PEERPIDFD = 77
"""asm-generic/socket.h, Linux 6.5; Python has no name for it yet."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Credentials at the time of connect(). `pid` is 0 for a process of a foreign pid namespace."""

    pid: int
    uid: int


def peer_of(sock: socket.socket) -> Peer:
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid=pid, uid=uid)


def has_hung_up(sock: socket.socket) -> bool:
    """Whether the peer has closed its end and said nothing more before."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def open_pidfd(sock: socket.socket, peer: Peer) -> int | None:
    """A descriptor that becomes readable when the peer's process ends; None where there is none.

    Raises ProcessLookupError when the process has ended already.
    """
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
        return int(struct.unpack("i", raw)[0])
    except ProcessLookupError:
        raise
    except OSError:
        # An older kernel: by number, which is safe enough because the peer is still connected.
        pass
    if peer.pid <= 0:
        return None
    try:
        return os.pidfd_open(peer.pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None
