"""A blocking call beside an event loop, which keeps neither the loop nor the process from ending.

An executor's threads would: a full executor delays others, and a process waits for them at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


async def on_daemon_thread(call: Callable[[], Answer], *, name: str) -> Answer:
    """What the call returns or raises. A caller that stops waiting leaves the thread to itself."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = loop.create_future()

    def settle(outcome: Answer | Exception) -> None:
        if answer.done():
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def run() -> None:
        outcome: Answer | Exception
        try:
            outcome = call()
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await answer
