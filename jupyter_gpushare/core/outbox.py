"""Collects the commands of one call of `handle`."""

from __future__ import annotations

from .commands import Command


class Outbox:
    """Commands in the order in which they are to be performed. All carry a cause."""

    def __init__(self) -> None:
        self.cause = ""
        """Of the event under way; commands that have none of their own carry it."""
        self._commands: list[Command] = []

    def put(self, command: Command) -> None:
        self._commands.append(command)

    def take_all(self) -> list[Command]:
        """Everything put since the last time."""
        commands, self._commands = self._commands, []
        return commands
