"""The server on hook.sock: lets clients in, and carries messages to and from them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable

from jupyter_gpushare.protocol.messages import Hello, RefusalCode, Welcome
from jupyter_gpushare.version import __version__

from ..identity.admission import Admission, Refusal
from ..identity.tokens import TenantRecord
from .connection import Clients, HookConnection, Intake
from .translate import Inbound

log = logging.getLogger(__name__)

STRANGERS_MAX = 128
"""Connections of one user that have not said Hello yet; they do not count as clients."""
CLIENTS_SHARE_MAX = 0.5
"""Of `clients_max`: what one user of several may take."""


class HookListener:
    """`clients_max` is asked at each arrival, because it can be changed while we run."""

    def __init__(
        self,
        *,
        admission: Admission,
        inbound: Inbound,
        clients: Clients,
        clients_max: Callable[[], int],
        message_deadline_s: float = 5.0,
    ) -> None:
        self._admission = admission
        self._inbound = inbound
        self._clients = clients
        self._clients_max = clients_max
        self._message_deadline_s = message_deadline_s
        self._numbers = itertools.count(1)
        self._strangers: set[HookConnection] = set()
        self._owners: dict[int, str] = {}
        self._intake = Intake(asyncio.get_running_loop())
        self._servers: list[asyncio.Server] = []
        self._shutting_down = False

    async def start(self, sock: socket.socket) -> None:
        """Serve one more socket, which listens already."""
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(self._connection, sock=sock))

    def _connection(self) -> HookConnection:
        return HookConnection(
            self,
            next(self._numbers),
            received=self._inbound.received,
            intake=self._intake,
            message_deadline_s=self._message_deadline_s,
        )

    async def stop(self) -> None:
        """Say goodbye; clients keep their turns and look for a successor."""
        self._shutting_down = True
        for server in self._servers:
            server.close()
        for connection in [*self._strangers, *self._clients]:
            connection.refuse(
                RefusalCode.SHUTTING_DOWN,
                "The scheduler ends. Start it again; kernels that wait will go on by themselves.",
            )
        # One round of the loop, for transports that close in a callback.
        await asyncio.sleep(0)

    # ---- from connections ----

    def opened(self, connection: HookConnection) -> None:
        self._strangers.add(connection)
        if self._shutting_down:
            raise Refusal(RefusalCode.SHUTTING_DOWN, "The scheduler ends. Start it again.")
        uid = connection.peer.uid
        if sum(stranger.peer.uid == uid for stranger in self._strangers) > STRANGERS_MAX:
            raise Refusal(RefusalCode.TOO_MANY, _too_many(STRANGERS_MAX, "unnamed connections"))

    def greeted(self, connection: HookConnection, hello: Hello) -> None:
        record = self._admission.check(hello, connection.peer)
        self._check_places(record)
        self._strangers.discard(connection)
        self._clients.add(connection)
        self._owners[connection.client] = record.owner_key
        connection.send(Welcome(scheduler_version=__version__, tenant_id=record.tenant_id))
        self._inbound.joined(connection.client, record, hello, connection.peer)

    def lost(self, connection: HookConnection, cause: str) -> None:
        self._strangers.discard(connection)
        self._owners.pop(connection.client, None)
        if self._clients.remove(connection) and not self._shutting_down:
            self._inbound.lost(connection.client, cause)

    def _check_places(self, record: TenantRecord) -> None:
        """One user among several cannot take every place; raises Refusal. Who is cut off takes
        none, for its process is back, perhaps as the one that asks."""
        limit = self._clients_max()
        here = [self._owners[each.client] for each in self._clients if not each.is_cut_off]
        if len(here) >= limit:
            raise Refusal(RefusalCode.TOO_MANY, _too_many(limit, "clients"))
        share = max(1, int(limit * CLIENTS_SHARE_MAX))
        if self._admission.serves_all and here.count(record.owner_key) >= share:
            raise Refusal(
                RefusalCode.TOO_MANY,
                f"You have {share} processes on this scheduler already, which is your share of "
                f"clients_max. Shut kernels down that are not needed, or have clients_max raised.",
            )


def _too_many(limit: int, what: str) -> str:
    return (
        f"The scheduler has {limit} {what} already, which is its limit. Shut kernels down that "
        f"are not needed, or raise clients_max."
    )
