"""Between the protocol and the core: the only module that knows both languages.

Messages become events, commands become messages. Nothing is decided here.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable

from jupyter_gpushare.core import commands, events
from jupyter_gpushare.core.commands import Ahead
from jupyter_gpushare.core.events import DropReason, Event
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId, TurnId
from jupyter_gpushare.core.settings import Fallback, MemoryMode, SchedulerSettings, TurnTaking
from jupyter_gpushare.protocol import messages
from jupyter_gpushare.protocol.codec import UnencodableMessage
from jupyter_gpushare.protocol.fields import Message

from ..base.names import printable_line
from ..base.wording import why_recalled
from ..devices.named import NAMED_MAX, DeviceBook, NotServed, TooManyDevices
from ..identity.peer import Peer
from ..identity.tokens import TenantRecord
from ..service.looks import Look, Looks
from ..service.members import Members
from ..service.service import Service
from .connection import Clients

log = logging.getLogger(__name__)

_DROP_REASONS = {
    messages.DropReason.RECALL: DropReason.RECALL,
    messages.DropReason.CELL_END: DropReason.CELL_END,
    messages.DropReason.IDLE: DropReason.IDLE,
    messages.DropReason.CONTEXT_FAILED: DropReason.CONTEXT_FAILED,
    messages.DropReason.CLOSING: DropReason.CLOSING,
    messages.DropReason.MEMORY_SHORT: DropReason.MEMORY_SHORT,
}
_AHEAD = {
    Ahead.NOTHING: messages.Ahead.NOTHING,
    Ahead.COPIES: messages.Ahead.COPIES,
    Ahead.RESTORE: messages.Ahead.RESTORE,
}
_FALLBACKS = {
    Fallback.WAIT: messages.Fallback.WAIT,
    Fallback.RUN: messages.Fallback.RUN,
}
_MEMORY_MODES = {
    MemoryMode.SWAP: messages.MemoryMode.SWAP,
    MemoryMode.OFF: messages.MemoryMode.OFF,
}
_U32_MAX = 2**32 - 1
_U64_MAX = 2**64 - 1


_TOO_MANY_DEVICES = (
    "The scheduler knows more devices already than a machine has. Restart this program, and the "
    "scheduler if that does not help."
)
_NOT_SERVED = (
    "This scheduler does not share {}, for NVML does not list it among the devices that it was "
    "given. Use one of those that `jupyter gpushare status` shows, or ask your administrator."
)
_OUR_FAULT = (
    "The scheduler cannot tell this program what it has to. Restart it, and report the scheduler's "
    "log."
)


class UnknownCommand(TypeError):
    """The core wants something that has no message: our fault."""


def device_id(uuid: bytes) -> DeviceId:
    """A device as the core names it."""
    return DeviceId(uuid.hex())


def event_of_hello(
    client: ClientId, tenant: TenantId, hello: messages.Hello, *, pid: int
) -> events.ClientJoined:
    """A client is there; perhaps with a turn from before, perhaps with a call that waits."""
    held = TurnId(hello.held_turn_id) if hello.held_turn_id else None
    return events.ClientJoined(
        client=client,
        tenant=tenant,
        pid=pid,
        process_name=printable_line(hello.process_name),
        held_turn=held,
        cause=f"hello of {printable_line(hello.process_name)} ({pid})",
    )


def event_of(client: ClientId, message: Message) -> Event | None:
    """The event that a message stands for; None for a question, which changes nothing."""
    match message:
        case messages.DeviceOpened(device=uuid):
            return events.DeviceOpened(
                client=client, device=device_id(uuid), cause="context created"
            )
        case messages.DeviceClosed(device=uuid):
            return events.DeviceClosed(
                client=client, device=device_id(uuid), cause="last context gone"
            )
        case messages.TurnRequested(cause=cause):
            fit = cause if cause.isprintable() else printable_line(cause)
            return events.TurnRequested(client=client, cause=fit)
        case messages.RequestWithdrawn():
            return events.RequestWithdrawn(client=client, cause="wait cancelled")
        case messages.CellBegan():
            return events.CellBegan(client=client, cause="cell began")
        case messages.CellEnded():
            return events.CellEnded(client=client, cause="cell ended")
        case messages.BusUsed():
            return events.BusUsed(client=client, cause="copies between host and device")
        case messages.HoldRequested(hold_ms=hold_ms):
            return events.HoldRequested(
                client=client, hold_s=hold_ms / 1000, cause=f"hold of {hold_ms / 1000:g} s"
            )
        case messages.TurnGivenAway():
            return events.TurnGivenAway(client=client, cause="released in the notebook")
        case messages.TurnDropped() | messages.DrainStalled():
            return _event_of_turn(client, message)
        case (
            messages.MemoryReported()
            | messages.MemoryNeeded()
            | messages.RoomRequested()
            | messages.ContextFailed()
        ):
            return _event_of_memory(client, message)
        case _:
            return None


def _event_of_turn(
    client: ClientId, message: messages.TurnDropped | messages.DrainStalled
) -> Event:
    match message:
        case messages.TurnDropped(turn_id=turn, reason=reason):
            drain_ms = max(0, message.drained_at_ns - message.closed_at_ns) / 1e6
            return events.TurnDropped(
                client=client,
                turn=TurnId(turn),
                reason=_DROP_REASONS[reason],
                cause=f"{reason.name.lower()}, drained in {drain_ms:.1f} ms",
            )
        case messages.DrainStalled(turn_id=turn, calls_waiting=calls):
            return events.DrainStalled(
                client=client, turn=TurnId(turn), calls_waiting=calls, cause="drain stalled"
            )


def _event_of_memory(
    client: ClientId,
    message: messages.MemoryReported
    | messages.MemoryNeeded
    | messages.RoomRequested
    | messages.ContextFailed,
) -> Event:
    match message:
        case messages.MemoryReported():
            return events.MemoryReported(
                client=client,
                device=device_id(message.device),
                bytes_allocated=message.bytes_allocated,
                bytes_fixed=message.bytes_fixed,
                bytes_parked=message.bytes_parked,
                bytes_parkable=message.bytes_host_room,
                host_limit=message.host_limit,
                budget_serial=message.budget_serial,
                bytes_kept=message.bytes_kept,
                bytes_copied=message.bytes_copied,
                bytes_to_copy=message.bytes_to_copy,
                cause="memory changed",
            )
        case messages.MemoryNeeded(device=uuid, bytes=needed, need=need, cause=cause):
            return events.MemoryNeeded(
                client=client,
                device=device_id(uuid),
                bytes_needed=needed,
                need_id=need,
                cause=printable_line(cause),
            )
        case messages.RoomRequested(device=uuid, bytes=wanted, request=request, cause=cause):
            return events.SpaceRequested(
                client=client,
                device=device_id(uuid),
                bytes_wanted=wanted,
                request_id=request,
                cause=printable_line(cause),
            )
        case messages.ContextFailed(device=uuid, cu_result=result):
            return events.ContextFailed(
                client=client,
                device=device_id(uuid),
                cu_result=result,
                cause=f"sticky error {result}",
            )


def message_of(command: commands.Command) -> Message:
    """What is sent for a command to a client."""
    match command:
        case commands.GrantTurn(turn=turn, quantum_s=quantum_s, waiters=waiters, cause=cause):
            return messages.TurnGranted(
                turn_id=turn,
                quantum_ms=min(round(quantum_s * 1000), _U32_MAX),
                waiters=waiters,
                cause=cause,
            )
        case commands.RecallTurn(turn=turn):
            return messages.TurnRecalled(turn_id=turn, cause=why_recalled(command))
        case commands.ReopenGate(turn=turn, cause=cause):
            return messages.GateReopened(turn_id=turn, cause=cause)
        case commands.CancelWait(cause=cause):
            return messages.WaitCancelled(cause=cause)
        case commands.TellContention(waiters=waiters, tenants=tenants, idle_ms=idle_ms):
            return messages.Contention(waiters=waiters, tenants=tenants, idle_ms=idle_ms)
        case commands.TellQueuePosition(position=position, holder=holder):
            return messages.QueuePosition(position=position, holder=holder)
        case commands.TellBudget():
            return _budget_message(command)
        case commands.TellSpace(device=device, request_id=request, made=made):
            return messages.RoomAnswered(
                device=bytes.fromhex(device), request=request, made=int(made)
            )
        case commands.TellSpaceAwaited(device=device, request_id=request, wait_s=wait_s):
            return messages.RoomAwaited(
                device=bytes.fromhex(device),
                request=request,
                wait_ms=min(round(wait_s * 1000), _U32_MAX),
            )
        case commands.TellHold(left_s=left_s):
            # Sums of times are not exact: what lies behind microseconds adds no millisecond.
            return messages.HoldChanged(hold_ms=min(math.ceil(round(left_s * 1000, 3)), _U32_MAX))
        case commands.TellSettings(settings=settings):
            return settings_message(settings)
        case commands.TellMemoryLimit(device=device, cap_bytes=cap, others_bytes=others):
            return messages.MemoryLimit(
                device=bytes.fromhex(device),
                cap_bytes=cap,
                # A sum of what processes claim; nothing says that their claims are sane.
                others_bytes=min(others, _U64_MAX),
            )
        case _:
            raise UnknownCommand(f"{type(command).__name__} has no message")


def _budget_message(command: commands.TellBudget) -> messages.MemoryBudget:
    return messages.MemoryBudget(
        device=bytes.fromhex(command.device),
        serial=command.serial,
        # What processes claim to have goes into these; nothing says that their claims are sane.
        budget_bytes=min(command.budget_bytes, _U64_MAX),
        usable_bytes=min(command.usable_bytes, _U64_MAX),
        park_hint_bytes=min(command.park_hint_bytes, _U64_MAX),
        ahead=_AHEAD[command.ahead],
        refused_need=command.refused_need,
    )


def settings_message(settings: SchedulerSettings) -> messages.Settings:
    """The settings that concern the hook."""
    return messages.Settings(
        turns=int(settings.turns is TurnTaking.ON),
        idle_ms=settings.idle_ms,
        window_ms=settings.window_ms,
        drain_stall_ms=settings.drain_stall_ms,
        reconnect_s=settings.reconnect_s,
        fallback=_FALLBACKS[settings.fallback],
        memory_mode=_MEMORY_MODES[settings.memory_mode],
        reclaim_ms=min(round(settings.reclaim_s * 1000), _U32_MAX),
    )


class Inbound:
    """From clients to the core. `submit` is the driver's."""

    def __init__(
        self,
        *,
        submit: Callable[[Event], None],
        service: Service,
        members: Members,
        clients: Clients,
        looks: Looks,
        devices: DeviceBook,
    ) -> None:
        self._submit = submit
        self._service = service
        self._members = members
        self._clients = clients
        self._looks = looks
        self._devices = devices
        self._asked: dict[ClientId, dict[bytes, bool]] = {}
        """By client and device: questions that have no answer yet; whether one came again since."""

    def joined(self, client: int, record: TenantRecord, hello: messages.Hello, peer: Peer) -> None:
        number = ClientId(client)
        pid = peer.pid or hello.pid
        self._service.client_joined(number, record, administers=peer.administers)
        if peer.pid > 0:
            self._members.pids[number] = peer.pid
        self._submit(event_of_hello(number, TenantId(record.tenant_id), hello, pid=pid))

    def received(self, client: int, message: Message) -> None:
        number = ClientId(client)
        if isinstance(message, messages.MemoryQueried):
            self._ask_for_memory(number, message.device)
            return
        if isinstance(message, messages.MemoryKindsReported):
            self._members.kinds.told(number, device_id(message.device), message)
            return
        if isinstance(message, messages.HostMemoryReported):
            self._members.host.told(number, message)
            return
        if isinstance(message, messages.DeviceOpened) and not self._may_open(number, message):
            return
        event = event_of(number, message)
        if event is not None:
            self._submit(event)
        if isinstance(event, events.DeviceOpened):
            self._service.client_names_device(number)
        elif isinstance(event, events.DeviceClosed):
            self._members.kinds.closed(number, event.device)
            self._submit_all(self._devices.closed(number, event.device))

    def lost(self, client: int, cause: str) -> None:
        number = ClientId(client)
        self._submit(events.ClientLost(client=number, cause=cause))
        self._submit_all(self._devices.left(number))
        self._service.client_left(number)

    def _submit_all(self, news: list[Event]) -> None:
        for event in news:
            self._submit(event)

    def _may_open(self, client: ClientId, message: messages.DeviceOpened) -> bool:
        """Tell the core of a device that is new to it; False where the client is closed instead."""
        name = printable_line(message.name)
        try:
            news = self._devices.opened(
                client, device_id(message.device), name=name, bytes_total=message.bytes_total
            )
        except TooManyDevices:
            self._clients.close(client, messages.RefusalCode.TOO_MANY, _TOO_MANY_DEVICES)
            return False
        except NotServed:
            sentence = _NOT_SERVED.format(name or "the device")
            self._clients.close(client, messages.RefusalCode.TOO_MANY, sentence)
            return False
        if news:
            log.info("device %s (%s): %s", message.device.hex(), name, news[0].cause)
        self._submit_all(news)
        return True

    def _ask_for_memory(self, client: ClientId, device: bytes) -> None:
        """One look is under way for each client and device, however often the client asks: those
        who ask once would wait behind all the questions of one that floods."""
        asked = self._asked.setdefault(client, {})
        if device in asked:
            asked[device] = True
        elif len(asked) < NAMED_MAX:
            asked[device] = False
            self._looks.ask(lambda look: self._answer_memory(client, device, look))

    def _answer_memory(self, client: ClientId, device: bytes, look: Look) -> None:
        """No answer means that NVML's own numbers stand."""
        asked = self._asked[client]
        asked_again = asked.pop(device)
        if not asked:
            del self._asked[client]
        seen = self._members.memory_seen_by(client, device_id(device), look)
        if seen is None:
            return
        total, used = seen
        answer = messages.MemoryAnswered(
            device=device, bytes_total=total, bytes_used=min(used, _U64_MAX)
        )
        if self._clients.send(client, answer) and asked_again:
            self._ask_for_memory(client, device)  # this look may be older than that question


class Outbound:
    """From the core to clients."""

    def __init__(self, clients: Clients, members: Members) -> None:
        self._clients = clients
        self._members = members

    def deliver(self, command: commands.Command) -> ClientId | None:
        """Send it; names the client when it cannot be reached."""
        client: ClientId = command.client  # type: ignore[attr-defined]
        if isinstance(command, commands.TellQueuePosition):
            holder = self._members.shown_name(client, command.holder_tenant, command.holder)
            command = dataclasses.replace(command, holder=holder)
        try:
            sent = self._clients.send(client, message_of(command))
        except UnencodableMessage:
            # Our fault, but the client cannot go on without what it should have been told.
            log.exception("%s cannot be sent", command)
            self._clients.close(client, messages.RefusalCode.BAD_PROTOCOL, _OUR_FAULT)
            sent = False
        return None if sent else client

    def close(self, client: ClientId, message: str) -> None:
        self._clients.close(client, messages.RefusalCode.BAD_TOKEN, message)

    def renew(self, client: ClientId) -> None:
        self._clients.renew(client)

    def kill(self, client: ClientId) -> None:
        self._clients.kill(client)
