"""A model of the hook, for tests of the core: a process with a gate that talks over slow lines.

What the scheduler says lies in `inbox` until the test delivers it; what the process says lies in
`outbox` until the test lets it arrive. So every crossing of messages that can happen does.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    CancelWait,
    Command,
    GrantTurn,
    RecallTurn,
    ReopenGate,
    TellHold,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId, TurnId


class Gate(enum.Enum):
    """SHUT: nothing in flight. DRAINING: shut, with work in flight."""

    SHUT = "shut"
    OPEN = "open"
    DRAINING = "draining"


@dataclass(eq=False)
class ModelClient:
    """Truth about one process. It is honest: it uses the GPU with its turn alone."""

    id: ClientId
    tenant: TenantId
    pid: int = 0
    """The number of its first connection."""
    devices: set[DeviceId] = field(default_factory=set)
    failed: set[DeviceId] = field(default_factory=set)
    gate: Gate = Gate.SHUT
    turn: TurnId | None = None
    calls_wait: bool = False
    asked: bool = False
    held_by_hand: bool = False
    closed: bool = False
    settled: bool = True
    """Its gate was opened with the scheduler's knowledge of all its devices, and with turns on."""
    inbox: deque[Command] = field(default_factory=deque)
    outbox: deque[ev.ClientEvent] = field(default_factory=deque)

    @property
    def may_run_on(self) -> set[DeviceId]:
        """Devices on which work of this process can be in flight at this moment."""
        return set() if self.gate is Gate.SHUT else self.devices - self.failed

    # ---- what the user's code does -----------------------------------------------------------

    def call(self) -> None:
        """A gated call: goes through, or waits and asks once."""
        if self.gate is Gate.OPEN:
            return
        self.calls_wait = True
        if not self.asked and self.gate is Gate.SHUT:
            self._ask()

    def give_up(self) -> None:
        """The waiting calls are cancelled."""
        self.calls_wait = False
        if self.asked:
            self.asked = False
            self.outbox.append(ev.RequestWithdrawn(client=self.id))

    def open_device(self, device: DeviceId) -> None:
        self.devices.add(device)
        self.settled = False
        self.outbox.append(ev.DeviceOpened(client=self.id, device=device))

    def close_device(self, device: DeviceId) -> None:
        self.devices.discard(device)
        self.failed.discard(device)
        self.outbox.append(ev.DeviceClosed(client=self.id, device=device))

    def fail(self, device: DeviceId) -> None:
        """A sticky error: nothing runs there any more; the turn is given back."""
        self.failed.add(device)
        self.outbox.append(ev.ContextFailed(client=self.id, device=device, cu_result=710))
        if self.gate is not Gate.SHUT:
            self._drop(ev.DropReason.CONTEXT_FAILED)

    def end_cell(self) -> None:
        """The cell ended and the device is drained. A turn that is kept by hand stays."""
        if self.gate is Gate.OPEN and not self.held_by_hand:
            self._drop(ev.DropReason.CELL_END)

    def hold(self, hold_s: float) -> None:
        """`%gpushare hold`"""
        self.outbox.append(ev.HoldRequested(client=self.id, hold_s=hold_s))

    def give_away(self) -> None:
        """`%gpushare release`"""
        self.outbox.append(ev.TurnGivenAway(client=self.id))

    def finish_drain(self) -> None:
        if self.gate is Gate.DRAINING:
            self._drop(ev.DropReason.RECALL)

    def stall_drain(self) -> None:
        if self.gate is Gate.DRAINING and self.turn is not None:
            self.outbox.append(
                ev.DrainStalled(client=self.id, turn=self.turn, calls_waiting=int(self.calls_wait))
            )

    def connect_again(self, client: ClientId) -> None:
        """The connection has ended and another one begins, under another number: the process says
        what it has. What was under way is lost."""
        self.id, self.pid = client, self.pid or client
        self.inbox.clear()
        self.outbox.clear()
        self.asked = self.calls_wait and self.gate is Gate.SHUT
        self.held_by_hand = self.settled = False
        self.outbox.append(
            ev.ClientJoined(
                client=client,
                tenant=self.tenant,
                pid=self.pid,
                process_name="python",
                held_turn=self.turn,
            )
        )
        for device in sorted(self.devices):
            self.outbox.append(ev.DeviceOpened(client=client, device=device))
        for device in sorted(self.failed):
            self.outbox.append(ev.ContextFailed(client=client, device=device, cu_result=710))
        if self.asked:
            self._ask()

    def lose_turn(self) -> None:
        """Its connection was refused."""
        if self.gate is not Gate.SHUT:
            self._drop(ev.DropReason.RECALL)

    def _ask(self) -> None:
        self.asked = True
        self.outbox.append(ev.TurnRequested(client=self.id))

    def _drop(self, reason: ev.DropReason) -> None:
        assert self.turn is not None
        self.outbox.append(ev.TurnDropped(client=self.id, turn=self.turn, reason=reason))
        self.gate, self.turn = Gate.SHUT, None
        self.settled = not any(isinstance(said, ev.DeviceOpened) for said in self.outbox)
        if self.calls_wait and not self.asked:
            self._ask()

    # ---- what it makes of the scheduler's words ----------------------------------------------

    def take_in(self, command: Command) -> None:
        match command:
            case GrantTurn(turn=turn) if self.gate is Gate.OPEN:
                self.turn, self.asked = turn, False  # told again
            case GrantTurn(turn=turn) if self.gate is not Gate.DRAINING:
                self.gate, self.turn = Gate.OPEN, turn
                self.asked = False
                if not self.calls_wait:
                    self._drop(ev.DropReason.IDLE)  # it had been withdrawn
                self.calls_wait = False
            case RecallTurn(turn=turn) if self.gate is Gate.OPEN and turn == self.turn:
                self.gate = Gate.DRAINING
            case ReopenGate(turn=turn) if self.gate is Gate.DRAINING and turn == self.turn:
                self.gate = Gate.OPEN
                self.calls_wait = self.asked = False
            case CancelWait():
                self.give_up()
            case TellHold(left_s=left_s):
                self.held_by_hand = left_s > 0
            case _:
                pass
