"""Processes that registered tenants, and their ends."""

from __future__ import annotations

import asyncio
import socket

import pytest

from jupyter_gpushare.scheduler.identity import registrants
from jupyter_gpushare.scheduler.identity.peer import Peer
from jupyter_gpushare.scheduler.identity.registrants import RegistrantWatch


def test_processes_of_foreign_namespaces_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no number here: the end of one says nothing about the tenants of another."""
    ended: list[str] = []

    async def scenario() -> None:
        pairs = [socket.socketpair() for _ in range(2)]
        descriptors = iter(mine.detach() for mine, _ in pairs)
        monkeypatch.setattr(registrants, "open_pidfd", lambda sock, peer: next(descriptors))
        watch = RegistrantWatch()
        for name, (_, theirs) in zip("ab", pairs, strict=True):
            watch.watch(theirs, Peer(pid=0, uid=1), name, ended.append)
        pairs[0][1].close()
        while not ended:
            await asyncio.sleep(0)
        watch.close()
        pairs[1][1].close()

    asyncio.run(scenario())
    assert ended == ["a"]
