"""Host memory whose registration belongs to a context that ends."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.conftest import SOURCE
from tests.hook.runtime.two_devices import CHUNK, Files, TwoDevices, program_of
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.paths import hook_source
from tests.support.sim import SimulatedMachine

SEGMENTS = """
import re, threading
def segments():
    found, at = [], None
    for line in open("/proc/self/smaps"):
        first = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if first: at = int(first.group(1), 16)
        if line.startswith("VmFlags:") and {"dc", "dd"} <= set(line.split()[1:]): found.append(at)
    return found
def reset():
    print("reset", call("cuDevicePrimaryCtxReset", 0), flush=True)
"""


def alone(program: Callable[..., Path], headers: Path) -> Path:
    """A program with host memory and nothing else of the hook."""
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-isystem", str(headers), "-Werror"]
    return program("arena_alone", hook_source("host_arena.c"), *flags)


@pytest.mark.promise("together-11")
def test_host_memory_is_registered_anew_when_its_context_has_ended(
    tmp_path: Path, scheduler: FakeScheduler
) -> None:
    """While a context ends nothing moves, in no other one either: the driver takes the registration
    away then. What is parked later is parked in registered memory."""
    machine = SimulatedMachine(tmp_path / "sim", devices=2)
    process = program_of(tmp_path, scheduler, machine, "hold cuDevicePrimaryCtxReset until=go")
    both, files = TwoDevices(process, scheduler), Files(machine)
    try:
        both.say("exec(" + repr(SEGMENTS) + ")")
        both.say(f"b = alloc({2 * CHUNK}); on(CONTEXT); a = alloc({2 * CHUNK})")
        both.say(f"f = fill(a, 7, {2 * CHUNK}); on(OTHER); print('f', f, fill(b, 8, {2 * CHUNK}))")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("f") == "0 0"
        both.drop()
        both.budgets(0, UNLIMITED)
        both.expect_parked(lambda parked: parked[0] == 2 * CHUNK)
        both.say("ends = threading.Thread(target=reset); ends.start()")
        files.wait_for_held("go")
        both.budgets(UNLIMITED, CHUNK)
        files.make("go")
        assert both.hears("reset") == "0"
        both.expect_parked(lambda parked: parked[1] == CHUNK)
        both.budgets(UNLIMITED, 0)
        both.expect_parked(lambda parked: parked[1] == 2 * CHUNK)
        ask = "[call('cuMemHostUnregister', c_void_p(s)) for s in segments()]"
        both.say(f"on(OTHER); print('segments', {ask})")
        assert both.hears("segments") == "[0, 0]"
    finally:
        process.end()


def test_host_memory_is_registered_in_the_context_that_parks_in_it(
    tmp_path: Path, scheduler: FakeScheduler
) -> None:
    """Not in an older one without memory, with which the registration would end."""
    machine = SimulatedMachine(tmp_path / "sim", devices=2)
    process = program_of(tmp_path, scheduler, machine, "")
    both = TwoDevices(process, scheduler)
    try:
        both.say("exec(" + repr(SEGMENTS) + ")")
        both.say(f"b = alloc({CHUNK}); print('f', fill(b, 8, {CHUNK}))")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("f") == "0"
        both.drop()
        both.budgets(UNLIMITED, 0)
        both.expect_parked(lambda parked: parked[1] == CHUNK)
        both.say("on(CONTEXT); reset(); on(OTHER)")
        assert both.hears("reset") == "0"
        ask = "[call('cuMemHostUnregister', c_void_p(s)) for s in segments()]"
        both.say(f"print('segments', {ask})")
        assert both.hears("segments") == "[0]"
    finally:
        process.end()


@pytest.mark.promise("together-11")
def test_host_memory_stays_registered_when_an_older_context_is_forgotten(
    program: Callable[..., Path], headers: Path
) -> None:
    """The thread that found the older one ended may be late: by then another context has its
    handle, and host memory is registered there."""
    arena = alone(program, headers)
    answer = subprocess.check_output([arena, "generations"], text=True)
    assert answer.split() == ["1", "1", "2", "2"]


@pytest.mark.promise("park-50")
def test_a_segment_that_was_begun_is_counted_when_the_one_before_it_is_refused(
    program: Callable[..., Path], headers: Path
) -> None:
    """Its context has just ended. What is begun is seen, and goes back as a whole."""
    answer = subprocess.check_output([alone(program, headers), "refused"], text=True)
    assert answer.split() == [str(64 << 20), "0"]


def test_a_segment_is_sized_by_a_look_at_the_next_chunks_alone(
    program: Callable[..., Path], headers: Path
) -> None:
    """However many there are: else a first park took the longer for each segment."""
    answer = subprocess.check_output([alone(program, headers), "looked"], text=True)
    assert int(answer) <= 10


def mover_host(program: Callable[..., Path], headers: Path) -> Path:
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-isystem", str(headers), "-Werror"]
    return program("host_alone", hook_source("mover_host.c"), hook_source("swap_plan.c"), *flags)


@pytest.mark.promise("park-51")
@pytest.mark.parametrize(
    ("what", "mib"), [("unused", 2048), ("used", 2048), ("alone", 2048)], ids=lambda each: str(each)
)
def test_host_memory_that_no_park_uses_goes_back_however_short_the_turns_are(
    program: Callable[..., Path], headers: Path, what: str, mib: int
) -> None:
    """Turns of two seconds, for a minute. What each park uses stays, and is kept for a while when
    nobody waits any more."""
    answer = subprocess.check_output([mover_host(program, headers), what], text=True)
    assert int(answer) == mib


def test_host_memory_goes_back_in_steps(program: Callable[..., Path], headers: Path) -> None:
    """Each takes a while: a turn that begins meanwhile waits for one of them alone."""
    answer = subprocess.check_output([mover_host(program, headers), "short"], text=True)
    assert answer.split() == ["64", "2048"]


@pytest.mark.promise("park-64")
def test_a_segment_that_was_begun_goes_back_where_no_other_one_can(
    program: Callable[..., Path], headers: Path
) -> None:
    """What is free lies between what is parked. Others may wait for this one segment."""
    answer = subprocess.check_output([mover_host(program, headers), "begun"], text=True)
    assert answer.strip() == "0"


@pytest.mark.parametrize(("what", "answer"), [("copies", "0"), ("came", "1024")])
def test_host_memory_that_goes_back_takes_nothing_else_along(
    program: Callable[..., Path], headers: Path, what: str, answer: str
) -> None:
    """Copies ahead of need stay while more than they need goes back. What a restore makes free is
    kept where the system has enough again."""
    assert (
        subprocess.check_output([mover_host(program, headers), what], text=True).strip() == answer
    )
