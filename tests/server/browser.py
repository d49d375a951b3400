"""What a browser hears: the events of a Jupyter server, in the place of its websocket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from jupyter_gpushare.server.relay import CHANGED_SCHEMA, Relay
from tests.support.waits import WAIT_S_MAX

State = dict[str, Any]


class Browser:
    """Asks for the state at first, and whenever it is told of a change; keeps the answers in their
    order."""

    def __init__(self, server: Any, relay: Relay) -> None:
        self._relay = relay
        self.states: list[State] = []
        self._news = asyncio.Event()
        self._asking = asyncio.Lock()
        server.event_logger.add_listener(schema_id=CHANGED_SCHEMA, listener=self._heard)

    async def _heard(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        assert data == {"version": 1}
        await self._ask()

    async def _ask(self) -> None:
        async with self._asking:  # an answer that was asked for later is a newer one
            self.states.append(await self._relay.state())
        self._news.set()

    async def until(self, holds: Callable[[State], object]) -> State:
        """The last state, once it is as it should be."""
        if not self.states:
            await self._ask()
        while not holds(self.states[-1]):
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), WAIT_S_MAX)
            except asyncio.TimeoutError:
                raise AssertionError(f"no other state came than {self.states[-1]}") from None
        return self.states[-1]
