"""A model of the hook's mover on a host with little memory: memory in pieces, of which each is on
the device, or in a segment of host memory, or in both.

It keeps to decision 0023: where the host is short, what is back gives its host memory up at once,
and free segments go back to the system. A new segment holds as many pieces like this one as fit
into 64 MiB, and no more than this one where little is left. A piece parks as a whole, or not at
all.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Command, TellBudget
from jupyter_gpushare.core.ids import DeviceId
from tests.core.model_client import Gate, ModelClient

MIB = 1 << 20
SEGMENT = 64 * MIB
LEFT = 2 * SEGMENT
"""What a process leaves to others."""
A = DeviceId("A")
BUSY_LOOK_S, SCARCE_LOOK_S, BUSY_S = 0.02, 1.0, 1.0


@dataclass
class Host:
    """One limit, under which all are."""

    bytes_total: int
    taken: int = 0
    number: int = 7

    @property
    def room(self) -> int:
        return max(0, self.bytes_total - self.taken)


@dataclass(eq=False)
class Segment:
    size: int
    used: int = 0


class Place(enum.Enum):
    DEVICE = "device"
    HOST = "host"
    BOTH = "both"


@dataclass(eq=False)
class Piece:
    size: int
    place: Place = Place.DEVICE
    segment: Segment | None = None
    fixed: bool = False


@dataclass(eq=False)
class HostClient(ModelClient):
    """A process with pieces on one device."""

    host: Host = field(default_factory=lambda: Host(1 << 40))
    pieces: list[Piece] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    budget: int = 0
    serial: int = 0
    need: int = 0
    calls: int = 0
    refused: int = 0
    told: ev.MemoryReported | None = None
    told_need: tuple[int, int] = (0, 0)
    look_at_s: float = 0.0
    busy_until_s: float = 0.0
    now_s: float = 0.0
    moved: int = 0

    # ---- figures -----------------------------------------------------------------------------

    @property
    def allocated(self) -> int:
        return sum(each.size for each in self.pieces)

    @property
    def resident(self) -> int:
        return sum(each.size for each in self.pieces if each.place is not Place.HOST)

    @property
    def parked(self) -> int:
        return self.allocated - self.resident

    @property
    def fixed(self) -> int:
        return sum(each.size for each in self.pieces if each.fixed)

    @property
    def restores(self) -> bool:
        return self.gate is Gate.OPEN and self.parked > 0

    @property
    def is_tight(self) -> bool:
        return self.host.room < LEFT or self.host.room - LEFT < self.parked

    @staticmethod
    def _segment_for(size: int, left: int) -> int:
        return size if left < 2 * SEGMENT else SEGMENT // size * size

    def parkable(self) -> int:
        """As the hook lays what may leave into what is free."""
        back = sum(each.size for each in self.pieces if each.place is Place.BOTH)
        rows = [each.size - each.used for each in self.segments]
        free, further, laid, ends = sum(rows), self.host.room, 0, False
        for piece in self.pieces:
            if piece.place is not Place.DEVICE or piece.fixed or ends:
                continue
            fitting = [row for row in rows if row >= piece.size]
            if not fitting:
                size = self._segment_for(piece.size, further)
                if further < size:
                    ends = True
                    continue
                further -= size
                rows.append(size)
                fitting = [size]
            row = min(fitting)
            rows[rows.index(row)] = row - piece.size
            laid += piece.size
        everything = free + self.host.room
        return back + (everything if not ends and everything > laid else laid)

    # ---- what the user's code does -----------------------------------------------------------

    def allocate(self, size: int) -> None:
        """A call that waits for the turn, and for its bytes."""
        self.need, self.calls = size, self.calls + 1
        if self.gate is not Gate.OPEN:
            self.call()
        self._look_again()
        self.say_need()

    def free(self, piece: Piece) -> None:
        self._give_up_copy(piece)
        self.pieces.remove(piece)
        self.report()
        self._look_again()

    def interrupt(self) -> None:
        """No call of it waits any more."""
        self.need = 0
        self.say_need()
        if self.gate is Gate.SHUT:
            self.give_up()

    @property
    def is_served(self) -> bool:
        """It waits for nothing."""
        waits = self.calls_wait or self.restores or self.need > 0
        return self.closed or not (waits or self.gate is Gate.DRAINING)

    def die(self) -> None:
        for segment in self.segments:
            self.host.taken -= segment.size
        self.segments.clear()
        self.closed, self.gate = True, Gate.SHUT
        self.outbox.append(ev.ClientLost(client=self.id))

    # ---- the mover ---------------------------------------------------------------------------

    def step(self, now_s: float) -> None:
        """One piece on its way, and a look at the host, as often as the hook looks."""
        self.now_s = now_s
        if self.gate is Gate.OPEN:
            self._restore()
        elif self.gate is Gate.SHUT:
            self._park()
        if (self.gate is Gate.OPEN and self.is_tight) or (
            self.gate is Gate.SHUT and self.host.room < LEFT
        ):
            self._trim()
        self._look_at_host()

    def _restore(self) -> None:
        if self.is_tight:
            self._confirm()
            self._trim()
        parked = [each for each in self.pieces if each.place is Place.HOST]
        if parked and self.budget - self.resident >= parked[0].size:
            parked[0].place = Place.BOTH
            self.moved += parked[0].size
            if self.is_tight:
                self._confirm()
                self._trim()
            self.report()
        if not self.parked:
            self._confirm()
        self._look_again()

    def _confirm(self) -> None:
        for piece in self.pieces:
            if piece.place is Place.BOTH:
                self._give_up_copy(piece)

    def _give_up_copy(self, piece: Piece) -> None:
        if piece.segment is not None:
            piece.segment.used -= piece.size
            piece.segment, piece.place = None, Place.DEVICE

    def _trim(self) -> None:
        for segment in [each for each in self.segments if not each.used]:
            self.segments.remove(segment)
            self.host.taken -= segment.size

    def _park(self) -> None:
        over = self.resident - self.budget
        if over <= 0:
            parked = [each for each in self.pieces if each.place is Place.HOST]
            if parked and -over >= parked[0].size:  # ahead of its turn
                parked[0].place = Place.BOTH
                self.report()
            return
        for piece in self.pieces:
            if piece.place is Place.BOTH:
                piece.place = Place.HOST
                self.report()
                return
        for piece in self.pieces:
            if piece.place is Place.DEVICE and not piece.fixed:
                segment = self._take(piece.size)
                if segment is not None:
                    segment.used += piece.size
                    piece.segment, piece.place = segment, Place.HOST
                    self.moved += piece.size
                self.report()
                return

    def _take(self, size: int) -> Segment | None:
        fitting = [each for each in self.segments if each.size - each.used >= size]
        if fitting:
            return min(fitting, key=lambda each: each.size - each.used)
        wanted = self._segment_for(size, self.host.room)
        if self.host.room < wanted:
            return None
        self.host.taken += wanted
        self.segments.append(Segment(wanted))
        return self.segments[-1]

    def _look_at_host(self) -> None:
        scarce = (
            self.told is None
            or self.parkable() < self.resident - self.fixed
            or (self.told.bytes_parkable < self.resident - self.fixed)
        )
        if scarce and self.now_s >= self.look_at_s:
            if self.told is not None and self.parkable() > self.told.bytes_parkable:
                self.busy_until_s = self.now_s + BUSY_S
                self.report()
            busy = self.now_s < self.busy_until_s
            self.look_at_s = self.now_s + (BUSY_LOOK_S if busy else SCARCE_LOOK_S)

    # ---- what is said ------------------------------------------------------------------------

    def report(self) -> None:
        event = ev.MemoryReported(
            client=self.id,
            device=A,
            bytes_allocated=self.allocated,
            bytes_parked=self.parked,
            bytes_fixed=self.fixed,
            bytes_parkable=self.parkable(),
            budget_serial=self.serial,
            host_limit=self.host.number,
        )
        if event != self.told:
            self.outbox.append(event)
            self.told = event

    def say_need(self) -> None:
        now = (self.calls, self.resident) if self.need else (0, 0)
        if now == self.told_need or (now[0] == self.told_need[0] == 0):
            return
        self.told_need = now
        self.outbox.append(
            ev.MemoryNeeded(client=self.id, device=A, bytes_needed=self.need, need_id=self.calls)
        )

    def _drop(self, reason: ev.DropReason) -> None:
        if self.restores and reason is not ev.DropReason.IDLE:
            self.calls_wait = True
        self.report()
        self.budget = self.resident
        if self.need:
            self.calls_wait = True
        super()._drop(reason)

    def take_in(self, command: Command) -> None:
        if isinstance(command, TellBudget):
            self.budget, self.serial = command.budget_bytes, command.serial
            self.busy_until_s = self.now_s + BUSY_S
            self.look_at_s = min(self.look_at_s, self.now_s + BUSY_LOOK_S)
            self.report()
            if self.need and command.refused_need == self.calls:
                self.refused, self.need = self.refused + 1, 0
                if self.gate is not Gate.OPEN:
                    self.give_up()
            self._look_again()
            self.say_need()
        else:
            super().take_in(command)
            self._look_again()

    def _look_again(self) -> None:
        may_go_on = self.need and self.gate is Gate.OPEN and not self.restores
        if may_go_on and self.resident + self.need <= self.budget:
            self.pieces.append(Piece(self.need))
            self.need = 0
            self.report()
        self.say_need()
