"""How much somebody may send. Pure: each call is given the time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """So many things a second in the long run, and `most` of them at once."""

    per_s: float
    most: float
    spent: float = 0.0
    at_s: float = 0.0

    def takes(self, amount: float, now_s: float) -> bool:
        """Whether so many more may come; then they count."""
        self._pass(now_s)
        if self.spent + amount > self.most:
            return False
        self.spent += amount
        return True

    def is_unspent(self, now_s: float) -> bool:
        """As one that is made anew: it need not be kept."""
        self._pass(now_s)
        return self.spent == 0.0

    def _pass(self, now_s: float) -> None:
        self.spent = max(0.0, self.spent - max(0.0, now_s - self.at_s) * self.per_s)
        self.at_s = now_s
