"""Ending by request, for a newer version: when it costs nobody anything, and for whom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpushare.client import RequestRefused
from jupyter_gpushare.scheduler.base.errors import RequestError
from jupyter_gpushare.scheduler.http.handover import Handover
from jupyter_gpushare.scheduler.identity.caller import Caller
from tests.support.scheduler_process import END_S_MAX, SchedulerUnderTest, running_scheduler

ON_DEMAND = "--idle-exit-s=600"


def refusal(scheduler: SchedulerUnderTest) -> tuple[int, str]:
    with pytest.raises(RequestRefused) as refused:
        scheduler.client.shut_down()
    return refused.value.status, str(refused.value)


@pytest.mark.promise("server-25")
def test_an_idle_scheduler_ends_and_tokens_stay_good(runtime: Path) -> None:
    """Tenants without a process do not keep it; the next scheduler knows their tokens, and waits
    for nobody."""
    with running_scheduler(runtime, ON_DEMAND) as first:
        token = first.tenant("idle").token
        first.client.shut_down()
        assert first.process.wait(END_S_MAX) == 0
        assert "asked by" in first.log
    with running_scheduler(runtime) as second:
        assert second.status()["scheduler"]["recovering"] is False
        with second.connect() as client:
            client.join(token)
            client.take_turn()


@pytest.mark.promise("server-25")
def test_a_scheduler_in_use_does_not_end(runtime: Path) -> None:
    """A process that has the GPU open keeps it, also without a turn; its end lets it go."""
    with running_scheduler(runtime, ON_DEMAND) as scheduler:
        with scheduler.joined("work"):
            status, sentence = refusal(scheduler)
            assert (status, sentence) == (
                409,
                "Processes that have the GPU open: 1. Shut their kernels down, or wait for their "
                "end.",
            )
        scheduler.eventually(lambda s: not any(t["clients"] for t in s["tenants"]))
        scheduler.client.shut_down()
        assert scheduler.process.wait(END_S_MAX) == 0


def test_a_scheduler_that_waits_for_a_predecessors_processes_does_not_end(runtime: Path) -> None:
    """They may come back at any moment."""
    config = runtime.with_name("config.py")
    config.write_text("c.GPUShareScheduler.reconnect_grace_s = 600")
    with running_scheduler(runtime) as first, first.joined("work"):
        first.kill()
        with running_scheduler(runtime, ON_DEMAND, f"--config={config}") as second:
            assert second.status()["scheduler"]["recovering"] is True
            assert refusal(second)[0] == 409


def test_a_scheduler_that_was_started_to_stay_does_not_end(scheduler: SchedulerUnderTest) -> None:
    """Somebody looks after it, and is named as whom to ask."""
    status, sentence = refusal(scheduler)
    assert status == 403
    assert sentence.startswith("This scheduler was started to stay. Restart it where ")


@pytest.mark.promise("server-25")
def test_other_users_cannot_end_it() -> None:
    """Root and its own user can."""
    ended: list[str] = []
    handover = Handover(end=ended.append, processes=lambda: 0, started_to_stay=False)
    with pytest.raises(RequestError, match="is ended by root and"):
        handover.asked_by(Caller(os.getuid() + 1))
    assert ended == []
    handover.asked_by(Caller(0))
    assert len(ended) == 1
