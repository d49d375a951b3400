"""A hand-over for which the host has no space at once, but piece by piece (decision 0023).

Memory that comes back to a device gives its host memory up, and what others park for it can have
that. So a hand-over needs little more on the host than what is parked anyway, where both are under
one limit: the memory of the machine, or a control group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from ..ids import ClientId, TenantId
from ..ledger import DeviceMemory, Share

PIECE_BYTES = 64 << 20
"""The largest piece in which hooks move memory. With space for one an exchange can begin, and what
it gives up is space for the next."""
MACHINE = 0
"""The limit is the machine's own memory, which all share."""
_NOBODY: Collection[ClientId] = ()


def exchanged_bytes(
    memory: DeviceMemory,
    tenant: TenantId,
    own: Iterable[Share],
    room: int,
    *,
    begun: bool,
    holding: Collection[ClientId] = _NOBODY,
) -> int:
    """How much of others' memory, for which the host has no space, can leave all the same while the
    memory of this tenant comes back. Its shares are `own`, and without that it could have `room`
    there. Nothing, if not even the first piece could come, unless it has `begun`: it has the turn.
    Those that are `holding` park nothing."""
    if not memory.attention.cannot_park:
        return 0
    coming = _coming(own)
    if not begun and _first_lacks(coming, room) > 0:
        return 0
    gives: Counter[int] = Counter()
    for share in coming:
        # Managed memory (which may be kept on the device) keeps its host memory, wherever it is.
        gives[share.host_limit] += share.bytes_parked - share.bytes_kept + share.bytes_ahead
    stuck: Counter[int] = Counter()
    for client, share in memory.attention.cannot_park.items():
        if share.tenant != tenant and client not in holding:
            stuck[share.host_limit] += share.bytes_staying - share.bytes_fixed
    given = gives.total()
    leaves = (
        min(count, given if limit == MACHINE else gives[limit]) for limit, count in stuck.items()
    )
    return min(given, sum(leaves))


def host_lacks_bytes(
    memory: DeviceMemory, tenant: TenantId, own: Collection[Share], room: int, short: int
) -> int:
    """How much more host memory is wanted, where the tenant is `short` of so much on the device
    because the host has no space for others' memory."""
    after = short - exchanged_bytes(memory, tenant, own, room, begun=True)
    return max(after, min(short, _first_lacks(_coming(own), room)))


def host_is_short(memory: DeviceMemory, tenant: TenantId, own: Iterable[Share]) -> bool:
    """Others lack host memory under a limit under which the tenant has some."""
    limits = {MACHINE, *(share.host_limit for share in own)}
    return any(
        share.tenant != tenant and share.host_limit in limits
        for share in memory.attention.cannot_park.values()
    )


def _coming(own: Iterable[Share]) -> list[Share]:
    return [share for share in own if not (share.failed or share.silent)]


def _first_lacks(coming: list[Share], room: int) -> int:
    """How much the first piece that comes back lacks on the device. What came ahead of the turn
    gives its host memory up as soon as the turn has come."""
    parked = sum(share.bytes_parked for share in coming)
    ahead = sum(share.bytes_ahead for share in coming)
    first = min(parked, max(0, PIECE_BYTES - ahead))
    return sum(share.bytes_resident for share in coming) + first - room
