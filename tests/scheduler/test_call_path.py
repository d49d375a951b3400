"""The way of a turn through the code, from the socket to the grant, as ARCHITECTURE.md shows it."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from jupyter_gpushare.client import HOOK_SOCKET, HTTP_SOCKET, SchedulerClient
from jupyter_gpushare.core.configuration.layers import Layers
from jupyter_gpushare.protocol.messages import QueuePosition, TurnGranted
from jupyter_gpushare.scheduler.devices.visible import EVERYTHING
from jupyter_gpushare.scheduler.process import ProcessOptions, SchedulerProcess
from jupyter_gpushare.scheduler.runtime_dir import RuntimeDir
from jupyter_gpushare.scheduler.service.live_settings import LiveSettings
from tests.support.hook_client import DEVICE, GIB, ScriptedClient, memory_reported
from tests.support.paths import ROOT
from tests.support.waits import LOOK_EVERY_S, WAIT_S_MAX

FILES_MAX = 18
"""Four of them carry the turn; the others are the core's, which decides."""
PACKAGE = f"{ROOT}/jupyter_gpushare/"


class Trace:
    """The files of ours that are called from the first byte until the grant is written."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.began = False
        self.granted = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event != "call" or self.granted or not path.startswith(PACKAGE):
            return
        self.began |= frame.f_code.co_name == "buffer_updated"
        if not self.began:
            return
        self.files[path.removeprefix(PACKAGE)] = None
        if frame.f_code.co_name == "encode":
            self.granted = isinstance(frame.f_locals.get("message"), TurnGranted)


def joined(http: SchedulerClient, directory: Path, name: str) -> ScriptedClient:
    """A client whose device the scheduler knows."""
    client = ScriptedClient(directory / HOOK_SOCKET)
    client.join(http.register_tenant(name, "kernel").token)
    while not http.status()["tenants"][-1]["memory"]:
        time.sleep(LOOK_EVERY_S)
    return client


def first_turn(directory: Path) -> tuple[list[ScriptedClient], Callable[[], None]]:
    """A client that is alone asks for a turn."""
    one = joined(SchedulerClient(directory / HTTP_SOCKET), directory, "one")
    return [one], one.ask


def next_turn(directory: Path) -> tuple[list[ScriptedClient], Callable[[], None]]:
    """A client with memory drops its turn, and another one waits for it."""
    http = SchedulerClient(directory / HTTP_SOCKET)
    one, two = joined(http, directory, "one"), joined(http, directory, "two")
    turn = one.take_turn()
    one.send(memory_reported(DEVICE, GIB))
    while http.status()["tenants"][0]["memory"][0]["bytes_resident"] < GIB:
        time.sleep(LOOK_EVERY_S)
    two.ask()
    two.expect(QueuePosition)
    return [one, two], lambda: one.drop(turn.turn_id)


Beginning = Callable[[Path], tuple[list[ScriptedClient], Callable[[], None]]]
"""Brings everything to the point from where one message leads to a grant; answers with the clients
and with what sends that message."""


async def granted_turn(directory: Path, begin: Beginning) -> Trace:
    """The files from the message to the grant."""
    settings = LiveSettings(Layers())
    options = ProcessOptions(settings=settings, choose_devices=lambda listed: EVERYTHING)
    process = SchedulerProcess(RuntimeDir(directory, open_to_all=False, version="test"), options)
    ready = asyncio.Event()
    running = asyncio.ensure_future(process.run(ready.set))
    await ready.wait()
    clients, send = await asyncio.to_thread(begin, directory)
    trace = Trace()
    sys.setprofile(trace)
    try:
        send()
        while not trace.granted:
            await asyncio.sleep(0)
    finally:
        sys.setprofile(None)
        for client in clients:
            client.close()
        process.end("the test is over")
        await running
    return trace


def traced(directory: Path, begin: Beginning) -> list[str]:
    return list(asyncio.run(asyncio.wait_for(granted_turn(directory, begin), WAIT_S_MAX)).files)


def told_way() -> list[str]:
    """The files of the numbered lines in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    way = text[text.index("## The way of a turn") :].split("\n## ")[0]
    return re.findall(r"(?m)^\d+\. `([^`]+)`", way)


def test_the_way_of_a_turn(tmp_path: Path) -> None:
    """It crosses few files, and ARCHITECTURE.md names them in their order."""
    files = traced(tmp_path / "run", first_turn)
    assert len(files) <= FILES_MAX, files
    assert files == told_way()


def test_the_way_of_the_next_turn(tmp_path: Path) -> None:
    """A turn that somebody else has dropped goes the same way."""
    assert set(traced(tmp_path / "run", next_turn)) <= set(told_way())
