"""Watches the processes that registered tenants: when one ends, nobody is left to remove them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from .peer import Peer, open_pidfd


@dataclass(slots=True)
class _Registrant:
    pidfd: int
    tenants: set[str] = field(default_factory=set)


class RegistrantWatch:
    """One descriptor per process, however many tenants it registered."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        """`ended` is called with each tenant whose registrant is gone."""
        self._ended = ended
        self._by_pid: dict[int, _Registrant] = {}

    def watch(self, sock: socket.socket, peer: Peer, tenant_id: str) -> None:
        """Follow the peer's process on behalf of the tenant; a peer that cannot be followed is
        taken to live for ever."""
        registrant = self._by_pid.get(peer.pid)
        if registrant is None:
            try:
                pidfd = open_pidfd(sock, peer)
            except ProcessLookupError:
                asyncio.get_running_loop().call_soon(self._ended, tenant_id)
                return
            if pidfd is None:
                return
            registrant = self._by_pid[peer.pid] = _Registrant(pidfd)
            asyncio.get_running_loop().add_reader(pidfd, self._process_ended, peer.pid)
        registrant.tenants.add(tenant_id)

    def forget(self, tenant_id: str) -> None:
        """The tenant is gone; a process without tenants is not watched any more."""
        for pid, registrant in list(self._by_pid.items()):
            registrant.tenants.discard(tenant_id)
            if not registrant.tenants:
                self._close(pid)

    def close(self) -> None:
        for pid in list(self._by_pid):
            self._close(pid)

    def _process_ended(self, pid: int) -> None:
        tenants = self._by_pid[pid].tenants
        self._close(pid)
        for tenant_id in tenants:
            self._ended(tenant_id)

    def _close(self, pid: int) -> None:
        registrant = self._by_pid.pop(pid)
        asyncio.get_running_loop().remove_reader(registrant.pidfd)
        with contextlib.suppress(OSError):
            os.close(registrant.pidfd)
