"""The table of the nodes, while it happens: redrawn on a terminal, else a line for each change of
who holds and who waits."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from tests.demo.live import Screen
from tests.support.sim import MIB

HEADINGS = ("node", "device", "holder", "queue", "on the device", "parked", "turns")
WIDTHS = (5, 16, 9, 26, 18, 10, 5)
AWAY = "no scheduler answers"
NOBODY = "-"
NARROWEST = 40

Status = Mapping[str, Any]
"""What a node's scheduler says."""


@dataclass(frozen=True)
class Row:
    """A device of a node, at a moment."""

    node: str
    device: str
    holders: tuple[str, ...]
    queue: tuple[str, ...]
    """In the order in which they will be served."""
    bytes_used: int
    bytes_total: int
    bytes_parked: int
    turns: int

    def cells(self) -> tuple[str, ...]:
        return (
            self.node,
            self.device,
            ", ".join(self.holders) or NOBODY,
            ", ".join(self.queue) or NOBODY,
            f"{self.bytes_used // MIB} of {self.bytes_total // MIB} MiB",
            f"{self.bytes_parked // MIB} MiB",
            str(self.turns),
        )

    def news(self) -> str:
        """For a line of its own."""
        holds = _verb(self.holders, "hold") if self.holders else "nobody holds"
        waits = f", {_verb(self.queue, 'wait')}" if self.queue else ""
        *_, used, parked, turns = self.cells()
        return f"{self.node}: {holds}{waits}; {used} in use, {parked} parked, {turns} turns"


def _verb(users: Sequence[str], verb: str) -> str:
    return f"{' and '.join(users)} {verb}{'s' if len(users) == 1 else ''}"


def rows_of(node: str, status: Status, turns: Mapping[str, int]) -> list[Row]:
    """One for each device; `turns` are those of each user so far."""
    owners = {tenant["id"]: tenant["owner"] for tenant in status["tenants"]}

    def users(present: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        return tuple(owners.get(each["tenant"], "?") for each in present)

    return [
        Row(
            node=node,
            device=device["name"],
            holders=users(device["holders"]),
            queue=users(device["queue"]),
            bytes_used=device["bytes_used"],
            bytes_total=device["bytes_total"],
            bytes_parked=parked_on(status, device["id"]),
            turns=sum(turns.values()),
        )
        for device in status["devices"]
    ]


def parked_on(status: Status, device: str) -> int:
    """How much of the tenants' memory of that device is in host memory."""
    clients = (client for tenant in status["tenants"] for client in tenant["clients"])
    opened = (each for client in clients for each in client["devices"])
    return sum(each["bytes_parked"] for each in opened if each["device"] == device)


@dataclass
class Seen:
    """What is kept of the looks at one node."""

    most_parked: int = 0
    """At one moment."""
    turns: dict[str, int] = field(default_factory=dict)
    """Of each user. A scheduler that starts again counts from the beginning."""
    _told: dict[str, int] = field(default_factory=dict)

    def look_at(self, status: Status) -> None:
        parked = [parked_on(status, device["id"]) for device in status["devices"]]
        self.most_parked = max(self.most_parked, sum(parked))
        for tenant in status["tenants"]:
            told = tenant["counters"]["turns"]
            before = self._told.get(tenant["id"], 0)
            new = told - before if told >= before else told
            self.turns[tenant["owner"]] = self.turns.get(tenant["owner"], 0) + new
            self._told[tenant["id"]] = told


class TableView:
    """Feed it what the nodes' schedulers say as often as you like; None: one does not answer."""

    def __init__(self, nodes: Sequence[str], out: TextIO) -> None:
        self._screen = Screen(out)
        self._told: dict[str, object] = {}
        self.seen = {node: Seen() for node in nodes}

    def headline(self, text: str) -> None:
        self._screen.headline(text)

    def show(self, statuses: Mapping[str, Status | None]) -> None:
        rows: dict[str, list[Row]] = {}
        for node, status in statuses.items():
            rows[node] = []
            if status is not None:
                self.seen[node].look_at(status)
                rows[node] = rows_of(node, status, self.seen[node].turns)
        if self._screen.is_terminal:
            columns = max(NARROWEST, shutil.get_terminal_size().columns)
            self._screen.draw([line[: columns - 1] for line in table(rows)])
        else:
            self._tell_changes(rows)

    def _tell_changes(self, rows: Mapping[str, Sequence[Row]]) -> None:
        for node, own in rows.items():
            who = [(row.holders, row.queue) for row in own]
            if self._told.get(node) != who:
                self._told[node] = who
                for news in [row.news() for row in own] or [f"{node}: {AWAY}"]:
                    self._screen.tell(news)


def table(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """A line of headings, and one or more for each node."""
    lines = [_line(HEADINGS)]
    for node, own in rows.items():
        lines += [_line(row.cells()) for row in own] or [_line((node, AWAY))]
    return lines


def _line(cells: Sequence[str]) -> str:
    padded = (f"{text:<{width}}" for text, width in zip(cells, WIDTHS, strict=False))
    return "  " + " ".join(padded).rstrip()
