"""Collects the commands of one call of `handle`."""

from __future__ import annotations

from .commands import Command, GrantTurn
from .ids import ClientId


class Outbox:
    """Commands in the order in which they are to be performed. All carry a cause."""

    def __init__(self) -> None:
        self.cause = ""
        """Of the event under way; commands that have none of their own carry it."""
        self._commands: list[Command] = []

    def put(self, command: Command) -> None:
        self._commands.append(command)

    def put_before_grant(self, client: ClientId, command: Command) -> None:
        """What the client must know before its gate opens, if it is about to."""
        for place, other in enumerate(self._commands):
            if isinstance(other, GrantTurn) and other.client == client:
                self._commands.insert(place, command)
                return
        self._commands.append(command)

    def take_all(self) -> list[Command]:
        """Everything put since the last time."""
        commands, self._commands = self._commands, []
        return commands
