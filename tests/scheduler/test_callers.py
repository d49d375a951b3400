"""Who asks over HTTP: what the hub says about a token, and what an account alone may do."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import pwd

import pytest

from jupyter_gpushare.core.events import TenantRegistered
from jupyter_gpushare.hub.auth import HubTokens
from jupyter_gpushare.scheduler.base.errors import RequestError
from jupyter_gpushare.scheduler.http.callers import AccountCallers, HubCallers
from jupyter_gpushare.scheduler.identity.caller import Caller
from jupyter_gpushare.scheduler.identity.peer import Peer
from jupyter_gpushare.scheduler.identity.tokens import TokenSigner
from jupyter_gpushare.scheduler.service.service import Service
from tests.scheduler.test_other_users import Office

SHARED_UID = os.getuid() + 1000
ALICE, BOB = Caller(SHARED_UID, "alice"), Caller(SHARED_UID, "bob")
DESK = Caller(SHARED_UID, "gpu-desk", hub_admin=True)
GROUPS = {"ann": ["staff", "boards"]}


async def hub(token: str) -> object:
    """A hub whose tokens are called as their owners are."""
    if token == "unknown":
        return None
    scopes = ["custom:gpushare:admin"] if token == "gpu-desk" else ["custom:gpushare:use"]
    return {"kind": "user", "name": token, "scopes": scopes, "groups": GROUPS.get(token, [])}


def caller(authorization: str | None, uid: int = SHARED_UID, *, is_local: bool = True) -> Caller:
    callers = HubCallers(HubTokens(hub))
    return asyncio.run(callers.caller(Peer(pid=1, uid=uid, is_local=is_local), authorization))


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def service(office: Office) -> Service:
    return office.service


def registered(service: Service, caller: Caller, name: str) -> str:
    return service.register_tenant(caller, {"name": name, "kind": "kernel"})["tenant_id"]


def test_the_token_counts_and_not_the_account() -> None:
    """Two users of one account are two callers; root with a user's token is that user."""
    assert caller("token alice") == ALICE
    assert caller("Bearer bob") == BOB
    assert caller("token alice", uid=0).name == "alice"
    assert not caller("token alice", uid=0).is_admin
    assert caller("token gpu-desk").is_admin


@pytest.mark.parametrize(
    ("authorization", "status"), [(None, 401), ("Basic alice", 401), ("token unknown", 403)]
)
def test_who_is_nobody(authorization: str | None, status: int) -> None:
    """Without a token that the hub knows, a user's account is nobody here."""
    with pytest.raises(RequestError, match=r"\. \w+") as refused:
        caller(authorization)
    assert refused.value.status == status


def test_the_administrator_at_a_terminal() -> None:
    """Root and the scheduler's own account need no token; with a wrong one they are refused too."""
    for uid in (0, os.getuid()):
        assert caller(None, uid).is_admin
        with pytest.raises(RequestError):
            caller("token unknown", uid)


def test_without_a_hub_a_token_says_nothing() -> None:
    """A server that happens to have a hub's token is still its account."""
    found = asyncio.run(AccountCallers().caller(Peer(pid=1, uid=7), "token alice"))
    assert found == Caller(7, is_local=False)


@pytest.mark.promise(
    "bad-input-64", "Root of another namespace, such as a container's, administers nothing"
)
def test_root_of_another_namespace_is_nobody() -> None:
    """Under a hub it needs a token as everybody does; without one it is an account like others."""
    for uid in (0, os.getuid()):
        with pytest.raises(RequestError, match="no hub token") as refused:
            caller(None, uid, is_local=False)
        assert refused.value.status == 401
        foreign = asyncio.run(AccountCallers().caller(Peer(pid=0, uid=uid), None))
        assert not foreign.is_admin


@pytest.mark.promise(
    "hub-31",
    "A user is in the groups that the hub says when a kernel starts; what a kernel or a request "
    "says of groups does not count",
)
def test_groups_are_the_hubs_word(monkeypatch: pytest.MonkeyPatch, service: Service) -> None:
    """They reach the core with each registration, whatever is sent; also that there are none."""
    seen: list[TenantRegistered] = []
    monkeypatch.setattr(service, "_request", seen.append)
    body = {"name": "x", "kind": "kernel", "groups": ["staff"], "owner": "ann"}
    for who in ("ann", "bob"):
        service.register_tenant(caller(f"token {who}"), body)
    assert [(event.owner, event.groups) for event in seen] == [
        ("ann", ("boards", "staff")),
        ("bob", ()),
    ]


def test_groups_of_an_account_are_the_systems_word() -> None:
    """Without a hub they are those of the account whose process it is."""
    found = asyncio.run(AccountCallers().caller(Peer(pid=1, uid=os.getuid()), None))
    assert grp.getgrgid(pwd.getpwuid(os.getuid()).pw_gid).gr_name in found.groups
    nobody = asyncio.run(AccountCallers().caller(Peer(pid=1, uid=2**31 - 7), None))
    assert nobody.groups == ()


@pytest.mark.parametrize("deed", ["remove_tenant", "interrupt_tenant", "release_tenant"])
def test_users_of_one_account_are_apart(service: Service, deed: str) -> None:
    """Bob may not act on a tenant of alice's, before and after it is forgotten; the desk may."""
    tenant_id = registered(service, ALICE, "hers")
    with pytest.raises(RequestError, match="another user's"):
        getattr(service, deed)(BOB, tenant_id)
    if deed == "remove_tenant":
        service.remove_tenant(DESK, tenant_id)
        with pytest.raises(RequestError, match="another user's"):
            service.remove_tenant(BOB, tenant_id)


def test_nobody_registers_for_another(office: Office, service: Service) -> None:
    """A name that is sent is compared with the hub's word and never believed."""
    with pytest.raises(RequestError, match="for another user") as refused:
        service.register_tenant(ALICE, {"name": "x", "kind": "kernel", "user": "bob"})
    assert refused.value.status == 403
    service.register_tenant(ALICE, {"name": "x", "kind": "kernel", "user": "alice"})
    assert {t["owner"] for t in office.status(DESK)["tenants"]} == {"alice"}


def test_settings_are_the_hubs_administrators(office: Office) -> None:
    """Any other user of the hub is told whom to ask."""
    with pytest.raises(RequestError, match="changed by the hub's GPU administrators, root and"):
        office.administration.change_settings(ALICE, {"quantum_s": 1})
    assert office.administration.change_settings(DESK, {"quantum_s": 1})["quantum_s"] == 1


def test_each_sees_their_own(office: Office, service: Service) -> None:
    """Names and owners of others on the same account are cut out of the status."""
    registered(service, ALICE, "her secret")
    registered(service, BOB, "his secret")
    seen = json.dumps(office.status(ALICE))
    assert "her secret" in seen and "his secret" not in seen and "bob" not in seen
    assert "his secret" in json.dumps(office.status(DESK))


@pytest.mark.parametrize(
    "name", ["zoë <img src=x onerror=alert(1)> o'neil", '"' * 64, "ü" * 64, "a" * 128]
)
def test_any_name_of_a_user_survives_a_restart(service: Service, name: str) -> None:
    """The owner is in the token as the hub wrote it, however odd; the notebook's name gives way."""
    answer = service.register_tenant(
        Caller(SHARED_UID, name), {"name": "n" * 200, "kind": "kernel"}
    )
    assert len(answer["token"]) <= 512
    record = TokenSigner(b"k" * 32).verify(answer["token"])
    assert record.hub_user == name and record.name.startswith("nnnnnnnn")


def test_a_name_that_no_token_can_carry(service: Service) -> None:
    """It is refused with what to do, rather than cut: two users must not become one."""
    with pytest.raises(RequestError, match="too long for a tenant's token"):
        registered(service, Caller(SHARED_UID, "x" * 255), "notebook")
