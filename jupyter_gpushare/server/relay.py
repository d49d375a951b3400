"""What the scheduler says on its way to the browser, and what the browser asks on its way back."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol

from jupyter_gpushare.client import AsyncSchedulerClient, RequestRefused
from jupyter_gpushare.client.news import without_times
from jupyter_gpushare.version import __version__

from .kernels import ServerKernels
from .scheduler_client import LinkState
from .state import STATE_VERSION, ServerKernel, State, panel_state

log = logging.getLogger(__name__)

CHANGED_SCHEMA = "urn:jupyter-gpushare:changed:v1"


class NotHere(Exception):
    """This server has no such kernel."""


class NotShared(Exception):
    """The kernel takes no turns, so nothing can be done to its turn or its memory."""


class NotAbleTo(Exception):
    """The kernel shares the GPU, and cannot do this one thing."""


class RelayLink(Protocol):
    """scheduler_client.py has the real one."""

    @property
    def state(self) -> LinkState: ...


class Relay:
    """`emit` sends an event to the browsers that are connected to this server. `reader` may be told
    more than `client`, which acts for this server's user."""

    def __init__(
        self,
        *,
        link: RelayLink,
        client: AsyncSchedulerClient,
        reader: AsyncSchedulerClient,
        kernels: ServerKernels,
        user: str,
        emit: Callable[[dict[str, object]], None],
    ) -> None:
        self._link = link
        self._client = client
        self._reader = reader
        self._kernels = kernels
        self._user = user
        self._emit = emit
        self._told: object = None
        self._dirty = False
        self._telling: asyncio.Task[None] | None = None
        self._warned = ""
        self._ended = False

    async def state(self) -> State:
        """As it is now."""
        link, kernels = self._link.state, await self._kernels.listed()
        try:
            return self._state(link, kernels)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = _unreadable(link.status)
            if message != self._warned:
                self._warned = message
                log.warning("%s", message, exc_info=error)
            return self._state(LinkState(scheduler="down", message=message), kernels)

    def _state(self, link: LinkState, kernels: list[ServerKernel]) -> State:
        return panel_state(
            scheduler=link.scheduler,
            message=link.message,
            user=self._user,
            status=link.status,
            age_s=max(0.0, time.monotonic() - link.at_s) if link.status else 0.0,
            kernels=kernels,
        )

    async def timeline(self) -> dict[str, Any]:
        """As the scheduler keeps it for this server's user: empty while none is there, whose
        absence the state explains. Raises a ClientError of the scheduler's."""
        if self._link.state.scheduler != "up":
            return {"version": STATE_VERSION, "window_s": 0.0, "tenants": [], "devices": []}
        return {"version": STATE_VERSION, **await self._reader.timeline()}

    async def release(self, kernel_id: str) -> None:
        """The kernel gives its turn back. Raises as `_act` does."""
        await self._act(kernel_id, self._client.release_tenant)

    async def hold(self, kernel_id: str, hold_s: float) -> None:
        """The kernel keeps its turn, or its next one; 0 ends that. Raises as `_act` does."""

        async def hold(tenant_id: str) -> None:
            await self._client.hold_tenant(tenant_id, hold_s)

        await self._act(kernel_id, hold)

    async def evict(self, kernel_id: str) -> None:
        """The kernel's turn ends and its memory leaves the device. Raises as `_act` does."""
        await self._act(kernel_id, self._client.evict_tenant)

    async def trim(self, kernel_id: str) -> None:
        """The frameworks of the kernel give back what they keep unused, when it comes to that: the
        state tells. Raises NotHere, NotShared or NotAbleTo."""
        if kernel_id not in self._kernels:
            raise NotHere(_not_here(kernel_id))
        if self._kernels.tenant_id(kernel_id) is None:
            raise NotShared(self._kernels.why_unshared(kernel_id))
        if why := self._kernels.why_it_keeps_caches(kernel_id):
            raise NotAbleTo(why)
        self._kernels.trimming.ask(kernel_id)

    async def _act(self, kernel_id: str, act: Callable[[str], Awaitable[None]]) -> None:
        """`kernel_id` may be a tenant's id: the scheduler knows whose it is. Raises NotHere,
        NotShared, or a ClientError of the scheduler's."""
        is_here = kernel_id in self._kernels
        if not is_here and self._link.state.scheduler != "up":
            raise NotHere(_not_here(kernel_id))
        tenant_id = self._kernels.tenant_id(kernel_id) if is_here else kernel_id
        if tenant_id is None:
            raise NotShared(self._kernels.why_unshared(kernel_id))
        try:
            await act(tenant_id)
        except RequestRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                ended = "This kernel has just ended. Nothing is left to do."
                raise NotHere(ended if is_here else _not_here(kernel_id)) from error
            raise

    def changed(self) -> None:
        """Something may have: tell the browsers, if there is news for them."""
        if self._ended:  # kernels are shut down after the extension, and are news
            return
        self._dirty = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._tell())
            self._telling.add_done_callback(functools.partial(_log_failure, "telling browsers"))

    def cells_changed(self, tenant_id: str) -> None:
        """Browsers hear of cells only while their kernel waits, or is asked for its unused memory:
        that costs nothing otherwise."""
        tenants = (self._link.state.status or {}).get("tenants", [])
        waits = any(e["id"] == tenant_id and e["state"] == "waiting" for e in tenants)
        if waits or self._kernels.trim_is_asked(tenant_id):
            self.changed()

    def end(self) -> None:
        """The browsers are told nothing more."""
        self._ended = True
        if self._telling:
            self._telling.cancel()

    async def _tell(self) -> None:
        """One at a time, so that the last event is the last state."""
        while self._dirty:
            self._dirty = False
            state = await self.state()
            lasting = without_times(state, time.monotonic())
            if lasting != self._told:
                self._told = lasting
                self._emit({"version": STATE_VERSION})


def _not_here(kernel_id: str) -> str:
    return f"This server has no kernel {kernel_id}. Reload the page."


def _unreadable(status: object) -> str:
    """For a scheduler whose status has another form than ours."""
    process = status.get("scheduler") if isinstance(status, dict) else None
    version = process.get("version") if isinstance(process, dict) else None
    return (
        f"The scheduler is jupyter-gpushare {version or 'of an unknown version'}, and this "
        f"server's {__version__} cannot read its status. Install the same version for both, and "
        f"restart them when no cell runs."
    )


def _log_failure(what: str, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("%s failed", what, exc_info=error)
