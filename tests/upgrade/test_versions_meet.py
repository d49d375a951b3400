"""A hub is updated while kernels run, or put back: their hooks are of another version than the
scheduler, and so are command lines."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.memory_tenants import CANCELLED, MemoryTenants, faults
from tests.support.paths import HOOK_LIBRARY
from tests.support.scheduler_process import SchedulerUnderTest, environment
from tests.support.sim import MIB, SimulatedMachine
from tests.support.waits import wait_until
from tests.upgrade import earlier
from tests.upgrade.earlier import EarlierScheduler

pytestmark = [  # no promises: where git's history is short, these are skipped
    pytest.mark.full,
    pytest.mark.skipif(
        not earlier.is_in_history(),
        reason=f"git has no {earlier.COMMIT} here, the version to meet. Fetch the whole history.",
    ),
]
TOLD = "the GPU scheduler speaks another version of the protocol than this process."
BYTES = 640 * MIB
WAITS = {"memory_mode": "swap", "quantum_s": 0.3, "reconnect_s": 600, "memory_wait_s": 0}
NOW, BEFORE = SchedulerUnderTest, EarlierScheduler


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SimulatedMachine]:
    """A device for two of three."""
    with SimulatedMachine(tmp_path / "machine", bytes_per_device=1536 * MIB) as machine:
        yield machine


@contextmanager
def started(
    kind: type[SchedulerUnderTest], folder: Path, machine: SimulatedMachine
) -> Iterator[SchedulerUnderTest]:
    env = machine.env({"CUDA_VISIBLE_DEVICES": "0"})
    options = [f"--GPUShareScheduler.{name}={value}" for name, value in WAITS.items()]
    scheduler = kind(folder / "run", *options, env=env, check=kind is NOW)
    try:
        yield scheduler
    finally:
        status = scheduler.stop()
    assert status == 0 and "Traceback" not in scheduler.log, scheduler.log


def hook_of(version: str) -> Path:
    return HOOK_LIBRARY if version == "now" else earlier.hook()


@pytest.mark.parametrize(
    ("hook", "first", "second"),
    [
        pytest.param("earlier", BEFORE, NOW, id="update"),
        pytest.param("now", NOW, BEFORE, id="back"),
    ],
)
def test_kernels_outlive_a_scheduler_of_another_version(
    tmp_path: Path,
    machine: SimulatedMachine,
    hook: str,
    first: type[SchedulerUnderTest],
    second: type[SchedulerUnderTest],
) -> None:
    """One computes while the scheduler is replaced, one waits, and one is parked. Each is told in a
    sentence. Calls wait and can be interrupted, and go on when the first version is back."""
    with started(first, tmp_path, machine) as scheduler:
        tenants = MemoryTenants(scheduler, machine.env(), tmp_path, hook=hook_of(hook))
        works, waits, parked = (tenants.start(name) for name in ("works", "waits", "parked"))
        for seed, tenant in enumerate((parked, waits, works), start=1):
            tenant.ok("begin")
            tenant.hold(0, seed, BYTES)
            tenant.ok("end")
        works.ok("begin")
        works.say("spin 3000000000")
        wait_until(lambda: has_the_turn(scheduler, "works"))
        waits.ok("begin")
        waits.say("sums")
        wait_until(lambda: scheduler.status()["devices"][0]["queue"])
    with tenants:
        with started(second, tmp_path, machine):
            for tenant in (works, waits, parked):
                tenant.process.expect_error(TOLD)
            assert works.heard("spin") == [0]
            works.ok("end")
            parked.ok("begin")
            parked.say("fill 0 9")
            assert parked.process.is_silent(for_s=0.3)
            parked.say("!cancel")
            assert parked.heard("fill") == [CANCELLED]
            parked.ok("end")
        with started(first, tmp_path, machine):
            assert waits.heard_sums() == waits.expected()
            waits.ok("end")
            for _ in range(2):
                for tenant in (parked, works, waits):
                    tenant.verify()
    assert faults(machine) == [] and machine.computing_overlaps() == []


def has_the_turn(scheduler: SchedulerUnderTest, name: str) -> bool:
    holders = scheduler.status()["devices"][0]["holders"]
    return name in {each["name"] for each in holders}


@pytest.mark.parametrize("scheduler_of", ["now", "earlier"])
def test_clients_understand_the_other_scheduler(
    tmp_path: Path, machine: SimulatedMachine, scheduler_of: str
) -> None:
    """The command line of the other version looks, changes a setting and takes it back."""
    kind = NOW if scheduler_of == "now" else BEFORE
    with started(kind, tmp_path, machine) as scheduler:
        hook = hook_of(scheduler_of)
        with MemoryTenants(scheduler, machine.env(), tmp_path, hook=hook) as tenants:
            tenants.start("train.ipynb").hold(0, 1, 64 * MIB)
            env = environment({"GPUSHARE_RUNTIME_DIR": str(scheduler.directory)})
            if scheduler_of == "now":
                env = earlier.environment(env)
            for words, told in (
                (["status"], "train.ipynb"),
                (["set", "quantum", "2s"], "quantum_s"),
                (["unset", "quantum"], "quantum_s"),
                (["hold", "train.ipynb", "1s"], ""),
                (["doctor"], "answers on"),
            ):
                done = subprocess.run(
                    earlier.command(*words),
                    env=env,
                    cwd="/",
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert "Traceback" not in done.stderr, done.stderr
                assert words == ["doctor"] or done.returncode == 0, (words, done.stderr)
                assert told in done.stdout, (words, done.stdout, done.stderr)
