"""Needs that cannot be met: they are refused, so that each need ends.

A call that allocates waits for its tenant's turn and for its bytes. It is refused

- at once, if the client alone has and needs more than the device, or the tenant more than its cap;
- if memory of other clients is in the way, with or without the turn, for `GRACE_S`, and a look at
  the device in that time has confirmed it. So what another process of the tenant has freed a moment
  ago is there. A holder will give its turn back, so only the memory that it cannot move counts
  against those waiting.

Where the bytes would be there if others freed what they cannot move, the tenant gives its turn back
first and waits for `memory_wait_s` (the functions below `Needs`; decision 0018).

While clients are still coming back to a new scheduler their memory looks like strangers', and
nothing is refused for the sake of others. Memory of processes that have just ended has `reclaim_s`
to disappear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from .budgets import noticed_bytes
from .ids import DeviceId, Seconds, TenantId
from .ledger import Share, Shortage
from .records import (
    Device,
    Lack,
    MemoryWait,
    Tenant,
    WaitingCall,
    WaitInVain,
)
from .space.exchange import exchanged_bytes
from .state import State

GRACE_S = 0.5
"""The device's samples and the clients' reports are not of one moment, so that more can seem to be
in the way than is. Clients report within 0.1 s, and foreign bytes are believed after SETTLED_S:
what has been in the way for longer than both together is."""
LOOK_S_MAX = 2.0
"""A driver that has not answered for this long will not tell us that there is space."""
STALLS_MAX = 3
"""One drain that makes no progress may only be long."""
MOMENT_S = 5.0
"""Room for no longer than this is a part of the wait. After more, time with room does not count."""
SPARED_S = 1.0
"""After we stood still, what others have said meanwhile is heard first."""


class Needs:
    """One look at the needs of one device."""

    def __init__(
        self, state: State, device: Device, holding: Sequence[Share], now_s: Seconds
    ) -> None:
        self._state = state
        self._device = device
        self._memory = device.memory
        self._holding = {share.client for share in holding}
        self._now_s = now_s
        self._freed = _Freed(state)
        self._own: dict[TenantId, int] = {}
        """Bytes of a tenant: its memory, and those of its needs that can be met."""
        self.in_doubt: set[DeviceId] = set()
        """Devices to be looked at, because a need will be refused for what is there."""
        self.depend_on_other_devices = False
        self.turns_follow = False
        """Somebody has begun to wait, and gives its turn back."""

    def hopeless(self) -> Iterator[Share]:
        """Those that are to be refused now, each once. Afterwards it is known which are in
        doubt."""
        self._all_stays_while_held = self._memory.totals.bytes_staying
        holding = [self._memory.shares[client] for client in self._holding]
        for tenant in {share.tenant for share in holding}:
            while_held, waiting = self._stays_while_held(tenant), self._stays(tenant)
            self._all_stays_while_held += while_held - waiting
        attention = self._memory.attention
        looked_at = {**attention.asking, **attention.in_vain}.values()
        for share in sorted(looked_at, key=lambda each: each.number):
            if not share.needed_bytes:
                self._watch(share)
            elif self._is_too_much_alone(share) or (
                self._judge_shortage(share) and not self._go_on_waiting(share)
            ):
                share.need_short_since_s = None
                yield share
            elif share.need_short_since_s is None:
                self._own[share.tenant] = self._own_of(share.tenant) + share.needed_bytes

    def _shares_of(self, tenant: TenantId) -> list[Share]:
        return list(self._state.shares_of(self._state.tenants[tenant], self._device.id))

    def _own_of(self, tenant: TenantId) -> int:
        if tenant not in self._own:
            self._own[tenant] = sum(_own_at_most(share) for share in self._shares_of(tenant))
        return self._own[tenant]

    def _stays(self, tenant: TenantId) -> int:
        """Bytes of the tenant that are in the way of those waiting."""
        return sum(share.bytes_staying for share in self._shares_of(tenant))

    def _stays_while_held(self, tenant: TenantId) -> int:
        """Bytes of the tenant that are in the way of holders: turns that overlap do not end for
        each other."""
        shares = self._shares_of(tenant)
        if self._holding.isdisjoint(share.client for share in shares):
            return sum(share.bytes_staying for share in shares)
        stays = 0
        for share in shares:
            held = share.bytes_allocated if share.client in self._holding else 0
            # What has no turn beside siblings that have one is not asked to park.
            stays += max(held or share.bytes_resident, share.bytes_staying)
        return stays

    def _is_too_much_alone(self, share: Share) -> bool:
        if share.failed:
            return True
        tenant = share.tenant
        wanted = share.bytes_allocated + share.needed_bytes
        siblings = [each for each in self._shares_of(tenant) if each is not share]
        cap = self._state.tenants[tenant].cap_bytes
        if cap and wanted + sum(each.bytes_allocated for each in siblings) > cap:
            return True
        return wanted > self._most_of_device()

    def _most_of_device(self) -> int:
        least = self._state.least_reserve_bytes(self._device)
        return self._state.total_bytes(self._device) - least

    # ---- for the sake of others ----

    def _judge_shortage(self, share: Share) -> bool:
        """Whether it is short, and long enough to be believed."""
        state, memory, now_s = self._state, self._memory, self._now_s
        if state.recovery is not None:
            share.note_shortage(None)
            return False
        self._note_room(share)
        wanted = share.bytes_allocated + share.needed_bytes
        elsewhere = self._lacks_elsewhere(share)
        most = self._most_for(share) if elsewhere is None else 0
        if wanted <= most:
            self._note_met(share)
            return False
        if share.need_short_since_s is None:
            share.need_short_since_s = now_s
            if now_s - share.room_since_s > MOMENT_S:
                share.lacked_s = 0.0
        shortage = share.shortage
        if shortage is None or wanted <= shortage.most_bytes:
            shortage = Shortage(now_s, most)
            share.note_shortage(shortage)
        shortage.most_bytes = max(shortage.most_bytes, most)
        believed_s = shortage.since_s + GRACE_S
        looked_at = self._device if elsewhere is None else elsewhere
        if self._check_known(share, looked_at):
            believed_s = min(believed_s, share.need_short_since_s + GRACE_S - share.lacked_s)
        gone_s = memory.ghost_since_s + state.settings.reclaim_s
        if now_s < gone_s and wanted <= most + memory.bytes_foreign + memory.bytes_ghost:
            believed_s = max(
                believed_s, min(gone_s, share.need_short_since_s + state.settings.reclaim_s)
            )
        looked_s = share.need_short_since_s + LOOK_S_MAX
        if looked_at.memory.is_unseen_since(share.need_short_since_s):
            believed_s = max(believed_s, looked_s)
        if now_s >= believed_s:
            return True
        memory.ask_for_look(believed_s)
        self.in_doubt.add(looked_at.id)
        return False

    def _check_known(self, share: Share, short_on: Device) -> bool:
        """It waits for memory already, or its tenant has waited in vain: moments in which it lacks
        some add up, although there is room in between."""
        wait = self._state.tenants[share.tenant].memory_wait
        call = None if wait is None else wait.calls.get((self._device.id, share.client))
        waits = call is not None and call[:2] == (share.need_id, share.needed_bytes)
        return waits or self._check_mark(share, short_on)

    def _go_on_waiting(self, share: Share) -> bool:
        """The call waits on, for memory that others cannot move. Whether it does."""
        state = self._state
        tenant, wait_s = state.tenants[share.tenant], state.settings.memory_wait_s
        if share.need_short_since_s is None or not (state.turns_are_on and wait_s):
            return False
        short_on = self._lacks_elsewhere(share) or self._device
        if self._check_mark(share, short_on):
            return False
        wait = tenant.memory_wait
        if wait is None or not any(_calls_that_wait(tenant)):
            wait = MemoryWait(self._now_s)
        short_bytes = self._short_bytes(share, short_on)
        call = WaitingCall(share.need_id, share.needed_bytes, short_on.id, short_bytes)
        key = (self._device.id, share.client)
        known = wait.calls.get(key)
        if known is None or known[:2] != call[:2]:
            if short_bytes > self._freed.by_others(short_on.id, tenant.id):
                return False
            if wait is not tenant.memory_wait and not self._freed.begins(
                tenant, short_on.id, short_bytes
            ):
                return False
            self._tell(tenant)
        wait.calls[key] = call
        tenant.memory_wait = wait
        wait.note_lack(share.need_short_since_s, MOMENT_S)
        room_bytes = self._room_for(share, short_on)
        lack = wait.lacks.setdefault(short_on.id, Lack(room_bytes, elsewhere=True))
        lack.room_bytes = max(lack.room_bytes, room_bytes)
        lack.enough_bytes = max(lack.enough_bytes, room_bytes + short_bytes)
        lack.elsewhere &= short_on is not self._device
        until_s = wait.begun_s + wait_s
        stalled = wait.stalls >= STALLS_MAX
        if stalled or self._now_s >= until_s:
            self._note_in_vain(tenant, wait, stalled)
            return False
        if tenant.turn is not None and not wait.has_given_way:
            wait.has_given_way = tenant.turn.gives_way = True
            self._tell(tenant)
        self._memory.ask_for_look(until_s)
        return True

    def _note_in_vain(self, tenant: Tenant, wait: MemoryWait, stalled: bool) -> None:
        """On each device on which its calls have lacked something."""
        for device_id, lack in wait.lacks.items():
            turns = tenant.counters.turns if lack.elsewhere else None
            mark = WaitInVain(lack.room_bytes, lack.enough_bytes, stalled, turns)
            for each in self._state.shares_of(tenant, device_id):
                tenant.waits_in_vain[device_id, each.number] = mark
                self._state.devices[device_id].memory.attention.in_vain[each.client] = each

    def _tell(self, tenant: Tenant) -> None:
        self._state.changes.of_tenant(tenant)
        self.turns_follow = True

    def _check_mark(self, share: Share, short_on: Device) -> bool:
        """Whether the tenant has waited in vain, and nothing has happened since that ends it: small
        changes of what there is do not. A mark that is over is taken off."""
        tenant = self._state.tenants[share.tenant]
        marks = tenant.waits_in_vain
        if not marks:
            return False
        own = self._state.shares_of(tenant, short_on.id)
        found = [each for each in own if (short_on.id, each.number) in marks]
        if not found:
            return False
        mark = marks[short_on.id, found[0].number]
        room_bytes = self._room_for(share, short_on)
        noticed = noticed_bytes(self._state.total_bytes(short_on))
        is_over = room_bytes >= mark.room_bytes + noticed
        if mark.turns is not None:
            is_over |= tenant.counters.turns > mark.turns
        elif share.client in self._holding:
            is_over |= room_bytes >= mark.enough_bytes
        if not is_over:
            return True
        for each in found:
            del marks[short_on.id, each.number]
            short_on.memory.attention.in_vain.pop(each.client, None)
        return False

    def _note_room(self, share: Share) -> None:
        wait = self._state.tenants[share.tenant].memory_wait
        call = None if wait is None else wait.calls.get((self._device.id, share.client))
        if wait is None or call is None or call.short_on not in wait.lacks:
            return
        lack, device = wait.lacks[call.short_on], self._state.devices.get(call.short_on)
        if device is self._device or (device is not None and share.client not in self._holding):
            lack.room_bytes = max(lack.room_bytes, self._room_for(share, device))

    def _note_met(self, share: Share) -> None:
        """What the share lacked is there. Others of its tenant may lack something."""
        if share.need_short_since_s is not None:
            lacked_s = share.lacked_s + self._now_s - share.need_short_since_s
            share.lacked_s = lacked_s if lacked_s < GRACE_S else 0.0
            share.room_since_s = self._now_s
        share.note_shortage(None)
        self._check_mark(share, self._device)
        tenant = self._state.tenants[share.tenant]
        wait = tenant.memory_wait
        if wait is not None and wait.room_since_s is None and not is_waiting(tenant):
            wait.room_since_s = self._now_s

    def _watch(self, share: Share) -> None:
        """A need was refused, and no other one has come yet. The next one does not wait again for
        what is known: frameworks try smaller and smaller allocations."""
        share.need_short_since_s = None
        self._check_mark(share, self._device)
        if share.shortage is not None:
            share.shortage.most_bytes = max(share.shortage.most_bytes, self._most_for(share))

    def _most_for(self, share: Share) -> int:
        """The most that the client could have there now, beside its siblings."""
        siblings = self._own_of(share.tenant) - _own_at_most(share)
        return self._room_for(share, self._device) - siblings

    def _short_bytes(self, share: Share, short_on: Device) -> int:
        """How much a call that lacks something there lacks."""
        if short_on is self._device:
            return share.bytes_allocated + share.needed_bytes - self._most_for(share)
        own = self._state.shares_of(self._state.tenants[share.tenant], short_on.id)
        lent = self._state.reserve_to_lend_bytes(short_on)
        return sum(each.bytes_own for each in own) - self._room_for(share, short_on) - lent

    def _room_for(self, share: Share, device: Device) -> int:
        """The most that all of its tenant together could have on the device."""
        if device is not self._device or share.client not in self._holding:
            return _room_without_turn(self._state, share.tenant, device)
        others = self._all_stays_while_held - self._stays_while_held(share.tenant)
        room = self._state.usable_bytes(device) - others
        own = self._shares_of(share.tenant)
        return room + exchanged_bytes(
            self._memory, share.tenant, own, room, begun=True, holding=self._holding
        )

    def _lacks_elsewhere(self, share: Share) -> Device | None:
        """Another device on which memory of the tenant is kept away: without it there is no turn,
        and the need waits for a turn."""
        if share.client in self._holding:
            return None
        wanted = self._state.tenants[share.tenant].wanted_devices
        self.depend_on_other_devices |= len(wanted) > 1
        for device_id in sorted(wanted):
            device = self._state.devices[device_id]
            gone_s = device.memory.ghost_since_s + self._state.settings.reclaim_s
            if device is self._device or self._now_s < gone_s:
                continue
            if _memory_is_kept_away(self._state, share.tenant, device):
                return device
        return None


def _own_at_most(share: Share) -> int:
    """A silent client may have taken more than it told."""
    return max(share.bytes_own, share.bytes_staying)


def _memory_is_kept_away(state: State, tenant: TenantId, device: Device) -> bool:
    """Whether memory of the tenant is parked that could not come back to the device, even if
    everybody else had parked what they can."""
    own = list(state.shares_of(state.tenants[tenant], device.id))
    if not any(share.bytes_parked for share in own if not share.failed):
        return False
    lent = state.reserve_to_lend_bytes(device)
    return sum(share.bytes_own for share in own) > _room_without_turn(state, tenant, device) + lent


def _room_without_turn(state: State, tenant: TenantId, device: Device) -> int:
    """The most that the tenant could have there, if everybody else had parked what they can."""
    own = list(state.shares_of(state.tenants[tenant], device.id))
    others = device.memory.totals.bytes_staying - sum(share.bytes_staying for share in own)
    room = state.usable_bytes(device) - others
    return room + exchanged_bytes(device.memory, tenant, own, room, begun=False)


# ---- waits for memory that others have and cannot move --------------------------------------


def is_waiting(tenant: Tenant) -> bool:
    """Whether a call of the tenant waits, and lacks its bytes now."""
    return any(
        share.needed_bytes and share.need_short_since_s is not None
        for _, _, share in _calls_that_wait(tenant)
    )


def left_s(state: State, tenant: Tenant, now_s: Seconds) -> Seconds | None:
    """For how much longer it waits; None: it does not."""
    for request in tenant.space_waits.values():
        return max(0.0, (request.waits_until_s or now_s) - now_s)
    wait = tenant.memory_wait
    if wait is None or not is_waiting(tenant):
        return None
    return max(0.0, wait.begun_s + state.settings.memory_wait_s - now_s)


def stalls(state: State, tenant: Tenant) -> None:
    """The tenant's turn was asked for, and its drain makes no progress: its work in flight may wait
    for the call that waits for memory."""
    wait = tenant.memory_wait
    if wait is not None and is_waiting(tenant):
        wait.stalls += 1
        if wait.stalls >= STALLS_MAX:
            for device, _ in wait.calls:
                state.changes.of_memory(device)


def cell_ends(state: State, tenant: Tenant) -> None:
    """What stalls in the next one is looked at anew."""
    if tenant.memory_wait is not None:
        tenant.memory_wait.stalls = 0
    for key, mark in list(tenant.waits_in_vain.items()):
        if mark.stalled:
            del tenant.waits_in_vain[key]
            for share in state.shares_of(tenant, key[0]):
                state.devices[key[0]].memory.attention.in_vain.pop(share.client, None)


def forget_waits(tenant: Tenant) -> None:
    """It has no process any more."""
    tenant.memory_wait = None
    tenant.waits_in_vain.clear()
    tenant.space_in_vain.clear()


def forget_waits_in_vain(tenant: Tenant, device: DeviceId) -> None:
    """The device is forgotten. Shares on one that is found later may have the same numbers."""
    for key in [key for key in tenant.waits_in_vain if key[0] == device]:
        del tenant.waits_in_vain[key]


def stand_still(state: State, from_s: Seconds, to_s: Seconds) -> None:
    """We did: nobody has waited meanwhile, nor had the time to come back."""
    if (recovery := state.recovery) is not None:
        recovery.until_s = max(recovery.until_s, to_s + state.settings.reconnect_grace_s)
    for tenant in state.tenants.values():
        if (wait := tenant.memory_wait) is not None:
            wait.stood_still(to_s - from_s, SPARED_S, to_s)
        for request in tenant.space_waits.values():
            request.stood_still(to_s - from_s, SPARED_S)


def _calls_that_wait(tenant: Tenant) -> Iterator[tuple[DeviceId, WaitingCall, Share]]:
    """Those of its wait that were neither met nor refused nor called off. One that may have its
    bytes, and has not taken them yet, still waits."""
    wait = tenant.memory_wait
    for (device, client), call in {} if wait is None else wait.calls.items():
        share = tenant.clients[client].devices.get(device) if client in tenant.clients else None
        if share is not None and (share.need_id, share.asked_bytes) == call[:2]:
            yield device, call, share


class _Freed:
    """What there would be on devices if tenants freed what they cannot move. For one look."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._of: dict[DeviceId, Counter[TenantId]] = {}
        self._in_all: dict[DeviceId, int] = {}
        self._waiting: dict[TenantId, dict[DeviceId, int]] | None = None
        """What those who wait are short of."""

    def by_others(self, device: DeviceId, tenant: TenantId) -> int:
        """If all others did."""
        return self._by_all(device) - self._of[device][tenant]

    def begins(self, tenant: Tenant, device: DeviceId, short_bytes: int) -> bool:
        """Whether the wait of the tenant, which is short of so much there, can end: there would be
        enough if all freed that who do not wait themselves. Of those who wait, the ones whose waits
        can end count as such. It waits from now on, if so."""
        if self._waiting is None:
            self._waiting = {each.id: _short_of(each) for each in self._state.tenants.values()}
        stuck = {each: short for each, short in self._waiting.items() if short}
        stuck[tenant.id] = {device: short_bytes}
        while True:
            devices = {each for short in stuck.values() for each in short}
            kept = {each: self._kept(each, stuck) for each in devices}
            free = [
                each
                for each, short in stuck.items()
                if all(count <= self._by_all(d) - kept[d] for d, count in short.items())
            ]
            if tenant.id in free:
                self._waiting[tenant.id] = stuck[tenant.id]
                return True
            if not free:
                return False
            for each in free:
                del stuck[each]

    def _kept(self, device: DeviceId, stuck: Iterable[TenantId]) -> int:
        self._by_all(device)
        return sum(self._of[device][each] for each in stuck)

    def _by_all(self, device: DeviceId) -> int:
        if device not in self._of:
            memory, freed = self._state.devices[device].memory, Counter[TenantId]()
            for share in memory.shares.values():
                # What the host has no space for is not freed by waiting.
                is_stuck = share.failed or share.silent
                most = share.bytes_staying if is_stuck else share.bytes_fixed
                freed[share.tenant] += min(share.bytes_staying, most) + share.context.bytes
            self._of[device] = freed
            self._in_all[device] = freed.total() + memory.bytes_ghost  # of processes that ended
        return self._in_all[device]


def _short_of(tenant: Tenant) -> dict[DeviceId, int]:
    """How much a tenant that waits lacks; nothing if it does not."""
    short: dict[DeviceId, int] = {}
    for device, call, share in _calls_that_wait(tenant):
        if share.needed_bytes and share.need_short_since_s is not None:
            short[device] = max(short.get(device, 0), call.bytes_short)
    return short
