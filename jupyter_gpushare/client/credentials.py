"""The process at the other end of a unix socket, as the operating system names it."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("3i")


def credentials_of(sock: socket.socket) -> tuple[int, int]:
    """Its pid (0 in a foreign pid namespace) and its uid, at the time of connect() or listen()."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
