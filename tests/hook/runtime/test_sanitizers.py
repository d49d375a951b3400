"""The runtime under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import DeviceOpened, TurnDropped, TurnRequested
from tests.hook.conftest import SANITIZERS, newer, one_at_a_time, sanitized_objects
from tests.hook.runtime.process import GpuProcess, Programs
from tests.hook.runtime.test_recalls import SPIN_NS, Turns
from tests.support.fake_scheduler import FakeScheduler, HookedClient
from tests.support.paths import BUILD, ROOT
from tests.support.sim import SimulatedMachine

VARIANTS = {"address": "asan", "thread": "tsan"}
COMPILER_FLAGS = {kind: f"-fsanitize={names}" for kind, names in SANITIZERS.items()}
# What fails is to be seen as an exit status; the driver and libc keep memory of their own, and a
# process that ends waits for none of the hook's threads.
ENVIRONMENT = {
    "ASAN_OPTIONS": "exitcode=66:detect_leaks=0:verify_asan_link_order=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "exitcode=66:halt_on_error=0:ignore_noninstrumented_modules=1"
    ":report_thread_leaks=0",
}

Sanitized = Callable[..., GpuProcess]


def build_hook(kind: str) -> Path:
    """The hook with a sanitizer, without its dlsym and dlopen: a sanitizer's own library looks its
    functions up by dlsym before anything can run, and the programs here are linked to the driver
    anyway."""
    library = BUILD / "tests" / "runtime" / VARIANTS[kind] / "libgpushare.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    objects = [path for path in sanitized_objects(kind) if path.stem != "libc_trampolines"]
    with one_at_a_time(f"library-{kind}"):
        if not newer(library, *objects):
            command = ["cc", "-shared", "-pthread", COMPILER_FLAGS[kind], "-Wl,-z,nodelete"]
            subprocess.run([*command, "-o", str(library), *map(str, objects)], check=True)
    return library


def sanitized_driver(kind: str) -> dict[str, str]:
    """What leads a program to the simulated driver, built with a sanitizer too."""
    build = BUILD / VARIANTS[kind]
    with one_at_a_time(f"sim-{kind}"):
        make = ["make", "-s", "-C", str(ROOT / "hook" / "sim"), f"PYTHON={sys.executable}"]
        subprocess.run([*make, f"BUILD={build}", f"SANITIZE={SANITIZERS[kind]}"], check=True)
    return {"LD_LIBRARY_PATH": str(build / "sim")}


@pytest.fixture(params=sorted(VARIANTS))
def sanitized(
    request: pytest.FixtureRequest,
    programs: Programs,
    sim: SimulatedMachine,
    scheduler: FakeScheduler,
    tmp_path: Path,
) -> Iterator[Sanitized]:
    """Starts a program under the hook on the simulated driver, all built with a sanitizer."""
    kind: str = request.param
    hook, driver = build_hook(kind), sanitized_driver(kind)
    started: list[GpuProcess] = []

    def start(name: str, *arguments: object) -> GpuProcess:
        program = programs.built(name, COMPILER_FLAGS[kind], suffix=f"-{VARIANTS[kind]}")
        log = tmp_path / f"{name}.log"
        env = sim.env(scheduler.env(hook=hook, log=log)) | ENVIRONMENT | driver
        process = GpuProcess([str(program), *map(str, arguments)], env, log)
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()


def assert_clean(process: GpuProcess) -> None:
    """It ended by itself, and no sanitizer had anything to say."""
    status = process.finish()
    errors = process.errors()
    assert "Sanitizer" not in errors and "runtime error" not in errors, errors[:4000]
    assert status == 0, errors[:4000]


@pytest.mark.full
@pytest.mark.promise(
    "hook-29",
    "It is clean under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer",
)
def test_recalls_under_a_sanitizer(
    sanitized: Sanitized, scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """Eight launching threads and three hundred recalls, no report, and no launch escapes."""
    program = sanitized("recalls", 8, SPIN_NS)
    client = scheduler.accept()
    client.welcome(window_ms=1, drain_stall_ms=10_000)
    turns = Turns()
    for _ in range(300):
        turns.take(client)
    client.expect(TurnRequested)
    violations = turns.violations([r for r in sim.journal() if r.name == "spin"])
    assert not violations, violations[:5]
    client.grant()
    assert_clean(program)


def open_shell(sanitized: Sanitized, scheduler: FakeScheduler) -> tuple[GpuProcess, HookedClient]:
    shell = sanitized("shell")
    shell.say("0 open")
    client = scheduler.accept()
    client.welcome(drain_stall_ms=60)
    shell.expect("0 open 0")
    client.expect(DeviceOpened)
    return shell, client


@pytest.mark.full
@pytest.mark.promise("hook-29")
def test_streams_captures_and_cells_under_a_sanitizer(
    sanitized: Sanitized, scheduler: FakeScheduler
) -> None:
    """Streams that come and go, captures, cells, waits that are cancelled, threads that end."""
    shell, client = open_shell(sanitized, scheduler)
    shell.say("1 current")
    shell.say("1 loop p 20000")
    for number in range(30):
        # For a moment after a cancellation, only a call of a new cell waits.
        shell.say("0 hook cell_began")
        for command in ("create 1", "capture 1", "spin 1 1000 3", "end_capture 1"):
            shell.say(f"0 {command}")
        shell.say("0 replay 1")
        shell.say("0 spin d 1000")
        shell.say("0 destroy 1")
        shell.say("0 hook cell_ended")
        shell.say(f"2 hook cell_{'ended' if number % 2 else 'began'}")
        shell.say("3 hook cancel_waits")
        shell.say("3 describe")
    shell.say("0 echo")
    turns = 0
    answers = {"0 echo", "1 loop"}  # the cancellations may end the loop, too
    while client.hears(TurnRequested, unless=lambda: shell.has_said(answers)):
        client.grant()
        turns += 1
        if turns == 60:
            shell.say("0 stop")
        client.recall()
        client.expect(TurnDropped)
    assert turns >= 3
    assert_clean(shell)


@pytest.mark.full
@pytest.mark.promise("hook-29")
def test_reconnections_under_a_sanitizer(sanitized: Sanitized, scheduler: FakeScheduler) -> None:
    """A scheduler that comes and goes, nonsense from it, and a device-side assertion."""
    shell, client = open_shell(sanitized, scheduler)
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    scheduler.stop()
    scheduler.start()
    client = scheduler.accept()
    client.welcome()
    client.expect(DeviceOpened)
    client.send_raw(b"\xff" * 100)
    client.wait_closed()
    client = scheduler.accept()
    client.welcome()
    client.expect(DeviceOpened)
    shell.say("0 assert d")
    client.grant_request()
    shell.expect("0 assert 0")
    shell.say("0 sync")
    shell.expect("0 sync 710")
    client.expect(TurnDropped)
    assert_clean(shell)
