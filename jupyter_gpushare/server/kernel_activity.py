"""Which cells a kernel is executing: for the line at the cell that waits, and for kernels that
cannot tell the scheduler where cells begin and end (other languages than Python).

The server's own notion of busy and idle is too coarse: any message that ends makes a kernel idle,
while its cell goes on. So each kernel that is a tenant has an iopub client of ours, which keeps the
messages that are being executed apart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from jupyter_client.session import Session

from jupyter_gpushare.client import ClientError
from jupyter_gpushare.kernel.provisioner import GPUShareMixin

from .kernels import ServerKernels

log = logging.getLogger(__name__)

CELL = "execute_request"
_STATUS = b'"status"'
"""In the header of a message that is looked at; the others are many, and are not parsed."""
CELLS_MAX = 1024
"""A kernel that never says idle is not followed beyond this many cells."""


class RunningCells:
    """The cells of one kernel that are being executed. Pure."""

    def __init__(self) -> None:
        self._running: dict[str, None] = {}

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def messages(self) -> tuple[str, ...]:
        """Their requests' ids, first come first."""
        return tuple(self._running)

    def heard(self, parent: dict[str, Any], execution_state: str) -> None:
        """A status message: what its parent is, and what became of it."""
        cell = parent.get("msg_id")
        if parent.get("msg_type") != CELL or not isinstance(cell, str):
            if execution_state in ("starting", "restarting"):
                self._running.clear()
            return
        if execution_state == "busy":
            self._running[cell] = None
            if len(self._running) > CELLS_MAX:
                del self._running[next(iter(self._running))]
        elif execution_state == "idle":
            self._running.pop(cell, None)


class _Followed:
    """One kernel: its stream, and what the scheduler has been told about it."""

    def __init__(self, stream: Any, tenant_id: str, *, tells_cells: bool) -> None:
        self.stream = stream
        self.tenant_id = tenant_id
        self.tells_cells = tells_cells
        self.cells = RunningCells()
        self.told = False
        self.telling: asyncio.Task[None] | None = None


class KernelActivity:
    """`tell(tenant_id, busy)` reaches the scheduler; `changed(tenant_id)` says that other cells of
    this tenant run now. All calls come from the event loop."""

    def __init__(
        self,
        kernel_manager: Any,
        kernels: ServerKernels,
        tell: Callable[[str, bool], Awaitable[None]],
        changed: Callable[[str], None] = lambda tenant_id: None,
    ) -> None:
        self._kernel_manager = kernel_manager
        self._kernels = kernels
        self._tell = tell
        self._changed = changed
        self._followed: dict[str, _Followed] = {}

    def kernel_started(self, kernel_id: str) -> None:
        """Also after a restart, when its ports and its tenant may be others."""
        self.kernel_ended(kernel_id)
        provisioner = self._kernels.provisioner(kernel_id)
        if not isinstance(provisioner, GPUShareMixin):
            return
        if (tenant_id := provisioner.tenant_id) is None:
            return
        manager = self._kernel_manager.get_kernel(kernel_id)
        followed = _Followed(
            manager.connect_iopub(), tenant_id, tells_cells=provisioner.tells_cells
        )
        session = Session(config=manager.session.config, key=manager.session.key)
        self._followed[kernel_id] = followed

        def received(parts: list[Any]) -> None:
            try:
                _, frames = session.feed_identities(parts)
                header: Any = frames[1]
                if _STATUS not in header:
                    return
                message = session.deserialize(frames)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                log.debug("kernel %s: a message that is none: %s", kernel_id, error)
                return
            self._received(followed, message)

        followed.stream.on_recv(received)

    def kernel_ended(self, kernel_id: str) -> None:
        """Nothing more is said about it; may be repeated."""
        followed = self._followed.pop(kernel_id, None)
        if followed is None:
            return
        if followed.telling:
            followed.telling.cancel()
        if not followed.stream.closed():
            followed.stream.close()

    def cells(self, kernel_id: str) -> tuple[str, ...]:
        """The requests that this kernel is executing, first come first."""
        followed = self._followed.get(kernel_id)
        return followed.cells.messages if followed else ()

    def end(self) -> None:
        for kernel_id in list(self._followed):
            self.kernel_ended(kernel_id)

    def _received(self, followed: _Followed, message: dict[str, Any]) -> None:
        if message.get("msg_type") != "status":
            return
        parent, content = message.get("parent_header") or {}, message.get("content") or {}
        before = followed.cells.messages
        followed.cells.heard(parent, str(content.get("execution_state")))
        if followed.cells.messages != before:
            self._changed(followed.tenant_id)
        if followed.tells_cells:
            return
        if followed.cells.busy != followed.told and (
            followed.telling is None or followed.telling.done()
        ):
            followed.telling = asyncio.ensure_future(self._catch_up(followed))

    async def _catch_up(self, followed: _Followed) -> None:
        """One word after the other, the last one last; what changed back meanwhile is not said."""
        while (busy := followed.cells.busy) != followed.told:
            followed.told = busy
            try:
                await self._tell(followed.tenant_id, busy)
            except ClientError as problem:
                log.debug("tenant %s: busy not told: %s", followed.tenant_id, problem)
