"""A simulated hook: one process with a gate, which answers the scheduler as the real hook does.

It asks for a turn when a cell needs the device, restores parked memory before the first launch,
drains when its turn is recalled, gives the turn back when its cell ends, and parks memory beyond
its budget. The commands and events are those of production.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    Command,
    GrantTurn,
    RecallTurn,
    ReopenGate,
    TellBudget,
    TellContention,
    TellHold,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, Seconds, TurnId

from ..base.hardware import Hardware
from ..base.kernel import Kernel
from ..base.loop import Loop, Planned
from ..base.record import Kind
from .hook_memory import HookMemory


class Gate(enum.Enum):
    """DRAINING: shut, with work in flight."""

    SHUT = "shut"
    OPEN = "open"
    DRAINING = "draining"


class SimulatedHook:
    """`submit` takes events to the scheduler; `idle_s` tells after how long without work the turn
    of a program is idle."""

    def __init__(
        self,
        client: ClientId,
        device: DeviceId,
        kernel: Kernel,
        *,
        loop: Loop,
        hardware: Hardware,
        submit: Callable[[ev.Event], None],
        idle_s: Callable[[], Seconds],
    ) -> None:
        self.client = client
        self.kernel = kernel
        self.memory = HookMemory()
        self.gate = Gate.SHUT
        self._device = device
        self._loop = loop
        self._hardware = hardware
        self._submit = submit
        self._idle_s = idle_s
        self._turn: TurnId | None = None
        self._asked = False
        self._ready_s: Seconds = 0.0
        """When the first launch after a grant goes through."""
        self._held_since_s: Seconds | None = None
        """Since when the turn is kept without a cell."""
        self._waiters = 0
        self._told_idle_ms = 0
        self._is_kept = False
        """By hand: the turn outlasts its cell."""
        self._lacked_memory = False
        """In the present turn."""
        self._moving: Planned | None = None
        self._alarm: Planned | None = None

    # ---- what the kernel does ----------------------------------------------------------------

    def wants(self) -> None:
        """A cell begins with a call to the device."""
        self._note_held()
        if not self.kernel.notebook.is_program:
            self._submit(ev.CellBegan(client=self.client, cause="cell"))
        if self.kernel.hold_s:
            wish = ev.HoldRequested(client=self.client, hold_s=self.kernel.hold_s, cause="cell")
            self._submit(wish)
        if self.gate is Gate.OPEN:
            self._go_on()
        else:
            self._ask()

    def ended(self) -> None:
        """The cell has ended, and nothing of it is in flight."""
        self._withdraw_need()
        if self.gate is Gate.SHUT:
            self._stop_asking()
        elif self.kernel.notebook.is_program:
            self._held_since_s = self._loop.now_s
            self._look_at_idleness()
        if not self.kernel.notebook.is_program:
            self._submit(ev.CellEnded(client=self.client, cause="cell"))
            if self.gate is Gate.OPEN and self._is_kept:
                self._held_since_s = self._loop.now_s
            elif self.gate is not Gate.SHUT:
                self._drop(ev.DropReason.CELL_END)

    def closed(self) -> None:
        """The process is gone."""
        self._note_held()
        for alarm in (self._moving, self._alarm):
            if alarm is not None:
                alarm.cancel()
        self.gate = Gate.SHUT

    # ---- what the scheduler says -------------------------------------------------------------

    def hear(self, command: Command) -> None:
        match command:
            case GrantTurn(turn=turn, waiters=waiters):
                self._waiters = waiters
                self._granted(turn)
            case RecallTurn(turn=turn) if self.gate is Gate.OPEN and turn == self._turn:
                self._drain()
            case ReopenGate(turn=turn) if self.gate is Gate.DRAINING and turn == self._turn:
                self.gate = Gate.OPEN
                self._go_on()
            case TellBudget():
                self._take_budget(command)
            case TellContention(waiters=waiters, idle_ms=idle_ms):
                self._waiters, self._told_idle_ms = waiters, idle_ms
                self._look_at_idleness()
            case TellHold(left_s=left_s):
                self._is_kept = left_s > 0
                if not self._is_kept and self._held_since_s is not None:
                    self._drop(ev.DropReason.CELL_END)
            case _:
                pass

    def _granted(self, turn: TurnId) -> None:
        self._turn, self._asked = turn, False
        if self.gate is Gate.SHUT:
            self.gate, self._lacked_memory = Gate.OPEN, self.memory.parked > 0
            self.memory.ahead = 0
            self._ready_s = self._loop.now_s + self._hardware.hand_over_s
            self.kernel.loads()
            if not self.kernel.runs:
                self._drop(ev.DropReason.IDLE)
                return
            self._alarm = self._loop.at(self._ready_s, self._go_on)

    def _take_budget(self, command: TellBudget) -> None:
        memory = self.memory
        memory.budget, memory.serial = command.budget_bytes, command.serial
        self._report()
        if memory.need and command.refused_need == memory.calls:
            memory.need = 0
            self.kernel.fail()
        self._go_on()

    # ---- turns -------------------------------------------------------------------------------

    def _ask(self) -> None:
        if self.gate is Gate.SHUT and not self._asked:
            self._asked = True
            self._submit(ev.TurnRequested(client=self.client, cause="launch"))

    def _stop_asking(self) -> None:
        if self._asked:
            self._asked = False
            self._submit(ev.RequestWithdrawn(client=self.client, cause="cell"))

    def _go_on(self) -> None:
        """Whatever is due: memory moves, or work goes on."""
        if self._moving is not None:
            return
        memory = self.memory
        if self.gate is Gate.SHUT:
            step = self._hardware.move_step_bytes
            self._move(memory.to_bring_ahead(step) - memory.to_park(step))
        elif self.gate is Gate.OPEN and self._loop.now_s >= self._ready_s:
            if memory.parked:
                self._move(memory.to_restore(self._hardware.move_step_bytes))
            elif self.kernel.runs and self._has_all_memory():
                self._note_load()
                self.kernel.go()

    def _drain(self) -> None:
        """Work in flight goes on until it is done; a turn without any goes back at once."""
        self.gate = Gate.DRAINING
        if self.kernel.works:
            self._alarm = self._loop.after(self._hardware.drain_s, self._drained)
        else:
            self._drained()

    def _drained(self) -> None:
        if self.gate is Gate.DRAINING:
            self._drop(ev.DropReason.RECALL)

    def _drop(self, reason: ev.DropReason) -> None:
        assert self._turn is not None
        if self._alarm is not None:
            self._alarm.cancel()
        self._note_held()
        self._note_load()
        self.kernel.pause()
        self._report()
        self.memory.budget = self.memory.resident
        self._withdraw_need()
        turn, self._turn, self.gate = self._turn, None, Gate.SHUT
        self._submit(ev.TurnDropped(client=self.client, turn=turn, reason=reason, cause="gate"))
        if self.kernel.runs:
            self._ask()

    def _look_at_idleness(self) -> None:
        """A program gives its turn back when it has not worked for long while others wait."""
        if self._held_since_s is None or self.gate is not Gate.OPEN:
            return
        if self._is_kept or not self._waiters:
            return
        idle_s = self._told_idle_ms / 1000 if self._told_idle_ms else self._idle_s()
        idle_at_s = self._held_since_s + idle_s
        if self._loop.now_s >= idle_at_s:
            self._drop(ev.DropReason.IDLE)
        else:
            self._alarm = self._loop.at(idle_at_s, self._look_at_idleness)

    def _note_load(self) -> None:
        self.kernel.loaded(Kind.SWAP if self._lacked_memory else Kind.HELD)

    def _note_held(self) -> None:
        if self._held_since_s is not None:
            self.kernel.held(self._held_since_s)
            self._held_since_s = None

    # ---- memory ------------------------------------------------------------------------------

    def _has_all_memory(self) -> bool:
        """The first cell allocates what the notebook uses; until it has that, it waits."""
        memory = self.memory
        if not memory.need and memory.allocated < self.kernel.notebook.bytes_used:
            memory.begin_need(self.kernel.notebook.bytes_used - memory.allocated)
            if not memory.fits_now:
                self._lacked_memory = True
                self._say_need()
        if memory.need and memory.fits_now:
            memory.take()
            self._report()
            self._say_need()
        return not memory.need

    def _withdraw_need(self) -> None:
        if self.memory.need:
            self.memory.need = 0
            self._say_need()

    def _move(self, count: int) -> None:
        """To the device, or away from it (negative), in its time."""
        if not count:
            return
        hardware, memory = self._hardware, self.memory
        rate = hardware.restore_bytes_per_s if count > 0 else hardware.park_bytes_per_s
        copied = count if count > 0 else min(0, count + memory.ahead)

        def moved() -> None:
            self._moving = None
            memory.parked -= count
            memory.ahead = max(0, memory.ahead + count) if self.gate is Gate.SHUT else 0
            self._report()
            self._go_on()

        self._moving = self._loop.after(abs(copied) / rate, moved)

    def _report(self) -> None:
        memory = self.memory
        self._submit(
            ev.MemoryReported(
                client=self.client,
                device=self._device,
                bytes_allocated=memory.allocated,
                bytes_parked=memory.parked,
                bytes_fixed=0,
                bytes_parkable=memory.resident,
                budget_serial=memory.serial,
                cause="memory",
            )
        )

    def _say_need(self) -> None:
        memory = self.memory
        self._submit(
            ev.MemoryNeeded(
                client=self.client,
                device=self._device,
                bytes_needed=memory.need,
                need_id=memory.calls if memory.need else 0,
                cause="memory",
            )
        )
