"""The process at the other end of a unix socket, as the operating system names it."""

from __future__ import annotations

import os
import select
import socket
import struct
from dataclasses import dataclass

from jupyter_gpushare.client.credentials import credentials_of

from .namespaces import in_our_namespaces

_SO_PEERPIDFD = 77
"""asm-generic/socket.h, Linux 6.5; Python has no name for it yet."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Credentials at the time of connect(). `pid` is 0 for a process of a foreign pid namespace.

    `is_local`: it lives in our own namespaces. Only there an account says who somebody is; it is
    looked up for root and our own account alone, to whom more is allowed than to others."""

    pid: int
    uid: int
    is_local: bool = False

    @property
    def administers(self) -> bool:
        """Its account may do here what it likes, for it could read our key as well."""
        return self.is_local and self.uid in (0, os.getuid())


def peer_of(sock: socket.socket) -> Peer:
    pid, uid = credentials_of(sock)
    peer = Peer(pid, uid)
    if uid not in (0, os.getuid()):
        return peer
    return Peer(pid, uid, is_local=_is_local(sock, peer))


def _is_local(sock: socket.socket, peer: Peer) -> bool:
    """The process is held while it is looked at, for its number may be given away after its end."""
    try:
        pidfd = open_pidfd(sock, peer)
    except ProcessLookupError:
        return False
    if pidfd is None:
        return False
    try:
        return in_our_namespaces(peer.pid) and not _has_ended(pidfd)
    finally:
        os.close(pidfd)


def _has_ended(pidfd: int) -> bool:
    news = select.poll()  # select() knows no descriptors beyond 1023
    news.register(pidfd, select.POLLIN)
    return bool(news.poll(0))


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
