"""A real scheduler beside the simulated NVML: devices by UUID, MIG instances, memory, loss."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import QueuePosition, TurnGranted
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.sim import GIB, MIB, SimulatedMachine
from tests.support.waits import WAIT_S_MAX

FAST = "--GPUShareScheduler.probe_period_s=0.1"
USE_CUDA = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
name = ctypes.create_string_buffer(96)
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(sys.argv[1]))) == 0
print("allocated", flush=True)
sys.stdin.read()
"""


def machine_env(machine: SimulatedMachine, **extra: str) -> dict[str, str]:
    """What a scheduler needs to see the machine, and no list of devices unless given."""
    env = {k: v for k, v in machine.env().items() if k in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    return {**env, "CUDA_VISIBLE_DEVICES": "0,1,2,3", **extra}


@contextmanager
def cuda_process(machine: SimulatedMachine, bytes_wanted: int, **extra: str) -> Iterator[None]:
    """A program outside of gpushare that holds device memory while the context lasts."""
    process = subprocess.Popen(
        [sys.executable, "-c", USE_CUDA, str(bytes_wanted)],
        env=machine.env(extra),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    try:
        assert process.stdout.readline() == "allocated\n"
        yield
    finally:
        process.stdin.close()
        process.wait(WAIT_S_MAX)
        process.stdout.close()


def uuids(scheduler: SchedulerUnderTest) -> list[str]:
    return [device["id"] for device in scheduler.status()["devices"]]


@pytest.mark.promise("scheduler-71", "Devices come from NVML by UUID")
def test_devices_are_known_by_uuid(runtime: Path, tmp_path: Path) -> None:
    """All devices of NVML are there at the start, with name and size, under their UUIDs."""
    machine = SimulatedMachine(tmp_path / "m", devices=2, bytes_per_device=4 * GIB)
    with running_scheduler(runtime, env=machine_env(machine)) as scheduler:
        devices = scheduler.status()["devices"]
    assert [device["bytes_total"] for device in devices] == [4 * GIB, 4 * GIB]
    assert len({device["id"] for device in devices}) == 2
    assert all(len(bytes.fromhex(device["id"])) == 16 for device in devices)


@pytest.mark.promise("scheduler-72", "`CUDA_VISIBLE_DEVICES` is honoured")
def test_cuda_visible_devices_is_honoured(runtime: Path, tmp_path: Path) -> None:
    """Indices and UUIDs of the scheduler's CUDA_VISIBLE_DEVICES limit what it serves; --devices
    wins over it."""
    machine = SimulatedMachine(tmp_path / "m", devices=2)
    with running_scheduler(runtime, env=machine_env(machine)) as scheduler:
        first, second = uuids(scheduler)
    dashed = f"{second[:8]}-{second[8:12]}-{second[12:16]}-{second[16:20]}-{second[20:]}"
    for listed, expected in (("1", [second]), (f"GPU-{dashed}", [second]), ("", [])):
        env = machine_env(machine, CUDA_VISIBLE_DEVICES=listed)
        with running_scheduler(runtime, env=env) as scheduler:
            assert uuids(scheduler) == expected
    env = machine_env(machine, CUDA_VISIBLE_DEVICES="1")
    with running_scheduler(runtime, "--devices=0", env=env) as scheduler:
        assert uuids(scheduler) == [first]


@pytest.mark.promise("scheduler-73", "MIG instances are devices")
def test_mig_instances_take_their_gpus_place(runtime: Path, tmp_path: Path) -> None:
    """A GPU that is divided is served as its instances, each under its own UUID."""
    machine = SimulatedMachine(tmp_path / "m", devices=1, mig_instances=2)
    with running_scheduler(runtime, env=machine_env(machine)) as scheduler:
        instances = scheduler.status()["devices"]
    assert len({instance["id"] for instance in instances}) == 2


@pytest.mark.promise("scheduler-71")
def test_memory_is_measured_while_there_are_clients(runtime: Path, tmp_path: Path) -> None:
    """What programs outside of gpushare use is seen, and seen to go."""
    machine = SimulatedMachine(tmp_path / "m")
    with (
        running_scheduler(runtime, FAST, env=machine_env(machine)) as scheduler,
        scheduler.joined(device=bytes.fromhex(uuids(scheduler)[0])),
    ):
        with cuda_process(machine, 512 * MIB):
            scheduler.eventually(lambda s: s["devices"][0]["bytes_used"] >= 512 * MIB)
        scheduler.eventually(lambda s: s["devices"][0]["bytes_used"] < 512 * MIB)


@pytest.mark.promise("bad-input-4")
def test_a_device_that_disappears(runtime: Path, tmp_path: Path) -> None:
    """It is shown as lost; who waits for it is let through to the driver's own error, and turns on
    other devices go on."""
    machine = SimulatedMachine(tmp_path / "m", devices=2)
    env = machine_env(machine)
    with running_scheduler(runtime, FAST, env=env) as scheduler:
        broken, sound = (bytes.fromhex(uuid) for uuid in uuids(scheduler))
        with (
            scheduler.joined("holder", device=broken) as holder,
            scheduler.joined("waiter", device=broken) as waiter,
            scheduler.joined("other", device=sound) as other,
        ):
            holder.take_turn()
            waiter.ask()
            waiter.expect(QueuePosition)
            turn = other.take_turn()
            faults = "lose device=0 call=cuMemAlloc nth=2"
            lose = USE_CUDA.replace("print(", "cuda.cuMemAlloc_v2(ctypes.byref(pointer), 1);print(")
            subprocess.run(
                [sys.executable, "-c", lose, "1"],
                env=machine.env({"GPUSHARE_SIM_FAULTS": faults}),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=WAIT_S_MAX,
            )
            waiter.expect(TurnGranted)
            scheduler.eventually(lambda s: [d["lost"] for d in s["devices"]] == [True, False])
            other.drop(turn.turn_id)
            other.take_turn()


def test_a_device_outside_the_list_is_shared_all_the_same(runtime: Path, tmp_path: Path) -> None:
    """A client that opens a device which the scheduler was not given is not left without turns."""
    machine = SimulatedMachine(tmp_path / "m")
    env = machine_env(machine, CUDA_VISIBLE_DEVICES="")
    with running_scheduler(runtime, env=env) as scheduler, scheduler.joined() as client:
        client.take_turn()
        assert [device["name"] for device in scheduler.status()["devices"]] == ["Scripted GPU"]


@pytest.mark.promise(
    "scheduler-74",
    "It starts without NVML, and a hanging or failing NVML does not hang it",
)
def test_without_nvml_it_starts(runtime: Path) -> None:
    """No NVML is a warning in the log, and devices are named by the programs that open them."""
    with running_scheduler(runtime) as scheduler, scheduler.joined() as client:
        client.take_turn()
        assert len(scheduler.status()["devices"]) == 1
