"""A context for which the driver has no memory: room is asked for, and waited for as long as the
scheduler says, and not without it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from jupyter_gpushare.protocol.messages import DeviceOpened, MemoryMode, RoomAwaited, RoomRequested
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import ClientGone, FakeScheduler, HookedClient

Start = Callable[..., GpuProcess]
NO_MEMORY_ONCE = {"GPUSHARE_SIM_FAULTS": "fail cuDevicePrimaryCtxRetain nth=1 result=2"}
RECLAIM_MS = 300
LONGER_S = 1.0
TRIES = 10

pytestmark = pytest.mark.promise(
    "hook-54",
    "A context that the driver has no memory for waits for room as long as the scheduler says; "
    "without an answer it is out of memory after `reclaim_s`",
)


Asking = tuple[GpuProcess, HookedClient, RoomRequested]


def asks(start: Start, scheduler: FakeScheduler, reclaim_ms: int = RECLAIM_MS) -> Asking:
    """Its context is opened before the scheduler has said a word."""
    shell = start("shell", env=NO_MEMORY_ONCE)
    shell.say("0 open")
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=reclaim_ms)
    return shell, client, client.expect(RoomRequested)


def is_awaited(client: HookedClient, asked: RoomRequested, wait_s: float = 60.0) -> None:
    client.send(RoomAwaited(device=asked.device, request=asked.request, wait_ms=int(wait_s * 1000)))


def waits_longer(start: Start, scheduler: FakeScheduler) -> Asking:
    """Who was told in time, and still waits after `reclaim_s`. On a busy machine that word may come
    too late: then another one asks."""
    for _ in range(TRIES):
        shell, client, asked = asks(start, scheduler)
        with suppress(ClientGone):
            is_awaited(client, asked)
        with suppress(AssertionError):  # it has ended
            assert shell.is_silent(for_s=LONGER_S)
            return shell, client, asked
    raise AssertionError("nobody waits for as long as it is told")


def test_it_waits_for_as_long_as_it_is_told(start: Start, scheduler: FakeScheduler) -> None:
    """And is opened when there is room."""
    shell, client, asked = waits_longer(start, scheduler)
    assert asked.bytes >= 256 << 20, "nobody knows how much it takes"
    client.room(asked.device, made=True)
    shell.expect("0 open 0")
    client.expect(DeviceOpened)


def test_without_such_a_word_it_ends_in_time(start: Start, scheduler: FakeScheduler) -> None:
    """The program hears the driver's own answer."""
    shell, _, _ = asks(start, scheduler)
    shell.expect_error("cuDevicePrimaryCtxRetain: 2")


def test_an_interrupt_ends_it(start: Start, scheduler: FakeScheduler) -> None:
    """As any wait."""
    shell, client, _ = waits_longer(start, scheduler)
    client.cancel()
    shell.expect_error("cuDevicePrimaryCtxRetain: 800")


def test_it_does_not_outlive_the_connection(start: Start, scheduler: FakeScheduler) -> None:
    """By more than `reclaim_s`: nobody will answer."""
    shell, client, _ = waits_longer(start, scheduler)
    client.close()
    shell.expect_error("cuDevicePrimaryCtxRetain: 2")


def test_another_scheduler_is_asked_again(start: Start, scheduler: FakeScheduler) -> None:
    """Which answers for both."""
    shell, client, asked = asks(start, scheduler, reclaim_ms=60_000)
    is_awaited(client, asked)
    time.sleep(0.1)
    client.close()
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=60_000)
    again = client.expect(RoomRequested)
    assert again.bytes == asked.bytes
    client.room(again.device, made=True)
    shell.expect("0 open ")


def test_without_a_scheduler_it_is_refused_in_a_moment(start: Start) -> None:
    """The driver's own answer stands."""
    shell = start("shell", env=NO_MEMORY_ONCE)
    shell.say("0 open")
    shell.expect_error("cuDevicePrimaryCtxRetain: 2")
