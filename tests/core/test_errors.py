"""Events that name somebody unknown, and transitions that do not exist."""

from __future__ import annotations

import itertools

import pytest

from jupyter_gpushare.core import errors
from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RefuseClient, RenewConnection, ReportFailure
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId, TurnId
from jupyter_gpushare.core.records import Client, Tenant
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.core.state import State
from jupyter_gpushare.core.transitions import (
    CLIENT_TRANSITIONS,
    TENANT_TRANSITIONS,
    ClientState,
    ClientTrigger,
    TenantState,
    TenantTrigger,
)

from .desk import TURNS_ALONE, Desk

NOBODY = ClientId(99)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (ev.TenantRemoved(tenant=TenantId("z")), errors.UnknownTenant),
        (ev.InterruptRequested(tenant=TenantId("z")), errors.UnknownTenant),
        (
            ev.ClientJoined(client=NOBODY, tenant=TenantId("z"), pid=1, process_name="x"),
            errors.TenantGone,
        ),
        (ev.DeviceOpened(client=ClientId(1), device=DeviceId("Z")), errors.UnknownDevice),
        (ev.DeviceLost(device=DeviceId("Z")), errors.UnknownDevice),
        (
            ev.TenantRegistered(tenant=TenantId("a"), name="a", owner="eve", kind="kernel"),
            errors.WrongOwner,
        ),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_unknown_names_have_their_own_error(event: ev.Event, error: type[Exception]) -> None:
    """Each names what is wrong and what to do, and nothing has changed after it."""
    desk = Desk()
    a = desk.client("a")
    desk.ask(a)
    before = desk.scheduler.snapshot(desk.now_s)
    with pytest.raises(error, match=r"\. .+\.?$"):
        desk.do(event)
    desk.scheduler.check_invariants()
    assert desk.scheduler.snapshot(desk.now_s) == before
    assert desk.do(ev.ClockTicked()) == []


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (ev.TurnRequested(client=NOBODY), "UnknownClient"),
        (
            ev.TurnDropped(client=NOBODY, turn=TurnId(1), reason=ev.DropReason.IDLE),
            "UnknownClient",
        ),
        (
            ev.ClientJoined(client=ClientId(1), tenant=TenantId("a"), pid=1, process_name="x"),
            "DuplicateClient",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_numbers_of_ours_that_are_wrong_are_reported(event: ev.ClientEvent, error: str) -> None:
    """Client numbers are ours: the connection that has one is made anew, and the log says why."""
    desk = Desk()
    desk.ask(desk.client("a"))
    commands = desk.scheduler.handle(event, now_s=desk.now_s)
    failure = commands[0]
    assert isinstance(failure, ReportFailure) and error in failure.message
    assert event.client in {
        each.client for each in commands if isinstance(each, RenewConnection | RefuseClient)
    }
    desk.scheduler.check_invariants()


def test_errors_know_whose_fault_they_are() -> None:
    """Requests, peers and we ourselves are told apart."""
    assert errors.UnknownTenant.fault is errors.WrongOwner.fault is errors.Fault.REQUEST
    assert errors.TenantGone.fault is errors.UnknownDevice.fault is errors.Fault.PEER
    assert errors.TooManyClients.fault is errors.Fault.PEER
    assert errors.UnknownClient.fault is errors.InvalidTransition.fault is errors.Fault.OURS


def test_a_limit_on_clients() -> None:
    """One client too many is refused; the others do not notice."""
    desk = Desk(TURNS_ALONE.replace(clients_max=2))
    desk.client("a")
    desk.client("b")
    with pytest.raises(errors.TooManyClients, match="2 processes"):
        desk.client("a")
    assert len(desk.status("a").clients) == 1


def test_a_loss_may_be_reported_twice() -> None:
    """The process and its connection both report the end."""
    desk = Desk()
    a = desk.client("a")
    desk.lose(a)
    assert desk.lose(a) == []


def state_with(client_state: ClientState, tenant_state: TenantState) -> tuple[State, Client]:
    state = State(settings=SchedulerSettings())
    tenant = Tenant(TenantId("a"), "a", "me", "kernel", 0, state=tenant_state)
    client = Client(ClientId(1), tenant.id, 1, "python", state=client_state)
    state.tenants[tenant.id] = tenant
    state.clients[client.id] = tenant.clients[client.id] = client
    tenant.story.append("100.000 s TurnRequested cuLaunchKernel")
    return state, client


@pytest.mark.promise(
    "scheduler-15",
    "Its transitions are a table, and the documented diagrams are made from it",
)
@pytest.mark.parametrize(
    ("where", "trigger"), list(itertools.product(ClientState, ClientTrigger)), ids=str
)
def test_client_transitions_are_the_table(where: ClientState, trigger: ClientTrigger) -> None:
    """A client moves along the table, and in no other way."""
    state, client = state_with(where, TenantState.IDLE)
    if (where, trigger) in CLIENT_TRANSITIONS:
        state.move_client(client, trigger)
        assert client.state is CLIENT_TRANSITIONS[where, trigger]
    else:
        with pytest.raises(errors.InvalidTransition, match="TurnRequested cuLaunchKernel"):
            state.move_client(client, trigger)
        assert client.state is where


@pytest.mark.promise("scheduler-15")
@pytest.mark.parametrize(
    ("where", "trigger"), list(itertools.product(TenantState, TenantTrigger)), ids=str
)
def test_tenant_transitions_are_the_table(where: TenantState, trigger: TenantTrigger) -> None:
    """A tenant moves along the table, and in no other way."""
    state, client = state_with(ClientState.IDLE, where)
    tenant = state.tenants[client.tenant]
    if (where, trigger) in TENANT_TRANSITIONS:
        state.move_tenant(tenant, trigger)
        assert tenant.state is TENANT_TRANSITIONS[where, trigger]
    else:
        with pytest.raises(errors.InvalidTransition, match="TurnRequested cuLaunchKernel"):
            state.move_tenant(tenant, trigger)
        assert tenant.state is where


def test_the_story_is_bounded() -> None:
    """A tenant remembers its last lines only."""
    desk = Desk()
    a = desk.client("a")
    for _ in range(100):
        desk.ask(a)
        desk.drop(a)
    with pytest.raises(errors.CoreError):
        desk.do(ev.TenantRemoved(tenant=TenantId("z")))
    tenant = desk.scheduler._machine._state.tenants[TenantId("a")]
    assert len(tenant.story) == 24
