"""The budgets of one device, as they follow from who has a turn there and who has what.

A client that has a turn may have all that it has allocated and needs. What is short is taken from
budgets that nobody uses, then from those without a turn, the least recently used tenant first, and
no more than is short. Nothing is given out before it has been reported as released: see ledger.py.
What nobody can give is lent from the reserve, as far as capacity.py allows.
"""

from __future__ import annotations

from .capacity import holding_shares, obstacle, reserve_to_lend_bytes, total_bytes, usable_bytes
from .commands import MeasureDevice, ReportSilent, TellBudget, TellSpace
from .ids import Seconds
from .ledger import Share, SpaceRequest
from .needs import Needs
from .obstacles import ObstacleKind
from .outbox import Outbox
from .policy import progress_time_s
from .state import Device, State, Tenant

STEP_BYTES = 64 << 20
"""Budgets are raised by so much at once, or by all that is wanted."""
SLACK_BYTES_MAX = 256 << 20
"""Beyond what they have, where several tenants hold turns on one device."""
SPACE_KEPT_S = 1.0
"""So long, room that was made waits for who asked for it."""
MEASURE_PERIOD_S = 0.05
"""While somebody is short of room that no report will bring."""
REFRESH_S = 1.0
"""Not more often is a client told of changes that concern others' memory alone."""
_REFRESH_SHARE = 100


def tell_budget(
    state: State,
    outbox: Outbox,
    device: Device,
    share: Share,
    budget_bytes: int,
    now_s: Seconds,
    *,
    usable: int | None = None,
    hint: int = 0,
    refused: bool = False,
) -> None:
    """`refused`: what it needed last cannot be had."""
    client = state.clients[share.client]
    awaited = share.owes and not share.has_heard
    client.budget_serial += 1
    share.told(client.budget_serial, budget_bytes)
    if share.owes and not awaited:
        share.progress_at_s = progress_time_s(state, now_s)
    total = total_bytes(state.settings, device)
    share.told_usable_bytes = total if usable is None else usable
    share.told_hint_bytes = hint
    share.told_at_s = now_s
    outbox.put_before_grant(
        share.client,
        TellBudget(
            client=share.client,
            device=device.id,
            serial=client.budget_serial,
            budget_bytes=budget_bytes,
            usable_bytes=share.told_usable_bytes,
            park_hint_bytes=hint,
            refused_need=share.need_id if refused else 0,
            cause=outbox.cause,
        ),
    )


class DeviceBudgets:
    """One look at one device."""

    def __init__(self, state: State, outbox: Outbox, device: Device, now_s: Seconds) -> None:
        self.state = state
        self.settings = state.settings
        self.outbox = outbox
        self.device = device
        self.memory = device.memory
        self.now_s = now_s

    def run(self) -> bool:
        """Whether this concerns turns: somebody who waits may have one now, or memory moves again
        that the quantum waits for."""
        memory = self.memory
        self.news = False
        self.holding = holding_shares(self.state, self.device.id)
        with_turn = {share.client for share in self.holding}
        self.resting = [
            share
            for share in memory.shares.values()
            if share.client not in with_turn and not share.failed
        ]
        self.age()
        self.reckon()
        self.refuse_hopeless_needs()
        for share in self.resting:
            if share.budget_bytes > share.bytes_resident and not share.silent:
                self.tell(share, share.bytes_resident)
        missing = self.take_unused(self.missing_bytes())
        self.take_back_what_is_gone()
        unmet = self.ask_victims(max(missing, self.space_to_release()))
        hungry = self.raise_budgets(min(unmet, self.to_lend))
        self.answer_space_requests(unmet)
        if not hungry and not self.pending_requests() and missing <= 0:
            self.share_what_is_free()
        self.refresh(hungry)
        self.measure_when_short(hungry)
        memory.drift_left = self.drift_left(hungry, missing)
        return self.news

    def drift_left(self, hungry: bool, missing: int) -> int:
        """By how much what the one holder has may change before this look has to be repeated."""
        memory = self.memory
        lacking = hungry or missing > 0 or memory.space_requests or memory.due_s is not None
        tenants = {share.tenant for share in self.holding}
        if lacking or len(tenants) > 1 or not memory.ghost_confirmed:
            return 0
        if any(
            share.owes or share.asked_bytes or share.shortage for share in memory.shares.values()
        ):
            return 0
        return total_bytes(self.settings, self.device) // _REFRESH_SHARE

    # ---- before anything is decided ----

    def age(self) -> None:
        """What time alone changes."""
        memory, settings, now_s = self.memory, self.settings, self.now_s
        if memory.bytes_ghost and not memory.ghost_confirmed:
            gone_s = memory.ghost_since_s + settings.reclaim_s
            if now_s >= gone_s:
                memory.bytes_ghost, memory.ghost_confirmed = 0, True
                memory.releases += 1
                self.news = True
            else:
                self.due(gone_s)
        for request in list(memory.space_requests.values()):
            if request.made_at_s is not None:
                if now_s >= request.made_at_s + SPACE_KEPT_S or request.bytes_wanted <= 0:
                    del memory.space_requests[request.client]
                else:
                    self.due(request.made_at_s + SPACE_KEPT_S)
        for share in memory.shares.values():
            if share.bytes_charged <= share.budget_bytes:
                if share.silent:
                    share.falls_silent(False)
            elif self.is_awaited(share) and now_s >= share.progress_at_s + settings.park_timeout_s:
                share.falls_silent(True)
                self.report_silence(share)

    def is_awaited(self, share: Share) -> bool:
        """It is to release memory, or to say that it has heard that it may have less. With a turn
        it keeps what it has, although it may have less: then there is nothing to wait for."""
        if share.silent or share.failed or not share.owes:
            return False
        return not share.has_heard or share not in self.holding

    def report_silence(self, share: Share) -> None:
        client = self.state.clients[share.client]
        held = (share.bytes_charged - share.budget_bytes) >> 20
        message = (
            f"{self.state.tenants[share.tenant].name} (process {client.process_name}, pid "
            f"{client.pid}) was asked to release {held} MiB on {self.device.name} and has made no "
            f"progress for {self.settings.park_timeout_s:g} s; it is passed over. Interrupt or "
            f"restart it."
        )
        self.outbox.put(ReportSilent(client=share.client, message=message, cause=self.outbox.cause))

    def reckon(self) -> None:
        """Sums that answers to clients are made of."""
        self.usable = usable_bytes(self.settings, self.device)
        self.to_lend = reserve_to_lend_bytes(self.settings, self.device)
        self.staying_by_tenant: dict[str, int] = {}
        self.allocated = 0
        for share in self.memory.shares.values():
            by_tenant = self.staying_by_tenant
            by_tenant[share.tenant] = by_tenant.get(share.tenant, 0) + share.bytes_staying
            self.allocated += share.bytes_allocated
        self.staying = sum(self.staying_by_tenant.values())

    def refuse_hopeless_needs(self) -> None:
        needs = Needs(self.state, self.device, self.holding, self.now_s)
        for share in needs.hopeless():
            self.note_refusal(share)
            share.needs(0)
            self.news = True
            self.tell(share, share.budget_bytes, refused=True)
        self.in_doubt = needs.in_doubt
        if needs.due_s is not None:
            self.due(needs.due_s)

    def note_refusal(self, share: Share) -> None:
        """What was in the way, for the status; unless it is the tenant itself."""
        tenant = self.state.tenants[share.tenant]
        overlap = share in self.holding
        found = obstacle(self.state, tenant, self.now_s, holders_stay=overlap)
        if found is not None and found.kind not in (ObstacleKind.ITSELF, ObstacleKind.RETRY):
            tenant.refused_for, tenant.refused_at_s = found, self.now_s

    # ---- where room comes from ----

    def base_of(self, share: Share) -> int:
        """What a client with a turn takes up once it has heard what it was told."""
        if share.silent:
            return share.bytes_charged
        return max(share.bytes_resident, share.budget_bytes)

    def missing_bytes(self) -> int:
        """What those with a turn, and those who asked for room, lack; before anybody parks."""
        memory = self.memory
        ghost = 0 if memory.ghost_confirmed else memory.bytes_ghost
        missing = -(self.usable + ghost)
        for share in self.holding:
            missing += max(self.base_of(share), share.bytes_allocated + share.needed_bytes)
        for share in memory.shares.values():
            if share not in self.holding:
                missing += share.bytes_charged if share.silent else share.bytes_resident
        return missing + sum(request.bytes_wanted for request in self.pending_requests())

    def space_to_release(self) -> int:
        """What must leave the device for those who asked for room, whatever the books say."""
        return sum(
            request.bytes_wanted - request.bytes_released for request in self.pending_requests()
        )

    def pending_requests(self) -> list[SpaceRequest]:
        return [
            request for request in self.memory.space_requests.values() if request.made_at_s is None
        ]

    def take_unused(self, missing: int) -> int:
        """From those with a turn, what they may have and do not use. If one of them grows, half of
        it at least: what is not needed at once is shared, and the next small step need not ask.
        What is still missing then."""
        grows = any(share.needed_bytes for share in self.holding)
        earlier = False
        for share in self.holding:
            if missing <= 0:
                break
            # A part of what it needs is of no use to it, and may be what an earlier one lacks.
            asked = share.granted_bytes if earlier else share.asked_bytes
            earlier |= share.needed_bytes > 0
            used = max(share.bytes_resident, share.bytes_allocated + asked)
            unused = self.base_of(share) - used
            if unused <= 0 or share.silent:
                continue
            taken = min(unused, max(missing, unused // 2 if grows else 0))
            self.tell(share, self.base_of(share) - taken)
            missing -= taken
        return missing

    def take_back_what_is_gone(self) -> None:
        """Others have taken what was given out and not been used yet, for a need that is met in
        part or whose call is about to go on: the later holders have to wait for it again."""
        memory = self.memory
        free = self.usable - memory.bytes_resident
        if not memory.ghost_confirmed:
            free += memory.bytes_ghost
        shares = [share for share in memory.shares.values() if not share.silent]
        new = sum(share.budget_beyond(share.bytes_allocated) for share in shares) - max(0, free)
        given = sum(share.budget_beyond(share.bytes_resident) for share in shares)
        given -= max(0, free + self.to_lend)
        for share in reversed(self.holding):
            if share.silent:
                continue
            taken = min(max(new, given), share.budget_beyond(share.bytes_allocated))
            taken = max(taken, min(given, share.budget_beyond(share.bytes_resident)))
            if taken > 0:
                share.needs_again()
                new -= min(taken, share.budget_beyond(share.bytes_allocated))
                self.tell(share, share.budget_bytes - taken)
                given -= taken

    def ask_victims(self, missing: int) -> int:
        """Those without a turn park what is missing, the least recently used first; who was asked
        for more than that is told to stop. What nobody can give."""
        left = max(0, missing)
        if self.state.recovering_until_s is not None:
            left = 0  # what those have who are not back yet looks like strangers'
        holders = {share.tenant for share in self.holding}
        asks_for_space = {request.client for request in self.pending_requests()}
        for share in self.by_last_use() if left else self.resting:
            if share.silent:
                continue
            given = min(left, share.bytes_movable)
            if given and (share.tenant in holders or share.client in asks_for_space):
                given = 0
            left -= given
            budget = share.bytes_resident - given
            more = budget - share.budget_bytes
            if more < 0 or more >= STEP_BYTES or (more > 0 and given == 0):
                self.tell(share, budget)
        return left

    def by_last_use(self) -> list[Share]:
        tenants = self.state.tenants
        return sorted(self.resting, key=lambda share: tenants[share.tenant].last_turn_end_s)

    # ---- where it goes ----

    def raise_budgets(self, lent: int) -> bool:
        """All that is free goes to those with a turn, first come first served; and so much more to
        what was there before. Whether anybody lacks something still."""
        memory = self.memory
        self.free = self.usable - memory.bytes_charged
        self.free -= sum(request.bytes_wanted for request in memory.space_requests.values())
        hungry = False
        for share in self.holding:
            wanted = share.bytes_allocated + share.needed_bytes
            lacking = wanted - share.budget_bytes
            if lacking > 0:
                # Where more is charged than there is, what it may believe in is not to be had.
                can_have = share.bytes_charged + self.free
                comes_back = min(share.bytes_allocated, can_have + lent)
                if hungry:  # what was taken from it for an earlier one is not its again
                    can_have = min(can_have, share.budget_bytes + max(0, self.free))
                budget = max(share.budget_bytes, comes_back, min(wanted, can_have))
                self.free -= max(0, budget - share.bytes_charged)
                hungry |= budget < wanted
                enough = min(STEP_BYTES, (lacking + 3) // 4)
                if budget >= wanted or budget - share.budget_bytes >= enough:
                    self.tell(share, budget)
            elif share.needed_bytes:
                self.tell(share, share.budget_bytes)
            if share.bytes_parked and share.budget_bytes < share.bytes_allocated:
                turn = self.state.tenants[share.tenant].turn
                assert turn is not None
                turn.lacks_memory_on.add(self.device.id)
            if share.budget_bytes >= wanted:
                if share.needed_bytes:
                    self.state.tenants[share.tenant].refused_for = None
                share.may_have_what_it_needs()
        return hungry

    def share_what_is_free(self) -> None:
        """Beyond what they need now, so that growth need not ask each time."""
        shares = [share for share in self.holding if not share.owes]
        if self.free <= 0 or not shares or self.state.recovering_until_s is not None:
            return
        if len({share.tenant for share in self.holding}) == 1:
            each = self.slack_of(self.state.tenants[shares[0].tenant]) // len(shares)
            if each >= max(1, min(STEP_BYTES, self.usable // 32)):
                for share in shares:
                    self.tell(share, share.budget_bytes + each)
            return
        for share in shares:
            slack = min(self.free // 2, SLACK_BYTES_MAX)
            unused = share.budget_bytes - share.bytes_allocated
            if unused < slack // 2:
                self.free -= slack - unused
                self.tell(share, share.bytes_allocated + slack)

    def slack_of(self, tenant: Tenant) -> int:
        """What the tenant alone may have beyond what it has: all that is free, within its cap; and
        what its other processes have parked must find room beside it."""
        own = [share for share in self.memory.shares.values() if share.tenant == tenant.id]
        parked = sum(share.bytes_parked for share in own if share not in self.holding)
        slack = self.free - parked
        if tenant.cap_bytes:
            slack = min(slack, tenant.cap_bytes - parked - sum(each.bytes_charged for each in own))
        return max(0, slack)

    # ---- answers ----

    def answer_space_requests(self, unmet: int) -> None:
        memory, now_s = self.memory, self.now_s
        owed = any(self.is_awaited(share) for share in memory.shares.values())
        for request in self.pending_requests():
            late_s = request.asked_at_s + self.settings.park_timeout_s
            known = request.looks_awaited <= 0 or not memory.is_measured
            if request.bytes_released >= request.bytes_wanted:
                made = True
            elif now_s >= late_s or (unmet and not owed and known):
                free = self.device.bytes_total - self.device.bytes_used
                made = memory.is_measured and free >= request.bytes_wanted
            else:
                self.due(late_s)
                continue
            if made:
                request.made_at_s = now_s
                self.due(now_s + SPACE_KEPT_S)
            else:
                del memory.space_requests[request.client]
            self.outbox.put(
                TellSpace(
                    client=request.client,
                    device=self.device.id,
                    request_id=request.request_id,
                    made=made,
                    cause=self.outbox.cause,
                )
            )

    def refresh(self, hungry: bool) -> None:
        """Who was told other numbers than those of now hears them, but not too often; and when
        those who owe something will be found silent.

        A client answers what it is told with what it has. So, while room is short for want of room
        on the host, those who lacked that are told again, to learn whether they still do."""
        noticed = total_bytes(self.settings, self.device) // _REFRESH_SHARE
        short = hungry or bool(self.in_doubt) or bool(self.state.obstacles)
        for share in self.memory.shares.values():
            if share.failed:
                continue
            if share.bytes_charged > share.budget_bytes and self.is_awaited(share):
                self.due(share.progress_at_s + self.settings.park_timeout_s)
            told, holds = share.told_usable_bytes, share in self.holding
            outdated = told < 0 or abs(self.usable_for(share) - told) > noticed
            if holds and not outdated:
                outdated = abs(self.hint_for(share) - share.told_hint_bytes) > noticed
            lacks_host_room = share.bytes_staying > share.bytes_fixed and not share.silent
            if not outdated and not (short and lacks_host_room and not holds):
                continue
            if told < 0 or self.now_s >= share.told_at_s + REFRESH_S:
                self.tell(share, share.budget_bytes)
            else:
                self.due(share.told_at_s + REFRESH_S)

    def measure_when_short(self, hungry: bool) -> None:
        """While no report can bring what is short, the device is looked at."""
        memory = self.memory
        owed = any(self.is_awaited(share) for share in memory.shares.values())
        short = memory.bytes_ghost or self.pending_requests() or (hungry and not owed)
        if not short and not self.in_doubt:
            memory.measure_at_s = None
            return
        if memory.measure_at_s is None or self.now_s >= memory.measure_at_s:
            memory.measure_at_s = self.now_s + MEASURE_PERIOD_S
            for device in sorted({self.device.id, *self.in_doubt}):
                self.outbox.put(MeasureDevice(device=device, cause=self.outbox.cause))
        self.due(memory.measure_at_s)

    # ---- small parts ----

    def usable_for(self, share: Share) -> int:
        """What its tenant could have at most."""
        most = self.usable - self.staying + self.staying_by_tenant[share.tenant]
        cap = self.state.tenants[share.tenant].cap_bytes
        return max(0, min(most, cap) if cap else most)

    def hint_for(self, share: Share) -> int:
        """What of it would have to leave if everybody came back."""
        beyond = self.allocated - self.usable
        return max(0, min(share.bytes_allocated - share.bytes_fixed, beyond))

    def tell(self, share: Share, budget_bytes: int, *, refused: bool = False) -> None:
        raised = budget_bytes > share.budget_bytes
        tell_budget(
            self.state,
            self.outbox,
            self.device,
            share,
            budget_bytes,
            self.now_s,
            usable=self.usable_for(share),
            hint=self.hint_for(share),
            refused=refused,
        )
        turn = self.state.tenants[share.tenant].turn
        if raised and share.bytes_parked > 0 and turn is not None:
            turn.memory_progress_s = progress_time_s(self.state, self.now_s)
            # Its quantum had begun, since nothing moved for long; now something does again.
            self.news |= not turn.restores

    def due(self, at_s: Seconds) -> None:
        memory = self.memory
        memory.due_s = at_s if memory.due_s is None else min(memory.due_s, at_s)
