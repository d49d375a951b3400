"""Movable memory from the outside: Python programs under the real hook, that take turns by a real
scheduler, on simulated devices which are too small for all of them. What is promised is taken from
the issue's sentences; what happened, from the device's journal."""

from __future__ import annotations

import ast
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.two_devices import Files
from tests.support.memory_tenants import MemoryTenants, swapping_scheduler
from tests.support.paths import ROOT
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import MIB, SimulatedMachine
from tests.support.waits import wait_until

pytestmark = pytest.mark.full  # the same by other means is in the short tests
DEVICE = 64 * MIB
HELD = 40
"""MiB; two such tenants are more than a device."""
PATIENCE_S = 20
"""Several programs at once on a busy machine: none of them is to be passed over."""
CANCELLED = 800
PROGRAM = """
import sys
from tests.hook.backing_session import *
from tests.hook.memory_session import *

def turn(word):
    getattr(hook, "gpushare_cell_" + word)()

def on(context):
    return call("cuCtxSetCurrent", c_void_p(context))

def fill(address, value, size):
    result = launch("fill", 0, c_uint64(address), c_uint(value), c_uint64(size // 4))
    return result or call("cuCtxSynchronize")

def words(address, size):
    data = read(address, size)
    return sorted({int.from_bytes(data[i : i + 4], "little") for i in range(0, size, 4096)})

print("ready", flush=True)
for line in sys.stdin:
    if line[0] == "=":
        print("answer", eval(line[1:]), flush=True)
    else:
        exec(line)
        print("done", flush=True)
"""


class Program:
    """A tenant that does what it is told, a line of Python each."""

    def __init__(self, process: GpuProcess) -> None:
        self.process = process
        process.expect("ready")

    @property
    def pid(self) -> int:
        return self.process.pid

    def do(self, *lines: str) -> None:
        for line in lines:
            self.process.say(line)
            self.process.expect("done")

    def begin_to_ask(self, expression: str) -> None:
        self.process.say(f"={expression}")

    def answer(self) -> Any:
        line = self.process.expect("answer ")
        return ast.literal_eval(line.removeprefix("answer "))

    def ask(self, expression: str) -> Any:
        self.begin_to_ask(expression)
        return self.answer()

    @contextmanager
    def cell(self) -> Iterator[None]:
        self.do("turn('began')")
        yield
        self.do("turn('ended')")

    def hold(self, name: str, value: int, size_mib: int = HELD) -> None:
        """In a cell of its own."""
        with self.cell():
            self.do(f"{name} = alloc({size_mib} * MIB)")
            assert self.ask(f"{name} > 0"), self.process.errors()
            assert self.ask(f"fill({name}, {value}, {size_mib} * MIB)") == 0

    def holds(self, name: str, value: int, size_mib: int = HELD) -> bool:
        """Looked at in a cell of its own, every page by what the device says."""
        with self.cell():
            return bool(self.ask(f"words({name}, {size_mib} * MIB)") == [value])


class Room:
    """A machine, its scheduler, and the programs that share it."""

    def __init__(
        self, machine: SimulatedMachine, scheduler: SchedulerUnderTest, tenants: MemoryTenants
    ) -> None:
        self.machine = machine
        self.scheduler = scheduler
        self._tenants = tenants

    def start(self, name: str, **env: str) -> Program:
        started = self._tenants.start(
            name, env={"PYTHONPATH": str(ROOT), **env}, wrapper=(sys.executable,), opened=""
        )
        return Program(started.process)

    def records(self, program: Program, kind: str, device: int = 0) -> list[Any]:
        """What the device's journal has of this program."""
        return [
            record
            for record in self.machine.journal()
            if (record.pid, record.device, record.kind.name) == (program.pid, device, kind)
        ]

    def moved(self, program: Program, kind: str, device: int = 0) -> int:
        return sum(record.amount for record in self.records(program, kind, device))

    def tenant(self, name: str) -> dict[str, Any]:
        found: dict[str, Any]
        (found,) = (t for t in self.scheduler.status()["tenants"] if t["name"] == name)
        return found

    def memory(self, name: str, kind: str) -> int:
        return sum(memory[f"bytes_{kind}"] for memory in self.tenant(name)["memory"])


def eventually(holds: Callable[[], object], what: str) -> None:
    wait_until(holds, what)


@contextmanager
def room(
    folder: Path,
    *options: str,
    devices: int = 1,
    device_bytes: int = DEVICE,
    copy_bytes_per_s: int = 2_000_000_000,
    park_timeout_s: int = PATIENCE_S,
) -> Iterator[Room]:
    """At the end nobody's work has lost its memory under it."""
    machine = SimulatedMachine(
        folder / "machine",
        devices=devices,
        bytes_per_device=device_bytes,
        context_bytes=MIB // 4,
        copy_bytes_per_s=copy_bytes_per_s,
    )
    seen = ",".join(str(number) for number in range(devices))
    env = machine.env({"CUDA_VISIBLE_DEVICES": seen})
    settings = ("device_reserve_bytes=2097152", "probe_period_s=0.1", "quantum_s=0.3")
    settings += ("reclaim_s=1", f"park_timeout_s={park_timeout_s}")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    chosen = [f"--GPUShareScheduler.{setting}" for setting in settings]
    with (
        swapping_scheduler(folder / "run", env, *chosen, *options) as scheduler,
        MemoryTenants(scheduler, env, folder, program=program) as tenants,
    ):
        yield Room(machine, scheduler, tenants)
    assert [record for record in machine.journal() if record.kind.name == "FAULT"] == []


@pytest.mark.promise(
    "together-12",
    "Peer access is set again by every restore, for present and future memory",
)
@pytest.mark.parametrize("enabled", ["before", "parked"])
def test_peer_access_holds_after_a_restore_and_for_what_comes(tmp_path: Path, enabled: str) -> None:
    """Peer access, enabled before the park or while memory is parked, holds after it has come back
    by itself, and for memory that is allocated then, large and small."""
    with room(tmp_path, devices=2) as shared:
        alice = shared.start("alice")
        alice.do("OTHER = opened(1)", "on(CONTEXT)")
        alice.hold("a", 7)
        enable = "on(OTHER) or call('cuCtxEnablePeerAccess', c_void_p(CONTEXT), 0) or on(CONTEXT)"
        if enabled == "before":
            assert alice.ask(enable) == 0
        bob = shared.start("bob")
        bob.hold("b", 1)
        eventually(lambda: shared.moved(alice, "UNMAP") > 0, "alice is parked")
        if enabled == "parked":
            assert alice.ask(enable) == 0
        with alice.cell():
            alice.do("on(OTHER)")
            assert alice.ask(f"fill(a, 8, {HELD} * MIB)") == 0
            alice.do("on(CONTEXT)", "c, d = alloc(4 * MIB), alloc(4096)", "on(OTHER)")
            assert alice.ask("fill(c, 9, 4 * MIB), fill(d, 10, 4096)") == (0, 0)
            alice.do("on(CONTEXT)")
            assert alice.ask(f"words(a, {HELD} * MIB), words(c, 4 * MIB)") == ([8], [9])
        for _ in range(2):
            assert bob.holds("b", 1)
            alice.do("on(OTHER)")
            with alice.cell():
                assert alice.ask(f"fill(a, 11, {HELD} * MIB), fill(d, 12, 4096)") == (0, 0)
            alice.do("on(CONTEXT)")
            assert alice.holds("a", 11)
            with alice.cell():
                assert alice.ask("words(d, 4096)") == [12]


@pytest.mark.promise("together-13", "A tenant on two devices leaves and comes back on both")
def test_a_tenant_on_two_devices_is_parked_and_restored_on_both(tmp_path: Path) -> None:
    """Rivals on either device push its memory out; its next turn begins with all of it back, on
    both devices, every byte the same."""
    with room(tmp_path, devices=2) as shared:
        both = shared.start("both")
        both.do("OTHER = opened(1)")
        with both.cell():
            both.do(f"b = alloc({HELD} * MIB)", "on(CONTEXT)", f"a = alloc({HELD} * MIB)")
            assert both.ask(f"fill(a, 7, {HELD} * MIB)") == 0
            both.do("on(OTHER)")
            assert both.ask(f"fill(b, 8, {HELD} * MIB)") == 0
        rivals = [
            shared.start("first", CUDA_VISIBLE_DEVICES="0"),
            shared.start("second", CUDA_VISIBLE_DEVICES="1"),
        ]
        for number, rival in enumerate(rivals):
            rival.hold("a", 20 + number)
        for device in (0, 1):
            assert shared.moved(both, "UNMAP", device) > 0
        for _ in range(2):
            with both.cell():
                both.do("on(CONTEXT)")
                assert both.ask(f"words(a, {HELD} * MIB)") == [7]
                both.do("on(OTHER)")
                assert both.ask(f"words(b, {HELD} * MIB)") == [8]
            for number, rival in enumerate(rivals):
                assert rival.holds("a", 20 + number)


@pytest.mark.promise(
    "together-14",
    "`cuMemFree` waits for the work that was launched before, by the device's own journal",
)
def test_a_free_waits_for_the_work_that_was_launched_before(tmp_path: Path) -> None:
    """cuMemFree keeps its implicit wait, for large and small memory and for any stream: it returns
    when what was launched before is over, by the device's own journal, and nothing is taken from
    under running work."""
    with room(tmp_path) as shared:
        alice = shared.start("alice")
        alice.do("import time", "s = stream_create()")
        for size in ("20 * MIB", "4096"):
            with alice.cell():
                alice.do(f"a = alloc({size})")
                assert alice.ask("launch('spin', s, c_uint64(150_000_000))") == 0
                assert alice.ask("free(a)") == 0
                freed_ns = alice.ask("time.monotonic_ns()")
            spins = [r for r in shared.records(alice, "LAUNCH") if r.name == "spin"]
            assert spins and spins[-1].ended_ns <= freed_ns


@pytest.mark.promise("together-15", "Queries about parked memory are answered without a turn")
def test_what_is_asked_of_parked_memory_is_answered_without_the_turn(tmp_path: Path) -> None:
    """While another tenant has the device, every query of every kind of allocation has the answer
    that it had before, at once, and brings nothing back."""
    with room(tmp_path) as shared:
        alice, bob = shared.start("alice"), shared.start("bob")
        alice.hold("a", 7)
        with alice.cell():
            alice.do("small = alloc(700)", "places = [a, a + 17 * MIB + 5, small + 3]")
        before = alice.ask("[queries(place) for place in places]")
        bob.hold("b", 1)
        with bob.cell():
            assert bob.ask(f"fill(b, 2, {HELD} * MIB)") == 0
            eventually(lambda: shared.memory("alice", "parked") > 0, "alice is parked")
            mapped = shared.moved(alice, "MAP")
            assert alice.ask("[queries(place) for place in places]") == before
            assert shared.moved(alice, "MAP") == mapped
        assert alice.holds("a", 7)


@pytest.mark.promise("together-16", "Only the missing bytes leave the device")
def test_only_what_is_missing_leaves_the_device(tmp_path: Path) -> None:
    """A newcomer that lacks a little moves a little: at most what it lacks, and one chunk more."""
    chunk, device, size, other = 64, 512, 320, 224
    with room(tmp_path, device_bytes=device * MIB) as shared:
        alice, bob = shared.start("alice"), shared.start("bob")
        alice.hold("a", 7, size)
        eventually(lambda: shared.memory("alice", "resident") == size * MIB, "alice is known")
        bob.hold("b", 1, other)
        lacking = (size + other) * MIB - (device * MIB - 2 * MIB - 2 * MIB // 4)
        assert lacking <= shared.moved(alice, "UNMAP") <= lacking + chunk * MIB
        assert alice.holds("a", 7, size) and bob.holds("b", 1, other)


@pytest.mark.promise("together-17", "A hand-over goes both ways at once")
def test_a_hand_over_goes_both_ways_at_once(tmp_path: Path) -> None:
    """The one who restores begins as soon as the first chunks are free: the last ones of the other
    have not left before some of its own are back."""
    size = 7 * 64
    with room(tmp_path, device_bytes=8 * DEVICE) as shared:
        last = "hold cuMemUnmap nth=6 from=out until=back"
        alice, bob = shared.start("alice", GPUSHARE_SIM_FAULTS=last), shared.start("bob")
        bob.hold("b", 1, size)
        alice.hold("a", 7, size)
        files = Files(shared.machine)
        files.make("out")
        bob.do("turn('began')")
        bob.begin_to_ask(f"fill(b, 2, {size} * MIB)")
        files.wait_for_held("back")
        eventually(lambda: len(shared.records(bob, "COPY_H2D")) >= 2, "some of it is back")
        files.make("back")
        assert bob.answer() == 0
        bob.do("turn('ended')")
        assert alice.holds("a", 7, size) and bob.holds("b", 2, size)


@pytest.mark.promise(
    "together-18",
    "A signal during a restore ends the wait, and what was parked is as it was",
)
def test_a_signal_during_a_restore_ends_the_wait(tmp_path: Path) -> None:
    """Ctrl-C while memory comes back: the launch that waits answers the documented error at once,
    and all of the memory is there at the next one."""
    held = "hold cuMemcpyHtoDAsync nth=1 until=go"
    with room(tmp_path) as shared:
        alice, bob = shared.start("alice", GPUSHARE_SIM_FAULTS=held), shared.start("bob")
        alice.do("import signal", "signal.signal(signal.SIGINT, lambda *_: None)")
        alice.hold("a", 7)
        bob.hold("b", 1)
        alice.do("turn('began')")
        alice.begin_to_ask("launch('spin', 0, c_uint64(1000))")
        eventually((shared.machine.directory / "go.held").exists, "it comes back")
        alice.process.signal(signal.SIGINT)
        assert alice.answer() == CANCELLED
        (shared.machine.directory / "go").touch()
        alice.do("turn('ended')")
        assert bob.holds("b", 1) and alice.holds("a", 7)


@pytest.mark.promise("together-19", "A victim that does not answer is passed over and shown")
def test_a_victim_that_does_not_answer_is_passed_over_and_shown(tmp_path: Path) -> None:
    """A stopped process keeps its memory: after park_timeout_s the newcomer is told who is in the
    way, others are served, and when it goes on again all of it is as before."""
    with room(tmp_path) as shared:
        alice, bob, carol = (shared.start(name) for name in ("alice", "bob", "carol"))
        alice.hold("a", 7)
        bob.hold("b", 1)
        assert alice.holds("a", 7)
        eventually(lambda: shared.tenant("alice")["state"] == "idle", "her turn is given back")
        shared.scheduler.client.change_settings({"park_timeout_s": 1})
        alice.process.signal(signal.SIGSTOP)
        bob.do("turn('began')")
        bob.begin_to_ask(f"fill(b, 2, {HELD} * MIB)")
        told = "alice was asked to make room on Simulated GPU and keeps 40.0 MiB."
        eventually(
            lambda: (shared.tenant("bob")["blocked_reason"] or "").startswith(told),
            "bob is told of the silent tenant",
        )
        carol.hold("c", 3, 4)
        alice.process.signal(signal.SIGCONT)
        assert bob.answer() == 0
        bob.do("turn('ended')")
        assert alice.holds("a", 7) and bob.holds("b", 2) and carol.holds("c", 3, 4)
