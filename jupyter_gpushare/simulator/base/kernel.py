"""A simulated kernel: its cells one after another, and the work of the one that runs.

A policy says when that work may go on, and how fast. The kernel knows nothing of who decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from jupyter_gpushare.core.ids import Seconds

from .loop import Loop, Planned
from .record import Kind, Record
from .workload import Cell, Notebook

_EPSILON_S = 1e-9


class Policy(Protocol):
    """Who may use the devices of one node."""

    def opened(self, kernel: Kernel) -> None:
        """Before its first cell."""

    def wants(self, kernel: Kernel) -> None:
        """A cell began, and needs the device."""

    def ended(self, kernel: Kernel) -> None:
        """That cell has ended. The next one may begin at the same moment."""

    def closed(self, kernel: Kernel) -> None:
        """It is gone, with its memory."""


class Kernel:
    """`number` counts the notebooks, and `device` the devices of all nodes. `cells` is how many it
    will have run when it closes."""

    def __init__(
        self,
        number: int,
        notebook: Notebook,
        device: int,
        *,
        cells: int,
        loop: Loop,
        record: Record,
        finished: Callable[[], None],
    ) -> None:
        self.number = number
        self.notebook = notebook
        self.device = device
        self.policy: Policy | None = None
        self.is_closed = False
        self._loop = loop
        self._record = record
        self._finished = finished
        self._cells_left = cells
        self._cells: deque[tuple[int, Cell]] = deque()
        self._running: int | None = None
        self._left_s: Seconds = 0.0
        self.hold_s: Seconds = 0.0
        """Of the cell that runs."""
        self._alarm: Planned | None = None
        self._since_s: Seconds = 0.0
        self._waits_since_s: Seconds = 0.0
        self._speed = 1.0
        self._share = 1.0
        self._closes = False

    @property
    def runs(self) -> bool:
        """Whether a cell has begun and not ended."""
        return self._running is not None

    @property
    def works(self) -> bool:
        """Whether its work goes on at this moment."""
        return self._alarm is not None

    @property
    def left_s(self) -> Seconds:
        """Work of its cell that is not done."""
        done_s = (self._loop.now_s - self._since_s) * self._speed if self.works else 0.0
        return max(self._left_s - done_s, 0.0)

    def send(self, number: int, cell: Cell) -> None:
        """A person runs a cell."""
        self._cells.append((number, cell))
        if self._running is None:
            self._begin_next()

    def close(self) -> None:
        """At once, or when all its cells have ended."""
        self._closes = True
        self._close_if_done()

    def go(self, *, speed: float = 1.0, share: float = 1.0) -> None:
        """The cell's work goes on: so many seconds of it in a second, on so much of the device."""
        if self._running is None:
            return
        if self.works:
            if (speed, share) == (self._speed, self._share):
                return
            self._note_work()
        else:
            self._note(Kind.WAIT, self._waits_since_s)
        self._speed, self._share = speed, share
        self._since_s = self._loop.now_s
        self._alarm = self._loop.after(self._left_s / speed, self._end)

    def pause(self) -> None:
        """The cell's work does not go on."""
        if self.works:
            self._note_work()
            self._waits_since_s = self._loop.now_s

    def loads(self) -> None:
        """Its wait is over, and its memory begins to come."""
        if self.runs and not self.works:
            self._note(Kind.WAIT, self._waits_since_s)
            self._waits_since_s = self._loop.now_s

    def loaded(self, kind: Kind = Kind.SWAP) -> None:
        """Its memory has come, or it has lost the device before that. HELD: none had to come."""
        if self.runs and not self.works:
            self._note(kind, self._waits_since_s)
            self._waits_since_s = self._loop.now_s

    def fail(self) -> None:
        """The cell ends with an error, without its work."""
        if self._running is not None:
            self._record.failed += 1
            self._end()

    def held(self, since_s: Seconds) -> None:
        """It has had the device since then without a cell."""
        self._note(Kind.HELD, since_s)

    # ---- single steps ------------------------------------------------------------------------

    def _begin_next(self) -> None:
        self._running, cell = self._cells.popleft()
        self._left_s, self.hold_s = cell.work_s, cell.hold_s
        self._waits_since_s = self._loop.now_s
        assert self.policy is not None
        self.policy.wants(self)

    def _end(self) -> None:
        assert self._running is not None and self.policy is not None
        if self.works:
            self._note_work()
        self._record.ends_s[self._running] = self._loop.now_s
        self._running = None
        self._cells_left -= 1
        self._finished()
        self.policy.ended(self)
        if self._cells:
            self._begin_next()
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._closes and not self._cells_left and not self.is_closed:
            self.is_closed = True
            assert self.policy is not None
            self.policy.closed(self)

    def _note_work(self) -> None:
        assert self._alarm is not None
        self._alarm.cancel()
        self._alarm = None
        done_s = (self._loop.now_s - self._since_s) * self._speed
        self._left_s = max(self._left_s - done_s, _EPSILON_S)
        self._note(Kind.WORK, self._since_s, self._share)

    def _note(self, kind: Kind, since_s: Seconds, share: float = 1.0) -> None:
        self._record.add(self.device, self.number, kind, since_s, self._loop.now_s, share)
