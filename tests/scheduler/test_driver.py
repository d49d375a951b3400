"""The loop around the core, with a core that does what the test says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import pytest

from jupyter_gpushare.core.commands import (
    CloseClient,
    Command,
    GrantTurn,
    KillClient,
    RefuseClient,
    RenewConnection,
    ReportFailure,
    ReportOverdue,
    WakeAt,
)
from jupyter_gpushare.core.errors import RequestFailed, TooManyClients, UnknownDevice, UnknownTenant
from jupyter_gpushare.core.events import (
    CellBegan,
    CellEnded,
    ClientLost,
    ClockTicked,
    Event,
    InterruptRequested,
)
from jupyter_gpushare.core.ids import ClientId, TenantId, TurnId
from jupyter_gpushare.core.shown.waits import Estimate
from jupyter_gpushare.core.snapshot import Snapshot
from jupyter_gpushare.scheduler.driver import Driver

ONE, TWO = ClientId(1), ClientId(2)
BEGAN = CellBegan(client=ONE)
GRANT = GrantTurn(client=ONE, turn=TurnId(1), quantum_s=1, waiters=0)
OVERDUE = ReportOverdue(
    client=TWO, tenant_name="notebook", process_name="python", pid=7, asked_s_ago=31
)


class ScriptedCore:
    """Answers each event by its type, each command in a step of its own; an exception is raised."""

    def __init__(self, **answers: list[Command] | Exception) -> None:
        self.answers = answers
        self.handled: list[tuple[float, Event]] = []
        self.asked_for_steps_after: Callable[[], int] = lambda: 0
        self.done_before_each_step: list[int] = []

    def steps(self, event: Event, *, now_s: float) -> Iterator[list[Command]]:
        self.handled.append((now_s, event))
        answer = self.answers.get(type(event).__name__, [])
        if isinstance(answer, Exception):
            raise answer
        for command in answer:
            self.done_before_each_step.append(self.asked_for_steps_after())
            yield [command]

    def snapshot(self, now_s: float) -> Snapshot:
        raise NotImplementedError

    def estimates(self, tenants: Iterable[TenantId], now_s: float) -> dict[TenantId, Estimate]:
        raise NotImplementedError


class RecordingLinks:
    """Takes everything down; `gone` are clients that cannot be reached."""

    def __init__(self, *gone: ClientId) -> None:
        self.gone = gone
        self.done: list[object] = []

    def deliver(self, command: Command) -> ClientId | None:
        self.done.append(command)
        client = getattr(command, "client", None)
        return client if client in self.gone else None

    def close(self, client: ClientId, message: str) -> None:
        self.done.append(("close", client, message))

    def renew(self, client: ClientId) -> None:
        self.done.append(("renew", client))

    def kill(self, client: ClientId) -> None:
        self.done.append(("kill", client))


class ManualTimer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when, self.callback, self.cancelled = when, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Stands still; timers are fired by the test."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[ManualTimer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[[], None]) -> ManualTimer:
        self.timers.append(ManualTimer(when, callback))
        return self.timers[-1]


def driver_of(core: ScriptedCore, links: RecordingLinks, clock: ManualClock) -> Driver:
    return Driver(scheduler=core, clock=clock, links=links)


def test_commands_are_performed_in_order() -> None:
    """What the core wants is done at once, in its order, by the one who can."""
    core = ScriptedCore(
        CellBegan=[
            GRANT,
            CloseClient(client=TWO, tenant_name="notebook"),
            KillClient(client=TWO),
            OVERDUE,
        ]
    )
    links = RecordingLinks()
    driver_of(core, links, ManualClock()).submit(BEGAN)
    assert links.done == [
        GRANT,
        ("close", TWO, "notebook was shut down. Start it again to use the GPU."),
        ("kill", TWO),
    ]


def test_a_step_is_performed_before_the_core_is_asked_for_the_next() -> None:
    """A grant is on its way while the core still works on the rest."""
    core, links = ScriptedCore(CellBegan=[GRANT, OVERDUE, GRANT]), RecordingLinks()
    core.asked_for_steps_after = lambda: len(links.done)
    driver_of(core, links, ManualClock()).submit(BEGAN)
    assert core.done_before_each_step == [0, 1, 1]


def test_a_failed_send_comes_back_as_an_event() -> None:
    """The core learns that a client cannot be reached after all commands are performed."""
    core = ScriptedCore(CellBegan=[GRANT, WakeAt(at_s=101)])
    clock = ManualClock()
    driver_of(core, RecordingLinks(ONE), clock).submit(BEGAN)
    assert [type(event) for _, event in core.handled] == [CellBegan, ClientLost]
    assert clock.timers[0].when == 101


def test_an_event_during_an_event_waits_for_its_turn() -> None:
    """What happens while commands are performed is handled after them, not within them."""
    core = ScriptedCore(CellBegan=[GRANT, WakeAt(at_s=101)])

    class Reentrant(RecordingLinks):
        def deliver(self, command: Command) -> ClientId | None:
            driver.submit(CellEnded(client=ONE))
            assert len(core.handled) == 1
            return super().deliver(command)

    driver = driver_of(core, Reentrant(), ManualClock())
    driver.submit(BEGAN)
    assert [type(event) for _, event in core.handled] == [CellBegan, CellEnded]


def test_the_last_wake_up_counts() -> None:
    """A later WakeAt replaces an earlier one; when the time comes the core is told."""
    core = ScriptedCore(CellBegan=[WakeAt(at_s=105), WakeAt(at_s=103)])
    clock = ManualClock()
    driver_of(core, RecordingLinks(), clock).submit(BEGAN)
    first, second = clock.timers
    assert first.cancelled and not second.cancelled
    clock.now_s = 103.0
    second.callback()
    assert (103.0, ClockTicked(cause="time came")) in core.handled


@pytest.mark.parametrize(
    ("event", "error", "closed"),
    [
        (BEGAN, TooManyClients("Full. Wait."), True),
        (BEGAN, KeyError("a bug that nothing undid"), False),
        (InterruptRequested(tenant=TenantId("t")), UnknownTenant("gone"), False),
        (InterruptRequested(tenant=TenantId("t")), UnknownDevice("a look at it"), False),
    ],
)
def test_a_fault_is_borne_by_whose_it_is(event: Event, error: Exception, closed: bool) -> None:
    """A client's fault costs its connection; ours and a request's are logged, and we go on."""
    core = ScriptedCore(CellBegan=error, InterruptRequested=error, CellEnded=[GRANT])
    links = RecordingLinks()
    driver = driver_of(core, links, ManualClock())
    driver.submit(event)
    assert links.done == ([("close", ONE, "Full. Wait.")] if closed else [])
    driver.submit(CellEnded(client=ONE))
    assert GRANT in links.done


INTERRUPT = InterruptRequested(tenant=TenantId("t"))


@pytest.mark.promise(
    "scheduler-75", "A request that cannot be met is answered with the sentence that says why"
)
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (UnknownTenant("There is no t. List them."), UnknownTenant),
        ([ReportFailure(message="a traceback")], RequestFailed),
        (KeyError("a bug that nothing undid"), RequestFailed),
    ],
)
def test_a_request_is_answered(answer: list[Command] | Exception, error: type[Exception]) -> None:
    """Its caller gets the error, ours too, with a sentence on what to do; then the loop goes on."""
    core = ScriptedCore(InterruptRequested=answer, CellEnded=[GRANT])
    links = RecordingLinks()
    driver = driver_of(core, links, ManualClock())
    with pytest.raises(error, match=r"\. .+\.$"):
        driver.request(INTERRUPT)
    driver.submit(CellEnded(client=ONE))
    assert links.done == [GRANT]


def test_a_request_that_is_met_raises_nothing() -> None:
    """Its commands are performed when the call returns."""
    links = RecordingLinks()
    driver_of(ScriptedCore(InterruptRequested=[GRANT]), links, ManualClock()).request(INTERRUPT)
    assert links.done == [GRANT]


def test_a_failure_of_ours_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With the core's report; whose words are lost connects again."""
    core = ScriptedCore(
        CellBegan=[ReportFailure(message="story, traceback"), RenewConnection(client=ONE)]
    )
    links = RecordingLinks()
    driver_of(core, links, ManualClock()).submit(BEGAN)
    assert "story, traceback" in caplog.text
    assert links.done == [("renew", ONE)]


def test_who_made_the_core_fail_is_told_until_when_it_waits() -> None:
    """The sentence is the same at each refusal, so that a user reads it once."""
    refusals: list[Command] = [RefuseClient(client=ONE, until_s=110, lasts_s=10)]
    links = RecordingLinks()
    driver_of(ScriptedCore(CellBegan=refusals), links, ManualClock()).submit(BEGAN)
    ((what, client, message),) = links.done  # type: ignore[misc]
    assert (what, client) == ("close", ONE)
    assert re.search(r"lets it in again at \d\d:\d\d:\d\d, 10 s after that\. ", message)


def test_a_command_that_cannot_be_performed_costs_one_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client that did not hear it connects again; commands after it are performed."""
    core = ScriptedCore(CellBegan=[GRANT, KillClient(client=TWO)])

    class Broken(RecordingLinks):
        def deliver(self, command: Command) -> ClientId | None:
            raise KeyError("a bug in a message")

    links = Broken()
    driver_of(core, links, ManualClock()).submit(BEGAN)
    assert links.done == [("renew", ONE), ("kill", TWO)]
    assert "a bug in a message" in caplog.text
