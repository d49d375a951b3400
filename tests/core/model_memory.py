"""A model of the hook's memory, for tests of the core: what a process really has on its devices.

It keeps to decision 0007: nothing is created beyond the budget or without the turn; what is beyond
the budget is parked when there is no turn; what is parked is restored when there is one, as far as
the budget reaches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Command, GrantTurn, TellBudget, TellRoom
from jupyter_gpushare.core.ids import DeviceId

from .model_client import Gate, ModelClient


@dataclass
class ModelMemory:
    """Truth about one process on one device."""

    allocated: int = 0
    parked: int = 0
    fixed: int = 0
    host_room: int = 20_000
    budget: int = 0
    serial: int = 0
    need: int = 0
    """A call waits for so much."""

    @property
    def resident(self) -> int:
        return self.allocated - self.parked


@dataclass(eq=False)
class MemoryClient(ModelClient):
    """A process with memory. `hangs`: its mover does not move anything."""

    memory: dict[DeviceId, ModelMemory] = field(default_factory=dict)
    hangs: bool = False
    keeps_need: bool = False
    """When it loses its turn while a call waits for memory, it goes on asking for it."""
    refused: int = 0
    rooms_answered: int = 0

    # ---- what the user's code does -----------------------------------------------------------

    def open_device(self, device: DeviceId) -> None:
        self.memory.setdefault(device, ModelMemory())
        super().open_device(device)

    def close_device(self, device: DeviceId) -> None:
        if device in self.memory:
            del self.memory[device]
            super().close_device(device)

    @property
    def restores(self) -> bool:
        """Its gate is to open when all its memory is back."""
        return self.gate is Gate.OPEN and any(
            memory.parked for device, memory in self.memory.items() if device not in self.failed
        )

    @property
    def waits_for_memory(self) -> bool:
        """A call of it does."""
        return any(memory.need for memory in self.memory.values())

    def allocate(self, device: DeviceId, count: int, *, fixed: bool = False) -> None:
        """A call that the gate lets through; the driver itself refuses where a context failed."""
        memory = self.memory.get(device)
        if memory is None or self.gate is not Gate.OPEN or self.restores or device in self.failed:
            return
        memory.need = count
        if fixed and memory.resident + count <= memory.budget:
            memory.fixed += count
        self._create_or_ask(device)

    def free(self, device: DeviceId, count: int) -> None:
        """At any time; what is parked goes first, what is fixed last."""
        memory = self.memory.get(device)
        if memory is None:
            return
        count = min(count, memory.allocated)
        from_parked = min(count, memory.parked)
        memory.allocated -= count
        memory.parked -= from_parked
        memory.host_room += from_parked
        memory.fixed = min(memory.fixed, memory.resident)
        self.report(device)

    def ask_room(self, device: DeviceId, count: int) -> None:
        self.outbox.append(ev.RoomRequested(client=self.id, device=device, bytes_wanted=count))

    def finds_memory_short(self) -> None:
        """The driver has no memory although the budget has: the turn goes back."""
        if self.restores and not self.held_by_hand:
            self._drop(ev.DropReason.MEMORY_SHORT)

    # ---- the mover ---------------------------------------------------------------------------

    def move(self, count: int) -> None:
        """Some bytes in the direction that is due, on each device."""
        if self.hangs:
            return
        for device, memory in self.memory.items():
            if device in self.failed:
                continue
            if self.gate is Gate.OPEN:
                moved = -min(count, memory.parked, max(0, memory.budget - memory.resident))
            elif self.gate is Gate.SHUT:
                movable = min(memory.resident - memory.fixed, memory.host_room)
                moved = max(0, min(count, memory.resident - memory.budget, movable))
            else:
                moved = 0
            if moved:
                memory.parked += moved
                memory.host_room -= moved
                self.report(device)
        self._look_again()

    # ---- what is said ------------------------------------------------------------------------

    def report(self, device: DeviceId) -> None:
        memory = self.memory[device]
        self.outbox.append(
            ev.MemoryReported(
                client=self.id,
                device=device,
                bytes_allocated=memory.allocated,
                bytes_parked=memory.parked,
                bytes_fixed=memory.fixed,
                bytes_host_room=memory.host_room,
                budget_serial=memory.serial,
            )
        )

    def say_need(self, device: DeviceId) -> None:
        need = self.memory[device].need
        self.outbox.append(ev.MemoryNeeded(client=self.id, device=device, bytes_needed=need))

    def _drop(self, reason: ev.DropReason) -> None:
        if self.restores:
            self.calls_wait = True  # it has not been let through
        for device, memory in self.memory.items():
            self.report(device)
            memory.budget = memory.resident
            if memory.need and self.keeps_need:
                self.calls_wait = True
            elif memory.need:
                memory.need = 0
                self.say_need(device)
        super()._drop(reason)

    def take_in(self, command: Command) -> None:
        if isinstance(command, TellBudget):
            self._take_budget(command)
        elif isinstance(command, TellRoom):
            self.rooms_answered += 1
        else:
            super().take_in(command)
            if isinstance(command, GrantTurn):
                self._look_again()

    def _look_again(self) -> None:
        """The gate is open: calls that waited for memory before try once more."""
        for device, memory in self.memory.items():
            if memory.need and self.gate is Gate.OPEN and not self.restores:
                self._create_or_ask(device)

    def _create_or_ask(self, device: DeviceId) -> None:
        memory = self.memory[device]
        if memory.resident + memory.need <= memory.budget:
            memory.allocated += memory.need
            memory.need = 0
            self.report(device)
        else:
            self.say_need(device)

    def _take_budget(self, command: TellBudget) -> None:
        memory = self.memory.get(command.device)
        if memory is None:
            return
        memory.budget, memory.serial = command.budget_bytes, command.serial
        self.report(command.device)
        if memory.need and command.refused:
            self.refused += 1
            memory.need = 0
        elif memory.need and memory.resident + memory.need <= memory.budget:
            self._look_again()
