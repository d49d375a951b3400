"""Handles that the program has destroyed. The driver crashes on them: nobody asks it about one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import FakeScheduler


@pytest.mark.promise(
    "hook-15", "The driver is never asked about a stream that the program has destroyed"
)
def test_streams_that_come_and_go_beside_another_tenant(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """A thread uses more streams than the window can tell apart, and destroys them: the next ones
    take their places without a question about those that have gone."""
    program = start("streams_come_and_go")
    client = scheduler.accept()
    client.welcome(window_ms=20)
    client.grant_request()
    program.expect("right")
    assert program.finish() == 0, program.errors()


@pytest.mark.promise("hook-15")
def test_streams_that_go_when_the_device_says_so(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """Another thread destroys each one while the call that worked in it may still be under way."""
    program = start("destroyed_when_told")
    client = scheduler.accept()
    client.welcome(window_ms=20)
    client.grant_request()
    program.expect("right")
    assert program.finish() == 0, program.errors()
