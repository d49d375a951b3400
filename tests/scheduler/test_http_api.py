"""HTTP on http.sock: who may do what, and what everybody else is told."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.client import (
    ClientError,
    RequestRefused,
    SchedulerClient,
    SchedulerUnavailable,
)
from jupyter_gpushare.protocol.messages import QueuePosition
from tests.scheduler.test_devices_from_nvml import machine_env
from tests.support.hook_client import ScriptedClient
from tests.support.other_user import OTHER_UID, as_other_user, as_root_only, let_others_in
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.sim import SimulatedMachine
from tests.support.waits import WAIT_S_MAX


class Connection(http.client.HTTPConnection):
    """Raw HTTP over the socket, for requests that our own client would not send."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WAIT_S_MAX)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S_MAX)
        self.sock.connect(str(self._path))


def request(
    scheduler: SchedulerUnderTest, method: str, route: str, body: bytes = b""
) -> tuple[int, dict[str, Any]]:
    connection = Connection(scheduler.directory / "http.sock")
    connection.request(method, route, body=body)
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    return response.status, json.loads(raw) if raw else {}


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerUnderTest]:
    """A scheduler for requests that change nothing."""
    with running_scheduler(tmp_path_factory.mktemp("lasting") / "run") as running:
        yield running


@pytest.fixture
def shared(runtime: Path, tmp_path: Path) -> Iterator[SchedulerUnderTest]:
    """A scheduler for all users of the machine, which has one device."""
    let_others_in(tmp_path)
    env = machine_env(SimulatedMachine(tmp_path / "machine"))
    with running_scheduler(runtime, "--serve-all-users", env=env) as running:
        yield running


def device_of(shared: SchedulerUnderTest) -> bytes:
    return bytes.fromhex(shared.status()["devices"][0]["id"])


def as_other(shared: SchedulerUnderTest, call: str, *arguments: Any) -> str:
    """What a call of the client gives another user: its answer as JSON, or its error."""

    def action() -> str:
        client = SchedulerClient(shared.directory / "http.sock", uids=frozenset({0}))
        try:
            return json.dumps(getattr(client, call)(*arguments), default=repr)
        except RequestRefused as refused:
            return f"{refused.status}: {refused}"
        except ClientError as error:
            return f"{type(error).__name__}: {error}"

    return as_other_user(action)


@pytest.mark.promise(
    "scheduler-76",
    "Wrong settings and requests change nothing, and are answered in sentences",
)
@pytest.mark.parametrize(
    ("method", "route", "body", "status", "sentence"),
    [
        ("GET", "/api/v1/nothing", b"", 404, "There is no /api/v1/nothing"),
        ("GET", "/", b"", 404, "There is no /"),
        ("POST", "/api/v1/status", b"{}", 405, "Method Not Allowed"),
        ("POST", "/api/v1/tenants", b"garbage", 400, "not a JSON object"),
        ("POST", "/api/v1/tenants", b"[]", 400, "not a JSON object"),
        ("POST", "/api/v1/tenants", b"{}", 400, "no name"),
        ("POST", "/api/v1/tenants", b'{"name": "a", "kind": "x"}', 400, "no kind 'x'"),
        ("POST", "/api/v1/tenants", b'{"name": 7, "kind": "run"}', 400, "no name"),
        (
            "POST",
            "/api/v1/tenants",
            b'{"name": "a", "kind": "run", "kernel_id": 7}',
            400,
            "`kernel_id` is not an id",
        ),
        ("DELETE", "/api/v1/tenants/unknown", b"", 404, "no tenant 'unknown'"),
        ("POST", "/api/v1/tenants/unknown/interrupt", b"{}", 404, "no tenant 'unknown'"),
        ("PATCH", "/api/v1/settings", b'{"quantum_min_s": 0}', 400, "outside 0.01"),
        ("PATCH", "/api/v1/settings", b'{"quantum_s": [5]}', 400, "Give a number of sec"),
        ("PATCH", "/api/v1/settings", b'{"quantum_s": NaN}', 400, "finite"),
        ("PATCH", "/api/v1/settings", b'{"quantum_s": 1%s}' % (b"0" * 400), 400, "finite"),
        ("PATCH", "/api/v1/settings", b'{"idle_ms": 1.5}', 400, "whole number"),
        ("PATCH", "/api/v1/settings", b'{"idle_ms": true}', 400, "Give a number"),
        ("PATCH", "/api/v1/settings", b'{"turns": "maybe"}', 400, "one of: on, off"),
        ("PATCH", "/api/v1/settings", b'{"speed": 1}', 400, "no setting 'speed'"),
    ],
)
def test_a_request_that_cannot_be_met(
    lasting: SchedulerUnderTest,
    method: str,
    route: str,
    body: bytes,
    status: int,
    sentence: str,
) -> None:
    """It is answered with a status, what is wrong, and what to do."""
    before = lasting.status()
    found, answer = request(lasting, method, route, body)
    assert (found, sentence in answer["message"]) == (status, True), answer
    assert answer["message"].count(". ") >= 1
    after = lasting.status()
    assert (after["settings"], after["tenants"]) == (before["settings"], before["tenants"])


@pytest.mark.promise("scheduler-76")
def test_a_refused_change_changes_nothing(lasting: SchedulerUnderTest) -> None:
    """One bad setting of several keeps all of them as they were."""
    before = lasting.status()["settings"]
    request(lasting, "PATCH", "/api/v1/settings", b'{"quantum_s": 7, "idle_ms": 0}')
    assert lasting.status()["settings"] == before


def test_a_body_that_is_too_large(scheduler: SchedulerUnderTest) -> None:
    """A megabyte of JSON is not read; the scheduler goes on."""
    with pytest.raises((http.client.HTTPException, OSError)):
        status, _ = request(scheduler, "POST", "/api/v1/tenants", b" " * (1 << 20))
        if status >= 400:
            raise http.client.HTTPException(status)
    assert scheduler.status()["tenants"] == []


@pytest.mark.promise("scheduler-77", "Status is served over HTTP on a unix socket")
def test_status_tells_devices_tenants_and_settings(scheduler: SchedulerUnderTest) -> None:
    """Who holds, who waits, and what every tenant has had."""
    with scheduler.joined("first") as first, scheduler.joined("second") as second:
        turn = first.take_turn()
        second.ask()
        status = scheduler.eventually(lambda s: s["devices"][0]["queue"])
        (device,) = status["devices"]
        assert device["name"] == "Scripted GPU"
        assert [h["name"] for h in device["holders"]] == ["first"]
        assert device["holders"][0]["turn"] == turn.turn_id
        assert [w["name"] for w in device["queue"]] == ["second"]
        assert [t["name"] for t in status["tenants"]] == ["first", "second"]
        assert status["tenants"][0]["counters"]["turns"] == 1
        assert status["settings"]["turns"] == "on"
        assert status["scheduler"]["pid"] == scheduler.process.pid


def test_removal_may_be_repeated(scheduler: SchedulerUnderTest) -> None:
    """A kernel that is cleaned up twice, as some tools do, is no error."""
    tenant = scheduler.tenant()
    scheduler.client.remove_tenant(tenant.tenant_id)
    scheduler.client.remove_tenant(tenant.tenant_id)
    assert scheduler.status()["tenants"] == []


def test_a_tenant_whose_registrant_ends_is_forgotten(scheduler: SchedulerUnderTest) -> None:
    """A server that is killed cannot remove its kernels; idle ones go, used ones stay."""
    path = scheduler.directory / "http.sock"

    def register() -> str:
        client = SchedulerClient(path, uids=frozenset({0}))
        client.register_tenant("idle", "kernel")
        return client.register_tenant("used", "kernel").token

    token = _in_child(register)
    with scheduler.connect() as survivor:
        survivor.join(token)
        scheduler.eventually(lambda s: [t["name"] for t in s["tenants"]] == ["used"])
        survivor.take_turn()
    scheduler.eventually(lambda s: s["tenants"] == [])
    with scheduler.connect() as late:
        late.join(token)  # its token is still good: nobody said that the kernel has ended
        assert [t["name"] for t in scheduler.status()["tenants"]] == ["used"]


def test_names_are_one_printable_line(scheduler: SchedulerUnderTest) -> None:
    """Whatever a name contains, it cannot disturb a terminal or grow without bound."""
    scheduler.tenant("a\x1b[31m\nb" + "é" * 200)
    (tenant,) = scheduler.status()["tenants"]
    assert tenant["name"].startswith("a [31m b")
    assert tenant["name"].isprintable()
    assert len(tenant["name"].encode()) <= 96


@as_root_only
def test_others_names_and_pids_are_hidden(shared: SchedulerUnderTest) -> None:
    """A user sees that somebody holds the device and for how long, but not who."""

    def look_with_a_tenant_of_my_own() -> str:
        client = SchedulerClient(shared.directory / "http.sock", uids=frozenset({0}))
        client.register_tenant("mine", "run")
        return json.dumps(client.status())

    with shared.joined("secret project", device=device_of(shared)) as holder:
        holder.take_turn()
        text = as_other_user(look_with_a_tenant_of_my_own)
        assert "secret" not in text
        status = json.loads(text)
        hidden, mine = status["tenants"]
        assert (hidden["name"], hidden["owner"]) == ("another user", "another user")
        assert hidden["clients"][0]["pid"] is None
        assert mine["name"] == "mine"
        (place,) = status["devices"][0]["holders"]
        assert (place["name"], place["tenant"]) == ("another user", hidden["id"])
        ours = shared.status()["tenants"][0]
        assert (ours["name"], ours["owner"]) == ("secret project", "root")


@as_root_only
def test_the_hook_is_not_told_others_names(shared: SchedulerUnderTest) -> None:
    """The name of who is ahead in the queue is shown to its owner's own processes alone."""

    device = device_of(shared)

    def wait_behind() -> str:
        client = SchedulerClient(shared.directory / "http.sock", uids=frozenset({0}))
        tenant = client.register_tenant("mine", "run")
        peer = ScriptedClient(Path(tenant.socket))
        peer.join(tenant.token, device=device)
        peer.ask()
        return peer.expect(QueuePosition).holder

    with shared.joined("secret project", device=device_of(shared)) as holder:
        holder.take_turn()
        assert as_other_user(wait_behind) == "another user"


@as_root_only
def test_only_owner_and_admin_act_on_a_tenant(shared: SchedulerUnderTest) -> None:
    """Another user may neither remove nor interrupt a tenant; root may do both with theirs."""
    tenant = shared.tenant()
    assert as_other(shared, "remove_tenant", tenant.tenant_id).startswith("403: ")
    assert as_other(shared, "interrupt_tenant", tenant.tenant_id).startswith("403: ")
    assert as_other(shared, "past_waits", tenant.tenant_id).startswith("403: ")
    theirs = f"{OTHER_UID}-0123456789abcdef"
    shared.client.remove_tenant(theirs)
    assert as_other(shared, "remove_tenant", theirs) == "null"


@as_root_only
def test_settings_are_the_admins(shared: SchedulerUnderTest) -> None:
    """Another user may not change settings, and is told whom to ask."""
    assert "changed by root" in as_other(shared, "change_settings", {"quantum_s": 1})


@as_root_only
def test_a_private_scheduler_serves_its_owner_alone(
    scheduler: SchedulerUnderTest, tmp_path: Path
) -> None:
    """The directory keeps others out; should it be opened, the scheduler itself refuses them."""
    let_others_in(tmp_path)
    assert "may not use" in as_other(scheduler, "status")
    scheduler.directory.chmod(0o711)
    (scheduler.directory / "http.sock").chmod(0o666)
    assert as_other(scheduler, "status").startswith("403: ")


def _in_child(action: Any) -> str:
    return as_other_user(action, uid=0)


def test_who_has_given_up_registers_nothing(scheduler: SchedulerUnderTest) -> None:
    """A request that was left behind while the scheduler hung makes no tenant: nobody would remove
    it."""
    scheduler.process.send_signal(signal.SIGSTOP)
    impatient = SchedulerClient(scheduler.directory / "http.sock", timeout_s=0.2)
    with pytest.raises(SchedulerUnavailable):
        impatient.register_tenant("given up", "kernel")
    scheduler.process.send_signal(signal.SIGCONT)
    scheduler.tenant("patient")
    assert [tenant["name"] for tenant in scheduler.status()["tenants"]] == ["patient"]


def test_a_body_that_is_nested_too_deep(scheduler: SchedulerUnderTest) -> None:
    """It is the request's fault, not ours."""
    status, answer = request(scheduler, "POST", "/api/v1/tenants", b"[" * 60_000)
    assert (status, "not a JSON object" in answer["message"]) == (400, True)
