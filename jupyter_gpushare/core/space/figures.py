"""What each step of budgets.py sees: the figures of a device, and the budgets that the steps before
it have decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..ids import ClientId, DeviceId, Seconds, TenantId
from ..ledger import Attention, Share
from ..order.line import Rank
from ..records import Tenant
from .requests import SpaceRequest

SLACK_BYTES_MAX = 256 << 20
"""The most that a client may have beyond what it uses, where others could use it."""
_SLACK_SHARE = 32
"""On a small device the slack is this part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A device at one moment. The shares are those of the state; `decide` only reads them."""

    now_s: Seconds
    device: DeviceId
    shares: Mapping[ClientId, Share]
    holding: tuple[Share, ...]
    """With a turn, those of the earliest turn first."""
    ahead: tuple[Share, ...]
    """Without a turn, of the tenant that has the next one here: their memory may come back now."""
    attention: Attention
    """The shares by what there is to do about them."""
    outdated: Mapping[ClientId, Share]
    """They were told something else than what they could have at most now."""
    refused: frozenset[ClientId]
    """Their needs have just been found hopeless."""
    to_evict: tuple[Share, ...]
    """Their memory leaves the device, although nobody needs the space."""
    requests: tuple[SpaceRequest, ...]
    tenants: Mapping[TenantId, Tenant]
    ranks: Mapping[TenantId, Rank]
    """Of those that wait for the device: how soon they are served."""
    bytes_total: int
    bytes_usable: int
    bytes_to_lend: int
    """Of the reserve."""
    bytes_ghost: int
    """Of clients that have ended, if the device has not been looked at since."""
    bytes_resident: int
    bytes_charged: int
    bytes_without_turn: int
    """The resident bytes of clients without a turn; for silent ones, their charges."""
    bytes_beyond: int
    """By how much all allocations together exceed what is usable."""
    bytes_staying: int
    bytes_free_on_device: int | None
    """As the device itself says; None where it cannot be looked at."""
    recovering: bool
    """Memory of clients that are not back yet looks like strangers'."""
    somebody_is_passed_over: bool
    """For somebody's memory, on any device."""
    in_doubt: frozenset[DeviceId]
    """Devices on which a need will be refused, unless a look shows something else."""
    ghosts_are_there: bool
    measure_at_s: Seconds | None
    """When the device is to be looked at next."""
    next_progress_s: Seconds
    """From when on a client that is asked for memory now counts as one that makes no progress."""
    park_timeout_s: Seconds
    is_due: bool
    """Something of the device has a time already."""
    may_copy: bool
    """Memory moves ahead of need, and no holder copies much itself."""

    @property
    def pending(self) -> list[SpaceRequest]:
        """Requests for space that have not been answered."""
        return [request for request in self.requests if request.made_at_s is None]

    @property
    def owing(self) -> Collection[Share]:
        """They have more, or may believe that they may have more, than they were told last."""
        return self.attention.owing.values()

    def shares_of(self, tenant: TenantId) -> list[Share]:
        """What the tenant's clients have here."""
        clients = self.tenants[tenant].clients.values()
        return [c.devices[self.device] for c in clients if self.device in c.devices]

    def usable_bytes_for(self, share: Share) -> int:
        """The most that the tenant of the share could have."""
        own = sum(each.bytes_staying for each in self.shares_of(share.tenant))
        most = self.bytes_usable - self.bytes_staying + own
        cap = self.tenants[share.tenant].cap_bytes
        return max(0, min(most, cap) if cap else most)

    def kept_bytes(self, share: Share) -> int:
        """What a client with a turn keeps where others could use the rest."""
        slack = min(SLACK_BYTES_MAX, max(0, self.bytes_usable) // _SLACK_SHARE)
        wanted = max(share.bytes_allocated + share.asked_bytes, share.bytes_asked_for)
        return max(share.bytes_resident, wanted) + slack


@dataclass(frozen=True, slots=True)
class Budgets:
    """The shares as they would be with the budgets decided so far."""

    told: Mapping[ClientId, int] = field(default_factory=dict)
    again: frozenset[ClientId] = frozenset()

    def of(self, share: Share) -> int:
        return self.told.get(share.client, share.budget_bytes)

    def charged(self, share: Share) -> int:
        return max(share.bytes_charged, self.of(share))

    def needed(self, share: Share) -> int:
        return share.asked_bytes if share.client in self.again else share.needed_bytes

    def newly_charged_bytes(self, figures: Figures) -> int:
        """By how much the decided budgets raise the charges."""
        changed = (share for share in figures.holding if share.client in self.told)
        return sum(self.charged(share) - share.bytes_charged for share in changed)

    def wanted(self, share: Share) -> int:
        return share.bytes_allocated + self.needed(share)

    def owes(self, share: Share) -> bool:
        return self.charged(share) > self.of(share)

    def taken_up(self, share: Share) -> int:
        """The bytes of a client with a turn once it has heard its budget."""
        if share.silent:
            return share.bytes_charged
        return max(share.bytes_resident, self.of(share))

    def beyond(self, share: Share, count: int) -> int:
        """The part of the budget beyond `count` bytes."""
        return max(0, self.of(share) - count)

    def is_awaited(self, share: Share, holds: bool) -> bool:
        """As it is of the share; what was decided now has not been heard."""
        if share.client not in self.told:
            return share.is_awaited(holds=holds)
        return self.owes(share) and not (share.silent or share.failed)

    def with_told(self, budgets: Mapping[ClientId, int]) -> Budgets:
        return Budgets({**self.told, **budgets}, self.again)
