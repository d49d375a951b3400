"""Memory on devices: budgets are told so that tenants with a turn have theirs there.

Events change what is known of a client's memory (the methods on top); `settle` looks at each device
as it is and does what follows (rebalance.py), so that no rule depends on which event came last.
"""

from __future__ import annotations

from .budgets import BudgetChange
from .capacity import total_bytes
from .commands import TellSpace
from .events import DropReason, MemoryReported, SpaceRequested
from .ids import ClientId, DeviceId, Seconds
from .ledger import UNLIMITED_BYTES, Share, SpaceRequest
from .outbox import Outbox
from .policy import progress_time_s
from .rebalance import rebalance, tell_budget
from .state import Client, Device, State, Tenant
from .transitions import WITH_TURN


class Residency:
    """Changes budgets; the only one who does."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    # ---- what events bring -------------------------------------------------------------------

    def opened(self, client: Client, device: Device) -> None:
        """The client begins with nothing, and may have nothing."""
        if device.id not in client.devices:
            client.devices[device.id] = device.memory.open(client.id, client.tenant)

    def closed(self, client: Client, device: Device) -> None:
        """The driver has freed all of it."""
        device.memory.close(client.devices.pop(device.id))

    def withdrawn(self, device: Device) -> None:
        """The device is forgotten: nobody gets space on it."""
        self._refuse_space(device)

    def lost(self, client: Client, now_s: Seconds) -> None:
        """The client is gone; its memory may not be yet."""
        for device_id, share in client.devices.items():
            self._state.devices[device_id].memory.lose(share, now_s)
        for device in self._state.devices.values():
            device.memory.space_requests.pop(client.id, None)

    def reported(self, client: Client, share: Share, event: MemoryReported, now_s: Seconds) -> bool:
        """Take in what the client has now; bytes that left the device are space for others. Answers
        whether anything may follow from it."""
        memory = self._state.devices[event.device].memory
        allocated, parked, fixed = share.bytes_allocated, share.bytes_parked, share.bytes_fixed
        resident, charged = share.bytes_resident, share.bytes_charged
        staying, heard, owed = share.bytes_staying, share.heard_serial, share.owes
        parkable = share.bytes_parkable
        progressed = share.reported(
            allocated=event.bytes_allocated,
            parked=event.bytes_parked,
            fixed=event.bytes_fixed,
            parkable=event.bytes_parkable,
            serial=event.budget_serial,
        )
        if (allocated, parked, fixed, parkable, heard) == (
            share.bytes_allocated,
            share.bytes_parked,
            share.bytes_fixed,
            share.bytes_parkable,
            share.heard_serial,
        ):
            return False
        memory.note()
        if share.bytes_resident > charged:
            memory.own_up(share.bytes_resident - charged)
        tenant = self._state.tenants[client.tenant]
        if progressed or (share.owes and not owed):
            share.progress_at_s = progress_time_s(self._state, now_s)
            share.falls_silent(False)
        if share.bytes_parked < parked and tenant.turn is not None:
            tenant.turn.memory_progress_s = progress_time_s(self._state, now_s)
        released = share.bytes_resident < resident or share.bytes_charged < charged
        if released and now_s >= tenant.short_until_s:
            memory.releases += 1
        for request in memory.space_requests.values():
            left = resident - share.bytes_resident
            if request.client != client.id and request.made_at_s is None and left > 0:
                request.bytes_released += left
                request.looks_awaited = 2
        drift = abs(share.bytes_allocated - allocated) + abs(share.bytes_staying - staying)
        within_budget = client.state in WITH_TURN and not (owed or share.owes)
        moved = share.bytes_parked != parked or (
            share.bytes_resident != resident and not within_budget
        )
        if moved or share.bytes_charged != charged or self._state.obstacles:
            return True
        if drift > memory.drift_left:
            return True
        memory.drift_left -= drift
        return False

    def dropped(self, tenant: Tenant, client: Client, reason: DropReason, now_s: Seconds) -> None:
        """Its budgets are what it has, wherever it had heard of others."""
        for share in client.devices.values():
            share.dropped()
        if reason is DropReason.MEMORY_SHORT:
            memories = [self._state.devices[each].memory for each in tenant.wanted_devices]
            tenant.short_until_s = now_s + 1.0
            tenant.short_releases = sum(memory.releases for memory in memories)

    def measured(self, device: Device, bytes_used: int, now_s: Seconds) -> None:
        """Take in how many bytes the device itself counts."""
        memory = device.memory
        foreign = memory.bytes_foreign
        memory.measured(bytes_used, now_s)
        device.bytes_used = bytes_used
        for request in memory.space_requests.values():
            request.looks_awaited -= 1
            released = max(0, request.bytes_used_before - bytes_used)
            request.bytes_released = max(request.bytes_released, released)
            if request.made_at_s is not None:  # what it has taken since is foreign now
                request.bytes_wanted -= max(0, memory.bytes_foreign - foreign)

    def space_requested(self, client: Client, event: SpaceRequested, now_s: Seconds) -> None:
        """Others are to make space, whether or not the client has a turn."""
        device, wanted = self._state.devices.get(event.device), event.bytes_wanted
        if device is None or wanted > total_bytes(self._state.settings, device):
            self._tell_no_space(client.id, event.device, event.request_id)
            return
        device.memory.space_requests[client.id] = SpaceRequest(
            client.id, event.request_id, wanted, now_s, device.bytes_used
        )

    def _refuse_space(self, device: Device) -> None:
        """None is made for those who wait for it."""
        for request in device.memory.space_requests.values():
            if request.made_at_s is None:
                self._tell_no_space(request.client, device.id, request.request_id)
        device.memory.space_requests.clear()

    def _tell_no_space(self, client: ClientId, device: DeviceId, request_id: int) -> None:
        """There is none."""
        self._outbox.put(TellSpace(client=client, device=device, request_id=request_id, made=False))

    # ---- what follows ------------------------------------------------------------------------

    def settle(self, now_s: Seconds, only: DeviceId | None = None) -> bool:
        """All that the state asks for at this moment, on each device or on one. Whether turns are
        to be looked at again."""
        news = False
        devices = self._state.devices
        for device in devices.values() if only is None else (devices[only],):
            device.memory.due_s = None
            for holder in self._state.holders(device.id):
                if holder.turn is not None:
                    holder.turn.lacks_memory_on.discard(device.id)
            if self._state.memory_moves and not device.lost:
                news |= rebalance(self._state, self._outbox, device, now_s)
            else:
                self._let_be(device, now_s)
                device.memory.drift_left = 0
        return news

    def _let_be(self, device: Device, now_s: Seconds) -> None:
        """Memory stays where it is, and nobody has a limit; or the device is lost, and nobody gets
        more of it. No space is made."""
        self._refuse_space(device)
        for share in device.memory.shares.values():
            needs, share.shortage = share.needed_bytes > 0, None
            share.needs(0)
            unlimited = not device.lost and share.budget_bytes != UNLIMITED_BYTES
            if needs or unlimited:
                change = BudgetChange(
                    client=share.client,
                    budget_bytes=share.budget_bytes if device.lost else UNLIMITED_BYTES,
                    usable_bytes=total_bytes(self._state.settings, device),
                    park_hint_bytes=0,
                    refused=device.lost,
                )
                tell_budget(self._state, self._outbox, device, share, change, now_s)
