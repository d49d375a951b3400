"""Stream capture and the gate: captured calls never wait, and a recall never disturbs a capture."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.protocol.messages import DropReason, TurnDropped, TurnRequested
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import HookedClient
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

Opened = Callable[..., tuple[GpuProcess, HookedClient]]

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


def with_stream(opened: Opened) -> tuple[GpuProcess, HookedClient]:
    shell, client = opened(window_ms=50)
    shell.say("0 create 1")
    shell.expect("0 create 0")
    return shell, client


@pytest.mark.promise("hook-13", "A capture is neither gated nor disturbed by recalls")
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_captured_launches_need_no_turn(opened: Opened, mode: int) -> None:
    """A capture is recorded with the gate shut; its replay asks for the turn."""
    shell, client = with_stream(opened)
    shell.say(f"0 capture 1 {mode}")
    shell.expect("0 capture 0")
    shell.say("0 spin 1 1000 5")
    shell.expect("0 spin 0")
    shell.say("0 end_capture 1")
    shell.expect("0 end_capture 0")
    assert client.count(TurnRequested) == 0
    shell.say("0 replay 1")
    assert client.expect(TurnRequested).cause.startswith("cuGraphLaunch")
    client.grant()
    shell.expect("0 replay 0")
    shell.say("0 sync")
    shell.expect("0 sync 0")


@pytest.mark.promise("hook-13")
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_a_recall_in_the_middle_of_a_capture_leaves_it_alone(opened: Opened, mode: int) -> None:
    """The work before the capture drains, the turn goes back, the capture goes on and is valid."""
    shell, client = with_stream(opened)
    shell.say("0 spin 1 30000000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.say(f"0 capture 1 {mode}")
    shell.expect("0 capture 0")
    shell.say("0 spin 1 1000 5")
    shell.expect("0 spin 0")
    dropped = client.recall_and_drop()
    assert dropped.reason is DropReason.RECALL
    shell.say("0 spin 1 1000 5")
    shell.expect("0 spin 0")
    shell.say("0 end_capture 1")
    shell.expect("0 end_capture 0")
    shell.say("0 replay 1")
    client.grant_request()
    shell.expect("0 replay 0")
    shell.say("0 sync")
    shell.expect("0 sync 0")


@pytest.mark.promise("hook-13")
def test_other_streams_are_gated_during_a_capture(opened: Opened) -> None:
    """A capture on one stream opens the gate for no other."""
    shell, client = with_stream(opened)
    shell.say("0 create 2")
    shell.expect("0 create 0")
    shell.say(f"0 capture 1 {RELAXED}")
    shell.expect("0 capture 0")
    shell.say("1 current")
    shell.say("1 spin 2 1000")
    client.expect(TurnRequested)
    assert shell.expect("1 current 0")
    assert shell.is_silent(for_s=0.1)
    client.grant()
    shell.expect("1 spin 0")
    shell.say("0 end_capture 1")
    shell.expect("0 end_capture 0")


@pytest.mark.promise("hook-13")
def test_recalls_without_end_do_not_break_captures(opened: Opened) -> None:
    """Captures in a loop, and recalls as fast as they can be answered: every capture is valid."""
    shell, client = with_stream(opened)
    shell.say("2 current")
    shell.say("2 loop p 20000")
    for round_number in range(60):
        shell.say(f"0 capture 1 {round_number % 3}")
        shell.say("0 spin 1 1000 3")
        shell.say("0 end_capture 1")
    for _ in range(60):
        client.grant_request()
        client.recall_and_drop()
    client.grant_request()
    for _ in range(60):
        shell.expect("0 capture 0")
        shell.expect("0 spin 0")
        shell.expect("0 end_capture 0")
    shell.say("0 stop")
    shell.expect("2 loop 0")
    assert client.count(TurnDropped) == 60


@pytest.mark.promise("hook-13")
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_a_recall_while_a_capture_begins(opened: Opened, sim: SimulatedMachine, mode: int) -> None:
    """The driver has yet to hear of the capture when the streams are asked, and hears of it before
    a question. So the stream is not asked; what shows that is the stream that was destroyed."""
    faults = (
        "hold cuStreamBeginCapture until=begin",
        "hold cuStreamQuery from=recalled until=asked",
        "hold cuEventQuery from=recalled until=asked",
    )
    shell, client = opened({"GPUSHARE_SIM_FAULTS": ";".join(faults)}, window_ms=50)
    for command in ("create 1", "create 2"):
        shell.say(f"0 {command}")
        shell.expect("0 create 0")
    shell.say("0 poll 2")
    client.grant_request()
    shell.expect("0 poll 0")
    shell.say("0 destroy 2")
    shell.expect("0 destroy 0")
    shell.say(f"0 capture 1 {mode}")
    wait_until((sim.directory / "begin.held").exists)
    (sim.directory / "recalled").touch()
    client.recall()
    wait_until((sim.directory / "asked.held").exists)
    (sim.directory / "begin").touch()
    shell.expect("0 capture 0")
    (sim.directory / "asked").touch()
    shell.say("1 release")
    shell.expect("1 release 0")
    client.expect(TurnDropped)
    shell.say("0 end_capture 1")
    assert shell.expect("0 end_capture") == "0 end_capture 0"


@pytest.mark.promise("hook-15")
def test_a_capture_begins_while_events_cannot_be_destroyed(opened: Opened) -> None:
    """As while a launch waits for room in another stream's queue. The stream is idle, and there is
    an event that its last capture has left."""
    shell, client = opened({"GPUSHARE_SIM_FAULTS": "hold cuEventDestroy until=never"}, window_ms=50)
    shell.say("0 create 1")
    shell.expect("0 create 0")
    shell.say("0 spin 1 30000000")
    client.grant_request()
    shell.expect("0 spin 0")
    for _ in range(2):
        shell.say(f"0 capture 1 {THREAD_LOCAL}")
        shell.expect("0 capture 0")
        shell.say("0 end_capture 1")
        shell.expect("0 end_capture 0")
        shell.say("0 sync")
        shell.expect("0 sync 0")


def test_a_capture_ends_with_its_stream(opened: Opened) -> None:
    """A stream destroyed in the middle of a capture takes the capture along: the next drain is not
    held up by it, though nothing was recorded in the default streams."""
    shell, client = opened(tenants=1)
    for command in ("create 1", "capture 1", "destroy 1"):
        shell.say(f"0 {command}")
        shell.expect(f"0 {command.split()[0]} 0")
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    client.recall_and_drop()


@pytest.mark.promise("hook-14", "A capture that is left open does not keep the turn")
@pytest.mark.parametrize("tenants", [1, 2])
@pytest.mark.parametrize("kind", ["n", "b"])
def test_a_capture_that_is_left_open_gives_the_turn_back(
    opened: Opened, sim: SimulatedMachine, kind: str, tenants: int
) -> None:
    """A cell was interrupted before its capture ended. What it launched before drains, the turn
    goes back, and the capture is as valid as before."""
    shell, client = opened(tenants=tenants)
    shell.say("0 spin d 200000000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.say(f"0 create 1 {kind}")
    shell.expect("0 create 0")
    shell.say(f"0 capture 1 {THREAD_LOCAL}")
    shell.expect("0 capture 0")
    shell.say("0 spin 1 1000")
    shell.expect("0 spin 0")
    dropped = client.recall_and_drop()
    (launch,) = [record for record in sim.journal() if record.kind.name == "LAUNCH"]
    assert launch.ended_ns <= dropped.drained_at_ns
    shell.say("0 end_capture 1")
    shell.expect("0 end_capture 0")


@pytest.mark.promise("hook-14")
def test_a_capture_that_is_begun_twice_ends_once(opened: Opened) -> None:
    """The driver refuses the second and goes on with the first: the interrupted cell was run
    again."""
    shell, client = opened(tenants=1)
    for command, answer in (("create 1", 0), ("capture 1", 0), ("capture 1", 401)):
        shell.say(f"0 {command}")
        shell.expect(f"0 {command.split()[0]} {answer}")
    shell.say("0 end_capture 1")
    shell.expect("0 end_capture 0")
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    client.recall_and_drop()


@pytest.mark.promise("hook-20")
def test_work_of_a_threads_own_stream_drains_beside_a_capture(
    opened: Opened, sim: SimulatedMachine
) -> None:
    """The gate was open when it was launched, so that it has no event, and while a blocking stream
    captures nobody can be asked about it. The turn is kept until the capture ends."""
    shell, client = opened(tenants=1)
    shell.say("0 create 1 b")
    shell.expect("0 create 0")
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.say(f"0 spin p {200 * 1_000_000}")
    shell.expect("0 spin 0")
    shell.say(f"0 capture 1 {THREAD_LOCAL}")
    shell.expect("0 capture 0")
    client.recall()
    assert client.hears_none(TurnDropped, for_s=0.1)
    shell.say("0 end_capture 1")
    shell.expect("0 end_capture 0")
    dropped = client.expect(TurnDropped)
    launches = [record for record in sim.journal() if record.name == "spin"]
    assert all(record.ended_ns <= dropped.drained_at_ns for record in launches)
