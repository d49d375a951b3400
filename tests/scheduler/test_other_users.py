"""What other users may see and do, decided by uid: needs no other user. The same over real sockets,
where a test may become another user, is in test_http_api.py and test_bad_peers.py."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.core.commands import TellQueuePosition
from jupyter_gpushare.core.configuration.layers import Layers
from jupyter_gpushare.core.events import (
    ClientJoined,
    DeviceFound,
    DeviceOpened,
    Event,
    TurnRequested,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.core.snapshot import Snapshot
from jupyter_gpushare.protocol.messages import Hello, RefusalCode
from jupyter_gpushare.scheduler.base.errors import RequestError
from jupyter_gpushare.scheduler.identity.admission import Admission, Refusal
from jupyter_gpushare.scheduler.identity.caller import Caller
from jupyter_gpushare.scheduler.identity.peer import Peer
from jupyter_gpushare.scheduler.identity.recovery import Recovery
from jupyter_gpushare.scheduler.identity.tenants import TenantBook
from jupyter_gpushare.scheduler.identity.tokens import TokenSigner
from jupyter_gpushare.scheduler.service import service
from jupyter_gpushare.scheduler.service.administration import Administration
from jupyter_gpushare.scheduler.service.audit import Audit
from jupyter_gpushare.scheduler.service.live_settings import LiveSettings
from jupyter_gpushare.scheduler.service.looks import Look
from jupyter_gpushare.scheduler.service.members import Members
from jupyter_gpushare.scheduler.service.service import Service

DEVICE = DeviceId("0" * 32)
ALICE, BOB = os.getuid() + 1001, os.getuid() + 1002


class Office:
    """The service over a core, for all users, without sockets."""

    def __init__(self) -> None:
        self.core = Scheduler(SchedulerSettings())
        self.to_come: list[Callable[[], object]] = []
        """Calls for a later time."""
        self.signer, self.tenants = TokenSigner(b"k" * 32), TenantBook()
        self.members = Members(self.tenants, settings=lambda: self.core.settings)
        settings = LiveSettings(Layers(), self.submit)
        self.audit = Audit()
        self.administration = Administration(
            request=self.submit,
            snapshot=self.snapshot,
            settings=settings,
            tenants=self.tenants,
            audit=self.audit,
        )
        self.service = Service(
            submit=self.submit,
            request=self.submit,
            snapshot=self.snapshot,
            estimates=lambda tenants: self.core.estimates(tenants, 0.0),
            settings=settings,
            administration=self.administration,
            signer=self.signer,
            tenants=self.tenants,
            members=self.members,
            recovery=Recovery(set()),
            hook_socket=Path("/nowhere/hook.sock"),
            later=self.later,
        )

    def later(self, after_s: float, call: Callable[..., object], *of: object) -> None:
        self.to_come.append(partial(call, *of))

    def submit(self, event: Event) -> None:
        self.core.handle(event, now_s=0.0)

    def snapshot(self) -> Snapshot:
        return self.core.snapshot(0.0)

    def status(self, caller: Caller) -> dict[str, Any]:
        """As the caller sees it now."""
        return self.service.status(caller, Look(self.snapshot())).status

    def tenant(self, uid: int, name: str) -> dict[str, str]:
        return self.service.register_tenant(Caller(uid), {"name": name, "kind": "kernel"})

    def busy_tenants_of(self, uid: int) -> list[str]:
        """One that holds the device and one that waits; the name of the first, and then all that
        could tell what they are."""
        self.submit(DeviceFound(device=DEVICE, name="GPU", bytes_total=1 << 30))
        secrets = ["secret project"]
        for client, name in enumerate(("secret project", "secret project too"), 1):
            body = {"name": name, "kind": "kernel", "kernel_id": f"kernel-{client}"}
            answer = self.service.register_tenant(Caller(uid), body)
            record = self.signer.verify(answer["token"])
            pid, program = 90_210 + client, f"program {client}"
            self.service.client_joined(ClientId(client), record)
            of_client = {"client": ClientId(client)}
            tenant = TenantId(record.tenant_id)
            self.submit(ClientJoined(**of_client, tenant=tenant, pid=pid, process_name=program))
            self.submit(DeviceOpened(**of_client, device=DEVICE))
            self.submit(TurnRequested(**of_client))
            secrets += [record.tenant_id, f"kernel-{client}", str(pid), program]
        return secrets

    def admitted(
        self, token: str, uid: int, *, serves_all: bool = True, is_local: bool = True
    ) -> str:
        admission = Admission(signer=self.signer, tenants=self.tenants, serves_all=serves_all)
        hello = Hello(
            token=token, pid=1, process_name="p", hook_version="0", held_turn_id=0, waiting=0
        )
        return admission.check(hello, Peer(pid=1, uid=uid, is_local=is_local)).name


@pytest.mark.promise("scheduler-16")
def test_an_estimate_is_told_to_its_user_alone() -> None:
    """It has a range and a reason in words; of others' notebooks no time is told, and of none that
    does not wait."""
    office = Office()
    office.busy_tenants_of(ALICE)
    holds, waits = office.status(Caller(ALICE))["tenants"]
    assert holds["estimate"] is None
    assert waits["estimate"]["position"] == 1
    assert waits["estimate"]["when"].startswith("Starts in ")
    assert waits["estimate"]["why"].split(", ")[1] == "of the same user"
    seen = office.status(Caller(BOB))["tenants"]
    assert [tenant["estimate"] for tenant in seen] == [None, None]


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.mark.promise("scheduler-110")
def test_a_tenant_of_before_a_restart_has_its_time_each_time_it_is_away(office: Office) -> None:
    """A call that was set when it was away before forgets it neither then nor later."""
    record = office.signer.verify(office.tenant(ALICE, "from before")["token"])
    office.tenants.registrant_ended(record.tenant_id)  # forgotten, for it has no client
    for client in (ClientId(1), ClientId(2)):
        office.service.client_joined(client, record)
        office.service.client_left(client)
    first, second = office.to_come
    first()
    assert office.tenants.get(record.tenant_id) is not None
    office.service.client_joined(ClientId(3), record)
    second()
    assert office.tenants.get(record.tenant_id) is not None
    office.service.client_left(ClientId(3))
    office.to_come[2]()
    assert office.tenants.get(record.tenant_id) is None
    assert office.snapshot().tenants == ()


@pytest.mark.promise(
    "scheduler-83",
    "Status is cut to what the caller may see, and only owner and admin act on a tenant",
)
def test_a_status_hides_others_names(office: Office) -> None:
    """Each user sees the names of their own tenants; root and the scheduler's user see all."""
    office.tenant(ALICE, "alices secret")
    office.tenant(BOB, "bobs secret")
    seen = json.dumps(office.status(Caller(ALICE)))
    assert "alices secret" in seen and "bobs secret" not in seen
    assert str(BOB) not in seen
    for admin in (0, os.getuid()):
        assert "bobs secret" in json.dumps(office.status(Caller(admin)))


@pytest.mark.promise("server-2")
def test_cuts_of_one_snapshot_do_not_mix(office: Office) -> None:
    """What is hidden from one caller is still told to the one whose it is, and the reverse."""
    office.tenant(ALICE, "alices secret")
    office.tenant(BOB, "bobs secret")
    look = Look(office.snapshot())
    for _ in range(2):
        for seer, own, other in ((ALICE, "alices", "bobs"), (BOB, "bobs", "alices")):
            seen = office.service.status(Caller(seer), look).text
            assert f"{own} secret" in seen and f"{other} secret" not in seen


def test_cuts_for_users_of_one_account_do_not_mix(office: Office) -> None:
    """A hub's users may share an account: each reads only their own names."""
    names = ("alice", "bob")
    for name in names:
        body = {"name": f"{name}s secret", "kind": "kernel"}
        office.service.register_tenant(Caller(ALICE, name), body)
    look = Look(office.snapshot())
    seen = [office.service.status(Caller(ALICE, name), look).text for name in names]
    assert [[f"{name}s secret" in text for name in names] for text in seen] == [
        [True, False],
        [False, True],
    ]


@pytest.mark.promise("scheduler-83")
def test_what_others_do_is_anonymous(office: Office) -> None:
    """A holder and a waiter are seen as such; no name, id, pid, program or count of theirs is."""
    secrets = office.busy_tenants_of(BOB)
    seen = office.status(Caller(ALICE))
    raw = json.dumps(seen)
    assert not [secret for secret in (*secrets, f"uid {BOB}") if secret in raw]
    assert [tenant["counters"] for tenant in seen["tenants"]] == [None, None]
    (device,) = seen["devices"]
    assert [place["name"] for place in device["holders"] + device["queue"]] == ["another user"] * 2
    everything = json.dumps(office.status(Caller(BOB)))
    assert [secret for secret in secrets if secret not in everything] == []


@pytest.mark.promise(
    "server-6",
    "Other users' names are told where an administrator says so, and their ids never",
)
def test_names_are_shown_where_an_admin_says_so(office: Office) -> None:
    """With `visibility` everyone, names and owners are seen; ids, pids and programs are not."""
    name, *secrets = office.busy_tenants_of(BOB)
    office.administration.change_settings(Caller(0), {"visibility": "everyone"})
    seen = office.status(Caller(ALICE))
    holder, _ = seen["tenants"]
    assert (holder["name"], holder["owner"]) == (name, f"uid {BOB}")
    assert holder["counters"]["turns"] == 1
    assert seen["devices"][0]["holders"][0]["name"] == name
    assert not [secret for secret in secrets if secret in json.dumps(seen)]


@pytest.mark.promise(
    "server-7", "With `visibility` set to `users`, users are seen and no file names"
)
def test_users_are_shown_and_no_notebooks(office: Office) -> None:
    """An administrator may tell who shares the GPU without telling what they work on."""
    name, *secrets = office.busy_tenants_of(BOB)
    office.administration.change_settings(Caller(0), {"visibility": "users"})
    seen = office.status(Caller(ALICE))
    assert {(t["name"], t["owner"]) for t in seen["tenants"]} == {(f"uid {BOB}", f"uid {BOB}")}
    places = seen["devices"][0]["holders"] + seen["devices"][0]["queue"]
    assert [place["name"] for place in places] == [f"uid {BOB}"] * 2
    assert not [secret for secret in (name, *secrets) if secret in json.dumps(seen)]


@pytest.mark.promise(
    "scheduler-84",
    "A waiting user learns no name of another user, whatever they name their own notebooks",
)
def test_a_guessed_name_tells_nothing(office: Office) -> None:
    """One who waits and has named a notebook as bob's may be called does not learn that it is."""
    office.busy_tenants_of(BOB)
    guess = office.signer.verify(office.tenant(ALICE, "secret project")["token"])
    waiting = ClientId(77)
    office.service.client_joined(waiting, guess)
    tenant = TenantId(guess.tenant_id)
    office.submit(ClientJoined(client=waiting, tenant=tenant, pid=1, process_name="p"))
    office.submit(DeviceOpened(client=waiting, device=DEVICE))
    (told,) = [
        command
        for command in office.core.handle(TurnRequested(client=waiting), now_s=0.0)
        if isinstance(command, TellQueuePosition) and command.client == waiting
    ]
    assert told.holder == "secret project"
    shown = office.members.shown_name(waiting, told.holder_tenant, told.holder)
    assert shown == "another user"
    for visibility, named in (("users", f"uid {BOB}"), ("everyone", f"uid {BOB}: secret project")):
        office.administration.change_settings(Caller(0), {"visibility": visibility})
        shown = office.members.shown_name(waiting, told.holder_tenant, told.holder)
        assert shown == named
    assert office.members.shown_name(waiting, tenant, "secret project") == "secret project"


@pytest.mark.promise("server-4")
def test_only_its_own_user_releases_a_turn(office: Office) -> None:
    """Another user is refused before anything is said about the turn."""
    tenant_id = office.tenant(ALICE, "notebook")["tenant_id"]
    with pytest.raises(RequestError, match=r"another user's\. Act on your own"):
        office.service.release_tenant(Caller(BOB), tenant_id)
    with pytest.raises(RequestError, match=r"another user's\. Act on your own"):
        office.service.tenant_busy(Caller(BOB), tenant_id, {"busy": False})
    with pytest.raises(RequestError, match="does not hold the GPU"):
        office.service.release_tenant(Caller(ALICE), tenant_id)


@pytest.mark.promise("scheduler-83")
@pytest.mark.parametrize("deed", ["remove_tenant", "interrupt_tenant"])
def test_others_tenants_are_left_alone(office: Office, deed: str) -> None:
    """Only its owner, the scheduler's user and root act on a tenant."""
    tenant_id = office.tenant(ALICE, "notebook")["tenant_id"]
    with pytest.raises(RequestError, match=r"another user's\. Act on your own"):
        getattr(office.service, deed)(Caller(BOB), tenant_id)
    assert len(office.tenants) == 1
    for uid in (ALICE, os.getuid(), 0):
        getattr(office.service, deed)(Caller(uid), tenant_id)


@pytest.mark.promise("scheduler-83")
def test_settings_are_for_admins(office: Office) -> None:
    """Another user may change no setting, and is told who may."""
    with pytest.raises(RequestError, match="changed by root"):
        office.administration.change_settings(Caller(ALICE), {"quantum_s": 1})
    assert (
        office.administration.change_settings(Caller(os.getuid()), {"quantum_s": 1})["quantum_s"]
        == 1
    )


@pytest.mark.promise(
    "scheduler-85",
    "Peers are checked by their credentials, also with a stolen token",
)
def test_a_stolen_token_is_refused(office: Office) -> None:
    """A token opens the door to its owner and to root, and to nobody else."""
    token = office.tenant(ALICE, "notebook")["token"]
    assert office.admitted(token, ALICE) == office.admitted(token, 0) == "notebook"
    with pytest.raises(Refusal, match="belongs to") as refused:
        office.admitted(token, BOB)
    assert refused.value.code is RefusalCode.WRONG_USER


@pytest.mark.promise("bad-input-64")
def test_root_of_another_namespace_is_not_root(office: Office) -> None:
    """Another user's token is worth nothing to it, and it reads nobody's name."""
    token = office.tenant(ALICE, "notebook")["token"]
    with pytest.raises(Refusal, match="belongs to"):
        office.admitted(token, 0, is_local=False)
    own = office.signer.verify(office.tenant(0, "container")["token"])
    shown = office.signer.verify(token)
    seen = ((7, False, "another user"), (8, True, f"uid {ALICE}: notebook"))
    for client, administers, name in seen:
        office.service.client_joined(ClientId(client), own, administers=administers)
        tenant = TenantId(shown.tenant_id)
        assert office.members.shown_name(ClientId(client), tenant, "notebook") == name


@pytest.mark.promise("scheduler-85")
def test_a_private_scheduler_serves_one_user(office: Office) -> None:
    """Without --serve-all-users nobody but its own user and root is let in, whatever they show."""
    token = office.tenant(ALICE, "notebook")["token"]
    with pytest.raises(Refusal, match="Start a scheduler of your own") as refused:
        office.admitted(token, ALICE, serves_all=False)
    assert refused.value.code is RefusalCode.WRONG_USER


def test_no_user_takes_every_place(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who has reached the limit is refused; the next user is not."""
    monkeypatch.setattr(service, "TENANTS_PER_USER_MAX", 2)
    for number in range(2):
        office.tenant(ALICE, f"notebook {number}")
    with pytest.raises(RequestError, match="You have 2 tenants already"):
        office.tenant(ALICE, "one more")
    office.tenant(BOB, "his first")
