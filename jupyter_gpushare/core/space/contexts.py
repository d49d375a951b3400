"""What the CUDA contexts of clients take of a device, modules and the driver's own included.

No client reports it. The driver says how much each process has there in all, and the client says
how much it has allocated. They say so at different moments, so the difference is believed when both
have been the same for `SETTLED_S`. Until that is so for the first time, the least that was seen is
believed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..ids import ClientId, Seconds

if TYPE_CHECKING:
    from ..ledger import Share

SETTLED_S = 0.3
"""Clients report allocations within 0.1 s, so what has been so for this long misses none."""
ENDED_S = 5.0
"""By then the driver has given back what a process had that has ended. Before, nobody can tell that
from what the driver keeps of others."""


@dataclass(slots=True, eq=False)
class Context:
    """What the contexts of one client take."""

    bytes: int = 0
    """As it is believed."""
    bytes_process: int = 0
    """What its process has there in all, as the driver said last."""
    bytes_resident: int = 0
    """What of it the client had reported then."""
    same_since_s: Seconds = math.inf
    """Since when both are so; in the time to come: the driver has said nothing yet."""
    has_settled: bool = False


@dataclass(slots=True, eq=False)
class Contexts:
    """The contexts of all clients of one device."""

    bytes_total: int = 0
    known: int = 0
    """Of so many clients it is known what their contexts take."""
    heard: dict[ClientId, int] = field(default_factory=dict)
    """The driver's word of clients that have not said yet that they opened the device."""
    unsettled: dict[ClientId, Share] = field(default_factory=dict)
    """Those about which something has changed since it was believed last."""

    @property
    def bytes_each(self) -> int:
        """What one client's take, on the average; 0: that is not known."""
        return self.bytes_total // self.known if self.known else 0

    def moved(self, share: Share) -> None:
        """The client has reported another amount."""
        if share.context.same_since_s < math.inf:
            self.unsettled[share.client] = share

    def measured(
        self,
        shares: Mapping[ClientId, Share],
        told: Iterable[tuple[ClientId, int]],
        now_s: Seconds,
    ) -> None:
        """The driver was asked. `told` are those processes of which its word is another one."""
        for client, count in (*self.heard.items(), *told):
            share = shares.get(ClientId(client))
            if share is None:
                self.heard[ClientId(client)] = count
                continue
            if count != share.context.bytes_process:
                share.context.bytes_process, share.context.same_since_s = count, now_s
                share.context.bytes_resident = share.bytes_resident
                self.unsettled[share.client] = share
        if self.heard:
            heard = self.heard.items()
            self.heard = {each: count for each, count in heard if count and each not in shares}
        for share in list(self.unsettled.values()):
            self._look(share, now_s)

    def forget(self, share: Share) -> None:
        """The client has no context there any more."""
        self.unsettled.pop(share.client, None)
        self._believe(share, 0)

    def _look(self, share: Share, now_s: Seconds) -> None:
        context = share.context
        beyond = max(0, context.bytes_process - share.bytes_resident)
        if share.bytes_resident != context.bytes_resident:
            context.bytes_resident, context.same_since_s = share.bytes_resident, now_s
        if now_s >= context.same_since_s + SETTLED_S:
            context.has_settled = True
            del self.unsettled[share.client]
            self._believe(share, beyond)
        elif not context.has_settled:
            self._believe(share, min(context.bytes, beyond) if context.bytes else beyond)

    def _believe(self, share: Share, count: int) -> None:
        before, share.context.bytes = share.context.bytes, count
        if count != before:
            self.bytes_total += count - before
            self.known += (count > 0) - (before > 0)
            share.attention.to_show[share.tenant] = None
