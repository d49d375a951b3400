"""How much work is in flight when a recall comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.protocol.messages import DrainStalled, TurnDropped, TurnRequested
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import FakeScheduler, HookedClient
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

Opened = Callable[..., tuple[GpuProcess, HookedClient]]
Start = Callable[..., GpuProcess]

MS = 1_000_000


def left_at_recall(client: HookedClient, sim: SimulatedMachine) -> int:
    """How many launches were not over when the gate closed. All of them are over at the end of the
    drain. Their number tells what a time would, on a busy machine too."""
    client.recall()
    return left_at_drop(client, sim)


def left_at_drop(client: HookedClient, sim: SimulatedMachine) -> int:
    dropped = client.expect(TurnDropped)
    spins = [record for record in sim.journal() if record.name == "spin"]
    assert all(record.ended_ns <= dropped.drained_at_ns for record in spins)
    return sum(record.ended_ns > dropped.closed_at_ns for record in spins)


def wait_for_launches(sim: SimulatedMachine, count: int) -> None:
    """Until so many launches are done, by the journal."""
    wait_until(lambda: sum(record.name == "spin" for record in sim.journal()) >= count)


@pytest.mark.promise(
    "hook-32",
    "Work in flight is bounded in time while a second tenant is registered, for the first recall "
    "too",
)
@pytest.mark.parametrize("stream", ["d", "1", "p"])
def test_the_first_recall_of_long_launches_is_bounded(
    opened: Opened, sim: SimulatedMachine, stream: str
) -> None:
    """A loop that queues 2 ms launches as fast as it can: what is left at the first recall and at
    later ones is within the window, on any kind of stream."""
    shell, client = opened(window_ms=20)
    shell.say("0 create 1")
    shell.say(f"0 loop {stream} {2 * MS}")
    left = []
    for turn in range(3):
        client.grant_request()
        wait_for_launches(sim, 50 * (turn + 1))
        left.append(left_at_recall(client, sim))
    assert max(left) <= 12, left
    client.expect(TurnRequested)
    client.grant()
    shell.say("0 stop")
    shell.expect("0 loop 0")


@pytest.mark.promise(
    "hook-56",
    "Work in up to sixteen streams of a thread that waits for what its program does later is held "
    "up once, and not again as long as it takes for that reason",
)
@pytest.mark.parametrize(("stream", "launches"), [("1", 3), ("1", 40), ("d", 40)])
def test_work_that_waits_for_the_host_is_held_up_once(
    opened: Opened, stream: str, launches: int
) -> None:
    """A stream polls a flag that the host sets when it has launched more. Who holds a launch up
    makes the work before it last: if that were a measure, each round would take longer."""
    shell, client = opened(window_ms=20, drain_stall_ms=500)
    shell.say("0 create 1")
    shell.say(f"0 rounds {stream} 20 {launches}")
    client.grant_request()
    shell.expect("0 create 0")
    first, *later = (int(shell.expect("round ").split()[1]) for _ in range(20))
    assert sum(later) < first
    shell.expect("0 rounds 0")


@pytest.mark.promise("hook-32")
def test_long_launches_are_bounded_after_work_that_waited_for_the_host(
    opened: Opened, sim: SimulatedMachine
) -> None:
    """No more of them go at once than that work has waited for."""
    shell, client = opened(window_ms=20, drain_stall_ms=400)
    shell.say("0 create 1")
    shell.say("0 rounds 1 3 4")
    client.grant_request()
    for _ in range(3):
        shell.expect("round ")
    shell.expect("0 rounds 0")
    spun = sum(record.name == "spin" for record in sim.journal())
    shell.say(f"0 loop 1 {60 * MS}")
    wait_for_launches(sim, spun + 2)
    assert left_at_recall(client, sim) <= 20
    client.expect(TurnRequested)
    client.grant()
    shell.say("0 stop")
    shell.expect("0 loop 0")


def looped(shell: GpuProcess) -> int:
    """How many launches loops have made so far."""
    shell.say("7 looped")
    return int(shell.expect("7 looped").split()[2])


@pytest.mark.promise("hook-56")
def test_a_hold_ends_though_recalls_come_sooner_than_its_patience(opened: Opened) -> None:
    """Launches of 180 ms make the window patient for 0.7 s. The scheduler opens the gate again
    where a drain stalls, and asks for the turn again 0.5 s later: each hold was cut short, and
    began anew."""
    shell, client = opened(window_ms=20, drain_stall_ms=200)
    shell.say("0 create 1")
    shell.say(f"0 spin 1 {180 * MS} 3")
    shell.say("0 sync")
    shell.say("0 rounds 1 1 1")
    client.grant_request()
    shell.expect("0 sync 0")
    assert shell.is_silent(for_s=0.1)
    client.recall()
    client.expect(DrainStalled)
    client.reopen()
    shell.expect("0 rounds 0", within_s=0.5)


@pytest.mark.promise("hook-32")
@pytest.mark.parametrize(("short", "ms", "most"), [(0, 2000, 300), (2000, 100, 300)])
def test_the_first_of_many_long_launches_lets_few_others_go(
    opened: Opened, sim: SimulatedMachine, short: int, ms: int, most: int
) -> None:
    """As long as it is not over, nothing tells it from work that waits for what the program does
    next. Holds that are ever shorter let thousands go, which is minutes of the device."""
    shell, client = opened(window_ms=20)
    shell.say("0 create 1")
    shell.say(f"0 spin 1 2000 {short}")
    shell.say(f"0 loop 1 {ms * MS}")
    client.grant_request()
    wait_for_launches(sim, short + (16 if short else 1))
    assert looped(shell) <= most


@pytest.mark.promise("hook-32")
def test_launches_that_grow_long_in_a_turn_are_kept_few(
    opened: Opened, sim: SimulatedMachine
) -> None:
    """Many short ones were in flight. Of long ones it is two soon: one that runs and the next."""
    shell, client = opened(window_ms=20)
    shell.say("0 spin d 2000 2000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.say(f"0 loop d {15 * MS}")
    wait_for_launches(sim, 2000 + 100)
    assert left_at_recall(client, sim) <= 2
    client.expect(TurnRequested)
    client.grant()
    shell.say("0 stop")
    shell.expect("0 loop 0")


@pytest.mark.promise("hook-32")
@pytest.mark.parametrize("launches", [2001, 2002])
def test_a_group_ends_with_its_turn(opened: Opened, launches: int) -> None:
    """A turn ends within a group of short launches: after one of two launches in a row, at least.
    The next turn, which another thread asks for, begins a group of its own: its first launch goes
    alone."""
    shell, client = opened(window_ms=20, drain_stall_ms=60_000)
    shell.say(f"0 spin d 2000 {launches}")
    client.grant_request()
    shell.expect("0 spin 0")
    client.recall_and_drop()
    shell.say("1 current")
    shell.say("1 spin d 1000")
    client.grant_request()
    shell.expect("1 spin 0")
    shell.say("0 poll d")
    shell.say("0 poll d")
    shell.expect("0 poll 0")
    assert shell.is_silent(for_s=0.1)
    shell.say("1 release")
    shell.expect("1 release 0")
    shell.expect("0 poll 0")


@pytest.mark.promise("hook-32")
@pytest.mark.parametrize("apart", ["apart", ""])
def test_streams_that_are_used_in_turn_are_bounded(
    opened: Opened, sim: SimulatedMachine, apart: str
) -> None:
    """Whatever handles the driver gave to them: two whose place in the thread's table is the same,
    and two others."""
    shell, client = opened(window_ms=20)
    shell.say(f"0 twins {2 * MS} {apart}")
    left = []
    for turn in range(3):
        client.grant_request()
        wait_for_launches(sim, 100 * (turn + 1))
        left.append(left_at_recall(client, sim))
    assert max(left) <= 12, left
    client.expect(TurnRequested)
    client.grant()
    shell.say("0 stop")
    shell.expect("0 twins 0")


@pytest.mark.promise("hook-32")
@pytest.mark.parametrize("streams", [24])
def test_more_streams_than_are_remembered_are_bounded(
    opened: Opened, sim: SimulatedMachine, streams: int
) -> None:
    """One that makes way for another waits for what it has under way."""
    shell, client = opened(window_ms=20)
    shell.say(f"0 many {2 * MS} {streams}")
    client.grant_request()
    wait_for_launches(sim, 10 * streams)
    assert left_at_recall(client, sim) <= 50  # 240 and more without a bound
    client.expect(TurnRequested)
    client.grant()
    shell.say("0 stop")
    shell.expect("0 many 0")


@pytest.mark.promise("hook-32")
def test_without_a_window_the_same_loop_queues_without_bound(
    opened: Opened, sim: SimulatedMachine
) -> None:
    """The control: alone on the device nothing bounds the queue, and the drain still waits for
    all of it."""
    shell, client = opened(tenants=1)
    shell.say("0 poll d")
    client.grant_request()
    shell.expect("0 poll 0")
    shell.say("0 spin d 1000 50")
    shell.expect("0 spin 0")
    client.recall()
    wait_until(lambda: shell.log_lines("shut"))
    assert client.hears_none(TurnDropped, for_s=0.05)
    shell.say("1 release")
    assert left_at_drop(client, sim) == 50
    assert all(record.ended_ns for record in sim.journal())


@pytest.mark.promise("hook-32")
def test_the_window_begins_when_a_second_tenant_comes(
    opened: Opened, sim: SimulatedMachine
) -> None:
    """A loop that ran alone is bounded once the queue from that time is done."""
    shell, client = opened(tenants=1)
    shell.say(f"0 loop d {MS}")
    client.grant_request()
    wait_for_launches(sim, 1)
    client.contention(waiters=0, tenants=2)
    queued_ns = max(record.submitted_ns for record in sim.journal())
    wait_until(
        lambda: any(
            record.submitted_ns > queued_ns + 100 * MS
            and record.started_ns - record.submitted_ns < 20 * MS
            for record in sim.journal()
        )
    )
    assert left_at_recall(client, sim) <= 25
    client.expect(TurnRequested)
    client.grant()
    shell.say("0 stop")
    shell.expect("0 loop 0")


@pytest.mark.promise("hook-20")
def test_work_on_a_destroyed_stream_is_waited_for(opened: Opened, sim: SimulatedMachine) -> None:
    """A stream that is destroyed with work in flight still counts in the drain."""
    shell, client = opened(tenants=1)
    shell.say("0 create 1")
    shell.say(f"0 spin 1 {80 * MS}")
    client.grant_request()
    shell.say("0 destroy 1")
    shell.expect("0 destroy 0")
    dropped = client.recall_and_drop()
    ended = [record.ended_ns for record in sim.journal() if record.name == "spin"]
    assert ended and max(ended) <= dropped.drained_at_ns


@pytest.mark.promise("hook-20")
def test_work_in_a_threads_own_default_stream_is_waited_for(
    opened: Opened, sim: SimulatedMachine
) -> None:
    """Only its own thread can name that stream: with and without a window its work drains."""
    shell, client = opened(tenants=1)
    shell.say("1 current")
    shell.expect("1 current 0")
    for tenants in (1, 2):
        client.contention(waiters=0, tenants=tenants)
        shell.say(f"1 spin p {60 * MS}")
        client.grant_request()
        shell.expect("1 spin 0")
        dropped = client.recall_and_drop()
        ended = [record.ended_ns for record in sim.journal() if record.name == "spin"]
        assert len(ended) == tenants and max(ended) <= dropped.drained_at_ns


def test_streams_come_and_go_under_a_window(opened: Opened, sim: SimulatedMachine) -> None:
    """Streams at recycled addresses, hundreds of them, keep the window's events valid."""
    shell, client = opened()
    for _ in range(300):
        shell.say("0 create 1")
        shell.say("0 spin 1 1000 3")
        shell.say("0 destroy 1")
    client.grant_request()
    for _ in range(300):
        shell.expect("0 create 0")
        shell.expect("0 spin 0")
        shell.expect("0 destroy 0")
    assert left_at_recall(client, sim) <= 3


@pytest.mark.promise("backing-32")
def test_the_window_asks_no_event_of_a_context_that_another_thread_ends(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """A stream makes way in the thread's table for one of another context. What it has under way is
    waited for, but the driver may have taken its events down already."""
    faults = "hold cuCtxDestroy until=go;fail cuEventQuery from=go.held until=go times=0 result=999"
    program = start("ends_in_window", env={"GPUSHARE_SIM_FAULTS": faults})
    client = scheduler.accept()
    client.welcome(window_ms=20)
    client.grant_request()
    files = Files(sim)
    files.wait_for_held("go")
    program.say("launch")
    program.expect("done")
    files.make("go")
    program.expect("ended")
    assert program.finish() == 0
    assert sim.happened() == ["hold cuCtxDestroy"]


@pytest.mark.promise(
    "hook-62",
    "The window ends no capture of the program, also where the driver refuses its events",
)
@pytest.mark.parametrize(
    "plan",
    ["", "fail cuEventRecord nth=1 times=0 result=2 thread=captures_among_"],
    ids=["events", "no events"],
)
def test_the_window_asks_no_stream_that_captures(
    start: Start, scheduler: FakeScheduler, plan: str
) -> None:
    """Their places in the thread's window go to other streams meanwhile."""
    program = start("captures_among_many", env={"GPUSHARE_SIM_FAULTS": plan} if plan else None)
    client = scheduler.accept()
    client.welcome(window_ms=20)
    client.grant_request()
    assert program.expect("broken") == "broken 0"
    assert program.finish() == 0
