"""Who has one device, who queues for it and in which order."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from ..accounts import Use
from ..ids import Seconds, TenantId, TurnId
from ..records import Tenant, Turn
from ..shares.classes import BOOSTED, FIRST, GUARANTEED, ORDINARY, URGENT

_LOOKED_AT = 16
"""Of an owner's tenants that wait, so many are looked at: who waits behind them comes nearer."""

Rank = tuple[int, float, float, int]
"""How soon it is served (classes.py), where that is by share the virtual finish time of its owner
and its own recent use, and the number of its arrival."""


@dataclass(slots=True, eq=False)
class Line:
    """The tenants of one device."""

    users: dict[TenantId, Tenant] = field(default_factory=dict)
    """Those that could use it."""
    owners: Counter[str] = field(default_factory=Counter)
    """How many of these are whose."""
    batch: int = 0
    """How many of these are `batch`."""
    realtime: int = 0
    holders: list[Tenant] = field(default_factory=list)
    """Those that have a turn on it, the earliest turn first."""
    uses: dict[TenantId, Use] = field(default_factory=dict)
    """To whom the time of each holder is charged."""
    lacking: dict[TenantId, Tenant] = field(default_factory=dict)
    """Those that have a turn, but not on this device of theirs."""
    queue: list[Tenant] = field(default_factory=list)
    """Those that queue for it, in the order in which they will be served."""
    waiting: dict[TenantId, Tenant] = field(default_factory=dict)
    """Those of the queue that could be served, but for whoever has the device. Others are passed
    over: they hurry nobody, and their owners are not present for them."""
    ranks: list[Rank] = field(default_factory=list)
    """Of each in the queue."""
    rank_of: dict[TenantId, Rank] = field(default_factory=dict)
    of_owner: dict[str, list[Tenant]] = field(default_factory=dict)
    """The queue by owners: the least recent use first."""
    waits_of: Counter[str] = field(default_factory=Counter)
    """How many of those that could be served are whose."""
    finish_of: dict[str, float] = field(default_factory=dict)
    """The virtual finish time of each of these owners, as it was looked at last."""
    gangs: dict[TenantId, Tenant] = field(default_factory=dict)
    """Of those that queue, the ones that lack other devices too."""
    last_turn_of: dict[str, TurnId] = field(default_factory=dict)
    """The latest that each owner has had there."""

    def index(self, tenant: Tenant) -> int:
        """How many are before the tenant, which is in the queue."""
        return bisect_left(self.ranks, self.rank_of[tenant.id])

    def behind(self, rank: Rank) -> list[Tenant]:
        """Those of the queue from this rank on."""
        return self.queue[bisect_left(self.ranks, rank) :]

    def in_order(self) -> Iterator[Tenant]:
        """Those that wait, in the order in which they will be served."""
        return (tenant for tenant in self.queue if tenant.id in self.waiting)

    @property
    def head(self) -> int | None:
        """How soon the first of those is served; None: nobody waits."""
        if self.waiting:
            for tenant in self.queue:
                if tenant.id in self.waiting:
                    return self.rank_of[tenant.id][0]
        return None

    @property
    def presses(self) -> bool:
        """Whether turns of others may end for somebody of those before their quanta are over."""
        if any(holder.owner in self.of_owner for holder in self.holders):
            return True
        levels = (self.rank_of[each.id][0] for each in self.in_order())
        head = next(levels, None)
        if head == BOOSTED:
            return next((each for each in levels if each != BOOSTED), None) == URGENT
        return head in (URGENT, GUARANTEED, FIRST) or (head == ORDINARY and self.batch > 0)

    def before(self, tenant: Tenant) -> Iterator[Tenant]:
        """Those that wait before the tenant, which is in the queue. Tenants that are passed over do
        not."""
        before = islice(self.queue, self.index(tenant))
        return (other for other in before if other.id in self.waiting)

    def other_holders(self, tenant: Tenant) -> list[Tenant]:
        """Those that have a turn on it, but for the tenant."""
        return [each for each in self.holders if each is not tenant]

    def siblings(self, tenant: Tenant) -> Iterator[Tenant]:
        """Those that wait of the same owner, but for the tenant, in their order: as many as are
        looked at."""
        queued = self.of_owner.get(tenant.owner, ())
        waiting = (each for each in queued if each.id in self.waiting and each is not tenant)
        return islice(waiting, _LOOKED_AT)

    def who_uses(self) -> list[Use]:
        """The device, now. Nobody uses it on an owner's credit while no other owner waits, nor on
        its own while no sibling does."""
        return [self._use(each) for each in self.uses.values()]

    def _use(self, use: Use) -> Use:
        siblings = use.owner in self.of_owner
        on_credit = use.on_credit and len(self.of_owner) > siblings
        on_own_credit = use.on_own_credit and siblings
        if (on_credit, on_own_credit) == (use.on_credit, use.on_own_credit):
            return use
        lacks = use.lacks and bool(self.queue)
        return replace(use, on_credit=on_credit, on_own_credit=on_own_credit, lacks=lacks)

    def add(self, tenant: Tenant, rank: Rank) -> None:
        """To the queue."""
        index = bisect_left(self.ranks, rank)
        self.ranks.insert(index, rank)
        self.queue.insert(index, tenant)
        self.rank_of[tenant.id] = rank

    def take_out(self, tenant: Tenant) -> Rank:
        """Of the queue."""
        index = self.index(tenant)
        del self.queue[index], self.ranks[index]
        return self.rank_of.pop(tenant.id)


def take_turns(holder: Tenant, waiter: Tenant) -> bool:
    """Whether the one who waits takes over by recent use: siblings of one class and one standing.
    One that needs several devices waits for the end of a quantum, and nobody ends a boosted one
    before."""
    is_boosted = holder.turn is not None and holder.turn.level == BOOSTED
    return (
        holder.owner == waiter.owner
        and not is_boosted
        and holder.runs_as is waiter.runs_as
        and holder.standing is waiter.standing
        and len(waiter.wanted_devices) == 1
        and not waiter.boosted
    )


def quantum_ends_s(turn: Turn) -> Seconds | None:
    """When the turn has used its quantum; None while nobody waits for that."""
    if turn.contended_since_s is None:
        return None
    return turn.contended_since_s + turn.quantum_s - turn.contended_s


def quantum_left_s(turn: Turn, now_s: Seconds) -> Seconds:
    """What is left of it, if others wait from now on."""
    ends_s = quantum_ends_s(turn)
    return max(0.0, turn.quantum_s - turn.contended_s if ends_s is None else ends_s - now_s)
