"""What can come between two tenants that exchange the device: a program that nobody knows of, and
memory that neither of them can move."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bad_input.swapping import EACH_KIND, SLOW_BYTES_PER_S, SmallDevice, small_device
from tests.hook.runtime.two_devices import Files
from tests.support.memory_tenants import CANCELLED, OUT_OF_MEMORY, SUCCESS, MemoryTenant
from tests.support.sim import MIB
from tests.support.waits import wait_until

GRABBED = 24 * MIB
"""With so much of a device gone, no tenant's memory fits on the rest."""
FIXED = 20 * MIB
WANTED = 36 * MIB
GRABBER = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer, left = ctypes.c_void_p(), ctypes.c_uint64(), int(sys.argv[1])
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print("ready", flush=True)
sys.stdin.readline()
until_s = time.monotonic() + 600
while left > 0 and time.monotonic() < until_s:
    left -= (cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 21)) == 0) << 21
print("has it" if left <= 0 else f"lacks {left}", flush=True)
sys.stdin.read()
"""


class Grabber:
    """A program without the hook that takes whatever is free, as soon as it is free, until it has
    what it wants. It keeps that until it ends."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._hears("ready")

    def begin(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def has_it(self) -> bool:
        self._hears("has it")
        return True

    def end(self) -> None:
        self._process.communicate()

    def _hears(self, word: str) -> None:
        assert self._process.stdout and self._process.stdout.readline() == f"{word}\n"


@contextmanager
def grabber(device: SmallDevice, size: int) -> Iterator[Grabber]:
    with subprocess.Popen(
        [sys.executable, "-c", GRABBER, str(size)],
        env=device.machine.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Grabber(process)
        finally:
            process.kill()


@pytest.mark.promise(
    "bad-memory-9",
    "Foreign memory that appears in the middle of an exchange: who does not fit beside it waits, "
    "is told why and can be interrupted, and has every byte when it has gone",
)
@EACH_KIND
def test_foreign_memory_that_appears_in_the_middle_of_an_exchange(
    tmp_path: Path, kind: str
) -> None:
    """It takes what one of them gives before the other one has it: that one's driver is slow."""
    with small_device(tmp_path, copy_bytes_per_s=SLOW_BYTES_PER_S, kind=kind) as device:
        second_back = device.chunks_of_an_allocation() + 2
        plan = f"hold cuMemCreate nth={second_back} until=go"
        taker = device.start("taker", seed=2, env={"GPUSHARE_SIM_FAULTS": plan})
        giver = device.start("giver", seed=1)
        giver.verify()
        with grabber(device, GRABBED * device.kind.scale) as stranger:
            unmapped = device.bytes_moved(giver.process.pid, "UNMAP")
            mapped = device.bytes_moved(taker.process.pid, "MAP")
            taker.ok("begin")
            taker.say("sums")
            device.await_moved(giver.process.pid, "UNMAP", unmapped + 1)
            device.await_moved(taker.process.pid, "MAP", mapped + 1)
            stranger.begin()
            assert stranger.has_it()
            Files(device.machine).make("go")
            device.scheduler.client.change_settings({"park_timeout_s": 1})
            told = "programs that are not under gpushare"
            wait_until(lambda: told in device.blocked_reason(taker), "the taker is told")
            device.bystander.verify()
            taker.say("!cancel")
            assert taker.process.expect("sums ") == f"sums {CANCELLED}"
            taker.ok("end")
            taker.ok("begin")
            taker.say("sums")
            wait_until(lambda: told in device.blocked_reason(taker), "the taker is told again")
            stranger.end()
        assert taker.heard_sums() == taker.expected()
        taker.ok("end")
        for tenant in (giver, taker):
            tenant.verify()


@pytest.mark.promise(
    "bad-memory-10",
    "Two tenants that wait for each other's fixed memory: the one that comes last is out of memory "
    "at once, the other one goes on when it is freed",
)
def test_two_tenants_that_wait_for_each_others_fixed_memory(tmp_path: Path) -> None:
    """Neither loses what it has."""
    with small_device(tmp_path, kind="mapped") as device:
        device.scheduler.client.change_settings({"memory_wait_s": 600})
        alice, bob = (with_fixed_memory(device, *each) for each in (("alice", 1), ("bob", 2)))
        alice.ok("begin")
        alice.say(f"alloc 1 {WANTED}")
        told = "Else this notebook is out of memory within"
        wait_until(lambda: told in device.blocked_reason(alice), "alice waits for bob's memory")
        bob.ok("begin")
        assert bob.result(f"alloc 1 {WANTED}") == OUT_OF_MEMORY
        bob.ok("end")
        bob.verify()
        assert told in device.blocked_reason(alice)
        device.give_up(bob)
        assert alice.heard("alloc")[0] == SUCCESS
        alice.refill(1, 3, WANTED)
        alice.ok("end")
        for tenant in (bob, alice):
            tenant.verify()
        assert bob.process.finish() == alice.process.finish() == 0


def with_fixed_memory(device: SmallDevice, name: str, seed: int) -> MemoryTenant:
    """A tenant that has exported all that it has."""
    tenant = device.start(name, seed=seed, size=FIXED)
    tenant.ok("begin")
    for slot in tenant.held:
        tenant.ok(f"export {slot}")
    tenant.ok("end")
    device.await_memory(tenant, lambda memory: memory["bytes_fixed"] >= FIXED)
    return tenant
