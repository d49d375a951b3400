"""What always holds between two events. Each function states one rule; tests run all of them after
each event. They are written apart from the code that makes them true."""

from __future__ import annotations

from collections import Counter

from .ids import Seconds
from .ledger import Totals
from .order.line import quantum_ends_s, take_turns
from .policy import (
    bytes_to_come,
    deadline_of_tenant_s,
    deadline_of_waiters_s,
    waits_for_its_memory,
)
from .records import Tenant
from .shares.classes import (
    BOOSTED,
    FIRST,
    GUARANTEED,
    LAST,
    ORDINARY,
    URGENT,
    TenantClass,
)
from .space.obstacles import obstacle
from .state import State
from .transitions import ASKED_BACK, WITH_TURN, ClientState, TenantState


def check_invariants(
    state: State, *, now_s: Seconds, wake_at_s: Seconds | None, is_unfinished: bool = False
) -> None:
    """Raises AssertionError with the rule that does not hold, and the story of who broke it.

    Where the second step of an event is still to come, what it does has not been done."""
    what_is_remembered_is_so(state)
    lines_are_of_tenants(state)
    turn_and_state_agree(state)
    clients_agree_with_their_tenant(state)
    the_queue_has_those_who_wait(state)
    all_or_nothing(state)
    one_holder_for_each_device(state)
    nobody_begins_on_a_paused_device(state)
    nobody_is_forgotten(state, now_s)
    no_quantum_is_overrun(state, now_s)
    no_hold_is_overrun(state, now_s)
    shares_are_of_clients(state)
    shares_are_listed(state)
    waits_for_space_are_requests(state)
    no_more_is_given_than_there_is(state)
    everybody_is_charged(state)
    if not is_unfinished:
        _rule(not state.touched, "what was touched is settled")
        one_client_copies(state)
        the_alarm_is_set(state, now_s, wake_at_s)


def what_is_remembered_is_so(state: State) -> None:
    """Values that are kept for speed agree with what they are made from."""
    for client in state.clients.values():
        live = {
            device
            for device, share in client.devices.items()
            if not share.failed and not state.devices[device].lost
        }
        _rule(client.live_devices == live, "live devices", state.tenants[client.tenant])
    for tenant in state.tenants.values():
        wanted = {d for client in tenant.clients.values() for d in client.live_devices}
        _rule(tenant.wanted_devices == wanted, "wanted devices", tenant)
        opened_none = not any(client.devices for client in tenant.clients.values())
        _rule((tenant.id in state.undecided) == opened_none, "undecided tenants", tenant)
    placed = {t.id for t in state.tenants.values() if t.placement and t.placement.devices}
    _rule(state.placed.keys() == placed, "who was put somewhere is known")
    _rule(state.undecided <= state.tenants.keys(), "undecided tenants are here")


def lines_are_of_tenants(state: State) -> None:
    """The index of who uses, has, lacks and queues for each device says what the tenants say."""
    _rule(state.lines.of.keys() == state.devices.keys(), "each device has a line")
    for device, line in state.lines.of.items():
        users = [t for t in state.tenants.values() if device in t.wanted_devices]
        holders = [t for t in state.turn_holders.values() if t.turn and device in t.turn.devices]
        queue = {t.id: t for t in state.queue.values() if device in state.missing_devices(t)}
        lacking = [t for t in state.turn_holders.values() if device in state.missing_devices(t)]
        _rule(line.users == {t.id: t for t in users}, "who could use a device is on its line")
        _rule(line.owners == Counter(t.owner for t in users), "whose these are is counted")
        _rule(line.holders == holders, "holders are on the line, the earliest first")
        _rule({t.id: t for t in line.queue} == queue, "who waits is on the line")
        _rule(len(line.queue) == len(queue), "nobody waits twice on a line")
        _rule(line.ranks == sorted(line.ranks), "a line is in the order of its ranks")
        _rule([line.rank_of[t.id] for t in line.queue] == line.ranks, "a line knows its ranks")
        _rule(line.rank_of.keys() == queue.keys(), "ranks are of those who wait")
        gangs = {id: t for id, t in queue.items() if len(state.missing_devices(t)) > 1}
        _rule(line.gangs == gangs, "who waits for more devices is known")
        in_order = sorted(queue.values(), key=lambda t: state.lines.order(device, t))
        by_owner = {o: [t for t in in_order if t.owner == o] for o in line.of_owner}
        _rule(line.of_owner == by_owner, "who waits is known by owner, the least first")
        _rule(line.finish_of.keys() == by_owner.keys(), "owners who wait have finish times")
        _rule(sum(map(len, by_owner.values())) == len(queue), "everybody who waits has an owner")
        classes = Counter(t.runs_as for t in users)
        counted = {TenantClass.BATCH: line.batch, TenantClass.REALTIME: line.realtime}
        _rule(all(classes[each] == counted[each] for each in counted), "classes are counted")
        waiting = {id: t for id, t in queue.items() if not state.is_passed_over(t)}
        _rule(line.waiting == waiting, "who waits and is not passed over is known")
        _rule(+line.waits_of == Counter(t.owner for t in waiting.values()), "whose they are, too")
        head = next((line.rank_of[t.id][0] for t in line.queue if t.id in waiting), LAST)
        pressed = head in (URGENT, GUARANTEED, FIRST) or (head == ORDINARY and line.batch > 0)
        levels = {line.rank_of[t.id][0] for t in line.queue if t.id in waiting}
        pressed |= head == BOOSTED and URGENT in levels
        pressed |= any(holder.owner in by_owner for holder in line.holders)
        _rule((device in state.changes.pressed) == pressed, "devices are pressed by new cells")
        _rule(line.lacking == {t.id: t for t in lacking}, "who lacks a device is on its line")


def turn_and_state_agree(state: State) -> None:
    """A tenant has a turn exactly in the states that say so, and is then among the holders."""
    for tenant in state.tenants.values():
        has_turn = tenant.state not in (TenantState.IDLE, TenantState.WAITING)
        _rule(has_turn == (tenant.turn is not None), "state and turn agree", tenant)
        _rule(has_turn == (tenant.id in state.turn_holders), "holders have turns", tenant)
    turns = [t.turn.id for t in state.turn_holders.values() if t.turn is not None]
    _rule(turns == sorted(turns), "holders are in the order in which they got their turns")


def clients_agree_with_their_tenant(state: State) -> None:
    """Turns of clients are the tenant's; a recall concerns all clients of a tenant."""
    for client in state.clients.values():
        tenant = state.tenants[client.tenant]
        _rule(tenant.clients.get(client.id) is client, "a client is in its tenant", tenant)
        with_turn = client.state in WITH_TURN or client.state is ClientState.PASSING
        _rule(with_turn == (client.turn is not None), "a client with a turn knows it", tenant)
        if client.state in WITH_TURN:
            _rule(tenant.turn is not None, "granted clients belong to a holder", tenant)
            _rule(bool(client.live_devices), "a granted client has a device", tenant)
            recalled = tenant.state is TenantState.RECALLED
            _rule(recalled == (client.state in ASKED_BACK), "all are recalled or none", tenant)
        if client.state is ClientState.PASSING:
            _rule(not client.live_devices, "a passing client has no device", tenant)
        if client.state not in ASKED_BACK:
            _rule(not client.drain_stalled, "no recall, no stall", tenant)
        if tenant.state not in (TenantState.RECALLED, TenantState.STALLED):
            asked = client.overdue or client.recalled_at_s is not None
            _rule(not asked, "no recall, no delay", tenant)
    for tenant in state.turn_holders.values():
        _rule(bool(state.turn_clients(tenant)), "a turn without clients has ended", tenant)


def the_queue_has_those_who_wait(state: State) -> None:
    """Each tenant whose calls wait is in the queue once, unless it holds or drains; nobody else."""
    queue = list(state.queue.values())
    by_place = sorted(queue, key=lambda t: t.place)
    arrived = [t for t in queue if not t.boosted]
    by_time = sorted(arrived, key=lambda t: t.queued_at_s)
    _rule(queue == by_place, "the queue is in the order of places")
    _rule(arrived == by_time, "but for boosts, the queue is in the order of arrival")
    for tenant in state.tenants.values():
        queued = tenant.id in state.queue
        ready = bool(state.ready_clients(tenant))
        _rule(not queued or ready, "only who waits is in the queue", tenant)
        if tenant.state is TenantState.WAITING or tenant.state is TenantState.IDLE:
            _rule(queued == ready == (tenant.state is TenantState.WAITING), "queued", tenant)
        if tenant.state is TenantState.HOLDING:
            _rule(not ready, "who holds does not wait", tenant)
        if tenant.state is TenantState.STALLED and ready:
            _rule(queued, "a stalled tenant queues for what it lacks", tenant)
        for client in tenant.clients.values():
            if client.state is ClientState.WAITING:
                _rule(bool(client.live_devices), "without a device nobody waits", tenant)


def all_or_nothing(state: State) -> None:
    """A tenant may use all devices that its clients have opened, or none."""
    for tenant in state.turn_holders.values():
        if tenant.turn is None:
            continue
        wanted = tenant.wanted_devices
        _rule(tenant.turn.devices <= wanted, "no turn on a device that is not open", tenant)
        if tenant.state is TenantState.HOLDING:
            _rule(tenant.turn.devices == wanted, "all devices or none", tenant)


def one_holder_for_each_device(state: State) -> None:
    """While turns are on, one tenant has a device. Turns from before they were switched on may
    overlap until they are given back: all but the first have been asked."""
    if not state.turns_are_on:
        blocked = state.queue.keys() == state.obstacles.keys()
        _rule(blocked, "nobody waits while turns are off, but for memory")
        return
    for device in state.devices:
        holders = list(state.holders(device))
        for holder in holders[1:]:
            _rule(holder.state is not TenantState.HOLDING, "one holder for each device", holder)
        if len(holders) > 1:
            for holder in holders:
                exclusive = holder.turn is not None and holder.turn.exclusive
                _rule(not exclusive, "an exclusive turn overlaps no other", holder)


def nobody_begins_on_a_paused_device(state: State) -> None:
    """A turn on a paused device has been asked back, whoever has it."""
    for holder in state.turn_holders.values():
        if state.turns_are_on and holder.turn is not None:
            paused = state.paused_device(holder.turn.devices)
            asked = holder.state is not TenantState.HOLDING
            _rule(paused is None or asked, "a turn on a paused device is asked back", holder)


def nobody_is_forgotten(state: State, now_s: Seconds) -> None:
    """Each tenant in the queue waits for somebody: a holder, an earlier one that will be served,
    somebody's memory, an admin, or the recovery."""
    if state.recovery is not None:
        return
    for tenant in state.queue.values():
        missing = state.missing_devices(tenant)
        held = any(h is not tenant for device in missing for h in state.holders(device))
        if state.is_kept_waiting(tenant):
            continue
        if tenant.id in state.obstacles:
            blocked = obstacle(state, tenant, now_s) is not None
            _rule(blocked, "a tenant that is skipped for memory lacks it", tenant)
            continue
        lines = [state.lines.of[device] for device in missing]
        ahead = [other for line in lines for other in line.queue[: line.index(tenant)]]
        earlier = any(
            other.id not in state.obstacles and not state.is_kept_waiting(other) for other in ahead
        )
        _rule(held or earlier, "a tenant whose devices are free is granted", tenant)


def everybody_is_charged(state: State) -> None:
    """Accounts are of those who have a device or queue for it, and weigh what they weigh."""
    accounts = state.accounts
    _rule(accounts.of.keys() == state.devices.keys(), "each device has accounts")
    for device, here in accounts.of.items():
        line = state.lines.of[device]
        present = Counter(
            t.owner for t in {t.id: t for t in (*line.holders, *line.waiting.values())}.values()
        )
        known = {name: each.present for name, each in here.accounts.items() if each.present}
        _rule(known == present, "who is present has an account")
        weight = sum(accounts.owners[name].weight for name in present)
        near = abs(here.weights_present - weight) <= 1e-6 * max(1.0, weight)
        _rule(near, "those who are present weigh what they weigh")
        if present:
            owners = [(accounts.owners[name].weight, here.accounts[name]) for name in present]
            mean_s = sum(w * each.virtual_s for w, each in owners) / weight
            time_s = mean_s - here.owed_s / weight
            near = abs(here.virtual_s - time_s) <= 1e-6 * max(1.0, abs(mean_s))
            _rule(near, "a device's time is the mean of those who are present, less what they owe")
        _rule(here.owed_s >= -1e-6, "nobody owes less than nothing")
        uses = {t.id: (t.owner, bool(t.turn and t.turn.level == FIRST)) for t in line.holders}
        charged = {id: (use.owner, use.on_credit) for id, use in line.uses.items()}
        _rule(charged == uses, "who has the device is charged")
        there = (*line.holders, *line.waiting.values())
        wish = Counter(t.owner for t in there if state.lines.rules is not None)
        known_wishes = {o: each.present for o, each in here.wishes.items() if each.present}
        _rule(known_wishes == wish, "who wants what may be guaranteed is counted")
        promised = sum(accounts.owners[owner].request for owner in wish)
        _rule(abs(here.promised - promised) <= 1e-6, "what is promised is known")


def no_quantum_is_overrun(state: State, now_s: Seconds) -> None:
    """The clock of a quantum runs exactly while others wait, and its end brings a recall."""
    for tenant in state.turn_holders.values():
        if tenant.turn is None:
            continue
        others_wait = any(
            not state.missing_devices(other).isdisjoint(tenant.turn.devices)
            for other in state.queue.values()
            if other is not tenant
            and not state.is_passed_over(other)
            and not take_turns(tenant, other)
        )
        contended = state.turns_are_on and others_wait
        is_incomplete = bytes_to_come(tenant) > 0
        _rule(tenant.turn.is_incomplete == is_incomplete, "memory is seen to come back", tenant)
        restoring = waits_for_its_memory(state, tenant, now_s)
        running = tenant.turn.contended_since_s is not None
        _rule(running == (contended and not restoring), "the quantum counts", tenant)
        ends_s = quantum_ends_s(tenant.turn)
        held_by_hand = tenant.id in state.holds
        if ends_s is not None and tenant.state is TenantState.HOLDING and not held_by_hand:
            _rule(now_s < ends_s, "a used quantum is recalled", tenant)


def no_hold_is_overrun(state: State, now_s: Seconds) -> None:
    """A turn is kept by hand for as long as the settings allow, and for tenants that are here."""
    for tenant_id, hold in state.holds.items():
        tenant = state.tenants.get(tenant_id)
        _rule(tenant is not None, "holds are of tenants that are here")
        _rule(now_s < hold.until_s, "a hold that is over is taken out", tenant)
        longest_s = state.settings.hold_max_s + 1e-6  # sums of floats
        _rule(hold.until_s - hold.began_s <= longest_s, "no hold beyond the longest", tenant)
        _rule(tenant is not None and tenant.turn is not None, "a hold counts with a turn", tenant)
    for tenant_id, hold_s in state.holds_to_come.items():
        tenant = state.tenants.get(tenant_id)
        _rule(tenant is not None and tenant.turn is None, "a hold to come has no turn yet", tenant)
        _rule(0 < hold_s <= state.settings.hold_max_s + 1e-6, "no hold beyond the longest", tenant)


def shares_are_of_clients(state: State) -> None:
    """A device knows the same shares as the clients, and a client is charged all that it has and
    may believe in."""
    for device in state.devices.values():
        shares = {
            c.id: c.devices[device.id] for c in state.clients.values() if device.id in c.devices
        }
        _rule(device.memory.shares == shares, "devices and clients know the same shares")
        sums = Totals(
            bytes_allocated=sum(share.bytes_allocated for share in shares.values()),
            bytes_resident=sum(share.bytes_resident for share in shares.values()),
            bytes_charged=sum(share.bytes_charged for share in shares.values()),
            bytes_staying=sum(share.bytes_staying for share in shares.values()),
            bytes_taken=sum(
                share.bytes_charged if share.silent else share.bytes_resident
                for share in shares.values()
            ),
            bytes_kept=sum(share.bytes_kept for share in shares.values()),
        )
        _rule(device.memory.totals == sums, "the totals are the sums of the shares")
        for share in shares.values():
            least = max(share.bytes_resident, share.budget_bytes)
            _rule(
                share.bytes_charged >= least, "what it has is charged", state.tenants[share.tenant]
            )


def shares_are_listed(state: State) -> None:
    """The index of a device's shares lists them as their figures say."""
    for device in state.devices.values():
        listed, shares = device.memory.attention, device.memory.shares.values()
        able = [share for share in shares if not share.failed and not share.silent]
        stays = [share for share in able if share.bytes_staying > share.bytes_fixed]
        unused = [share for share in able if share.budget_bytes > share.bytes_resident]
        owing = [share for share in shares if share.bytes_charged > share.budget_bytes]
        asking = [s for s in shares if s.needed_bytes or s.granted_bytes or s.shortage]
        to_copy = [share for share in shares if share.copies.bytes[1] and not share.failed]
        copied = [share for share in shares if share.copies.bytes[0] and share.bytes_movable > 0]
        for name, found, so in (
            ("cannot park", listed.cannot_park, stays),
            ("have unused budgets", listed.unused, unused),
            ("owe", listed.owing, owing),
            ("ask", listed.asking, asking),
            ("have something to copy", listed.to_copy, to_copy),
            ("copy", listed.copying, [share for share in to_copy if share.copies.told]),
            ("have copies", listed.copied, copied),
        ):
            _rule(found == {share.client: share for share in so}, f"those that {name} are listed")
        marked = {
            share.client: share
            for share in shares
            if (device.id, share.number) in state.tenants[share.tenant].waits_in_vain
        }
        _rule(listed.in_vain == marked, "who has waited in vain is listed")
        for share in shares:
            ended_s = state.tenants[share.tenant].last_turn_end_s
            _rule(share.last_use_s == ended_s, "a share knows when its tenant's turn ended")
        movable = [share for share in shares if share.bytes_movable > 0]
        movable.sort(key=lambda share: (share.last_use_s, share.number))
        by_use = [share.client for share in movable]
        _rule(list(listed.by_last_use()) == by_use, "who can park is listed by its last use")


def one_client_copies(state: State) -> None:
    """On each device, while it has no turn and waits for none."""
    for device in state.devices.values():
        copying = device.memory.attention.copying.values()
        _rule(len(copying) <= 1, "one client copies at a time")
        for share in copying:
            client = state.clients[share.client]
            thinks = client.state is ClientState.IDLE and not client.frozen
            _rule(thinks or device.lost, "who copies thinks", state.tenants[share.tenant])


def waits_for_space_are_requests(state: State) -> None:
    """A tenant knows of the requests of its processes that wait, and of no others."""
    found = {
        (tenant.id, *key): request
        for tenant in state.tenants.values()
        for key, request in tenant.space_waits.items()
    }
    waiting = {
        (state.clients[client].tenant, device.id, client): request
        for device in state.devices.values()
        for client, request in device.memory.space_requests.items()
        if request.obstacle is not None
    }
    _rule(found == waiting, "who waits for space for a context is known")


def no_more_is_given_than_there_is(state: State) -> None:
    """Budgets beyond what clients have fit into what is free; for what comes back, the reserve
    too is free as far as foreign memory would have filled it. What others have taken since, or
    clients have that nobody gave them, is being reclaimed. Of one who died a moment ago, we do not
    know yet how much it took of what it may have believed in."""
    if not state.memory_moves:
        return
    for device in state.devices.values():
        shares = [share for share in device.memory.shares.values() if not share.silent]
        given = sum(max(0, share.budget_bytes - share.bytes_resident) for share in shares)
        new = sum(max(0, share.budget_bytes - share.bytes_allocated) for share in shares)
        free = state.usable_bytes(device) - device.memory.bytes_resident
        if not device.memory.ghost_confirmed:
            free += device.memory.bytes_ghost
        lent = state.reserve_to_lend_bytes(device)
        _rule(device.lost or new <= max(0, free), "no more is given than is usable")
        _rule(device.lost or given <= max(0, free + lent), "no more is given than there is")


def the_alarm_is_set(state: State, now_s: Seconds, wake_at_s: Seconds | None) -> None:
    """The next deadline lies ahead, and the core has asked to be woken then."""
    deadlines = [device.memory.due_s for device in state.devices.values()]
    deadlines += [deadline_of_tenant_s(state, tenant) for tenant in state.tenants.values()]
    deadlines.append(deadline_of_waiters_s(state))
    deadline_s = min((at_s for at_s in deadlines if at_s is not None), default=None)
    if deadline_s is not None:
        _rule(now_s < deadline_s, "what is due has been done")
    _rule(wake_at_s == deadline_s, "the core is woken at the next deadline")


def _rule(holds: bool, rule: str, tenant: Tenant | None = None) -> None:
    if not holds:
        story = "" if tenant is None else f" ({tenant.id}: {'; '.join(tenant.story)})"
        raise AssertionError(f"{rule}{story}")
