"""Requests for space that no budget covers: for contexts and modules.

Others without a turn are asked to park for them (budgets.py). A client's first context on a device
is opened at the first use of it. Where it has no space because of memory that nobody can be asked
for now, the request waits as an allocation does (needs.py): for up to `memory_wait_s`, without the
turn, and once, until there could be more space than there was. Nobody is asked for anything
meanwhile.

Such a context stays there for long. So it has no space either where memory of somebody could not
come back beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..budgets import SPACE_KEPT_S, noticed_bytes
from ..commands import MeasureDevice, TellSpace, TellSpaceAwaited
from ..events import SpaceRequested
from ..ids import ClientId, DeviceId, Seconds, TenantId
from ..ledger import Share
from ..records import Client, Device, Tenant
from ..state import State
from ..told import Outbox
from .obstacles import largest_in_the_way
from .requests import UNCERTAIN_S_MAX, Obstacle, ObstacleKind, SpaceRequest


class Space:
    """Takes in the requests, and knows which of them wait."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    # ---- what events bring -------------------------------------------------------------------

    def requested(self, client: Client, event: SpaceRequested, now_s: Seconds) -> None:
        """Others are to make space, whether or not the client has a turn. A request for nothing
        takes back the one before."""
        device, wanted = self._state.devices.get(event.device), event.bytes_wanted
        before = None if device is None else device.memory.space_requests.get(client.id)
        if device is not None:
            self.forget(client.id, device)
        if device is None or wanted > self._state.total_bytes(device):
            self._tell(client.id, event.device, event.request_id, made=False)
            return
        if wanted == 0:
            return
        tenant = self._state.tenants[client.tenant]
        self._state.changes.of_memory(device.id)
        request = SpaceRequest(client.id, event.request_id, wanted, now_s, device.bytes_used)
        device.memory.space_requests[client.id] = request
        request.is_first = client.id not in device.memory.shares
        request.follows(before)
        wait_s, reclaim_s = self._state.settings.memory_wait_s, self._state.settings.reclaim_s
        if not request.is_first and reclaim_s <= UNCERTAIN_S_MAX:  # so long it waits by itself
            self._tell_awaited(device, request, UNCERTAIN_S_MAX + reclaim_s)
        if not (request.is_first and self._state.turns_are_on and wait_s):
            return
        # It may want more than it said before, and processes of a tenant wait together.
        others = [each.waits_until_s for each in tenant.space_waits.values()]
        if before is not None and before.made_at_s is None:
            others.append(before.waits_until_s)
        request.waits_until_s = min((each for each in others if each), default=now_s + wait_s)
        self._tell_awaited(device, request, wait_s + self._state.settings.park_timeout_s)

    def measured(self, device: Device, bytes_used: int, bytes_taken: int) -> None:
        """The device was looked at: so many bytes more are foreign."""
        for request in device.memory.space_requests.values():
            request.looked_at(bytes_used, bytes_taken, is_certain=device.memory.is_certain)
            if request.made_at_s is not None:  # what it has taken since is foreign now
                request.bytes_wanted -= max(0, bytes_taken)

    def contexts_to_come(self, device: Device) -> int:
        """Of tenants that have opened no device, and may open this one next."""
        undecided, placed = self._state.undecided, self._state.placed.values()
        elsewhere = (
            each.id
            for each in placed
            if each.placement is not None and device.id not in each.placement.devices
        )
        return len(undecided) - sum(each in undecided for each in elsewhere)

    def forget(self, client: ClientId, device: Device) -> None:
        """The client wants none, or is gone."""
        request = device.memory.space_requests.pop(client, None)
        if request is not None:
            self._waits_no_more(request)
            self._state.changes.of_memory(device.id)

    def refuse_all(self, device: Device) -> None:
        """None is made for those who wait for it."""
        for request in device.memory.space_requests.values():
            self._waits_no_more(request)
            if request.made_at_s is None:
                self._tell(request.client, device.id, request.request_id, made=False)
        device.memory.space_requests.clear()

    # ---- what follows ------------------------------------------------------------------------

    def kept_is_given_up(self, device: Device, now_s: Seconds) -> None:
        """Space that was made and has been taken, or that nobody has taken in time."""
        requests = device.memory.space_requests
        for request in list(requests.values()):
            if request.made_at_s is None:
                continue
            if now_s >= request.made_at_s + SPACE_KEPT_S or request.bytes_wanted <= 0:
                del requests[request.client]
                self._state.changes.of_memory(device.id)
            else:
                device.memory.ask_for_look(request.made_at_s + SPACE_KEPT_S)

    def look(self, device: Device, holding: Sequence[Share], now_s: Seconds) -> bool:
        """Which of the requests wait, and which have waited for long enough. Whether turns are to
        be looked at again."""
        state, turns_follow = self._state, False
        for request in list(device.memory.space_requests.values()):
            if request.made_at_s is not None or not request.is_first or not state.turns_are_on:
                self._waits_no_more(request)
                continue
            if state.recovery is not None:  # memory of others looks like strangers'
                request.begins_again(now_s, device.bytes_used)
                continue
            found = self._in_the_way(device, request, holding)
            if found is None:
                if request.obstacle is not None:
                    self._waits_no_more(request)
                    request.begins_again(now_s, device.bytes_used)
                continue
            turns_follow |= self._take_up_shortage(device, request, found, now_s)
        return turns_follow

    def _take_up_shortage(
        self, device: Device, request: SpaceRequest, found: Obstacle, now_s: Seconds
    ) -> bool:
        tenant = self._state.tenants[self._state.clients[request.client].tenant]
        space_bytes = request.bytes_wanted - found.bytes_short
        if self._is_free(device, request, found):
            self._waits_no_more(request)
            request.begins_again(now_s, device.bytes_used)
            request.bytes_released = request.bytes_wanted
        elif (
            request.waits_until_s is None
            or self._check_mark(tenant, device, space_bytes)
            or not self._may_be_freed(device, tenant, found)
        ):
            if found.kind is ObstacleKind.NEEDED:
                self._refuse(device, request, found, now_s)
            self._waits_no_more(request)
        elif now_s >= request.waits_until_s:
            tenant.space_in_vain[device.id] = space_bytes
            self._refuse(device, request, found, now_s)
        else:
            device.memory.ask_for_look(request.waits_until_s)
            return self._waits(device, tenant, request, found)
        return False

    def _waits(
        self, device: Device, tenant: Tenant, request: SpaceRequest, found: Obstacle
    ) -> bool:
        before, request.obstacle = request.obstacle, found
        if found != before:
            self._state.changes.of_look(tenant.id)
        if before is not None:
            return False
        tenant.space_waits[device.id, request.client] = request
        self._outbox.put(MeasureDevice(device=device.id))
        turn = tenant.turn
        if turn is None or turn.gives_way:
            return False
        turn.gives_way = True
        self._state.changes.of_tenant(tenant)
        return True

    def _in_the_way(
        self, device: Device, request: SpaceRequest, holding: Sequence[Share]
    ) -> Obstacle | None:
        """Why nobody can be asked for the space now; None: somebody can, or it is there."""
        memory, state = device.memory, self._state
        outside = memory.bytes_foreign + (0 if memory.ghost_confirmed else memory.bytes_ghost)
        stays = memory.totals.bytes_staying
        stays += sum(max(0, each.bytes_own - each.bytes_staying) for each in holding)
        short = request.bytes_wanted + outside + stays - state.total_bytes(device)
        if short > 0:
            own = state.clients[request.client].tenant
            return largest_in_the_way(state, own, device, holding, short)
        return self._needed_by_others(device, request) if request.waits_until_s else None

    def _needed_by_others(self, device: Device, request: SpaceRequest) -> Obstacle | None:
        """The largest tenant whose memory could come back now, if it could not beside one more
        context."""
        memory, state = device.memory, self._state
        own_bytes: Counter[TenantId] = Counter()
        for share in memory.shares.values():
            own_bytes[share.tenant] += share.bytes_own - share.bytes_staying
        least, foreign = state.least_reserve_bytes(device), memory.bytes_foreign
        room = state.total_bytes(device) - memory.totals.bytes_staying
        fitting = [each for each in own_bytes.items() if each[1] <= room - max(least, foreign)]
        if not fitting:
            return None
        tenant, most = max(fitting, key=lambda each: each[1])
        short = max(least, foreign + request.bytes_wanted) - (room - most)
        if short <= 0:
            return None
        whole = sum(each.bytes_own for each in state.shares_of(state.tenants[tenant], device.id))
        return Obstacle(
            kind=ObstacleKind.NEEDED,
            device=device.id,
            bytes_in_the_way=whole,
            bytes_short=min(short, request.bytes_wanted),
            tenant=tenant,
        )

    def _is_free(self, device: Device, request: SpaceRequest, found: Obstacle) -> bool:
        """Whether the device itself shows the space, whatever is believed."""
        memory = device.memory
        if found.kind is ObstacleKind.NEEDED or not memory.is_measured:
            return False
        is_new = memory.measured_at_s > request.asked_at_s
        return is_new and device.bytes_total - device.bytes_used >= request.bytes_wanted

    def _may_be_freed(self, device: Device, tenant: Tenant, found: Obstacle) -> bool:
        """Whether others have so much there that is theirs to free or to park."""
        if found.kind is ObstacleKind.NEEDED:
            return True
        others = [each for each in device.memory.shares.values() if each.tenant != tenant.id]
        theirs = sum(max(each.bytes_staying, each.bytes_own) for each in others)
        theirs += sum(each.context.bytes for each in others) + device.memory.bytes_ghost
        return found.bytes_short <= theirs

    def _check_mark(self, tenant: Tenant, device: Device, space_bytes: int) -> bool:
        """Whether a context of the tenant has waited in vain, and there could not be more space
        now. A mark that is over is taken off."""
        before = tenant.space_in_vain.get(device.id)
        if before is None:
            return False
        if space_bytes < before + noticed_bytes(self._state.total_bytes(device)):
            return True
        del tenant.space_in_vain[device.id]
        return False

    def _refuse(
        self, device: Device, request: SpaceRequest, found: Obstacle, now_s: Seconds
    ) -> None:
        tenant = self._state.tenants[self._state.clients[request.client].tenant]
        self.forget(request.client, device)
        self._state.note_refusal(tenant, found, now_s)
        self._tell(request.client, device.id, request.request_id, made=False)

    def _waits_no_more(self, request: SpaceRequest) -> None:
        found, request.obstacle = request.obstacle, None
        client = self._state.clients.get(request.client)
        if found is not None and client is not None:
            tenant = self._state.tenants[client.tenant]
            tenant.space_waits.pop((found.device, client.id), None)
            self._state.changes.of_look(tenant.id)

    def _tell_awaited(self, device: Device, request: SpaceRequest, within_s: Seconds) -> None:
        client, number = request.client, request.request_id
        self._outbox.put(
            TellSpaceAwaited(client=client, device=device.id, request_id=number, wait_s=within_s)
        )

    def _tell(self, client: ClientId, device: DeviceId, request_id: int, *, made: bool) -> None:
        self._outbox.put(TellSpace(client=client, device=device, request_id=request_id, made=made))
