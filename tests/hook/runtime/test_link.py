"""The connection to the scheduler, and all that can be wrong with it."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.codec import FRAME_BYTES_MAX, encode
from jupyter_gpushare.protocol.messages import (
    PROTOCOL_VERSION,
    CellBegan,
    Contention,
    DeviceOpened,
    DropReason,
    Fallback,
    Hello,
    MemoryReported,
    RefusalCode,
    TurnDropped,
    TurnGranted,
    TurnRequested,
)
from tests.hook.runtime.described import described_when
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import ClientGone, FakeScheduler, HookedClient
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

Opened = Callable[..., tuple[GpuProcess, HookedClient]]
Start = Callable[..., GpuProcess]

MIB = 1 << 20
NOBODY = 65534


def test_hello_says_who_is_there(opened: Opened) -> None:
    """Token, process id and name come first, and the device by its UUID after the welcome."""
    shell, client = opened()
    hello = next(message for message in client.received if isinstance(message, Hello))
    assert hello.token == f"token-of-{os.getpid()}"
    assert (hello.pid, hello.process_name) == (shell.pid, "shell")
    assert (hello.held_turn_id, hello.waiting) == (0, 0)
    device = next(message for message in client.received if isinstance(message, DeviceOpened))
    assert any(device.device) and device.bytes_total > 0 and device.name


def test_a_holder_goes_on_and_says_so_when_the_scheduler_is_back(
    opened: Opened, scheduler: FakeScheduler
) -> None:
    """Without a scheduler a held turn lasts; the new one hears of turn, devices, cell, memory."""
    shell, client = opened()
    shell.say("0 hook cell_began")
    client.expect(CellBegan)
    shell.say(f"0 alloc {MIB}")
    turn = client.grant_request()
    shell.expect("0 alloc 0")
    scheduler.stop()
    for _ in range(3):
        shell.say("0 spin d 1000 10")
        shell.expect("0 spin 0")
    scheduler.start()
    client = scheduler.accept()
    hello = client.welcome()
    assert (hello.held_turn_id, hello.waiting) == (turn, 0)
    client.expect(DeviceOpened)
    assert client.expect(MemoryReported).bytes_allocated >= MIB
    client.expect(CellBegan)
    client.recall(turn)
    assert client.expect(TurnDropped).reason is DropReason.RECALL


def test_a_waiter_asks_the_next_scheduler(opened: Opened, scheduler: FakeScheduler) -> None:
    """A call that waits when the scheduler ends is asked for again at the next one."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    client.expect(TurnRequested)
    scheduler.stop()
    scheduler.start()
    client = scheduler.accept()
    assert client.welcome().waiting == 1
    client.expect(DeviceOpened)
    client.grant_request()
    shell.expect("0 spin 0")


@pytest.mark.promise(
    "bad-input-33",
    "Scheduler gone: waiting calls follow the fallback, `wait` or `run`",
)
def test_without_a_scheduler_calls_wait_and_the_user_hears_what_to_do(
    start: Start, scheduler: FakeScheduler
) -> None:
    """The fallback `wait`: one line after reconnect_s; the call goes through when one starts."""
    scheduler.stop()
    shell = start("shell", env={"GPUSHARE_RECONNECT_S": "1"})
    shell.say("0 open")
    shell.expect("0 open 0")
    shell.say("0 spin d 1000")
    assert shell.is_silent(for_s=1.5)
    shell.expect_error("\n")
    errors = shell.errors()
    assert errors.startswith("gpushare: no GPU scheduler answers at ")
    assert "Start it with `jupyter gpushare scheduler`" in errors
    assert errors.count("\n") == 1
    scheduler.start()
    client = scheduler.accept()
    client.welcome()
    client.grant_request()
    shell.expect("0 spin 0")


@pytest.mark.promise("bad-input-33")
def test_without_a_scheduler_the_fallback_run_lets_calls_through(
    start: Start, scheduler: FakeScheduler
) -> None:
    """GPUSHARE_FALLBACK=run: after reconnect_s calls pass, and a scheduler that comes is obeyed."""
    scheduler.stop()
    shell = start("shell", env={"GPUSHARE_RECONNECT_S": "0", "GPUSHARE_FALLBACK": "run"})
    shell.say("0 open")
    shell.expect("0 open 0")
    shell.say("0 spin d 1000")
    shell.expect("0 spin 0")
    shell.expect_error("runs without taking turns")
    scheduler.start()
    client = scheduler.accept()
    client.welcome(fallback=Fallback.RUN)
    client.expect(DeviceOpened)
    described_when(shell, lambda now: now["phase"] == "none")
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")


WRONG = {
    "garbage": b"\xff" * 64,
    "wrong version": struct.pack("<HHI", PROTOCOL_VERSION + 1, 64, 0),
    "a frame of 10 MB": struct.pack("<HHI", PROTOCOL_VERSION, 66, 10_000_000) + b"x" * 100_000,
    "too large a body": struct.pack("<HHI", PROTOCOL_VERSION, 66, FRAME_BYTES_MAX),
    "a message for the scheduler": encode(CellBegan()),
    "a body too short": struct.pack("<HHI", PROTOCOL_VERSION, 68, 4) + b"\0" * 4,
}


@pytest.mark.promise("bad-input-47")
@pytest.mark.parametrize("fault", WRONG)
def test_a_scheduler_that_speaks_nonsense_loses_the_connection(
    opened: Opened, scheduler: FakeScheduler, fault: str
) -> None:
    """The hook closes, gives its turn up (the scheduler has freed it), and comes back; the
    program goes on."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.send_raw(WRONG[fault])
    client.wait_closed()
    client = scheduler.accept()
    assert client.welcome().held_turn_id == 0
    client.expect(DeviceOpened)
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")


@pytest.mark.promise("bad-input-58")
def test_half_a_message_and_then_silence(opened: Opened, scheduler: FakeScheduler) -> None:
    """A frame that was begun has five seconds; then the hook connects anew."""
    shell, client = opened()
    began_s = time.monotonic()
    client.send_raw(encode(Contention(waiters=1, tenants=2, idle_ms=0))[:9])
    client.wait_closed()
    assert time.monotonic() - began_s > 4
    scheduler.accept().welcome()
    shell.say("0 echo")
    shell.expect("0 echo 0")


def test_bytes_may_come_one_by_one(opened: Opened) -> None:
    """Frames are put together from any pieces."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    client.expect(TurnRequested)
    for byte in encode(TurnGranted(turn_id=5, quantum_ms=1, waiters=0, cause="piece by piece")):
        client.send_raw(bytes([byte]))
    shell.expect("0 spin 0")


@pytest.mark.parametrize(
    "code", [RefusalCode.BAD_TOKEN, RefusalCode.WRONG_VERSION, RefusalCode.WRONG_USER]
)
def test_a_refusal_is_shown_once_and_the_program_lives(
    start: Start, scheduler: FakeScheduler, code: RefusalCode
) -> None:
    """The scheduler's sentence reaches the user once; no storm of connections follows; calls wait
    and can be cancelled."""
    shell = start("shell")
    shell.say("0 open")
    message = "This kernel is not known here. Restart the kernel."
    client = scheduler.accept()
    client.expect(Hello)
    client.refuse(code, message)
    shell.expect("0 open 0")
    shell.say("0 spin d 1000")
    assert scheduler.accepts_none(for_s=0.5)
    shell.say("1 hook cancel_waits")
    shell.expect("0 spin 800")
    assert shell.errors() == f"gpushare: {message}\n"


@pytest.mark.promise(
    "hook-63",
    "A process that holds a turn or waits for one comes to the next scheduler within a second",
)
@pytest.mark.parametrize("holds", [True, False])
def test_a_process_comes_back_at_once_where_the_scheduler_has_said_that_it_ends(
    opened: Opened, scheduler: FakeScheduler, holds: bool
) -> None:
    """Also where nothing else wakes it. After any other refusal it tries again in five seconds."""
    shell, client = opened(tenants=2)
    shell.say("0 spin d 1000")
    if holds:
        client.grant_request()
        shell.expect("0 spin 0")
    else:
        client.expect(TurnRequested)
    client.refuse(RefusalCode.SHUTTING_DOWN, "The scheduler ends. Start it again.")
    hello = scheduler.accept(within_s=4).expect(Hello)
    assert (hello.held_turn_id != 0) == holds


@pytest.mark.parametrize("welcomed", [True, False])
@pytest.mark.promise(
    "hook-64", "A process that the scheduler refuses has no turn any more, also before it is let in"
)
def test_a_holder_that_is_refused_when_it_comes_back_gives_its_turn_up(
    opened: Opened, scheduler: FakeScheduler, welcomed: bool
) -> None:
    """Others have the device from then on: its calls wait."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    turn = client.grant_request()
    shell.expect("0 spin 0")
    client.close()
    again = scheduler.accept()
    hello = again.welcome() if welcomed else again.expect(Hello)
    assert hello.held_turn_id == turn
    again.refuse(RefusalCode.BAD_TOKEN, "This kernel was shut down. Restart it.")
    described_when(shell, lambda now: now["phase"] == "none")
    shell.say("0 spin d 1000")
    assert shell.is_silent(for_s=0.3)
    shell.say("1 hook cancel_waits")
    shell.expect("0 spin 800")


@pytest.mark.promise("hook-64")
def test_a_holder_to_which_a_scheduler_of_another_version_comes_gives_its_turn_up(
    opened: Opened, scheduler: FakeScheduler
) -> None:
    """Nobody lets it in before it is started anew, and others have the device."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    client.close()
    again = scheduler.accept()
    again.expect(Hello)
    again.send_raw(struct.pack("<HHI", PROTOCOL_VERSION + 1, 64, 0))
    described_when(shell, lambda now: now["phase"] == "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to serve a socket as another user")
def test_a_socket_of_another_user_gets_nothing(
    start: Start, scheduler: FakeScheduler, tmp_path: Path, sim: SimulatedMachine
) -> None:
    """A squatted socket: not a byte is sent to it, and the user is told whose it is."""
    scheduler.stop()
    squatter = squat(scheduler.path, tmp_path)
    sim.directory.chmod(0o777)
    try:
        assert squatter.stdout and squatter.stdout.readline() == b"listening\n"
        shell = start("shell", as_uid=1000)
        shell.say("0 open")
        shell.expect("0 open 0")
        assert squatter.stdout.readline() == b"got b''\n"
        shell.expect_error(f"is served by user {NOBODY}, who is neither root nor you")
        assert "GPUSHARE_SCHEDULER_UID" in shell.errors()
    finally:
        squatter.kill()
        squatter.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to serve a socket as another user")
def test_a_service_account_can_be_trusted(
    start: Start, scheduler: FakeScheduler, tmp_path: Path, sim: SimulatedMachine
) -> None:
    """GPUSHARE_SCHEDULER_UID names the one other user to whom the hook speaks."""
    scheduler.stop()
    squatter = squat(scheduler.path, tmp_path)
    sim.directory.chmod(0o777)
    try:
        assert squatter.stdout and squatter.stdout.readline() == b"listening\n"
        shell = start("shell", env={"GPUSHARE_SCHEDULER_UID": str(NOBODY)}, as_uid=1000)
        shell.say("0 open")
        shell.expect("0 open 0")
        assert f"token-of-{os.getpid()}".encode() in squatter.stdout.readline()
    finally:
        squatter.kill()
        squatter.wait()


SQUATTER = """
import os, socket, sys
os.setgid({uid}); os.setuid({uid})
listener = socket.socket(socket.AF_UNIX)
listener.bind({path!r})
os.chmod({path!r}, 0o777)
listener.listen()
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    print("got", connection.recv(4096), flush=True)
"""


def squat(path: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Another user's process that listens at the scheduler's address."""
    path.unlink(missing_ok=True)
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == 0 and parent != Path("/") and parent != Path("/tmp"):
            parent.chmod(0o755)
    folder.chmod(0o777)
    code = SQUATTER.format(uid=NOBODY, path=str(path))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


@pytest.mark.promise("bad-input-1")
def test_a_program_that_closes_all_descriptors_loses_nothing(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    """It reuses the hook's numbers for its own files: they stay as they are and open, and the
    hook comes back with a new connection, and with its turn."""
    file = tmp_path / "users-file"
    # A debug log opens its file for each line, at the lowest number: docs/limits.md.
    program = start("closes_all", file, env={"GPUSHARE_LOG": "error"})
    client = scheduler.accept()
    client.welcome()
    turn = client.grant_request()
    program.expect("launched")
    program.say("close")
    program.expect("closed")
    client.wait_closed()
    while True:  # one that was made while descriptors were still being closed was closed, too
        again = scheduler.accept()
        with contextlib.suppress(ClientGone):
            hello = again.welcome()
            again.expect(DeviceOpened)
            break
    again.contention(waiters=0, tenants=3)
    assert hello.held_turn_id == turn
    program.say("launch")
    program.expect("launched")
    again.recall(turn)
    assert again.expect(TurnDropped).reason is DropReason.RECALL
    assert program.finish() == 0
    assert file.read_bytes() == b"mine"


@pytest.mark.promise("bad-input-47")
def test_a_scheduler_that_does_not_read_costs_nothing(
    opened: Opened, scheduler: FakeScheduler
) -> None:
    """Messages pile up to a bound, then the hook connects anew; no call waits for that."""
    shell, client = opened(tenants=1)
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")

    def has_called_after_two_cells() -> bool:
        for _ in range(2):
            shell.say("0 hook cell_began")
            shell.say("0 hook cell_ended")
        shell.say("0 echo")
        shell.expect("0 echo 0")
        return scheduler.has_caller()

    # What changes faster than the agent looks is one message: how many cells it takes is chance.
    wait_until(has_called_after_two_cells, every_s=0)
    scheduler.accept().welcome()
