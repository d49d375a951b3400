"""What a soak does to the scheduler, to tenants and to what they stand on. Each fault answers
whether its effect was seen."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from jupyter_gpushare.client import RequestRefused, SchedulerUnavailable
from jupyter_gpushare.protocol.messages import CellEnded, MemoryReported
from tests.soak.bed import ENDING, Bed, SchedulerWithBugs, Tenant
from tests.support.hook_client import DEVICE
from tests.support.memory_tenants import OUT_OF_MEMORY, SUCCESS, bare_tenant
from tests.support.sim import MIB

Fault = Callable[[Bed], bool]
FAULTS: dict[str, Fault] = {}
"""By name, those that a soak draws from."""
LATER: dict[str, Fault] = {}
"""And those that nothing withstands yet."""
CONNECTIONS = 300
OUTSIDE_PIECE = 20 * MIB
OUTSIDE = (1, 3, 6, 22)
"""Pieces of what a program outside takes of a device; the last is all that the reserve leaves."""
FILLS_S_MAX = 3.0
NOT_SURVIVED = ("descriptors_closed", "few_descriptors", "gpu_filled_from_outside")
"""By a real driver, and by others who use its devices."""
KILLS_SCHEDULER = ("scheduler_killed", "scheduler_ended", "core_fails", "client_fails_the_core")
HOOK_SOCKET, HTTP_SOCKET = "hook.sock", "http.sock"
MOVES_S_MAX = 3.0
FAILS_S_MAX = 10.0
RATE_S = 12.0
"""For so long it is looked how much tenants do: a client that is not admitted comes back once."""
RATE_LEAST = 0.9
RATES_MAX = 3
"""What else the machine does changes a rate by more at times."""
SETTLES_S = 3.0
FAILED = "The scheduler failed at CellEnded"
HOST_RESERVE = 256 * MIB
"""Of a control group the hook leaves so much alone."""
HOST_LIMITS = (0, HOST_RESERVE, HOST_RESERVE + 16 * MIB, HOST_RESERVE + 48 * MIB)
REQUEST = b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n"


def fault(named: Fault) -> Fault:
    FAULTS[named.__name__] = named
    return named


# ---- the scheduler -----------------------------------------------------------------------------


def comes_back(bed: Bed) -> bool:
    """It is started again, and at least one tenant has found it."""
    time.sleep(bed.chance.uniform(0, 1))
    bed.start_scheduler()
    return bed.until(lambda: any(each["clients"] for each in bed.status()["tenants"]))


@fault
def scheduler_killed(bed: Bed) -> bool:
    bed.scheduler.kill()
    return comes_back(bed)


@fault
def scheduler_ended(bed: Bed) -> bool:
    return bed.scheduler.stop() == 0 and comes_back(bed)


@fault
def scheduler_stopped(bed: Bed) -> bool:
    """The whole process stands still for seconds."""
    bed.scheduler.process.send_signal(signal.SIGSTOP)
    time.sleep(bed.chance.uniform(0.3, 2))
    bed.scheduler.process.send_signal(signal.SIGCONT)
    return bool(bed.status()["devices"])


@fault
def core_fails(bed: Bed) -> bool:
    """For a while it is one whose core has bugs, which a new tenant meets."""
    bed.judge()
    bed.scheduler.stop()
    bed.start_scheduler(SchedulerWithBugs)
    bed.kill(bed.chance.choice(bed.tenants))
    failed = bed.until(lambda: "a bug of the test's" in bed.scheduler.log, FAILS_S_MAX)
    bed.scheduler.stop()
    bed.ignore_log()
    return comes_back(bed) and failed


def make_core_fail(bed: Bed, token: str) -> None:
    """One connection of a client that does so where it is admitted."""
    client = bed.scheduler.connect()
    with suppress(AssertionError, OSError):
        client.join(token)
        client.send(CellEnded())
        client.is_closed()
    client.close()


def rate_of_others(bed: Bed, meanwhile: Callable[[], object]) -> float:
    """Operations of all tenants in a second, while something is done twice a second."""
    tenants = list(bed.tenants)
    before = sum(each.totals.operations for each in tenants)
    began_s = time.monotonic()
    while time.monotonic() < began_s + RATE_S:
        meanwhile()
        bed.until(lambda: False, 0.5)
    after = sum(each.totals.operations for each in tenants)
    return (after - before) / (time.monotonic() - began_s)


def rate_beside_a_bad_client(bed: Bed) -> float:
    """What others do beside a new one, of what they do without."""
    token = bed.scheduler.tenant("bad", "run").token
    alone = rate_of_others(bed, lambda: None)
    beside = rate_of_others(bed, lambda: make_core_fail(bed, token))
    return round(beside / max(alone, 1e-9), 2)


def measure_rate(bed: Bed) -> None:
    """Once in a soak, for it takes as long as six faults."""
    bed.until(lambda: False, SETTLES_S)
    rates = [rate_beside_a_bad_client(bed)]
    while rates[-1] < RATE_LEAST and len(rates) < RATES_MAX:
        rates.append(rate_beside_a_bad_client(bed))
    bed.score.rates.append(max(rates))
    if max(rates) < RATE_LEAST:
        bed.score.find("slowed", f"beside a client that makes the core fail, {rates} is done")


@fault
def client_fails_the_core(bed: Bed) -> bool:
    """A client makes the core fail: it is kept out, and the others go on as before. Its scheduler
    is one with bugs for a while."""
    bed.judge()
    bed.scheduler.stop()
    bed.start_scheduler(SchedulerWithBugs)
    if not bed.score.rates:
        measure_rate(bed)
    before = bed.scheduler.log.count(FAILED)
    token = bed.scheduler.tenant("bad", "run").token
    make_core_fail(bed, token)
    failed = bed.until(lambda: bed.scheduler.log.count(FAILED) > before, FAILS_S_MAX)
    make_core_fail(bed, token)
    bed.scheduler.stop()
    failures = bed.scheduler.log.count(FAILED) - before
    bed.ignore_log()
    return comes_back(bed) and failed and failures == 1


@fault
def settings_changed(bed: Bed) -> bool:
    """Live, and back."""
    quantum_s = bed.chance.choice((0.02, 0.05, 1.0))
    bed.scheduler.client.change_settings({"quantum_s": quantum_s})
    time.sleep(0.5)
    answered = bed.status()["settings"]["quantum_s"]
    bed.scheduler.client.unset_setting("quantum_s")
    return bool(answered == quantum_s)


@fault
def device_paused(bed: Bed) -> bool:
    device = bed.chance.choice(bed.status()["devices"])["id"]
    bed.scheduler.client.set_device_mode(device, bed.chance.choice(("paused", "drained")))
    time.sleep(bed.chance.uniform(0.2, 1))
    modes = {each["id"]: each["mode"] for each in bed.status()["devices"]}
    bed.scheduler.client.set_device_mode(device, "open")
    return bool(modes[device] != "open")


# ---- tenants -----------------------------------------------------------------------------------


def one_that_moves(bed: Bed, *, parks: bool) -> Tenant | None:
    """A tenant whose memory leaves the device just now, or comes back."""
    before, until_s = bed.parked_bytes(), time.monotonic() + MOVES_S_MAX
    while time.monotonic() < until_s:
        parked = bed.parked_bytes()
        for tenant in bed.tenants:
            was, now = before.get(tenant.tenant_id, 0), parked.get(tenant.tenant_id, 0)
            if (now > was) if parks else (now < was):
                return tenant
        before = parked
    return None


def stop_for_a_while(bed: Bed, tenant: Tenant) -> bool:
    tenant.signal(signal.SIGSTOP)
    time.sleep(bed.chance.uniform(0.1, 1.5))
    tenant.signal(signal.SIGCONT)
    return tenant.is_alive


@fault
def tenant_killed(bed: Bed) -> bool:
    bed.kill(bed.chance.choice(bed.tenants))
    return True


@fault
def tenant_killed_parking(bed: Bed) -> bool:
    if (tenant := one_that_moves(bed, parks=True)) is None:
        return False
    bed.kill(tenant)
    return True


@fault
def tenant_killed_restoring(bed: Bed) -> bool:
    if (tenant := one_that_moves(bed, parks=False)) is None:
        return False
    bed.kill(tenant)
    return True


@fault
def tenant_stopped(bed: Bed) -> bool:
    return stop_for_a_while(bed, bed.chance.choice(bed.tenants))


@fault
def tenant_stopped_parking(bed: Bed) -> bool:
    tenant = one_that_moves(bed, parks=True)
    return tenant is not None and stop_for_a_while(bed, tenant)


@fault
def tenant_stopped_restoring(bed: Bed) -> bool:
    tenant = one_that_moves(bed, parks=False)
    return tenant is not None and stop_for_a_while(bed, tenant)


def waiting(bed: Bed) -> Tenant:
    """A tenant that waits for a turn, if there is one."""
    queued = {each["tenant"] for device in bed.status()["devices"] for each in device["queue"]}
    return bed.chance.choice([t for t in bed.tenants if t.tenant_id in queued] or bed.tenants)


@fault
def interrupted_by_signal(bed: Bed) -> bool:
    tenant = waiting(bed)
    before = tenant.totals.cancelled
    tenant.signal(signal.SIGINT)
    return bed.until(lambda: tenant.totals.cancelled > before, MOVES_S_MAX)


@fault
def interrupted_by_its_user(bed: Bed) -> bool:
    """As the stop button does."""
    tenant = waiting(bed)
    before = tenant.totals.cancelled
    with contextlib.suppress(RequestRefused):
        bed.scheduler.client.interrupt_tenant(tenant.tenant_id)
    return bed.until(lambda: tenant.totals.cancelled > before, MOVES_S_MAX)


def holders_of(bed: Bed) -> list[str]:
    """The tenants that have a turn, where there are turns."""
    if not bed.shared:
        return []
    return [each["tenant"] for device in bed.status()["devices"] for each in device["holders"]]


@fault
def turn_taken_back(bed: Bed) -> bool:
    holders = holders_of(bed)
    if not holders:
        return False
    try:
        bed.scheduler.client.release_tenant(bed.chance.choice(holders))
    except RequestRefused:
        return False
    return True


def told(bed: Bed, command: str) -> bool:
    """A tenant does it, one that computes where there is one, and goes on."""
    holders = holders_of(bed)
    tenant = bed.chance.choice([t for t in bed.tenants if t.tenant_id in holders] or bed.tenants)
    before = tenant.answers[command]
    tenant.say(command)
    if bed.until(lambda: tenant.answers[command] > before or tenant not in bed.tenants):
        return tenant.answers[command] > before
    bed.hangs(tenant, f"does not answer {command}")
    bed.replace(tenant)
    return False


def ends(bed: Bed, kind: str) -> bool:
    return bed.end(bed.chance.choice(bed.tenants), kind)


OF_THE_PROGRAM: dict[str, Fault] = {
    "thread_cancelled": partial(told, command="cancel"),
    "forks": partial(told, command="fork"),
    "forks_and_executes": partial(told, command="fork_exec"),
    "descriptors_closed": partial(told, command="close_fds"),
    "few_descriptors": partial(told, command="few_fds"),
    **{f"ends_by_{kind}": partial(ends, kind=kind) for kind in ENDING},
}
"""What programs do without us too."""
FAULTS |= OF_THE_PROGRAM


# ---- what they stand on ------------------------------------------------------------------------


@fault
def host_memory_short(bed: Bed) -> bool:
    """Of one tenant, until all is healed; the one before has ample memory again."""
    for group in bed.groups.values():
        group.limit(None)
    tenant = bed.chance.choice(bed.tenants)
    bed.groups[tenant.name].limit(bed.chance.choice(HOST_LIMITS))
    return True


@fault
def gpu_filled_from_outside(bed: Bed) -> bool:
    """By a program that is not under the hook, with a part of the device or with all of it. On a
    device that is full a tenant begins, which has nothing there yet."""
    wanted, until_s = bed.chance.choice(OUTSIDE), time.monotonic() + FILLS_S_MAX
    held = 0
    with bare_tenant(bed.machine.env) as outside:
        while held < wanted and time.monotonic() < until_s:
            result = outside.result(f"alloc {held} {OUTSIDE_PIECE}")
            assert result in (SUCCESS, OUT_OF_MEMORY), result
            held += result == SUCCESS
            time.sleep(0 if result == SUCCESS else 0.05)
        if wanted == max(OUTSIDE):
            bed.kill(bed.chance.choice(bed.tenants))
        time.sleep(bed.chance.uniform(0.6, 1.5))
    return held > 0


def connected(bed: Bed, name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(5)
    sock.connect(str(bed.scheduler.directory / name))
    return sock


def garbage(bed: Bed, name: str) -> bool:
    """Whether the scheduler hangs up, or at least takes no notice, and still answers others."""
    with connected(bed, name) as sock, contextlib.suppress(OSError):
        sock.sendall(bed.chance.randbytes(bed.chance.randint(1, 1 << 16)))
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass
    return bool(bed.status()["devices"])


@fault
def garbage_on_the_hook_socket(bed: Bed) -> bool:
    return garbage(bed, HOOK_SOCKET)


@fault
def garbage_on_the_http_socket(bed: Bed) -> bool:
    return garbage(bed, HTTP_SOCKET)


@fault
def pipelined_requests(bed: Bed) -> bool:
    """Of a caller who does not wait for the answers."""
    with connected(bed, HTTP_SOCKET) as sock, contextlib.suppress(OSError):
        sock.sendall(REQUEST * bed.chance.randint(2, 300))
    return bool(bed.status()["devices"])


@fault
def slow_request(bed: Bed) -> bool:
    """Of a caller who stops in the middle."""
    with connected(bed, HTTP_SOCKET) as sock:
        sock.sendall(REQUEST[: bed.chance.randint(1, len(REQUEST) - 1)])
        time.sleep(0.3)
        return bool(bed.status()["devices"])


# ---- whose mends are to come -------------------------------------------------------------------


def later(named: Fault) -> Fault:
    """A soak finds what it does, so it runs with `--kinds all` alone."""
    LATER[named.__name__] = named
    return named


@later
def runtime_directory_gone(bed: Bed) -> bool:
    """Somebody removes it under a scheduler, which is killed and started again."""
    shutil.rmtree(bed.scheduler.directory)
    time.sleep(bed.chance.uniform(0, 1))
    bed.scheduler.kill()
    return comes_back(bed)


@later
def runtime_directory_full(bed: Bed) -> bool:
    """No file of the scheduler can grow for a moment."""
    pid = bed.scheduler.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        time.sleep(bed.chance.uniform(0.2, 1))
        return bool(bed.status()["devices"])
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@later
def connections_that_say_nothing(bed: Bed) -> bool:
    """Until the scheduler takes no more of them."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            for _ in range(CONNECTIONS):
                stack.enter_context(connected(bed, HOOK_SOCKET))
        return bool(bed.status()["devices"])


@later
def client_that_lies(bed: Bed) -> bool:
    """It has a token, and tells of memory that no device has."""
    token = bed.scheduler.tenant("liar", "run").token
    liar = bed.scheduler.connect()
    try:
        liar.join(token)
        liar.send(
            MemoryReported(
                device=DEVICE,
                bytes_allocated=1 << 62,
                bytes_parked=bed.chance.choice((0, 1 << 61, 1 << 63)),
                bytes_fixed=1 << 62,
                bytes_host_room=(1 << 64) - 1,
                host_limit=0,
                budget_serial=0,
                bytes_kept=0,
                bytes_copied=0,
                bytes_to_copy=0,
            )
        )
        return bool(bed.status()["devices"])
    except (AssertionError, OSError):
        return False
    finally:
        liar.socket.close()


@later
def tenants_without_a_process(bed: Bed) -> bool:
    """Registered by a server that has gone since, and never started."""
    names = {f"never-{bed.chance.getrandbits(32)}" for _ in range(20)}
    for name in names:
        bed.scheduler.tenant(name)
    return names <= {each["name"] for each in bed.status()["tenants"]}


def bring_about(bed: Bed, kind: str) -> bool:
    """One fault, counted. Whether its effect was seen."""
    bed.score.tried[kind] += 1
    bed.score.began.append((time.monotonic_ns(), kind))
    try:
        seen = (FAULTS | LATER)[kind](bed)
    except (RequestRefused, SchedulerUnavailable):
        seen = False
    bed.score.seen[kind] += seen
    return seen
