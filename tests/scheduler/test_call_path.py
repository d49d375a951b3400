"""The way of a turn through the code, from the socket to the grant, as ARCHITECTURE.md shows it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType

from jupyter_gpushare.client import HOOK_SOCKET, HTTP_SOCKET, SchedulerClient
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.protocol.messages import TurnGranted
from jupyter_gpushare.scheduler.devices.visible import EVERYTHING
from jupyter_gpushare.scheduler.process import ProcessOptions, SchedulerProcess
from jupyter_gpushare.scheduler.runtime_dir import RuntimeDir
from tests.support.hook_client import ScriptedClient
from tests.support.paths import ROOT

FILES_MAX = 18
"""Six of them carry the turn; the others are the core's, which decides."""
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


def joined(directory: Path) -> ScriptedClient:
    """A client whose device the scheduler knows."""
    http = SchedulerClient(directory / HTTP_SOCKET)
    client = ScriptedClient(directory / HOOK_SOCKET)
    client.join(http.register_tenant("notebook", "kernel").token)
    while not http.status()["devices"]:
        pass
    return client


async def granted_turn(directory: Path) -> Trace:
    """A client that is alone asks for a turn."""
    options = ProcessOptions(settings=SchedulerSettings(), choose_devices=lambda listed: EVERYTHING)
    process = SchedulerProcess(RuntimeDir(directory, open_to_all=False, version="test"), options)
    ready = asyncio.Event()
    running = asyncio.ensure_future(process.run(ready.set))
    await ready.wait()
    client = await asyncio.to_thread(joined, directory)
    trace = Trace()
    sys.setprofile(trace)
    try:
        client.ask()
        while not trace.granted:
            await asyncio.sleep(0)
    finally:
        sys.setprofile(None)
        client.close()
        process.end("the test is over")
        await running
    return trace


def test_the_way_of_a_turn(tmp_path: Path) -> None:
    """It crosses few files, and ARCHITECTURE.md names them."""
    trace = asyncio.run(asyncio.wait_for(granted_turn(tmp_path / "run"), 30))
    assert trace.granted
    assert len(trace.files) <= FILES_MAX, list(trace.files)
    told = (ROOT / "ARCHITECTURE.md").read_text()
    way = told[told.index("## The way of a turn") :].split("\n## ")[0]
    assert [file for file in trace.files if f"`{file}`" not in way] == []
