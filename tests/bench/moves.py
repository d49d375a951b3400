"""What the scheduler's journal tells of memory that moved, and the least that had to move. Pure.

Bytes are counted as they come back to the device: a hook reports while its memory moves, and each
report with fewer parked bytes than the one before tells what has come back since. What leaves the
device is not counted beside it, because everything that comes back has left before.

**The least.** Each turn needs all memory of its tenant on the device. `least_bytes` says how few
bytes come back for a sequence of turns if whoever chooses the victims knows the sequence. Victims
are asked only for what the present turn lacks room for, and first the tenant whose next turn is
farthest away (Belady's rule). A tenant may leave in part, byte by byte.

Why nothing is better: every byte costs the same, so bytes are the pages of Belady's problem, and a
turn asks for all pages of one tenant. Take any choice that differs first where it parks byte b,
although byte a of a tenant with a later next turn was there. Park a instead and keep b, and
otherwise follow that choice until it parks a (then park b) or brings b back (then bring a back).
One of these comes at the latest with the turn of b, and until then nobody needs a. So nothing more
has come back, and from then on both are the same. Step by step, any choice becomes Belady's. The
exchange needs no tenants of equal size.

**Blind.** Who chooses victims does not know whose turn will come. `blind_bytes` says what comes
back where those who wait are victims last, and otherwise the tenant whose turn is longest ago is
first. If people think for an exponential time, all who think are equally likely to be next,
however long they have thought already. So no rule for the choice among them is better than
another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Turn:
    """One turn of a client that was granted, from the request on. Times are seconds of the
    machine's monotonic clock."""

    client: int
    asked_at_s: float
    parked_bytes: int
    """When it asked."""
    came_ahead_bytes: int = 0
    """Of its memory, between the request and the grant."""
    granted_at_s: float = math.inf
    ended_at_s: float = math.inf
    queued: bool = False
    """It was not granted in the step in which it was asked for."""
    complete: bool = False
    """All its memory was there at some time in the turn."""


@dataclass(frozen=True, slots=True)
class Use:
    """All memory of a client was needed, while these waited."""

    client: int
    waiting: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CameBack:
    """Bytes of a client came back to the device."""

    at_s: float
    client: int
    bytes: int


@dataclass
class History:
    """What a journal tells of turns and memory."""

    turns: list[Turn] = field(default_factory=list)
    pids: dict[int, int] = field(default_factory=dict)
    """The process of each client."""
    came_back: list[CameBack] = field(default_factory=list)
    allocated: dict[int, int] = field(default_factory=dict)
    """The latest of each client."""
    parked: list[tuple[float, int, int]] = field(default_factory=list)
    """Each report: when, who, and how much is parked from then on."""
    usable_bytes: list[tuple[float, int]] = field(default_factory=list)
    """Each change of what all tenants together may have on the device."""

    def parked_at(self, at_s: float) -> dict[int, int]:
        """What each client had parked then."""
        found = dict.fromkeys(self.allocated, 0)
        found.update((who, parked) for when, who, parked in self.parked if when <= at_s)
        return found

    def was_paused(self, pid: int, from_s: float, to_s: float) -> bool:
        """Whether the process lost its turn in this time."""
        return any(
            from_s <= turn.ended_at_s < to_s and self.pids.get(turn.client) == pid
            for turn in self.turns
        )

    def came_beside(self, pid: int, from_s: float, to_s: float) -> bool:
        """Whether memory of another process came back in this time."""
        return any(
            from_s <= each.at_s < to_s and self.pids.get(each.client) != pid
            for each in self.came_back
        )

    def moved_bytes(self, from_s: float, to_s: float) -> int:
        """What came back to the device in this time."""
        return sum(each.bytes for each in self.came_back if from_s <= each.at_s < to_s)

    def uses(self, from_s: float, to_s: float) -> list[Use]:
        """Whose memory was needed and came, turn by turn. A turn that ended before its memory was
        there (a recall) needed none of it."""
        return [
            Use(turn.client, self.waiting_at(turn.granted_at_s))
            for turn in self.turns
            if turn.complete and from_s <= turn.granted_at_s < to_s
        ]

    def waiting_at(self, at_s: float) -> tuple[int, ...]:
        """Whose turn had been asked for and not granted; who asked first is first."""
        waiting = [turn for turn in self.turns if turn.asked_at_s <= at_s < turn.granted_at_s]
        return tuple(turn.client for turn in sorted(waiting, key=lambda each: each.asked_at_s))

    def most_usable_bytes(self, from_s: float, to_s: float) -> int:
        """The most that tenants were allowed together at any time of it, or had: memory that was
        there before may come back into the reserve."""
        before = [count for at_s, count in self.usable_bytes if at_s < from_s][-1:]
        allowed = before + [n for at_s, n in self.usable_bytes if from_s <= at_s < to_s]
        parked, all_bytes = self.parked_at(from_s), sum(self.allocated.values())
        had = [all_bytes - sum(parked.values())]
        for at_s, who, count in self.parked:
            if from_s <= at_s < to_s:
                parked[who] = count
                had.append(all_bytes - sum(parked.values()))
        return max(allowed + had)


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The lines that tell of events."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n") and "event" in (entry := json.loads(line)):
                yield entry


def history_of(entries: Iterable[Mapping[str, Any]]) -> History:
    """From the lines of a journal (scheduler/journal.py), in order."""
    history = History()
    parked: dict[int, int] = {}
    asking: dict[int, Turn] = {}
    holding: dict[int, Turn] = {}
    for entry in entries:
        at_s, event = float(entry["at_s"]), entry["event"]
        who = event.get("client", 0)
        match event["type"]:
            case "ClientJoined":
                history.pids[who] = event["pid"]
            case "TurnRequested" if who not in asking:
                asking[who] = Turn(who, at_s, parked.get(who, 0))
            case "RequestWithdrawn" | "ClientLost":
                asking.pop(who, None)
                holding.pop(who, None)
            case "TurnDropped" if who in holding:
                holding.pop(who).ended_at_s = at_s
            case "MemoryReported":
                came = parked.get(who, 0) - event["bytes_parked"]
                parked[who] = event["bytes_parked"]
                history.allocated[who] = event["bytes_allocated"]
                history.parked.append((at_s, who, parked[who]))
                if came > 0:
                    history.came_back.append(CameBack(at_s, who, came))
                    if who in asking:
                        asking[who].came_ahead_bytes += came
                if who in holding and not parked[who]:
                    holding[who].complete = True
        for command in entry["commands"]:
            if command["type"] == "TellBudget":
                history.usable_bytes.append((at_s, command["usable_bytes"]))
            if command["type"] == "GrantTurn" and command["client"] in asking:
                turn = asking.pop(command["client"])
                turn.granted_at_s = at_s
                turn.queued = event["type"] != "TurnRequested" or who != turn.client
                turn.complete = not parked.get(turn.client, 0)
                holding[turn.client] = turn
                history.turns.append(turn)
    return history


def waited_parked(turns: Iterable[Turn], from_s: float, to_s: float) -> list[Turn]:
    """Hand-overs to tenants that had parked memory when they queued."""
    return [
        turn
        for turn in turns
        if turn.queued and turn.parked_bytes > 0 and from_s <= turn.asked_at_s < to_s
    ]


def ahead_share(turns: Sequence[Turn]) -> float | None:
    """Of these hand-overs, the part in which memory came back before the grant; None: there was
    no such hand-over."""
    if not turns:
        return None
    return sum(turn.came_ahead_bytes > 0 for turn in turns) / len(turns)


def least_bytes(
    sizes: Mapping[int, int], resident: Mapping[int, int], room: int, uses: Sequence[Use]
) -> int:
    """The fewest bytes that come back for these turns, whichever victims are chosen (above).

    `resident` is what each has on the device at first, `room` what there is for all of them."""
    next_use: dict[int, float] = dict.fromkeys(sizes, math.inf)
    next_uses = [math.inf] * len(uses)
    for place in reversed(range(len(uses))):
        next_uses[place] = next_use[uses[place].client]
        next_use[uses[place].client] = place

    def farthest_first(place: int) -> list[int]:
        next_use[uses[place].client] = next_uses[place]
        return sorted(sizes, key=lambda who: next_use[who], reverse=True)

    return _came_back(sizes, resident, room, uses, farthest_first)


def blind_bytes(
    sizes: Mapping[int, int], resident: Mapping[int, int], room: int, uses: Sequence[Use]
) -> int:
    """What comes back for these turns where nobody knows those to come (above)."""
    latest: dict[int, int] = dict.fromkeys(sizes, -1)

    def longest_ago_first(place: int) -> list[int]:
        latest[uses[place].client] = place
        waiting = uses[place].waiting
        thinking = sorted(sizes.keys() - set(waiting), key=lambda who: latest[who])
        return [*thinking, *reversed(waiting)]

    return _came_back(sizes, resident, room, uses, longest_ago_first)


def _came_back(
    sizes: Mapping[int, int],
    resident: Mapping[int, int],
    room: int,
    uses: Sequence[Use],
    victims: Callable[[int], Sequence[int]],
) -> int:
    """What comes back for turns where these are the victims, in order, at each place."""
    there = {who: min(resident.get(who, 0), size) for who, size in sizes.items()}
    came_back = 0
    for place, use in enumerate(uses):
        if sizes[use.client] > room:
            raise ValueError(f"{sizes[use.client]} bytes can never be in a room of {room}.")
        came_back += sizes[use.client] - there[use.client]
        there[use.client] = sizes[use.client]
        for victim in victims(place):
            if victim != use.client:
                excess = sum(there.values()) - room
                there[victim] -= min(there[victim], max(0, excess))
    return came_back


def moved_ratio(moved: int, least: int) -> float | None:
    """Bytes that moved, of those that had to; None: memory moved although none had to."""
    if not least:
        return None if moved else 1.0
    return moved / least
