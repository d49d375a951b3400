"""Peers that break the rules lose their connection, and nobody else is affected."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.codec import encode
from jupyter_gpushare.protocol.messages import (
    CellBegan,
    DeviceOpened,
    HoldRequested,
    MemoryBudget,
    MemoryLimit,
    MemoryNeeded,
    QueuePosition,
    RefusalCode,
    Refused,
    TurnGranted,
    TurnRequested,
    Welcome,
)
from jupyter_gpushare.scheduler.hook.connection import MESSAGES_MAX
from jupyter_gpushare.scheduler.journal import read_journal
from tests.support.hook_client import ANSWER_S_MAX, DEVICE, GIB, ScriptedClient, memory_reported
from tests.support.other_user import as_other_user, as_root_only, let_others_in
from tests.support.paths import ROOT
from tests.support.scheduler_process import (
    SchedulerUnderTest,
    environment,
    running_scheduler,
)

DEADLINE_S = 0.3
TENANTS = 200


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerUnderTest]:
    """A scheduler with a short deadline for messages."""
    option = f"--GPUShareScheduler.message_deadline_s={DEADLINE_S}"
    with running_scheduler(tmp_path_factory.mktemp("impatient") / "run", option) as running:
        yield running


@contextlib.contextmanager
def joined_in_time(
    scheduler: SchedulerUnderTest, name: str = "notebook"
) -> Iterator[ScriptedClient]:
    """A client that says who it is before its deadline begins, however slow this process is: the
    scheduler is stopped until then."""
    token = scheduler.tenant(name).token
    scheduler.process.send_signal(signal.SIGSTOP)
    with scheduler.connect() as client:
        client.hello(token)
        scheduler.process.send_signal(signal.SIGCONT)
        client.expect(Welcome)
        client.send(DeviceOpened(device=DEVICE, name="Scripted GPU", bytes_total=8 * GIB))
        yield client


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerUnderTest]:
    """A scheduler that outlives all that is done to it, as does an honest client with the turn."""
    with (
        running_scheduler(tmp_path_factory.mktemp("lasting") / "run") as running,
        running.joined("bystander") as client,
    ):
        client.take_turn()
        yield running


@pytest.fixture
def beside_a_bystander(lasting: SchedulerUnderTest) -> Iterator[SchedulerUnderTest]:
    """The same. Nobody else is there in the end."""
    yield lasting
    status = lasting.eventually(lambda s: sum(len(t["clients"]) for t in s["tenants"]) == 1)
    assert [holder["name"] for holder in status["devices"][0]["holders"]] == ["bystander"]


def garbage(peer: ScriptedClient) -> None:
    peer.send_raw(b"GET / HTTP/1.1\r\n\r\n")


def frame_of_10_mb(peer: ScriptedClient) -> None:
    data = bytes.fromhex("0200 0100") + (10 << 20).to_bytes(4, "little") + bytes(10 << 20)
    # The scheduler need not take all of it.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        peer.send_raw(data)


def wrong_version(peer: ScriptedClient) -> None:
    peer.send_raw(bytes.fromhex("6300 0100 00000000"))


def unknown_message(peer: ScriptedClient) -> None:
    peer.send_raw(bytes.fromhex("0200 FF7F 00000000"))


def message_before_hello(peer: ScriptedClient) -> None:
    peer.send(TurnRequested(request_id=1, cause="cuLaunchKernel"))


def forged_token(peer: ScriptedClient) -> None:
    peer.hello("bm90LW91cnM.bm90LW91cnM")


def empty_token(peer: ScriptedClient) -> None:
    peer.hello("")


@pytest.mark.parametrize(
    ("misdeed", "code"),
    [
        (garbage, RefusalCode.WRONG_VERSION),
        (frame_of_10_mb, RefusalCode.BAD_PROTOCOL),
        (wrong_version, RefusalCode.WRONG_VERSION),
        (unknown_message, RefusalCode.BAD_PROTOCOL),
        (message_before_hello, RefusalCode.BAD_PROTOCOL),
        (forged_token, RefusalCode.BAD_TOKEN),
        (empty_token, RefusalCode.BAD_TOKEN),
    ],
)
def test_a_stranger_that_breaks_the_rules_is_refused(
    beside_a_bystander: SchedulerUnderTest,
    misdeed: Callable[[ScriptedClient], None],
    code: RefusalCode,
) -> None:
    """It is told what is wrong and what to do, and its connection ends; the others go on."""
    with beside_a_bystander.connect() as peer:
        misdeed(peer)
        refused = peer.expect_refused()
        assert refused.code is code
        assert refused.message.count(". ") >= 1, "what is wrong, and what to do"


@pytest.mark.promise("bad-input-10")
@pytest.mark.parametrize("misdeed", [garbage, frame_of_10_mb, wrong_version, unknown_message])
def test_a_client_that_breaks_the_rules_loses_its_place(
    beside_a_bystander: SchedulerUnderTest,
    misdeed: Callable[[ScriptedClient], None],
) -> None:
    """Breaking the rules later costs the connection and the place in the queue, nothing else."""
    with beside_a_bystander.joined("rogue") as rogue:
        rogue.ask()
        rogue.expect(QueuePosition)
        misdeed(rogue)
        rogue.expect_refused()
        assert beside_a_bystander.status()["devices"][0]["queue"] == []


def test_hello_is_said_once(scheduler: SchedulerUnderTest) -> None:
    """A second Hello, with whatever token, is a breach."""
    tenant = scheduler.tenant()
    with scheduler.connect() as peer:
        peer.join(tenant.token)
        peer.hello(tenant.token)
        assert peer.expect_refused().code is RefusalCode.BAD_PROTOCOL


def test_what_came_whole_before_a_fault_still_counts(scheduler: SchedulerUnderTest) -> None:
    """A drop followed by garbage is a drop: the next client is granted."""
    with scheduler.joined("first") as first, scheduler.joined("second") as second:
        first.take_turn()
        second.ask()
        second.expect(QueuePosition)
        first.send_raw(encode(CellBegan()) + b"\xff" * 32)
        first.expect_refused()
        second.expect(TurnGranted)


@pytest.mark.promise("bad-input-58", "Half a message and then silence: likewise, after a deadline")
def test_half_a_message_and_then_silence(impatient: SchedulerUnderTest) -> None:
    """A message that was begun has a deadline; missing it gives the turn to the next."""
    with (
        joined_in_time(impatient, "first") as first,
        joined_in_time(impatient, "second") as second,
    ):
        first.take_turn()
        second.ask()
        second.expect(QueuePosition)
        first.send_raw(encode(TurnRequested(request_id=2, cause="cuLaunchKernel"))[:11])
        assert first.expect_refused().code is RefusalCode.BAD_PROTOCOL
        second.expect(TurnGranted)


@pytest.mark.promise("bad-input-58")
def test_single_bytes_do_not_put_the_deadline_off(impatient: SchedulerUnderTest) -> None:
    """A message that trickles in is late all the same."""
    with joined_in_time(impatient) as slow:
        frame = encode(TurnRequested(request_id=2, cause="cuLaunchKernel"))
        for position in range(len(frame)):
            with contextlib.suppress(BrokenPipeError):  # it may be late at any byte
                slow.send_raw(frame[position : position + 1])
            if slow.heard(Refused, within_s=DEADLINE_S / 4):
                break
        assert not slow.heard(TurnGranted)
        assert slow.expect_refused().code is RefusalCode.BAD_PROTOCOL


def test_a_connection_that_says_nothing(impatient: SchedulerUnderTest) -> None:
    """Who does not say who it is within the deadline is sent away."""
    with impatient.connect() as peer:
        assert peer.expect_refused().code is RefusalCode.BAD_PROTOCOL


def test_a_quiet_client_may_be_quiet(impatient: SchedulerUnderTest) -> None:
    """Between messages there is no deadline: a kernel may think for hours."""
    with joined_in_time(impatient) as client:
        assert not client.has_within(TurnGranted, within_s=3 * DEADLINE_S)
        client.take_turn()


HOLDER = """
import os, sys
from pathlib import Path
from tests.support.hook_client import DEVICE, GIB, ScriptedClient
client = ScriptedClient(Path(sys.argv[1]))
client.join(sys.argv[2])
client.take_turn()
child = 0
if sys.argv[3] == "fork":
    child = os.fork()
    if child == 0:
        sys.stdin.read()
        os._exit(0)
print(child, flush=True)
sys.stdin.read()
"""


@pytest.mark.promise("bad-input-41")
@pytest.mark.promise("bad-input-42")
@pytest.mark.parametrize("mode", ["alone", "fork"])
def test_a_client_killed_with_the_turn(scheduler: SchedulerUnderTest, mode: str) -> None:
    """SIGKILL frees the turn at once, also when a forked child keeps the socket open."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HOLDER,
            str(scheduler.directory / "hook.sock"),
            scheduler.tenant("holder").token,
            mode,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment({"PYTHONPATH": str(ROOT)}),
        text=True,
    )
    assert holder.stdout and holder.stdin
    try:
        child = int(holder.stdout.readline())
        with scheduler.joined("next") as waiter:
            waiter.ask()
            waiter.expect(QueuePosition)
            holder.kill()
            waiter.expect(TurnGranted)
            if child:
                os.kill(child, 0)  # it is still there, with the socket
    finally:
        holder.stdin.close()
        holder.kill()
        holder.wait()


@pytest.mark.promise(
    "scheduler-70",
    "A client that does not answer a recall is shown as overdue, and killed only where the admin "
    "asks for it",
)
@pytest.mark.parametrize("policy", ["warn", "kill"])
def test_a_client_that_does_not_answer_a_recall(scheduler: SchedulerUnderTest, policy: str) -> None:
    """It is shown as overdue, and killed only where the admin has asked for that."""
    scheduler.client.change_settings(
        {"quantum_s": 0.05, "overdue_s": 0.1, "overdue_policy": policy}
    )
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HOLDER,
            str(scheduler.directory / "hook.sock"),
            scheduler.tenant("holder").token,
            "alone",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment({"PYTHONPATH": str(ROOT)}),
        text=True,
    )
    with holder, scheduler.joined("next") as waiter:
        assert holder.stdin and holder.stdout and holder.stdout.readline()
        waiter.ask()
        if policy == "kill":
            waiter.expect(TurnGranted)
            assert holder.wait(120) == -signal.SIGKILL
        else:
            scheduler.eventually(lambda s: s["devices"][0]["holders"][0]["overdue"])
            assert holder.poll() is None
        holder.stdin.close()


@pytest.mark.promise(
    "bad-input-59",
    "A client that does not read, or names ever new things, is dropped",
)
def test_a_client_that_does_not_read(scheduler: SchedulerUnderTest) -> None:
    """What is kept for a reader that does not read has a bound; beyond it the client is dropped."""
    with scheduler.joined("deaf") as deaf, scheduler.joined("next") as waiter:
        deaf.take_turn()
        waiter.ask()
        waiter.expect(QueuePosition)
        # It may be dropped before it has asked all of this.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            deaf.send(*[HoldRequested(hold_ms=1), HoldRequested(hold_ms=2)] * 4000)
        waiter.expect(TurnGranted)
    assert "does not read" in scheduler.log


@pytest.mark.promise("bad-input-59")
@pytest.mark.full
def test_a_caller_that_does_not_read_its_answer(runtime: Path) -> None:
    """An answer over HTTP that is larger than the socket's buffer does not wait for ever."""
    option = f"--GPUShareScheduler.message_deadline_s={DEADLINE_S}"
    with running_scheduler(runtime, option, check=False) as scheduler:
        for number in range(400):
            scheduler.client.register_tenant("n" * 90, "kernel", kernel_id=f"{number:060}")
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(scheduler.directory / "http.sock"))
            deaf.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
            end = select.poll()
            end.register(deaf, select.POLLRDHUP)
            assert end.poll(ANSWER_S_MAX * 1000)
        assert len(scheduler.status()["tenants"]) == 400


@pytest.mark.promise("bad-input-59")
def test_more_clients_than_allowed(scheduler: SchedulerUnderTest) -> None:
    """The client beyond clients_max is refused with a sentence; when one leaves there is room."""
    scheduler.client.change_settings({"clients_max": 2})
    tenant = scheduler.tenant()
    with scheduler.connect() as first, scheduler.connect() as second:
        first.join(tenant.token)
        second.join(tenant.token)
        with scheduler.connect() as third:
            third.hello(tenant.token)
            assert third.expect_refused().code is RefusalCode.TOO_MANY
        second.close()
        scheduler.eventually(lambda s: len(s["tenants"][0]["clients"]) == 1)
        with scheduler.connect() as fourth:
            fourth.join(tenant.token)


@pytest.mark.promise("bad-input-13")
def test_a_token_of_a_removed_tenant(scheduler: SchedulerUnderTest) -> None:
    """A process that outlives its kernel cannot come back with the kernel's token."""
    tenant = scheduler.tenant()
    scheduler.client.remove_tenant(tenant.tenant_id)
    with scheduler.connect() as peer:
        peer.hello(tenant.token)
        refused = peer.expect_refused()
        assert refused.code is RefusalCode.BAD_TOKEN
        assert "shut down or restarted" in refused.message


def say_hello(path: Path, token: str) -> str:
    """How a hello with this token ends, in a word."""
    try:
        client = ScriptedClient(path)
    except PermissionError:
        return "may not connect"
    client.hello(token)
    return client.expect_refused().code.name


@as_root_only
def test_another_users_token(runtime: Path, tmp_path: Path) -> None:
    """A stolen token is worth nothing in the hands of another uid."""
    let_others_in(tmp_path)
    with running_scheduler(runtime, "--serve-all-users") as shared:
        token = shared.tenant().token
        assert as_other_user(lambda: say_hello(runtime / "hook.sock", token)) == "WRONG_USER"


@as_root_only
def test_another_user_cannot_reach_a_private_scheduler(
    scheduler: SchedulerUnderTest, tmp_path: Path
) -> None:
    """The runtime directory of a scheduler for one user keeps others from connecting at all."""
    let_others_in(tmp_path)
    path = scheduler.directory / "hook.sock"
    assert as_other_user(lambda: say_hello(path, "")) == "may not connect"


@pytest.mark.promise("bad-input-59")
def test_a_client_that_names_ever_new_devices(scheduler: SchedulerUnderTest) -> None:
    """What clients can make the scheduler remember is bounded, and goes with them."""
    with scheduler.joined() as honest, scheduler.joined() as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for number in range(256):
                uuid = number.to_bytes(16, "big")
                client.send(DeviceOpened(device=uuid, name="\x1b[31m", bytes_total=2**64 - 1))
        assert client.expect_refused().code is RefusalCode.TOO_MANY
        devices = scheduler.eventually(lambda s: len(s["devices"]) <= 1)["devices"]
        assert [device["name"] for device in devices] == ["Scripted GPU"]
        honest.take_turn()
    scheduler.eventually(lambda s: s["devices"] == [])


@pytest.mark.promise(
    "bad-input-60",
    "The scheduler forgets what a client said of a device that NVML does not list, once the "
    "client ends",
)
def test_a_wrong_size_is_gone_with_who_named_it(scheduler: SchedulerUnderTest) -> None:
    """A client that calls the device small and leaves takes no memory from the next."""
    with scheduler.connect() as small:
        small.hello(scheduler.tenant("small").token)
        small.send(DeviceOpened(device=DEVICE, name="\x1b[31mGPU", bytes_total=1 << 20))
        (device,) = scheduler.eventually(lambda s: s["devices"])["devices"]
        assert (device["name"], device["bytes_total"]) == ("[31mGPU", 1 << 20)
        with scheduler.joined("beside"):
            scheduler.eventually(lambda s: s["devices"][0]["bytes_total"] == 8 * GIB)
    scheduler.eventually(lambda s: s["devices"] == [])
    with scheduler.joined("next") as client:
        client.take_turn()
        client.send(MemoryNeeded(device=DEVICE, bytes=GIB, need=1, cause="cuMemAlloc_v2"))
        while (budget := client.expect(MemoryBudget)).budget_bytes < GIB:
            assert not budget.refused_need


@pytest.mark.promise(
    "bad-input-61", "Where all users are served, nobody can invent a device: only NVML's are shared"
)
def test_where_all_are_served_nobody_invents_devices(runtime: Path, tmp_path: Path) -> None:
    """A client that opens a device which NVML does not list is told so."""
    let_others_in(tmp_path)
    with (
        running_scheduler(runtime, "--serve-all-users") as shared,
        shared.joined("inventor") as client,
    ):
        refused = client.expect_refused()
        assert "does not share Scripted GPU" in refused.message
        assert shared.status()["devices"] == []


def test_claims_beyond_all_bounds(scheduler: SchedulerUnderTest) -> None:
    """A process that claims more memory than can be written down disturbs nobody but its own."""
    tenant = scheduler.tenant()
    with scheduler.connect() as first, scheduler.connect() as second, scheduler.connect() as third:
        for client in (first, second, third):
            client.join(tenant.token)
        for liar in (first, second):
            liar.send(memory_reported(DEVICE, 2**64 - 1))
            liar.take_turn()
        third.take_turn()
        limits = [m for m in third.received if isinstance(m, MemoryLimit)]
        assert limits[-1].others_bytes == 2**64 - 1


def test_a_stopped_scheduler_says_goodbye(scheduler: SchedulerUnderTest) -> None:
    """SIGTERM ends it with status 0, and its clients are told that they may look for another."""
    with scheduler.joined() as client:
        assert scheduler.stop(signal.SIGTERM) == 0
        assert client.expect_refused().code is RefusalCode.SHUTTING_DOWN
    assert not (scheduler.directory / "hook.sock").exists()
    assert not (scheduler.directory / "http.sock").exists()


@pytest.mark.promise(
    "bad-input-62",
    "A client that floods the scheduler, with messages, questions or half frames, delays nobody",
)
def test_a_client_that_floods_us_delays_nobody(runtime: Path, tmp_path: Path) -> None:
    """Its messages are taken a few at a time, however many there are and however many tenants:
    others' come in between."""
    path = tmp_path / "journal"
    with (
        running_scheduler(runtime, f"--journal={path}", check=False) as scheduler,
        contextlib.ExitStack() as stack,
    ):
        for number in range(TENANTS):
            stack.enter_context(scheduler.joined(f"idle {number}"))
        flooder, other = (stack.enter_context(scheduler.joined(who)) for who in ("flood", "other"))
        scheduler.process.send_signal(signal.SIGSTOP)
        flooder.send_raw(encode(CellBegan()) * 5_000)
        other.ask()
        scheduler.process.send_signal(signal.SIGCONT)
        other.expect(TurnGranted)
    events = [type(entry.event).__name__ for entry in read_journal(path).entries]
    assert events[: events.index("TurnRequested")].count("CellBegan") <= MESSAGES_MAX


@pytest.mark.promise("bad-input-62")
def test_half_messages_without_end_delay_nobody(runtime: Path) -> None:
    """A client that sends its frames in pieces is heard when they are whole; others are served
    meanwhile."""
    frame = encode(DeviceOpened(device=DEVICE, name="x" * 40, bytes_total=1))
    with (
        running_scheduler(runtime) as scheduler,
        scheduler.joined("flood") as flood,
        scheduler.joined("other") as other,
    ):
        for number in range(2000):
            flood.send_raw(
                frame[: len(frame) // 2] if number % 2 == 0 else frame[len(frame) // 2 :]
            )
            if number % 200 == 0:
                other.drop(other.take_turn().turn_id)
        flood.take_turn()


@pytest.mark.promise("bad-input-63", "Where all users are served, none of them takes every place")
def test_a_user_has_a_share_of_the_places(runtime: Path, tmp_path: Path) -> None:
    """The process beyond it is told so, and another user's is let in."""
    let_others_in(tmp_path)
    options = ("--serve-all-users", "--clients-max=2")
    with running_scheduler(runtime, *options) as shared, contextlib.ExitStack() as stack:
        token = shared.tenant().token
        first, second = (stack.enter_context(shared.connect()) for _ in range(2))
        first.hello(token)
        first.expect(Welcome)
        second.hello(token)
        assert "your share of clients_max" in second.expect_refused().message
