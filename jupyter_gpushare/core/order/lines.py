"""Who has each device, who queues for it and in which order, and who else could use it: an index
over the tenants.

`note` brings the places of one tenant up to date. Each change of a line is told to `Changes`, and
the device's time is charged to those who had it until then (accounts.py).

A line is in the order in which its tenants will be served: those that an admin has boosted, and
those whose class or new cell goes first (classes.py), the earliest before the others; then by the
virtual finish time of their owners. Whether an owner is within its share is looked at when a tenant
comes, and when the device changes hands.

Tenants of one owner take turns among themselves, the least recent use first (accounts.py): the
owner's time is that of the one which would be served. It is looked at when somebody of the owner
begins or ceases to wait, and when a turn of the owner begins or ends.
"""

from __future__ import annotations

import math
import pickle
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..accounts import Accounts, Use
from ..changes import TAIL, Changes
from ..ids import DeviceId, Seconds, TenantId, TurnId
from ..limits import judge, limit_turn, watch
from ..records import Places, Tenant
from ..shares.classes import (
    BLOCKED,
    BOOSTED,
    BY_SHARE,
    FIRST,
    GUARANTEED,
    LAST,
    ORDINARY,
    OVER,
    STARVED,
    TenantClass,
    level,
)
from ..shares.guarantees import Preset, Rules, Standing
from ..transitions import TenantState
from .line import Line, Rank, take_turns

_NONE: frozenset[DeviceId] = frozenset()
_AHEAD_LEAST_S = 1e-6
"""Sums of floats."""
_SOONER = 5
"""A gap of 10 ms, as the settings are, ends a turn for a sibling."""
_LEVELS = {
    Standing.GUARANTEED: GUARANTEED,
    Standing.OVER: OVER,
    Standing.BLOCKED: BLOCKED,
}


@dataclass(slots=True)
class Lines:
    """All lines of a node."""

    changes: Changes
    accounts: Accounts
    of: dict[DeviceId, Line] = field(default_factory=dict)
    rules: Rules | None = None
    """Guarantees and limits; None: there are none."""
    hands: dict[DeviceId, dict[TenantId, bool]] = field(default_factory=dict)
    """For `Moves.take`: devices that somebody began or ceased to queue for, or to have, and those
    tenants; also the ones of whose wait, or of whose turn, something else is new. True: the turn
    that the tenant had there ended because it was asked for."""

    def add_device(self, device: DeviceId) -> None:
        """Nobody has the device or wants it."""
        self.of[device] = Line()
        self.accounts.add_device(device)

    def remove_device(self, device: DeviceId) -> None:
        """Nobody has the device or wants it any more."""
        del self.of[device]
        self.accounts.remove_device(device)
        self.changes.pressed.pop(device, None)

    def note(self, tenant: Tenant, *, queued: bool, passed_over: bool) -> None:
        """The tenant's devices, its turn or its place in the queue have changed, or whether it is
        passed over there."""
        uses, turn = tenant.wanted_devices, tenant.turn
        holds = _NONE if turn is None else frozenset(turn.devices)
        missing = uses - holds
        lacks = _NONE if turn is None else missing
        queues = missing if queued else _NONE
        self._move(tenant, Places(uses, holds, lacks, queues, _NONE if passed_over else queues))

    def accounts_at(self, now_s: Seconds) -> Accounts:
        """A copy of the accounts, as they are at this time if nothing happens until then."""
        copy: Accounts = pickle.loads(pickle.dumps(self.accounts, pickle.HIGHEST_PROTOCOL))
        copy.now_s = now_s
        for device, line in self.of.items():
            copy.charge(device, line.who_uses())
        return copy

    def charge_everything(self) -> None:
        """All devices, up to now."""
        self.charge_all(self.of)

    def charge_all(self, devices: Iterable[DeviceId]) -> None:
        """These devices, up to now."""
        for device in sorted(devices):
            self.charge(device)

    def charge(self, device: DeviceId) -> None:
        """The device's time up to now, to those who have it; and that of the devices that they
        have besides, for what a holder has had is the largest over its devices."""
        if self.accounts.of[device].charged_to_s == self.accounts.now_s:
            return
        self.accounts.charge(device, self.of[device].who_uses())
        if self.rules is not None:
            watch(self, self.rules, device)
        for holder in self.of[device].holders:
            self.charge_all(holder.places.holds - {device})

    def renew_everybody(self) -> None:
        """Weights or settings have changed, by which the order is found."""
        for device, line in self.of.items():
            for tenant in (*line.queue, *line.holders):
                judge(self, tenant)
            for tenant in line.holders:
                limit_turn(self, tenant)
            for owner in line.of_owner:
                self._renew(device, owner)

    def renew(self, owner: str, devices: Iterable[DeviceId]) -> None:
        """What decides the order of the owner's tenants has changed there."""
        for device in devices:
            self._renew(device, owner)

    def guarantee_anew(self) -> None:
        """What is guaranteed now is so from now on."""
        for device, line in self.of.items():
            here = self.accounts.of[device]
            here.wishes.clear()
            here.promised, here.not_promised_s = 0.0, math.inf
            for tenant in (*line.holders, *line.waiting.values()):
                if self.rules is not None:
                    self.accounts.add_wish(device, tenant.owner)

    def level_turn(self, tenant: Tenant) -> None:
        """The tenant's present turn goes on as one that its class and its share give it."""
        assert tenant.turn is not None
        for device in tenant.places.holds:
            self.charge(device)
            uses = self.of[device].uses
            uses[tenant.id] = replace(uses[tenant.id], on_credit=False, lacks=False)
        if self.rules is not None:
            judge(self, tenant)
        levels = [self.level_again(device, tenant) for device in tenant.places.holds]
        found = self.level_of_turn(tenant, max(levels, default=ORDINARY))
        if found != tenant.turn.level:
            tenant.turn.level = found
            self.stir_turn(tenant)
        self.changes.of_tenant(tenant)

    def level_at_grant(self, tenant: Tenant) -> int:
        """Of the turn that the tenant is about to have. The rest of a sibling's quantum is its
        owner's own time: a new cell is an ordinary one in it."""
        levels = [self.of[device].rank_of[tenant.id][0] for device in tenant.places.queues]
        if BOOSTED in levels:
            return BOOSTED  # an admin wants it to have a quantum
        found = self.level_of_turn(tenant, min(filter(None, levels), default=ORDINARY))
        has_rest = tenant.succeeds is not None and tenant.succeeds.ends_s is not None
        return ORDINARY if has_rest and found == FIRST else found

    def level_of_turn(self, tenant: Tenant, level: int) -> int:
        """Of the turn of a tenant that is served at this level. Only `batch` has turns that end for
        everybody, as far as its owner has what was guaranteed."""
        if tenant.runs_as is TenantClass.BATCH:
            return level if level in (STARVED, GUARANTEED) else LAST
        return min(level, ORDINARY)

    def level_again(self, device: DeviceId, tenant: Tenant) -> int:
        """Of a tenant that gives its turn back and asks anew; its cell is new no longer. How it
        stands was found a moment ago."""
        line = self.of[device]
        if self.rules is not None and tenant.standing is not Standing.FREE:
            return _LEVELS[tenant.standing]
        if not (line.batch or line.realtime):
            return ORDINARY
        return level(
            tenant.runs_as,
            within_share=self._within_share(device, tenant),
            starved=False,
            new_cell=False,
            beside_batch=line.batch > 0,
        )

    def note_class(self, tenant: Tenant, now: TenantClass) -> None:
        """The tenant has this class from now on."""
        before, tenant.runs_as = tenant.runs_as, now
        self.changes.of_tenant(tenant)
        for device in tenant.places.uses:
            self._count_class(device, before, -1)
            self._count_class(device, now, 1)
            for owner in self.of[device].of_owner:
                self._renew(device, owner)

    def _move(self, tenant: Tenant, now: Places) -> None:
        before = tenant.places
        if now == before:
            return
        tenant.places = now
        held, queued = before.holds ^ now.holds, before.queues ^ now.queues
        if tenant.turn is not None and queued:
            self.changes.of_tenant(tenant)  # it was given a device, and lacks others as before
        for device in before.uses ^ now.uses:
            self._count_user(device, tenant, device in now.uses)
            self._count_class(device, tenant.runs_as, 1 if device in now.uses else -1)
            self.changes.of_crowd(device)
        hurries = before.waits ^ now.waits
        concerned = sorted(held | queued | hurries)
        blocked: list[Tenant] = []
        self.charge_all({*concerned, *now.holds})
        for device in concerned:
            if device in before.holds and device not in now.holds:
                # While whoever gives it back is still there.
                blocked += self.look_again(device, tenant.owner)
        came = set[DeviceId]()
        """Where the owner was not present, and others of its tenants queue."""
        for device in concerned:
            was_there = device in before.holds or device in before.waits
            is_there = device in now.holds or device in now.waits
            came_now = is_there and not was_there
            if came_now and self.accounts.comes(device, tenant.owner):
                came |= {device} if tenant.owner in self.of[device].of_owner else set()
            if device in held:
                self._note_holder(device, tenant, device in now.holds)
                if device in now.holds:
                    self._forget_heirs(device, but=tenant)
            if was_there and not is_there:
                recalled = tenant.state is TenantState.RECALLED
                self.accounts.leaves(device, tenant.owner, recalled=recalled)
        for device in before.lacks ^ now.lacks:
            if device in now.lacks:
                self.of[device].lacking[tenant.id] = tenant
            else:
                del self.of[device].lacking[tenant.id]
        for device in hurries:
            if device in now.waits:
                self.of[device].waiting[tenant.id] = tenant
            else:
                del self.of[device].waiting[tenant.id]
            self.of[device].waits_of[tenant.owner] += 1 if device in now.waits else -1
        for device in sorted(queued):
            self._note_waiter(device, tenant, device in now.queues)
        for device in sorted(hurries & before.queues & now.queues):
            self._line_moved(device, self.of[device].rank_of[tenant.id])
            self.stir(device, tenant)
        for device in sorted(now.queues | before.queues):
            if device in now.queues and len(now.queues) > 1:
                self.of[device].gangs[tenant.id] = tenant
            else:
                self.of[device].gangs.pop(tenant.id, None)
        left = (before.holds - now.holds) | (before.queues - now.queues)
        for device in sorted(left | (before.waits - now.waits)):
            self._look_who_is_behind(device, tenant.owner)
        for device in sorted(held | came):
            self._renew(device, tenant.owner)
        if before.uses != now.uses:
            self.wait_changed(tenant)
            for device in sorted(before.queues & now.queues):
                self._renew(device, tenant.owner)  # its largest use may be another
        for each in blocked:
            self._move(each, replace(each.places, waits=_NONE))

    def look_again(self, device: DeviceId, owner: str) -> list[Tenant]:
        """Whose classes go first there depends on shares, which have changed with time; how others
        stand depends on time, if it does, or on what the owner has used. Answers with those that
        are passed over from now on."""
        line = self.of[device]
        blocked = []
        owners: Iterable[str] = ()
        if self.rules is not None:
            free = [each for each in line.queue if each.standing is not Standing.BLOCKED]
            free = [each for each in free if each.owner == owner or each.judged_until_s < math.inf]
            for tenant in free:
                judge(self, tenant)
            blocked = [each for each in free if each.standing is Standing.BLOCKED]
            if self.rules.requests:
                free += [each for each in line.queue if each.asks_to_go_first]
            owners = dict.fromkeys(each.owner for each in free)
        for name in line.of_owner if line.batch or line.realtime else owners:
            self._renew(device, name)
        return blocked

    def judge_again(self, tenant: Tenant, starvation_s: Seconds) -> None:
        """Time has changed how the tenant stands, or may have."""
        if tenant.turn is not None:
            limit_turn(self, tenant)
        else:
            judge(self, tenant)
            tenant.starved = self.accounts.now_s >= tenant.starves_from_s + starvation_s
            for device in tenant.places.queues:
                self._renew(device, tenant.owner)

    def judge_soon(self, tenants: Iterable[Tenant]) -> None:
        """What these may have has changed: how they stand is found when turns are settled."""
        if self.rules is None:
            return
        for tenant in tenants:
            tenant.judged_until_s = self.accounts.now_s
            if tenant.turn is not None:
                tenant.turn.limit_at_s = self.accounts.now_s
            self.changes.of_tenant(tenant)

    def _count_user(self, device: DeviceId, tenant: Tenant, uses: bool) -> None:
        line = self.of[device]
        owners = len(line.owners)
        if uses:
            line.users[tenant.id] = tenant
            line.owners[tenant.owner] += 1
        else:
            del line.users[tenant.id]
            line.owners[tenant.owner] -= 1
            if not line.owners[tenant.owner]:
                del line.owners[tenant.owner]
                line.last_turn_of.pop(tenant.owner, None)
        is_equal = self.rules is not None and self.rules.preset is Preset.EQUAL
        if is_equal and len(line.owners) != owners:
            self.judge_soon((*line.queue, *line.holders))

    def _count_class(self, device: DeviceId, runs_as: TenantClass, change: int) -> None:
        line = self.of[device]
        if runs_as is TenantClass.REALTIME:
            line.realtime += change
        elif runs_as is TenantClass.BATCH:
            line.batch += change
            if line.batch == max(change, 0):  # the first has come, or the last has gone
                for owner in line.of_owner:
                    self._renew(device, owner)
                self._line_moved(device, TAIL)

    def _note_holder(self, device: DeviceId, tenant: Tenant, holds: bool) -> None:
        line = self.of[device]
        if holds:
            assert tenant.turn is not None
            insort(line.holders, tenant, key=turn_of)
            line.last_turn_of[tenant.owner] = tenant.turn.id
            line.uses[tenant.id] = Use(
                tenant.owner,
                on_credit=tenant.turn.level == FIRST,
                lacks=tenant.standing is Standing.GUARANTEED,
                tenant=tenant.id,
                on_own_credit=tenant.turn.on_own_credit,
            )
            if self.rules is not None:
                limit_turn(self, tenant)
        else:
            line.holders.remove(tenant)
            del line.uses[tenant.id]
        self._note_pressed(device)
        self.changes.of_line(device)
        self.changes.of_memory(device)
        recalled = not holds and tenant.state is TenantState.RECALLED
        self.hands.setdefault(device, {})[tenant.id] = recalled

    def stir(self, device: DeviceId, tenant: Tenant) -> None:
        """For who keeps a record: the tenant's wait or turn there is not what it was."""
        self.hands.setdefault(device, {}).setdefault(tenant.id, False)

    def wait_changed(self, tenant: Tenant) -> None:
        """Who has its devices is to look again for whom a turn ends, and when."""
        for device in sorted(tenant.places.queues):
            if (rank := self.of[device].rank_of.get(tenant.id)) is not None:
                self._line_moved(device, rank)
                self.stir(device, tenant)

    def look_at_place(self, tenant: Tenant) -> None:
        """Who it goes before has been found anew while it queues."""
        for device in sorted(tenant.places.queues):
            tenant.is_behind_a_sibling = self._look_at_siblings(device, tenant)
        self.renew(tenant.owner, sorted(tenant.places.queues))
        self.wait_changed(tenant)

    def stir_turn(self, tenant: Tenant) -> None:
        """The same on all devices of the tenant's turn."""
        for device in sorted(tenant.places.holds):
            self.stir(device, tenant)

    def _note_waiter(self, device: DeviceId, tenant: Tenant, queues: bool) -> None:
        line = self.of[device]
        siblings = line.of_owner.setdefault(tenant.owner, [])
        first = siblings[0] if siblings else None
        if queues:
            tenant.is_behind_a_sibling = self._look_at_siblings(device, tenant)
            tenant.waits_with_parked = any(
                share.bytes_parked
                for client in tenant.clients.values()
                for share in client.devices.values()
            )
            insort(siblings, tenant, key=lambda each: self.order(device, each))
            rank = self._rank(device, tenant, line.finish_of.get(tenant.owner, 0.0))
            line.add(tenant, rank)
        else:
            siblings.remove(tenant)
            rank = line.take_out(tenant)
        self._line_moved(device, rank)
        self.stir(device, tenant)
        if not siblings:
            del line.of_owner[tenant.owner]
            del line.finish_of[tenant.owner]
        elif siblings[0] is not first:
            self._renew(device, tenant.owner)
        self._note_pressed(device)

    def _renew(self, device: DeviceId, owner: str) -> None:
        """The owner's tenants have the places in the line that are theirs now."""
        line = self.of[device]
        siblings = line.of_owner.get(owner)
        if not siblings:
            return
        siblings.sort(key=lambda each: self.order(device, each))
        finish_s = self.accounts.finish_s(device, owner, siblings[0].next_quantum_s)
        line.finish_of[owner] = finish_s
        for tenant in siblings:
            rank = self._rank(device, tenant, finish_s)
            before = line.rank_of[tenant.id]
            if rank != before:
                line.take_out(tenant)
                line.add(tenant, rank)
                self._line_moved(device, min(rank, before))
                if rank[0] != before[0]:
                    self.stir(device, tenant)

    def _rank(self, device: DeviceId, tenant: Tenant, finish_s: float) -> Rank:
        line, accounts = self.of[device], self.accounts
        if tenant.boosted:
            return (BOOSTED, 0.0, 0.0, tenant.place)
        lacks = tenant.standing is Standing.GUARANTEED
        new_cell = tenant.asks_to_go_first and accounts.owners[tenant.owner].credit_s > 0
        new_cell = new_cell and (lacks or accounts.of[device].not_promised_s > 0)
        new_cell = new_cell and not tenant.is_behind_a_sibling
        found = FIRST if new_cell else ORDINARY
        if line.batch or line.realtime:
            found = level(
                tenant.runs_as,
                within_share=self._within_share(device, tenant),
                starved=tenant.starved,
                new_cell=new_cell,
                beside_batch=line.batch > 0,
            )
        if tenant.standing is not Standing.FREE:
            own = _LEVELS[tenant.standing]
            found = min(found, own) if own == GUARANTEED else own
        if tenant.succeeds is not None and device in tenant.succeeds.devices:
            return (found, -math.inf, 0.0, tenant.place)
        if found not in BY_SHARE:
            return (found, 0.0, 0.0, tenant.place)
        return (found, finish_s, *self.order(device, tenant))

    def order(self, device: DeviceId, tenant: Tenant) -> tuple[float, int]:
        """Among its siblings: by what it has had of late. Whose user has given a turn away comes
        last, until somebody else has had one."""
        had = self.of[device].last_turn_of.get(tenant.owner, 0)
        if device in tenant.gave_on and tenant.gave_turn >= had > 0:
            return (math.inf, tenant.place)
        if tenant.goes_before_siblings:
            return (-math.inf, tenant.place)
        return (self.accounts.recent.key(tenant.id, tenant.wanted_devices), tenant.place)

    def _look_at_siblings(self, device: DeviceId, tenant: Tenant) -> bool:
        """Whether one that has the device, or waits for it, has had less."""
        if tenant.goes_before_siblings or not tenant.asks_to_go_first:
            return False
        line, recent = self.of[device], self.accounts.recent
        holders = [each for each in line.holders if each.owner == tenant.owner]
        own = recent.key(tenant.id, tenant.wanted_devices)
        return any(
            recent.key(each.id, each.wanted_devices) < own
            for each in (*holders, *line.siblings(tenant))
            if each is not tenant
        )

    def _look_who_is_behind(self, device: DeviceId, owner: str) -> None:
        """One of the owner's tenants has gone, behind which others were."""
        siblings = self.of[device].of_owner.get(owner, ())
        behind = [each for each in siblings if each.is_behind_a_sibling]
        for tenant in behind:
            tenant.is_behind_a_sibling = self._look_at_siblings(device, tenant)
        if behind:
            self._renew(device, owner)

    def _within_share(self, device: DeviceId, tenant: Tenant) -> bool:
        return self.accounts.ahead_s(device, tenant.owner) <= _AHEAD_LEAST_S

    def _line_moved(self, device: DeviceId, rank: Rank) -> None:
        self._note_pressed(device)
        self.changes.of_line(device, rank)

    def _note_pressed(self, device: DeviceId) -> None:
        if self.of[device].presses:
            self.changes.pressed[device] = None
        else:
            self.changes.pressed.pop(device, None)

    def held_by_others(self, tenant: Tenant, device: DeviceId) -> bool:
        """Whether somebody else has a turn on the device."""
        return any(holder is not tenant for holder in self.of[device].holders)

    def compete(self, tenant: Tenant, devices: Iterable[DeviceId]) -> bool:
        """Whether such a one waits for one of these devices."""
        for line in (self.of[device] for device in devices):
            itself = tenant.id in line.waiting
            if len(line.waiting) - itself > line.waits_of[tenant.owner] - itself:
                return True
            if any(not take_turns(tenant, each) for each in line.siblings(tenant)):
                return True
        return False

    def others_queue(self, tenant: Tenant, device: DeviceId) -> bool:
        """Whether somebody else queues for the device that could be served."""
        waiting = self.of[device].waiting
        return len(waiting) > (tenant.id in waiting)

    def forget_heirs(self, tenant: Tenant) -> None:
        """Siblings for which the tenant's turn was to end: it ends for somebody else."""
        for device in sorted(tenant.places.holds):
            self._forget_heirs(device, but=tenant)

    def _forget_heirs(self, device: DeviceId, *, but: Tenant) -> None:
        """Those for whom a turn there was to end: somebody else has had the device since."""
        queue = self.of[device].queue
        heirs = [each for each in queue if each.succeeds is not None and each is not but]
        for heir in heirs:
            heir.succeeds = None
            self._renew(device, heir.owner)

    def idle_ms(self, tenant: Tenant, devices: Iterable[DeviceId], idle_ms: int) -> int:
        """After how long without work the tenant's turn ends while siblings alone wait for one of
        these devices: sooner where no memory has to move for the next one. 0 where others wait, or
        nobody: then a process learns which gaps belong to its work."""
        lines = [self.of[device] for device in devices]
        if any(len(line.waiting) > line.waits_of[tenant.owner] for line in lines):
            return 0
        found = [next(line.siblings(tenant), None) for line in lines]
        next_ones = [each for each in found if each is not None and take_turns(tenant, each)]
        if not next_ones:
            return 0
        moves = any(each.waits_with_parked for each in next_ones)
        return idle_ms if moves else max(1, idle_ms // _SOONER)


def turn_of(tenant: Tenant) -> TurnId:
    """The number of its turn, which it has."""
    assert tenant.turn is not None
    return tenant.turn.id
