"""Memory that cannot be moved, in the way of another user's call on a real device."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support import Program, command, program
from tests.gpu.test_swapping import SMALL
from tests.support.tenants import Tenants, tenants

FIXED = {"GPUSHARE_MEMORY": "off"}
FIXED_MIB = 4 << 10
HELD_MIB = 2 << 10
WANTED_MIB = 4 << 10
"""With the two others it is more than the device has, less the reserve."""
APPEARS_S_MAX = 60.0

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def memory_wait(scheduler: Tenants, name: str) -> str:
    """What the tenant is told of the memory that it waits for; empty when it waits for none."""
    (found,) = (t for t in scheduler.status()["tenants"] if t["name"] == name)
    return found["blocked_reason"] or ""


def await_wait(scheduler: Tenants, name: str) -> str:
    ends_s = time.monotonic() + APPEARS_S_MAX
    while time.monotonic() < ends_s:
        if "Else this notebook is out of memory within" in (reason := memory_wait(scheduler, name)):
            return reason
        time.sleep(0.1)
    raise AssertionError(f"{name} does not wait for memory: {memory_wait(scheduler, name)!r}")


def await_fixed(scheduler: Tenants, name: str, count: int) -> None:
    """Until the scheduler has heard of so much: memory that does not follow the turn is reported,
    and not asked for."""
    ends_s = time.monotonic() + APPEARS_S_MAX
    while time.monotonic() < ends_s:
        (found,) = (t for t in scheduler.status()["tenants"] if t["name"] == name)
        if sum(device["bytes_fixed"] for device in found["memory"]) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} has not so much that is fixed")


def await_measured(scheduler: Tenants) -> None:
    """Until a look at the device shows all that is there."""
    ends_s = time.monotonic() + APPEARS_S_MAX
    while time.monotonic() < ends_s:
        (device,) = scheduler.status()["devices"]
        if device["bytes_used"] >= device["bytes_allocated"] >= (FIXED_MIB + HELD_MIB) << 20:
            return
        time.sleep(0.1)
    raise AssertionError("the device is not looked at")


class Users:
    """ann's memory does not follow the turn, and stays. ben's and cid's moves."""

    def __init__(self, scheduler: Tenants, ann: Program, ben: Program, cid: Program) -> None:
        self.scheduler, self.ann, self.ben, self.cid = scheduler, ann, ben, cid

    def finish(self) -> list[dict[str, Any]]:
        return [user.finish() for user in (self.ann, self.ben, self.cid)]


@contextmanager
def users(directory: Path, wait_s: float) -> Iterator[Users]:
    env = dict(os.environ)
    settings = {**SMALL, "memory_wait_s": wait_s}
    filling = command("filling_cells")
    with (
        tenants(directory, env, settings=settings) as scheduler,
        program(filling, scheduler.env_of("ann", "ann", {**env, **FIXED})) as ann,
        program(filling, scheduler.env_of("ben", "ben", env)) as ben,
        program(filling, scheduler.env_of("cid", "cid", env)) as cid,
    ):
        for user in (ann, ben, cid):
            user.await_ready()
        assert ann.ask(f"fill {FIXED_MIB}") == {"got": True}
        await_fixed(scheduler, "ann", FIXED_MIB << 20)
        assert ben.ask(f"fill {HELD_MIB}") == {"got": True}
        await_measured(scheduler)
        yield Users(scheduler, ann, ben, cid)


@pytest.mark.promise("gpu-8", "A call waits, without the turn, for memory that cannot be moved")
def test_a_call_waits_for_memory_that_cannot_be_moved(tmp_path: Path) -> None:
    """Others have their turns meanwhile, and it goes on when that memory is freed."""
    with users(tmp_path / "run", wait_s=600.0) as found:
        found.ben.say(f"fill {WANTED_MIB}")
        assert "ann" in await_wait(found.scheduler, "ben")
        assert found.cid.ask("fill 64") == {"got": True}
        assert found.ann.ask("fill 64") == {"got": True}
        assert found.ann.ask("free") == {"got": True}
        assert found.ben.report() == {"got": True}
        assert found.finish() == [{"intact": True}] * 3


@pytest.mark.promise("gpu-9", "A call that has waited in vain is out of memory, and loses nothing")
def test_a_call_that_has_waited_in_vain(tmp_path: Path) -> None:
    """PyTorch raises its own error, its next try is refused at once, and a later one succeeds."""
    with users(tmp_path / "run", wait_s=3.0) as found:
        assert found.ben.ask(f"fill {WANTED_MIB}") == {"got": False}
        assert found.ben.ask("fill 64") == {"got": True}
        assert found.ann.ask("free") == {"got": True}
        assert found.ben.ask(f"fill {WANTED_MIB}") == {"got": True}
        assert found.finish() == [{"intact": True}] * 3
