"""A launch queue that is full: recording an event waits there, and nobody else does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.protocol.messages import TurnDropped
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import HookedClient
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

Opened = Callable[..., tuple[GpuProcess, HookedClient]]


@pytest.mark.promise(
    "hook-19", "A stream that ends or captures on a full queue holds up no one else"
)
@pytest.mark.parametrize("command", ["destroy 1", "capture 1 2"])
def test_a_stream_on_a_full_queue_holds_up_nobody(
    opened: Opened, sim: SimulatedMachine, command: str
) -> None:
    """What the stream has in flight is marked by an event before the driver is called. While that
    waits, other threads make and destroy streams, and a drain goes on, and waits for the work."""
    (sim.directory / "faults").write_text("hold cuEventRecord from=full until=go\n")
    shell, client = opened(tenants=1)
    shell.say("0 create 1")
    shell.expect("0 create 0")
    shell.say("0 spin 1 1000000000")
    client.grant_request()
    shell.expect("0 spin 0")
    (sim.directory / "full").touch()
    shell.say(f"0 {command}")
    wait_until((sim.directory / "go.held").exists)
    for other in ("current", "create 2", "destroy 2"):
        shell.say(f"1 {other}")
        shell.expect(f"1 {other.split()[0]} 0")
    client.recall()
    (sim.directory / "go").touch()
    shell.expect(f"0 {command.split()[0]} 0")
    dropped = client.expect(TurnDropped)
    (launch,) = [record for record in sim.journal() if record.kind.name == "LAUNCH"]
    assert launch.ended_ns <= dropped.drained_at_ns


@pytest.mark.promise("hook-19")
def test_a_drain_destroys_no_event(opened: Opened) -> None:
    """Where a queue is full the driver lets no event go: whoever destroys one then, waits."""
    shell, client = opened({"GPUSHARE_SIM_FAULTS": "hold cuEventDestroy until=never"}, tenants=1)
    for number in range(1, 4):
        shell.say(f"0 create {number}")
        shell.expect("0 create 0")
    shell.say("0 spin 1 50000000")
    client.grant_request()
    shell.expect("0 spin 0")
    for number in range(1, 4):
        shell.say(f"0 spin {number} 50000000")
        shell.expect("0 spin 0")
        shell.say(f"0 destroy {number}")
        shell.expect("0 destroy 0")
    client.recall_and_drop()
