"""Collects the commands of one event. Nobody who puts one needs to know its cause."""

from __future__ import annotations

from dataclasses import replace

from .commands import Command, GrantTurn
from .ids import ClientId


class Outbox:
    """Commands in the order in which they are to be performed."""

    def __init__(self) -> None:
        self._commands: list[Command] = []

    def put(self, command: Command) -> None:
        self._commands.append(command)

    def put_before_grant(self, client: ClientId, command: Command) -> None:
        """For what the client must know before its gate opens, if it is about to open."""
        for place, other in enumerate(self._commands):
            if isinstance(other, GrantTurn) and other.client == client:
                self._commands.insert(place, command)
                return
        self._commands.append(command)

    def name_cause(self, cause: str) -> None:
        """Of all commands that have none yet."""
        self._commands = [
            command if command.cause else replace(command, cause=cause)
            for command in self._commands
        ]

    def take_all(self, cause: str) -> list[Command]:
        """Everything put since the last time; each carries its cause."""
        self.name_cause(cause)
        commands, self._commands = self._commands, []
        return commands
