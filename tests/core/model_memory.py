"""A model of the hook's memory, for tests of the core: what a process really has on its devices.

It keeps to decision 0007: nothing is created beyond the budget or without the turn; what is beyond
the budget is parked when there is no turn; what is parked is restored when there is one, and ahead
of it, as far as the budget reaches and if it says so. And to decision 0033: without a turn the host
gets copies if the budget says so, of what would have to leave; all are given up before a turn
begins to run.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Ahead, Command, TellBudget, TellSpace
from jupyter_gpushare.core.ids import ClientId, DeviceId

from .model_client import Gate, ModelClient


@dataclass
class ModelMemory:
    """Truth about one process on one device."""

    allocated: int = 0
    parked: int = 0
    fixed: int = 0
    parkable: int = 20_000
    budget: int = 0
    serial: int = 0
    hint: int = 0
    ahead: Ahead = Ahead.NOTHING
    copied: int = 0
    """On the device and in host memory."""
    need: int = 0
    """A call waits for so much."""
    calls: int = 0
    """That have allocated: tells one need from the next."""
    told_need: tuple[int, int] = (0, 0)
    """The call whose need was told last (0: none), and what was on the device then."""

    @property
    def resident(self) -> int:
        return self.allocated - self.parked

    @property
    def to_copy(self) -> int:
        """Without a turn: what would have to leave, and has no copy yet."""
        movable = min(self.resident - self.fixed, self.parkable)
        return max(0, min(self.hint - self.parked, movable) - self.copied)


@dataclass(eq=False)
class MemoryClient(ModelClient):
    """A process with memory. `hangs`: its mover does not move anything. `lost`: devices where the
    driver fails every copy, as long as they are in here."""

    memory: dict[DeviceId, ModelMemory] = field(default_factory=dict)
    lost: AbstractSet[DeviceId] = frozenset()
    hangs: bool = False
    keeps_need: bool = False
    """When it loses its turn while a call waits for memory, it goes on asking for it."""
    refused: int = 0
    space_answers: int = 0

    # ---- what the user's code does -----------------------------------------------------------

    def open_device(self, device: DeviceId) -> None:
        self.memory.setdefault(device, ModelMemory())
        super().open_device(device)

    def close_device(self, device: DeviceId) -> None:
        if device in self.memory:
            del self.memory[device]
            super().close_device(device)
            self._look_again()

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

    @property
    def is_busy(self) -> bool:
        """It waits for something, or drains."""
        waits = self.calls_wait or self.waits_for_memory or self.restores
        return waits or self.gate is Gate.DRAINING

    def allocate(self, device: DeviceId, count: int, *, fixed: bool = False) -> None:
        """A call that waits for the turn, all memory and its bytes, if need be; the driver itself
        refuses where a context failed, and one call at a time is enough."""
        memory = self.memory.get(device)
        if memory is None or memory.need or device in self.failed:
            return
        memory.need = count
        memory.calls += 1
        fits = memory.resident + count <= memory.budget
        if fixed and fits and self.gate is Gate.OPEN and not self.restores:
            memory.fixed += count
        if self.gate is Gate.OPEN:
            self._look_again()
        else:
            self.call()
        self.say_need(device)

    def give_up(self) -> None:
        """The waiting calls are cancelled, those that wait for memory too."""
        super().give_up()
        for device, memory in self.memory.items():
            memory.need = 0
            self.say_need(device)

    def free(self, device: DeviceId, count: int) -> None:
        """At any time; what is parked goes first, what is fixed last."""
        memory = self.memory.get(device)
        if memory is None:
            return
        count = min(count, memory.allocated)
        from_parked = min(count, memory.parked)
        memory.allocated -= count
        memory.parked -= from_parked
        memory.parkable += from_parked
        memory.fixed = min(memory.fixed, memory.resident)
        memory.copied = min(memory.copied, memory.resident - memory.fixed)
        self.report(device)
        self._look_again()

    def ask_space(self, device: DeviceId, count: int) -> None:
        self.outbox.append(
            ev.SpaceRequested(client=self.id, device=device, bytes_wanted=count, request_id=1)
        )

    def finds_memory_short(self) -> None:
        """The driver has no memory although the budget has: the turn goes back."""
        if self.restores and not self.held_by_hand:
            self._drop(ev.DropReason.MEMORY_SHORT)

    def connect_again(self, client: ClientId) -> None:
        super().connect_again(client)
        for device, memory in self.memory.items():
            memory.budget, memory.serial, memory.told_need = memory.resident, 0, (0, 0)
            memory.ahead = Ahead.NOTHING
            self.report(device)
            self.say_need(device)

    # ---- the mover ---------------------------------------------------------------------------

    def move(self, count: int) -> None:
        """Some bytes in the direction that is due, on each device."""
        if self.hangs:
            return
        for device, memory in self.memory.items():
            if device in self.failed or device in self.lost:
                continue
            if self.gate is Gate.OPEN:
                moved = -min(count, memory.parked, max(0, memory.budget - memory.resident))
            elif self.gate is Gate.SHUT:
                moved = self._without_turn(memory, count)
            else:
                moved = 0
            copies = min(count, self._to_copy(device)) if memory.ahead is Ahead.COPIES else 0
            if moved:
                memory.parked += moved
                memory.parkable -= moved
                memory.copied = max(0, memory.copied - moved)
            elif copies:
                memory.copied += copies
            if moved or copies:
                self.report(device)
        self._look_again()

    def _without_turn(self, memory: ModelMemory, count: int) -> int:
        """What leaves the device, or comes back (negative)."""
        movable = min(memory.resident - memory.fixed, memory.parkable)
        moved = max(0, min(count, memory.resident - memory.budget, movable))
        if memory.resident < memory.budget and memory.ahead is Ahead.RESTORE:
            moved = -min(count, memory.parked, memory.budget - memory.resident)
        return moved

    def _to_copy(self, device: DeviceId) -> int:
        is_idle = self.gate is Gate.SHUT and device not in self.failed
        return self.memory[device].to_copy if is_idle else 0

    def _give_copies_up(self) -> None:
        """The program may write from now on."""
        if self.gate is Gate.OPEN and not self.restores:
            for device, memory in self.memory.items():
                if memory.copied:
                    memory.copied = 0
                    self.report(device)

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
                bytes_parkable=memory.parkable,
                budget_serial=memory.serial,
                bytes_copied=memory.copied,
                bytes_to_copy=self._to_copy(device),
            )
        )

    def say_need(self, device: DeviceId) -> None:
        """If it is another one than that which was told, or counts from something else."""
        memory = self.memory[device]
        now = (memory.calls, memory.resident) if memory.need else (0, 0)
        if now == memory.told_need or (now[0] == memory.told_need[0] == 0):
            return
        memory.told_need = now
        self.outbox.append(
            ev.MemoryNeeded(
                client=self.id, device=device, bytes_needed=memory.need, need_id=memory.calls
            )
        )

    def _drop(self, reason: ev.DropReason) -> None:
        if self.restores and reason is not ev.DropReason.IDLE:
            self.calls_wait = True  # it has not been let through
        for device, memory in self.memory.items():
            self.report(device)
            memory.budget, memory.ahead = memory.resident, Ahead.NOTHING
            if memory.need and self.keeps_need:
                self.calls_wait = True
            elif memory.need:
                memory.need = 0
                self.say_need(device)
        super()._drop(reason)
        for device in self.memory:
            if self._to_copy(device):
                self.report(device)

    def take_in(self, command: Command) -> None:
        if isinstance(command, TellBudget):
            self._take_budget(command)
        elif isinstance(command, TellSpace):
            self.space_answers += 1
        else:
            super().take_in(command)
            self._look_again()

    def _look_again(self) -> None:
        """If the gate is open and all memory is back, calls that wait for memory try once more."""
        self._give_copies_up()
        for device, memory in self.memory.items():
            if memory.need and self.gate is Gate.OPEN and not self.restores:
                if memory.resident + memory.need <= memory.budget:
                    memory.allocated += memory.need
                    memory.need = 0
                    self.report(device)
                self.say_need(device)

    def _take_budget(self, command: TellBudget) -> None:
        memory = self.memory.get(command.device)
        if memory is None:
            return
        memory.budget, memory.serial = command.budget_bytes, command.serial
        memory.hint, memory.ahead = command.park_hint_bytes, command.ahead
        self.report(command.device)
        if memory.need and command.refused_need == memory.calls:
            self.refused += 1
            memory.need = 0
            self.say_need(command.device)
            if self.gate is not Gate.OPEN and not self.waits_for_memory:
                self.give_up()
        else:
            self._look_again()
            self.say_need(command.device)
