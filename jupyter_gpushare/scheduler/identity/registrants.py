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
    """One descriptor per process, however many tenants it registered; one per tenant for processes
    of foreign pid namespaces, which have no number here."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        """`ended` is called with each tenant whose registrant is gone."""
        self._ended = ended
        self._registrants: dict[int, _Registrant] = {}
        """By pid; by the negative of the descriptor where there is none."""

    def watch(self, sock: socket.socket, peer: Peer, tenant_id: str) -> None:
        """Follow the peer's process on behalf of the tenant; a peer that cannot be followed is
        taken to live for ever."""
        registrant = self._registrants.get(peer.pid)
        if registrant is None:
            try:
                pidfd = open_pidfd(sock, peer)
            except ProcessLookupError:
                asyncio.get_running_loop().call_soon(self._ended, tenant_id)
                return
            if pidfd is None:
                return
            key = peer.pid or -pidfd
            registrant = self._registrants[key] = _Registrant(pidfd)
            asyncio.get_running_loop().add_reader(pidfd, self._process_ended, key)
        registrant.tenants.add(tenant_id)

    def forget(self, tenant_id: str) -> None:
        """The tenant is gone; a process without tenants is not watched any more."""
        for key, registrant in list(self._registrants.items()):
            registrant.tenants.discard(tenant_id)
            if not registrant.tenants:
                self._close(key)

    def close(self) -> None:
        for key in list(self._registrants):
            self._close(key)

    def _process_ended(self, key: int) -> None:
        tenants = self._registrants[key].tenants
        self._close(key)
        for tenant_id in tenants:
            self._ended(tenant_id)

    def _close(self, key: int) -> None:
        registrant = self._registrants.pop(key)
        asyncio.get_running_loop().remove_reader(registrant.pidfd)
        with contextlib.suppress(OSError):
            os.close(registrant.pidfd)
