"""The memory of one simulated process on its device, as the hook keeps it (decision 0007).

Nothing is created beyond the budget or without the turn. What is beyond the budget is parked when
there is no turn. What is parked comes back as far as the budget reaches, with the turn or ahead of
it (decision 0017). What came ahead leaves again without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpushare.core.ledger import UNLIMITED_BYTES


@dataclass(slots=True)
class HookMemory:
    """`need` is what a call waits for; each call has a number of its own."""

    allocated: int = 0
    parked: int = 0
    budget: int = 0
    serial: int = 0
    ahead: int = 0
    """Of what is resident, what came ahead of a turn."""
    need: int = 0
    calls: int = 0

    @property
    def resident(self) -> int:
        return self.allocated - self.parked

    @property
    def fits_now(self) -> bool:
        """Whether what a call waits for lies within the budget."""
        return self.resident + self.need <= self.budget

    def begin_need(self, count: int) -> None:
        self.need = count
        self.calls += 1

    def take(self) -> None:
        """What a call waited for is allocated."""
        self.allocated += self.need
        self.need = 0

    def to_restore(self, step: int) -> int:
        """Bytes that may come back next."""
        return max(0, min(step, self.parked, self.budget - self.resident))

    def to_bring_ahead(self, step: int) -> int:
        """Likewise, without a turn: a process without a limit brings nothing."""
        return self.to_restore(step) if self.budget < UNLIMITED_BYTES else 0

    def to_park(self, step: int) -> int:
        """Bytes that are to leave next."""
        return max(0, min(step, self.resident - self.budget))
