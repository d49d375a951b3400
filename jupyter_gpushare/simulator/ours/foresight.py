"""What the scheduler tells those who wait, beside what comes of it.

A person looks when a cell does not start at once. So a notebook is told once in each wait, after
`LOOKS_AFTER_S`; a wait that has ended by then is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.core.ids import ClientId, Seconds
from jupyter_gpushare.core.shown.waits import Estimate

from ..base.loop import Loop, Planned
from ..base.record import Foretold

LOOKS_AFTER_S: Seconds = 1.0


class Foresight:
    """`estimate` is the scheduler's, of a notebook that waits."""

    def __init__(self, loop: Loop, estimate: Callable[[ClientId], Estimate | None]) -> None:
        self.foretold: list[Foretold] = []
        self._loop = loop
        self._estimate = estimate
        self._looks: dict[ClientId, Planned] = {}
        self._told: dict[ClientId, tuple[Seconds, Estimate]] = {}

    def waits(self, client: ClientId) -> None:
        """From now on."""
        self.gives_up(client)
        self._looks[client] = self._loop.after(LOOKS_AFTER_S, lambda: self._look(client))

    def gives_up(self, client: ClientId) -> None:
        """It waits no more."""
        self._told.pop(client, None)
        if (alarm := self._looks.pop(client, None)) is not None:
            alarm.cancel()

    def begins(self, client: ClientId) -> None:
        """Its turn."""
        told = self._told.get(client)
        self.gives_up(client)
        if told is not None:
            at_s, estimate = told
            self.foretold.append(
                Foretold(
                    reason=estimate.reason.value,
                    earliest_s=estimate.earliest_s if estimate.known else None,
                    latest_s=estimate.latest_s if estimate.known else None,
                    full_s=estimate.full_s,
                    began_s=self._loop.now_s - at_s,
                )
            )

    def _look(self, client: ClientId) -> None:
        del self._looks[client]
        estimate = self._estimate(client)
        if estimate is not None:
            self._told[client] = self._loop.now_s, estimate
