"""A scheduler with a virtual clock, for tests that tell a story event by event.

Each event is followed by all invariants. `last` has the commands of the last event; the methods
named after commands pick from them.
"""

from __future__ import annotations

from typing import TypeVar

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    Command,
    GrantTurn,
    RecallTurn,
    ReopenGate,
    ReportFailure,
    TellHold,
    TellQueuePosition,
    WakeAt,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId, TurnId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings, TurnTaking
from jupyter_gpushare.core.snapshot import DeviceSnapshot, TenantSnapshot

C = TypeVar("C", bound=Command)
TURNS_ALONE = SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=10)
"""For stories that memory has no part in: nothing happens in them but for turns."""


class Desk:
    """Tenants are named by small letters, devices by capital ones, clients by numbers."""

    def __init__(
        self,
        settings: SchedulerSettings | None = None,
        *,
        devices: str = "AB",
        recovering_until_s: float | None = None,
    ) -> None:
        self.now_s = 100.0
        self.scheduler = Scheduler(settings or TURNS_ALONE, recovering_until_s=recovering_until_s)
        self.last: list[Command] = []
        self.turns: dict[int, TurnId] = {}
        """The turn that each client was granted last."""
        self.wake_at_s: float | None = None
        self._clients = 0
        for device in devices:
            self.find_device(8000, device)

    def do(self, event: ev.Event, *, after_s: float = 0.0) -> list[Command]:
        """One event, `after_s` later than the last."""
        self.now_s += after_s
        self.last = []
        for step in self.scheduler.steps(event, now_s=self.now_s):
            self.last += step
            assert not self.all(ReportFailure), self.last
            self.scheduler.check_invariants()
        for command in self.last:
            if isinstance(command, GrantTurn):
                self.turns[command.client] = command.turn
            elif isinstance(command, WakeAt):
                self.wake_at_s = command.at_s
        return self.last

    def sleep_until_woken(self) -> list[Command]:
        """Let the time come that the core has asked for."""
        assert self.wake_at_s is not None
        self.now_s = max(self.now_s, self.wake_at_s)
        self.wake_at_s = None
        return self.do(ev.ClockTicked())

    # ---- events ------------------------------------------------------------------------------

    def tenant(
        self, name: str, *, cap_bytes: int = 0, owner: str = "me", asked_class: str = ""
    ) -> TenantId:
        self.do(
            ev.TenantRegistered(
                tenant=TenantId(name),
                name=f"notebook {name}",
                owner=owner,
                kind="kernel",
                cap_bytes=cap_bytes,
                asked_class=asked_class,
            )
        )
        return TenantId(name)

    def client(self, tenant: str, devices: str = "A", *, held_turn: int = 0) -> ClientId:
        """A process of the tenant (registered if need be) that has opened these devices."""
        if tenant not in {t.id for t in self.scheduler.snapshot(self.now_s).tenants}:
            self.tenant(tenant)
        self._clients += 1
        client = ClientId(self._clients)
        self.turns[client] = TurnId(held_turn)
        self.do(
            ev.ClientJoined(
                client=client,
                tenant=TenantId(tenant),
                pid=1000 + client,
                process_name="python",
                held_turn=TurnId(held_turn) if held_turn else None,
            )
        )
        for device in devices:
            self.open(client, device)
        return client

    def open(self, client: ClientId, device: str) -> list[Command]:
        return self.do(ev.DeviceOpened(client=client, device=DeviceId(device)))

    def find_device(self, bytes_total: int, device: str = "A") -> list[Command]:
        name = f"GPU {device}"
        return self.do(ev.DeviceFound(device=DeviceId(device), name=name, bytes_total=bytes_total))

    def fail(self, client: ClientId, device: str = "A") -> list[Command]:
        """A sticky error."""
        return self.do(ev.ContextFailed(client=client, device=DeviceId(device), cu_result=700))

    def close(self, client: ClientId, device: str) -> list[Command]:
        return self.do(ev.DeviceClosed(client=client, device=DeviceId(device)))

    def ask(self, client: ClientId, *, after_s: float = 0.0) -> list[Command]:
        return self.do(ev.TurnRequested(client=client, cause="cuLaunchKernel"), after_s=after_s)

    def withdraw(self, client: ClientId, *, after_s: float = 0.0) -> list[Command]:
        return self.do(ev.RequestWithdrawn(client=client), after_s=after_s)

    def drop(
        self,
        client: ClientId,
        reason: ev.DropReason = ev.DropReason.CELL_END,
        *,
        turn: int | None = None,
        after_s: float = 0.0,
    ) -> list[Command]:
        """Give a turn back: the last one that the client was granted, unless told otherwise."""
        given = self.turns[client] if turn is None else TurnId(turn)
        return self.do(ev.TurnDropped(client=client, turn=given, reason=reason), after_s=after_s)

    def hold(self, client: ClientId, hold_s: float, *, after_s: float = 0.0) -> list[Command]:
        return self.do(ev.HoldRequested(client=client, hold_s=hold_s), after_s=after_s)

    def give_away(self, client: ClientId) -> list[Command]:
        return self.do(ev.TurnGivenAway(client=client, cause="released in the notebook"))

    def stall(self, client: ClientId, *, calls_waiting: int = 0) -> list[Command]:
        return self.do(
            ev.DrainStalled(client=client, turn=self.turns[client], calls_waiting=calls_waiting)
        )

    def lose(self, client: ClientId) -> list[Command]:
        return self.do(ev.ClientLost(client=client))

    def set(self, **changes: object) -> list[Command]:
        settings = self.scheduler.settings.replace(**changes)
        return self.do(ev.SettingsChanged(settings=settings))

    def turns_on(self, on: bool) -> list[Command]:
        return self.set(turns=TurnTaking.ON if on else TurnTaking.OFF)

    # ---- what came of it ---------------------------------------------------------------------

    def all(self, kind: type[C]) -> list[C]:
        """The commands of this kind that the last event led to."""
        return [command for command in self.last if isinstance(command, kind)]

    def granted(self) -> list[int]:
        return [command.client for command in self.all(GrantTurn)]

    def recalled(self) -> list[int]:
        return [command.client for command in self.all(RecallTurn)]

    def reopened(self) -> list[int]:
        return [command.client for command in self.all(ReopenGate)]

    def holds_told(self) -> dict[int, float]:
        """How long each client was told that its turn is kept by hand."""
        return {command.client: command.left_s for command in self.all(TellHold)}

    def positions(self) -> dict[int, tuple[int, str]]:
        return {c.client: (c.position, c.holder) for c in self.all(TellQueuePosition)}

    def device(self, name: str = "A") -> DeviceSnapshot:
        snapshot = self.scheduler.snapshot(self.now_s)
        return next(device for device in snapshot.devices if device.id == name)

    def holders(self, device: str = "A") -> list[str]:
        return [holder.tenant for holder in self.device(device).holders]

    def queue(self, device: str = "A") -> list[str]:
        return [waiter.tenant for waiter in self.device(device).queue]

    def status(self, tenant: str) -> TenantSnapshot:
        snapshot = self.scheduler.snapshot(self.now_s)
        return next(each for each in snapshot.tenants if each.id == tenant)
