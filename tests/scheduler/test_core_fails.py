"""A bug of the core meets a real scheduler: who causes it waits, and the others notice nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.client import RequestRefused
from jupyter_gpushare.protocol.messages import (
    CellBegan,
    CellEnded,
    Fallback,
    HoldChanged,
    HoldRequested,
    Refused,
    RequestWithdrawn,
    Settings,
    TurnGranted,
)
from tests.support.scheduler_process import SchedulerUnderTest


class FailingScheduler(SchedulerUnderTest):
    """See failing_scheduler.py."""

    function = "tests.scheduler.failing_scheduler:command_line_with_bugs"


@pytest.fixture
def failing(runtime: Path) -> Iterator[FailingScheduler]:
    scheduler = FailingScheduler(runtime, "--GPUShareScheduler.fallback=run")
    yield scheduler
    assert scheduler.stop() == 0, scheduler.log


@pytest.mark.promise("scheduler-18")
@pytest.mark.promise("scheduler-108")
def test_who_makes_it_fail_is_kept_out_and_the_others_come_back(
    failing: FailingScheduler,
) -> None:
    """It is told until when it waits, with the words of the protocol that any hook knows; the
    connection of the other one ends without a refusal, so that its hook keeps the turn."""
    tokens = [failing.tenant(name).token for name in ("bad", "holder", "waiter")]
    with failing.connect() as bad, failing.connect() as holder, failing.connect() as waiter:
        holder.join(tokens[1])
        turn = holder.take_turn()
        bad.join(tokens[0])
        waiter.join(tokens[2])
        waiter.ask()
        failing.eventually(lambda status: status["devices"][0]["queue"])
        bad.send(CellEnded())
        refused = bad.expect(Refused)
        assert "lets it in again at" in refused.message and "10 s after that" in refused.message
        assert holder.is_closed() and waiter.is_closed()
        assert not holder.heard(Refused) and not waiter.heard(Refused)
    with failing.connect() as bad, failing.connect() as holder, failing.connect() as waiter:
        bad.hello(tokens[0], waiting=1)
        waits = [each for each in (bad.expect(Settings), bad.expect(Refused))]
        assert waits[0].fallback is Fallback.WAIT
        assert waits[1].message == refused.message
        holder.join(tokens[1], held_turn_id=turn.turn_id)
        waiter.join(tokens[2])
        waiter.ask()
        holder.drop(turn.turn_id)
        waiter.expect(TurnGranted)
    assert 'KeyError: "a bug of the test\'s"' in failing.log
    assert "story of the tenant" in failing.log and "ClientJoined hello of scripted" in failing.log


@pytest.mark.promise("scheduler-18")
def test_a_full_scheduler_lets_all_back(runtime: Path) -> None:
    """The connections that it has ended take no places, also where they stand for a moment."""
    failing = FailingScheduler(runtime, "--GPUShareScheduler.clients_max=2")
    tenants = [failing.tenant(name) for name in ("holder", "waiter")]
    with failing.connect() as holder, failing.connect() as waiter:
        holder.join(tenants[0].token)
        turn = holder.take_turn()
        waiter.join(tenants[1].token)
        with pytest.raises(RequestRefused):
            failing.client.interrupt_tenant(tenants[1].tenant_id)
        assert holder.is_closed() and waiter.is_closed()
    with failing.connect() as holder, failing.connect() as waiter:
        waiter.join(tenants[1].token)
        waiter.ask()
        holder.join(tenants[0].token, held_turn_id=turn.turn_id)
        holder.drop(turn.turn_id)
        waiter.expect(TurnGranted)
    assert failing.stop() == 0, failing.log


@pytest.mark.promise("bad-input-82")
def test_a_full_scheduler_lets_its_holder_back(runtime: Path) -> None:
    """Whose program has closed the hook's descriptor."""
    scheduler = SchedulerUnderTest(runtime, "--GPUShareScheduler.clients_max=1")
    token = scheduler.tenant("holder").token
    with scheduler.connect() as holder:
        holder.join(token)
        turn = holder.take_turn()
    with scheduler.connect() as holder:
        holder.join(token, held_turn_id=turn.turn_id)
        holder.drop(turn.turn_id)
        holder.take_turn()
    assert scheduler.stop() == 0, scheduler.log


def test_a_request_is_told_that_it_failed(failing: FailingScheduler) -> None:
    """With status 500 and a sentence on what to do."""
    tenant = failing.tenant("notebook")
    with pytest.raises(RequestRefused, match=r"The scheduler failed at this request.*Try again"):
        failing.client.interrupt_tenant(tenant.tenant_id)


@pytest.mark.promise("scheduler-18")
def test_a_failed_registration_is_tried_again(runtime: Path) -> None:
    """A scheduler learns of its predecessor's tenants from their processes. Where that fails, the
    process connects again; a refusal would keep it from the GPU for good."""
    predecessor = FailingScheduler(runtime)
    token = predecessor.tenant("from before").token
    predecessor.kill()
    successor = FailingScheduler(runtime)
    try:
        successor.tenant("first")
        with successor.connect() as client:
            client.hello(token)
            assert client.is_closed()
            assert not client.heard(Refused)
        with successor.connect() as again:
            again.join(token)
            again.take_turn()
    finally:
        assert successor.stop() == 0, successor.log


@pytest.mark.promise("scheduler-110")
def test_a_tenant_of_before_a_restart_keeps_what_it_has(runtime: Path) -> None:
    """Nobody is left to remove it, and for a moment it has no client either."""
    predecessor = FailingScheduler(runtime)
    token = predecessor.tenant("from before").token
    predecessor.kill()
    successor = FailingScheduler(runtime)
    try:
        bad_token = successor.tenant("bad").token
        with successor.connect() as client:
            client.hello(token)
            assert client.is_closed()  # the first one fails to be registered
        with successor.connect() as client, successor.connect() as bad:
            client.join(token)
            turn = client.take_turn()
            client.send(HoldRequested(hold_ms=60_000))
            client.expect(HoldChanged)
            bad.join(bad_token)
            bad.send(CellEnded())
            bad.expect(Refused)
            assert client.is_closed()
        with successor.connect() as client:
            client.join(token, held_turn_id=turn.turn_id)
            (tenant,) = (
                each for each in successor.status()["tenants"] if each["name"] == "from before"
            )
            assert tenant["hold_left_s"] > 50 and tenant["counters"]["turns"] == 2
        successor.eventually(lambda status: [each["name"] for each in status["tenants"]] == ["bad"])
    finally:
        assert successor.stop() == 0, successor.log


def test_a_message_that_fails_costs_its_own_connection(failing: FailingScheduler) -> None:
    """Also where it comes in the middle of a flood, when others' messages are handled."""
    with failing.joined("flood") as flood, failing.joined("other") as other:
        flood.send(*[CellBegan()] * 1000, RequestWithdrawn(request_id=1))
        assert flood.is_closed()
        assert not flood.heard(Refused)
        other.take_turn()
