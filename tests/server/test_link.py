"""The server's connection to the scheduler, when a scheduler cannot be started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.client import HTTP_SOCKET, SchedulerClient
from jupyter_gpushare.server.scheduler_client import LinkState, SchedulerLink

ATTEMPTS = 3
END_S_MAX = 20.0


def states_of(directory: Path, start: Callable[[], str | None]) -> list[LinkState]:
    """What the link says until it has tried to start a scheduler so many times."""
    states: list[LinkState] = []

    async def follow() -> None:
        loop, tried = asyncio.get_running_loop(), asyncio.Event()
        attempts = 0

        def counted() -> str | None:
            nonlocal attempts
            attempts += 1
            if attempts == ATTEMPTS:
                loop.call_soon_threadsafe(tried.set)
            return start()

        client = SchedulerClient(directory / HTTP_SOCKET)
        link = SchedulerLink(client, start=counted, on_change=states.append)
        link.begin()
        await asyncio.wait_for(tried.wait(), END_S_MAX)
        link.end()

    asyncio.run(follow())
    return states


def test_a_start_that_always_fails_is_told_without_flicker(tmp_path: Path) -> None:
    """The reason stays on the screen while it is tried again; kernels do not wait for it."""
    states = states_of(tmp_path / "none", lambda: "It is broken. Mend it.")
    assert [state.scheduler for state in states[:2]] == ["starting", "down"]
    assert {state.scheduler for state in states[1:]} == {"down"}
    assert states[1].message == "It is broken. Mend it."


def test_a_failure_of_ours_does_not_end_the_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is in the log and on the screen, and the scheduler is looked for again."""

    def fails() -> str | None:
        raise RuntimeError("can't start new thread")

    with caplog.at_level(logging.ERROR):
        states = states_of(tmp_path / "none", fails)
    assert "following the scheduler failed" in caplog.text
    assert "can't start new thread" in states[-1].message
