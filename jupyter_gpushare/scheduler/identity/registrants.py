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
    ended: dict[str, Callable[[str], None]] = field(default_factory=dict)
    """By tenant: who is told."""


class RegistrantWatch:
    """One descriptor per process, however many tenants it registered; one per tenant for processes
    of foreign pid namespaces, which have no number here."""

    def __init__(self) -> None:
        self._registrants: dict[int, _Registrant] = {}
        """By pid; by the negative of the descriptor where there is none."""

    def watch(
        self,
        sock: socket.socket,
        peer: Peer,
        tenant_id: str,
        ended: Callable[[str], None],
    ) -> None:
        """Call `ended` with the tenant when the peer's process has ended. A peer that cannot be
        followed is taken to live for ever."""
        registrant = self._registrants.get(peer.pid)
        if registrant is None:
            try:
                pidfd = open_pidfd(sock, peer)
            except ProcessLookupError:
                asyncio.get_running_loop().call_soon(ended, tenant_id)
                return
            if pidfd is None:
                return
            key = peer.pid or -pidfd
            registrant = self._registrants[key] = _Registrant(pidfd)
            asyncio.get_running_loop().add_reader(pidfd, self._process_ended, key)
        registrant.ended[tenant_id] = ended

    def forget(self, tenant_id: str) -> None:
        """The tenant is gone; a process without tenants is not watched any more."""
        for key, registrant in list(self._registrants.items()):
            registrant.ended.pop(tenant_id, None)
            if not registrant.ended:
                self._close(key)

    def close(self) -> None:
        for key in list(self._registrants):
            self._close(key)

    def _process_ended(self, key: int) -> None:
        told = self._registrants[key].ended
        self._close(key)
        for tenant_id, ended in told.items():
            ended(tenant_id)

    def _close(self, key: int) -> None:
        registrant = self._registrants.pop(key)
        asyncio.get_running_loop().remove_reader(registrant.pidfd)
        with contextlib.suppress(OSError):
            os.close(registrant.pidfd)
