"""What processes' host memory is like: it decides nothing, and is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.protocol.messages import HostMemoryReported

SLOW_BYTES_PER_S = 5_000_000_000
"""Copies go at 20 GB/s and more. Beside an H200 host memory became ready at 17 GB/s."""


class HostMemory:
    def __init__(self) -> None:
        self._told: dict[ClientId, HostMemoryReported] = {}

    def told(self, client: ClientId, message: HostMemoryReported) -> None:
        self._told.pop(client, None)
        self._told[client] = message

    def forget(self, client: ClientId) -> None:
        self._told.pop(client, None)

    def unpinned_of(self, clients: Iterable[int]) -> int:
        """Parked bytes of these processes in memory that the driver would not pin."""
        told = (self._told.get(ClientId(client)) for client in clients)
        return sum(each.bytes_unpinned for each in told if each is not None)

    def machine(self) -> dict[str, Any]:
        """As the process knows it that told of it last."""
        rates = (each.bytes_ready_per_s for each in reversed(self._told.values()))
        rate = next((each for each in rates if each), None)
        return {"bytes_ready_per_s": rate, "slow": rate is not None and rate < SLOW_BYTES_PER_S}


NOTHING_TOLD = HostMemory()
