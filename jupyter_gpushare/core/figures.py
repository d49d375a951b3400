"""A device at one moment, as budgets.py looks at it. Nothing here changes the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .capacity import holding_shares, reserve_to_lend_bytes, total_bytes, usable_bytes
from .ids import ClientId, DeviceId, Seconds, TenantId
from .ledger import Share, SpaceRequest
from .policy import progress_time_s
from .state import Device, State, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A device at one moment. The shares are those of the state; `decide` only reads them."""

    now_s: Seconds
    shares: tuple[Share, ...]
    holding: tuple[Share, ...]
    """With a turn, those of the earliest turn first."""
    resting: tuple[Share, ...]
    """Without a turn, and not failed."""
    owing: tuple[Share, ...]
    """They have more, or may believe that they may have more, than they were told last."""
    refused: frozenset[ClientId]
    """Their needs have just been found hopeless."""
    requests: tuple[SpaceRequest, ...]
    tenants: Mapping[TenantId, Tenant]
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
    bytes_staying_of: Mapping[TenantId, int]
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

    @property
    def pending(self) -> list[SpaceRequest]:
        """Requests for space that have not been answered."""
        return [request for request in self.requests if request.made_at_s is None]

    def usable_bytes_for(self, share: Share) -> int:
        """The most that the tenant of the share could have."""
        most = self.bytes_usable - self.bytes_staying + self.bytes_staying_of[share.tenant]
        cap = self.tenants[share.tenant].cap_bytes
        return max(0, min(most, cap) if cap else most)

    def hint_bytes_for(self, share: Share) -> int:
        """How much of the share would have to leave if everybody else came back."""
        return max(0, min(share.bytes_allocated - share.bytes_fixed, self.bytes_beyond))


def look(
    state: State,
    device: Device,
    now_s: Seconds,
    *,
    refused: frozenset[ClientId] = frozenset(),
    in_doubt: frozenset[DeviceId] = frozenset(),
) -> Figures:
    """The figures of the device. needs.py says which needs are refused or in doubt."""
    memory, settings = device.memory, state.settings
    holding = holding_shares(state, device.id)
    with_turn = {share.client for share in holding}
    shares = tuple(memory.shares.values())
    without_turn = [share for share in shares if share.client not in with_turn]
    staying: dict[TenantId, int] = {}
    for share in shares:
        staying[share.tenant] = staying.get(share.tenant, 0) + share.bytes_staying
    usable = usable_bytes(settings, device)
    return Figures(
        now_s=now_s,
        shares=shares,
        holding=tuple(holding),
        resting=tuple(share for share in without_turn if not share.failed),
        owing=tuple(share for share in shares if share.bytes_charged > share.budget_bytes),
        refused=refused,
        requests=tuple(memory.space_requests.values()),
        tenants=state.tenants,
        bytes_total=total_bytes(settings, device),
        bytes_usable=usable,
        bytes_to_lend=reserve_to_lend_bytes(settings, device),
        bytes_ghost=0 if memory.ghost_confirmed else memory.bytes_ghost,
        bytes_resident=memory.totals.bytes_resident,
        bytes_charged=memory.totals.bytes_charged,
        bytes_without_turn=sum(
            share.bytes_charged if share.silent else share.bytes_resident for share in without_turn
        ),
        bytes_beyond=memory.totals.bytes_allocated - usable,
        bytes_staying=memory.totals.bytes_staying,
        bytes_staying_of=staying,
        bytes_free_on_device=device.bytes_total - device.bytes_used if memory.is_measured else None,
        recovering=state.recovering_until_s is not None,
        somebody_is_passed_over=bool(state.obstacles),
        in_doubt=in_doubt,
        ghosts_are_there=memory.bytes_ghost > 0,
        measure_at_s=memory.measure_at_s,
        next_progress_s=progress_time_s(state, now_s),
        park_timeout_s=settings.park_timeout_s,
        is_due=memory.due_s is not None,
    )
