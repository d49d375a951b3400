"""What processes' device memory is, by kind: it decides nothing, and is shown to its user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.protocol.messages import MemoryKindsReported

KINDS = (
    "plain",
    "mapped",
    "pooled",
    "prefetched",
    "stopped",
    "driver_pools",
    "graphs",
    "managed",
    "arrays",
    "other",
)
"""As the message names them. "stopped" is the part of the first four that cannot be moved. Of
managed memory, "prefetched" moves and "managed" stays."""


class MemoryKinds:
    def __init__(self) -> None:
        self._told: dict[ClientId, dict[DeviceId, MemoryKindsReported]] = {}

    def told(self, client: ClientId, device: DeviceId, message: MemoryKindsReported) -> None:
        self._told.setdefault(client, {})[device] = message

    def closed(self, client: ClientId, device: DeviceId) -> None:
        self._told.get(client, {}).pop(device, None)

    def forget(self, client: ClientId) -> None:
        self._told.pop(client, None)

    def of(self, clients: Iterable[int], device: str) -> dict[str, int]:
        """Bytes that these processes have allocated there, parked or not; no kind that they have
        nothing of."""
        sums: Counter[str] = Counter()
        for client in clients:
            message = self._told.get(ClientId(client), {}).get(DeviceId(device))
            if message is not None:
                sums.update({kind: getattr(message, f"bytes_{kind}") for kind in KINDS})
        return {kind: count for kind, count in sums.items() if count}
