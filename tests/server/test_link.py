"""The server's connection to a scheduler that cannot be started, or is of another version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare import __version__
from jupyter_gpushare.client import HTTP_SOCKET, SchedulerClient
from jupyter_gpushare.server.relay import Relay
from jupyter_gpushare.server.scheduler_client import LinkState, SchedulerLink
from jupyter_gpushare.server.state import ServerKernel
from tests.support.waits import WAIT_S_MAX

ATTEMPTS = 3


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
        await asyncio.wait_for(tried.wait(), WAIT_S_MAX)
        link.end()

    asyncio.run(follow())
    return states


@pytest.mark.promise(
    "server-17",
    "A scheduler that cannot be started, or is of another version, is said in a sentence; a bug "
    "of ours or many descriptors do not end the server's connection to it",
)
def test_a_start_that_always_fails_is_told_without_flicker(tmp_path: Path) -> None:
    """The reason stays on the screen while it is tried again; kernels do not wait for it."""
    states = states_of(tmp_path / "none", lambda: "It is broken. Mend it.")
    assert [state.scheduler for state in states[:2]] == ["starting", "down"]
    assert {state.scheduler for state in states[1:]} == {"down"}
    assert states[1].message == "It is broken. Mend it."


@pytest.mark.promise("server-17")
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


class NoKernels:
    """A server without any."""

    async def listed(self) -> list[ServerKernel]:
        return []


class LinkTo:
    """A connection to a scheduler that has said this."""

    def __init__(self, status: Any) -> None:
        self.state = LinkState(scheduler="up", status=status)


def relay_to(link: Any, emit: Callable[[dict[str, object]], None], *, kernels: Any = None) -> Relay:
    """Of a server that asks nobody."""
    kernels = kernels or NoKernels()
    client: Any = None
    return Relay(link=link, client=client, reader=client, kernels=kernels, user="alice", emit=emit)


@pytest.mark.promise("server-17")
@pytest.mark.parametrize(
    ("status", "version"),
    [
        ({"scheduler": {"version": "9.9"}, "gpus": []}, "9.9"),
        ({"scheduler": {"version": "9.9"}, "tenants": [], "devices": [{"uuid": "x"}]}, "9.9"),
        ({"scheduler": [], "tenants": {"a": 1}, "devices": []}, "of an unknown version"),
        (["nothing"], "of an unknown version"),
    ],
)
def test_a_scheduler_of_another_version(
    status: Any, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be read is said with both versions, once in the log, and nothing fails."""
    link: Any = LinkTo(status)
    relay = relay_to(link, lambda data: None)
    for _ in range(2):
        state = asyncio.run(relay.state())
    assert (state["scheduler"], state["devices"]) == ("down", [])
    assert f"jupyter-gpushare {version}, and this server's {__version__}" in state["message"]
    said = [record for record in caplog.records if record.name == Relay.__module__]
    assert len(said) == 1  # a link of another test may still be telling of its end


def test_browsers_are_told_nothing_after_the_end() -> None:
    """A server that ends stops its extensions first and its kernels then. A task that their end
    began would be destroyed with the loop."""
    told: list[dict[str, object]] = []
    link: Any = LinkTo(None)
    relay = relay_to(link, told.append)

    async def story() -> None:
        relay.end()
        relay.changed()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(story())
    assert told == []


class SlowKernels(NoKernels):
    """None, and it takes as long as the test wants to say so."""

    def __init__(self) -> None:
        self.are_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def listed(self) -> list[ServerKernel]:
        self.are_asked.set()
        await self.may_answer.wait()
        return []


def test_what_changes_while_browsers_are_told_is_told_too() -> None:
    """The state that is on its way to them lacks it, so another one follows."""
    told: list[dict[str, object]] = []
    link: Any = LinkTo(None)
    kernels = SlowKernels()
    relay = relay_to(link, told.append, kernels=kernels)

    async def story() -> None:
        relay.changed()
        await kernels.are_asked.wait()
        link.state = LinkState(scheduler="down", message="It is away. Wait.")
        relay.changed()
        kernels.may_answer.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(story())
    assert len(told) == 2
