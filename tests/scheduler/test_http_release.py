"""Giving a turn away, and cells that are seen from outside."""

from __future__ import annotations

import pytest

from jupyter_gpushare.client import RequestRefused
from jupyter_gpushare.protocol.messages import DropReason, HoldRequested, TurnGranted, TurnRecalled
from tests.scheduler.test_http_api import request
from tests.support.hook_client import ScriptedClient
from tests.support.scheduler_process import SchedulerUnderTest


def joined(scheduler: SchedulerUnderTest, name: str) -> tuple[str, ScriptedClient]:
    tenant = scheduler.tenant(name)
    client = scheduler.connect()
    client.join(tenant.token)
    return tenant.tenant_id, client


@pytest.mark.promise("server-4", "A turn can be released by its user, and by nobody else")
def test_a_released_turn_goes_to_who_waits(scheduler: SchedulerUnderTest) -> None:
    """The holder is asked for its turn long before the quantum is over."""
    scheduler.client.change_settings({"quantum_s": 3600})
    tenant_id, holder = joined(scheduler, "holder")
    _, waiter = joined(scheduler, "waiter")
    with holder, waiter:
        holder.take_turn()
        waiter.ask()
        scheduler.eventually(lambda s: s["devices"][0]["queue"])
        scheduler.client.release_tenant(tenant_id)
        recall = holder.expect(TurnRecalled)
        assert recall.cause == f"released by {scheduler.status()['scheduler']['user']}"
        scheduler.client.release_tenant(tenant_id)  # once more changes nothing
        holder.drop(recall.turn_id, DropReason.RECALL)
        waiter.expect(TurnGranted)
        assert scheduler.status()["tenants"][0]["counters"]["recalls"] == 1


@pytest.mark.promise("server-4")
def test_nothing_to_release(scheduler: SchedulerUnderTest) -> None:
    """A tenant without a turn, and turns that are switched off, are told apart."""
    tenant_id, client = joined(scheduler, "idle")
    with client:
        with pytest.raises(RequestRefused, match="does not hold the GPU") as refused:
            scheduler.client.release_tenant(tenant_id)
        assert refused.value.status == 409
        scheduler.client.change_settings({"turns": "off"})
        with pytest.raises(RequestRefused, match="Turns are switched off") as refused:
            scheduler.client.release_tenant(tenant_id)
        assert refused.value.status == 409


def test_a_hold_to_come_is_released(scheduler: SchedulerUnderTest) -> None:
    """A kernel without a turn whose next one is to be kept by hand: that is what a release ends."""
    tenant_id, client = joined(scheduler, "idle")
    with client:
        client.send(HoldRequested(hold_ms=60_000))
        scheduler.eventually(lambda s: s["tenants"][0]["hold_to_come_s"] == 60)
        scheduler.client.release_tenant(tenant_id)
        scheduler.eventually(lambda s: s["tenants"][0]["hold_to_come_s"] == 0)


def test_a_cell_that_ended_gives_way(scheduler: SchedulerUnderTest) -> None:
    """Once the server has seen the cell end, the turn is asked back when somebody waits."""
    scheduler.client.change_settings({"quantum_s": 3600})
    tenant_id, holder = joined(scheduler, "a kernel of another language")
    _, waiter = joined(scheduler, "waiter")
    with holder, waiter:
        scheduler.client.tell_busy(tenant_id, True)
        turn = holder.take_turn()
        scheduler.client.tell_busy(tenant_id, False)
        assert not holder.heard(TurnRecalled)
        waiter.ask()
        assert holder.expect(TurnRecalled).cause == "others wait, and the cell has ended"
        holder.drop(turn.turn_id, DropReason.RECALL)
        waiter.expect(TurnGranted)


@pytest.mark.parametrize("body", [b"{}", b'{"busy": 1}', b'{"busy": "yes"}'])
def test_busy_is_true_or_false(scheduler: SchedulerUnderTest, body: bytes) -> None:
    """Anything else is refused with a sentence."""
    tenant_id = scheduler.tenant().tenant_id
    route = f"/api/v1/tenants/{tenant_id}/busy"
    status, answer = request(scheduler, "POST", route, body)
    assert (status, "neither true nor false" in answer["message"]) == (400, True)
