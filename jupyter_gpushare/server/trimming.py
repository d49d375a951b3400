"""Kernels that are asked to give back what the caches of their frameworks keep unused.

The kernel itself has to do it, and with its turn. So it is asked by a request that shows nothing
and has no code, only an expression. It comes after the cell that runs, and waits for the turn as a
cell does. The server asks and not the page: the answer outlives the page, each page shows it, and
the request is known not to be a cell of the notebook.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

from jupyter_client.session import Session
from jupyter_core.utils import ensure_async

from jupyter_gpushare.kernel.environment import SHIM_MODULE

log = logging.getLogger(__name__)

ANSWER = "gpushare"
REQUEST = {
    "code": "",
    "silent": True,
    "store_history": False,
    "user_expressions": {ANSWER: f"__import__('sys').modules['{SHIM_MODULE}'].trim_now()"},
    "allow_stdin": False,
    "stop_on_error": False,
}
_TRIES = 5
"""A cell that fails takes the requests behind it out of the kernel's queue."""
LOOK_EVERY_S = 3.0
"""As often as Jupyter looks whether a kernel is alive, and only while one is asked."""
TOLD_S = 300.0
"""For so long the outcome is told."""
_ABORTED = "A cell that failed has emptied the kernel's queue. Ask again."
_FAILED = "The kernel could not be asked: {}. Restart the kernel to give its GPU memory back."
_INTERRUPTED = "It was interrupted, and nothing was given back. Ask again."
_OLDER = (
    "This kernel was started by an older jupyter-gpushare. Restart the kernel to give its GPU "
    "memory back."
)
_RESTARTED = "The kernel has ended meanwhile, and all of its GPU memory is free."

Told = dict[str, Any]


class _Asked:
    """One kernel that was asked last: its stream while the answer is open, and what is told."""

    def __init__(self, number: int, manager: Any, died: Callable[[], None]) -> None:
        self.number = number
        self.stream = manager.connect_shell()
        self.session = Session(config=manager.session.config, key=manager.session.key)
        self._watching = asyncio.ensure_future(_until_death(manager, died))
        self.tries = 0
        self.message = ""
        self.told: Told | None = None
        self.forget: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Nothing more is heard from the kernel; may be repeated."""
        self._watching.cancel()
        if not self.stream.closed():
            self.stream.close()


class Trimming:
    """`changed()` says that something else is told of a kernel. All calls come from the event
    loop."""

    def __init__(self, kernel_manager: Any, changed: Callable[[], None]) -> None:
        self._kernel_manager = kernel_manager
        self._changed = changed
        self._asked: dict[str, _Asked] = {}
        self._count = 0

    def ask(self, kernel_id: str) -> None:
        """Once: whoever asks again meanwhile gets the same answer."""
        if self.is_open(kernel_id):
            return
        self._forget(kernel_id)
        manager = self._kernel_manager.get_kernel(kernel_id)
        self._count += 1
        asked = _Asked(self._count, manager, functools.partial(self.kernel_ended, kernel_id))
        self._asked[kernel_id] = asked
        asked.stream.on_recv(functools.partial(self._received, kernel_id, asked))
        self._send(asked)
        self._changed()

    def is_open(self, kernel_id: str) -> bool:
        """It is asked, and has not answered yet."""
        asked = self._asked.get(kernel_id)
        return asked is not None and asked.told is None

    def told(self, kernel_id: str, running: tuple[str, ...]) -> Told | None:
        """What the panel is told; `running` are the requests that the kernel executes."""
        asked = self._asked.get(kernel_id)
        if asked is None:
            return None
        here = {"number": asked.number, "stage": "queued", "bytes": 0, "message": ""}
        if asked.told is None and asked.message in running:
            here["stage"] = "runs"
        return {**here, **(asked.told or {})}

    def cells(self, kernel_id: str, running: tuple[str, ...]) -> tuple[str, ...]:
        """The requests that are cells."""
        asked = self._asked.get(kernel_id)
        return tuple(each for each in running if asked is None or each != asked.message)

    def kernel_ended(self, kernel_id: str) -> None:
        """It was restarted, shut down or has died; may be repeated."""
        if self.is_open(kernel_id):
            self._answered(kernel_id, self._asked[kernel_id], failed(_RESTARTED))

    def end(self) -> None:
        for kernel_id in list(self._asked):
            self._forget(kernel_id)

    def _send(self, asked: _Asked) -> None:
        asked.tries += 1
        sent: Any = asked.session.send(asked.stream, "execute_request", REQUEST)
        asked.message = sent["header"]["msg_id"]

    def _received(self, kernel_id: str, asked: _Asked, parts: list[Any]) -> None:
        try:
            _, frames = asked.session.feed_identities(parts)
            message = asked.session.deserialize(frames)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            log.debug("kernel %s: a message that is none: %s", kernel_id, error)
            return
        if message["parent_header"].get("msg_id") != asked.message:
            return
        if message["content"].get("status") in ("aborted", "abort"):
            if asked.tries < _TRIES:
                self._send(asked)
            else:
                self._answered(kernel_id, asked, failed(_ABORTED))
        else:
            self._answered(kernel_id, asked, outcome(message["content"]))

    def _answered(self, kernel_id: str, asked: _Asked, told: Told) -> None:
        asked.told = told
        asked.close()
        loop = asyncio.get_running_loop()
        asked.forget = loop.call_later(TOLD_S, self._has_been_told, kernel_id)
        self._changed()

    def _has_been_told(self, kernel_id: str) -> None:
        self._forget(kernel_id)
        self._changed()

    def _forget(self, kernel_id: str) -> None:
        asked = self._asked.pop(kernel_id, None)
        if asked is None:
            return
        if asked.forget is not None:
            asked.forget.cancel()
        asked.close()


async def _until_death(manager: Any, died: Callable[[], None]) -> None:
    """A process that has died answers nothing, and nothing tells of it where nobody restarts it."""
    while await ensure_async(manager.is_alive()):
        await asyncio.sleep(LOOK_EVERY_S)
    died()


def failed(message: str) -> Told:
    return {"stage": "failed", "message": message}


def outcome(reply: dict[str, Any]) -> Told:
    """What an execute_reply says. Pure."""
    answer = (reply.get("user_expressions") or {}).get(ANSWER)
    if not isinstance(answer, dict):
        return failed(_FAILED.format(reply.get("ename") or "it gave no answer"))
    if answer.get("status") == "error":
        name = str(answer.get("ename"))
        if name == "KeyboardInterrupt":
            return failed(_INTERRUPTED)
        return failed(_OLDER if name in ("AttributeError", "KeyError") else _FAILED.format(name))
    told = (answer.get("data") or {}).get("application/json")
    if not isinstance(told, dict):
        return failed(_FAILED.format("its answer has another form"))
    if told.get("message"):
        return failed(str(told["message"]))
    return {"stage": "done", "bytes": int(told.get("bytes") or 0)}
