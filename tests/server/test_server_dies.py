"""A Jupyter server that is killed with kernels running: nobody is left to remove their tenants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.server.server_process import JupyterServer
from tests.support import gpu_cells
from tests.support.kernels import kernel_env
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.sim import SimulatedMachine
from tests.support.waits import WAIT_S_MAX

LONG_MS = 600_000


@pytest.fixture
def scheduler(sim: SimulatedMachine, tmp_path: Path) -> Iterator[SchedulerUnderTest]:
    """For the simulated device."""
    env = {**sim.env(), "CUDA_VISIBLE_DEVICES": "0"}
    with running_scheduler(tmp_path / "run", env=env) as running:
        yield running


@pytest.fixture
def server(
    sim: SimulatedMachine, scheduler: SchedulerUnderTest, tmp_path: Path
) -> Iterator[JupyterServer]:
    env = kernel_env({**sim.env(), "CUDA_VISIBLE_DEVICES": "0"}, scheduler.directory)
    running = JupyterServer(tmp_path / "server", env)
    yield running
    running.kill()


@pytest.mark.promise(
    "server-19",
    "A server that dies with kernels running keeps nobody from the device",
)
@pytest.mark.promise(
    "bad-input-67",
    "A server that dies with kernels running: their turns and places are free",
)
def test_its_kernels_turn_and_place_are_free(
    server: JupyterServer, scheduler: SchedulerUnderTest, tmp_path: Path
) -> None:
    """The kernel that holds the device ends with its server, or is ended; the next one gets it."""
    server.await_scheduler()
    status, kernel = server.ask("POST", "/api/kernels", {"name": "python3"})
    assert status == 201, server.log
    client = BlockingKernelClient(
        connection_file=str(tmp_path / "server" / "runtime" / f"kernel-{kernel['id']}.json")
    )
    client.load_connection_file()
    client.start_channels(hb=False)  # a busy machine may miss a beat of a kernel that lives
    client.wait_for_ready(timeout=WAIT_S_MAX)
    client.execute(gpu_cells.setup())
    client.execute(gpu_cells.spin(LONG_MS))
    (holder,) = scheduler.eventually(lambda s: [d for d in s["devices"] if d["holders"]])["tenants"]
    assert holder["kernel_id"] == kernel["id"]
    server.kill()
    scheduler.eventually(lambda s: s["tenants"] == [])
    with scheduler.joined("next") as following:
        following.take_turn()
    client.stop_channels()
