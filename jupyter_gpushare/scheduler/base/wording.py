"""The core's codes as sentences for people: what is wrong, and what to do."""

from __future__ import annotations

import time

from jupyter_gpushare.core.commands import (
    CloseClient,
    RecallReason,
    RecallTurn,
    RefuseClient,
    ReportOverdue,
    ReportSilent,
)

_RECALLS = {
    RecallReason.ASKED: "{cause}",
    RecallReason.DEVICE_TAKEN: "{device} was opened, and somebody else has it",
    RecallReason.PAUSED: "an administrator has paused {device}",
    RecallReason.NOT_FIRST: "turns are on, and somebody else was first",
    RecallReason.NO_SPACE: "the GPU has no space for its memory",
    RecallReason.CELL_ENDED: "others wait, and the cell has ended",
    RecallReason.LIMIT: "it or its user has had as much of the GPU as the settings allow",
    RecallReason.GOES_FIRST: "another notebook goes first by its class",
    RecallReason.CELL_WAITS: "a new cell goes first",
    RecallReason.LETS_PASS: "its memory still comes back, and a new cell has its own there",
    RecallReason.SIBLING: "another notebook of the same user waits, which has had less of late",
    RecallReason.QUANTUM_OVER: "others wait, and the quantum of {quantum_s:g} s is over",
}


def why_recalled(command: RecallTurn) -> str:
    """For the user whose turn is asked back."""
    return _RECALLS[command.reason].format(
        cause=command.cause, device=command.device_name, quantum_s=command.quantum_s
    )


def why_closed(command: CloseClient) -> str:
    """For the user whose connection ends."""
    return f"{command.tenant_name} was shut down. Start it again to use the GPU."


def why_refused(command: RefuseClient, until_wall_s: float) -> str:
    """For the user whose process is not admitted. Each refusal says the same, so that a user reads
    it once."""
    admitted = time.strftime("%H:%M:%S", time.localtime(until_wall_s))
    return (
        f"The GPU scheduler failed at what this process told it, and lets it in again at "
        f"{admitted}, {command.lasts_s:.0f} s after that. Its GPU calls wait until then. Report "
        f"the scheduler's log if it happens again."
    )


def report_of(command: ReportSilent | ReportOverdue) -> str:
    """For the log."""
    who = f"{command.tenant_name} (process {command.process_name}, pid {command.pid})"
    if isinstance(command, ReportOverdue):
        return (
            f"{who} was asked for its turn {command.asked_s_ago:.0f} s ago and still works on the "
            f"GPU. Interrupt or restart it."
        )
    return (
        f"{who} was asked to release {command.bytes_held >> 20} MiB on {command.device_name} and "
        f"has made no progress for {command.silent_s:g} s; it is skipped. Interrupt or restart it."
    )
