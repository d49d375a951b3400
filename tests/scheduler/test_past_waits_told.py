"""What callers are told of past waits: rights, names, and the real process."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from jupyter_gpushare.core.ids import TenantId
from jupyter_gpushare.core.settings import Visibility
from jupyter_gpushare.core.shown.waits import Reason
from jupyter_gpushare.core.space.requests import Obstacle, ObstacleKind
from jupyter_gpushare.protocol.messages import RequestWithdrawn
from jupyter_gpushare.scheduler.base.errors import RequestError
from jupyter_gpushare.scheduler.identity.caller import Caller
from jupyter_gpushare.scheduler.service.looks import Look
from jupyter_gpushare.scheduler.service.past_waits_cut import HAD_MAX, RESTORED
from jupyter_gpushare.scheduler.service.timeline import Label
from tests.scheduler.test_other_users import ALICE, BOB, DEVICE, Office
from tests.scheduler.test_past_waits import has, move, waits
from tests.support.scheduler_process import SchedulerUnderTest

BOBS = Label(TenantId("bobs id"), "secret.ipynb", "bob", Caller(BOB).key)
OWN = Label(TenantId("other of alice"), "mine.ipynb", "alice", Caller(ALICE).key)


def told(office: Office, caller: Caller, tenant: str) -> dict[str, Any]:
    return office.service.past_waits(caller, Look(office.snapshot()), tenant)


def waited(office: Office) -> str:
    """Alice has waited for Bob's turn, for one of her own, and for memory of Bob's."""
    office.busy_tenants_of(BOB)  # then there is a device
    alices = office.tenant(ALICE, "a.ipynb")["tenant_id"]
    labels = {BOBS.tenant: BOBS, OWN.tenant: OWN}
    obstacle = Obstacle(
        kind=ObstacleKind.FIXED,
        device=DEVICE,
        bytes_in_the_way=3 << 30,
        bytes_short=1 << 30,
        tenant=BOBS.tenant,
    )
    kept = office.service._past_waits
    for at_s, news in (
        (0, {"begun": (has(BOBS.tenant),), "waiters": (waits(alices),)}),
        (5, {"ended": (BOBS.tenant,), "begun": (has(OWN.tenant),)}),
        (6, {"ended": (OWN.tenant,), "waiters": (waits(alices, Reason.MEMORY, obstacle),)}),
        (8, {"begun": (has(alices),), "left": (TenantId(alices),)}),
    ):
        kept.note(
            move(DEVICE, **news),
            lambda tenant, name, owner: labels.get(tenant, Label(tenant, name, owner)),
            at_s,
        )
    office.service._now_s = lambda: 10.0
    return alices


@pytest.mark.promise("scheduler-87")
@pytest.mark.parametrize("visibility", Visibility)
def test_names_of_others_are_cut(visibility: Visibility) -> None:
    """Of those who had the device, or whose memory was in the way, a user reads what the setting
    allows; an administrator reads all."""
    office = Office()
    alices = waited(office)
    office.administration.change_settings(Caller(0), {"visibility": visibility.value})
    (wait,) = told(office, Caller(ALICE), alices)["waits"]
    shown = {
        Visibility.EVERYONE: ("secret.ipynb", "bob", "bob: secret.ipynb"),
        Visibility.USERS: ("bob", "bob", "bob"),
        Visibility.ANONYMOUS: ("another user", "another user", "A notebook of another user"),
    }
    name, owner, whose = shown[visibility]
    turn, memory = wait["intervals"]
    assert turn["had"] == [
        {"name": name, "owner": owner, "had_s": 5},
        {"name": "mine.ipynb", "owner": "alice", "had_s": 1},
    ]
    assert memory["in_the_way"] == (
        f"{whose} had 3.0 GiB on GPU that could not be moved, and 1.0 GiB were missing."
    )
    assert "bobs id" not in json.dumps(wait)
    for admin in (0, os.getuid()):
        (wait,) = told(office, Caller(admin), alices)["waits"]
        assert wait["intervals"][0]["had"][0]["name"] == "secret.ipynb"
        assert wait["intervals"][1]["in_the_way"].startswith("secret.ipynb had 3.0 GiB")


def test_a_wait_is_told_with_its_parts() -> None:
    """With times from the answer back, how it ended, and the reasons of its parts in words."""
    office = Office()
    alices = waited(office)
    answer = told(office, Caller(ALICE), alices)
    (wait,) = answer["waits"]
    assert answer["forgotten"] == 0
    assert {name: wait[name] for name in ("begin_s", "end_s", "how", "is_pause", "used_s")} == {
        "begin_s": -10,
        "end_s": -2,
        "how": "served",
        "is_pause": False,
        "used_s": 0,
    }
    assert [(each["begin_s"], each["end_s"], each["why"]) for each in wait["intervals"]] == [
        (-10, -4, "Others were before it."),
        (-4, -2, "Memory had to move before its turn; others finished first."),
    ]


@pytest.mark.promise("scheduler-88")
def test_memory_that_came_back_is_told() -> None:
    """With its bytes, in words and as a number; nobody else's memory is told of."""
    office = Office()
    alices = waited(office)
    kept, told_s = office.service._past_waits, []
    for at_s, news in (
        (10, {"ended": (alices,), "begun": (has(BOBS.tenant, to_come=7 << 30),)}),
        (11, {"ended": (BOBS.tenant,), "begun": (has(alices, to_come=5 << 28),)}),
        (12, {"still": (has(alices),)}),
        (13, {"ended": (alices,)}),
        (14, {"begun": (has(alices, to_come=1 << 20),)}),
        (15, {"ended": (alices,)}),
    ):
        kept.note(move(DEVICE, **news), Label, at_s)
        office.service._now_s = lambda at_s=at_s: at_s + 0.5  # type: ignore[misc]
        last = told(office, Caller(ALICE), alices)["waits"][-1]
        told_s.append((last["end_s"], last["intervals"][-1]))
    words = [(end_s, part["why"], part["bytes_restored"]) for end_s, part in told_s]
    assert words[1:] == [
        (None, "Its memory is coming back: 1.2 GiB.", 5 << 28),
        (-0.5, "Its memory came back: 1.2 GiB.", 5 << 28),
        (-1.5, "Its memory came back: 1.2 GiB.", 5 << 28),
        (None, "Its memory is coming back: 1.0 MiB.", 1 << 20),
        (-0.5, "Its memory was coming back: 1.0 MiB. Not all of it came.", 1 << 20),
    ]
    assert {part["reason"] for _, part in told_s[1:]} == {RESTORED}
    assert words[0][2] is None
    assert told_s[2][1]["had"] == [] and told_s[2][1]["in_the_way"] is None
    assert not any(part["bytes_restored"] == 7 << 30 for _, part in told_s)


def test_very_many_who_had_it_are_counted() -> None:
    """Those are named who had it longest."""
    office = Office()
    alices = waited(office)
    kept = office.service._past_waits
    kept.note(move(DEVICE, waiters=(waits(alices),)), Label, 10)
    for number in range(HAD_MAX + 4):
        ended = () if not number else (TenantId(str(number - 1)),)
        kept.note(move(DEVICE, ended=ended, begun=(has(str(number)),)), Label, 10 + number**2)
    office.service._now_s = lambda: 1000.0
    (part,) = told(office, Caller(ALICE), alices)["waits"][-1]["intervals"]
    assert part["others"] == 4
    lengths = [each["had_s"] for each in part["had"]]
    assert len(lengths) == HAD_MAX and lengths == sorted(lengths, reverse=True)


@pytest.mark.promise("scheduler-87")
def test_waits_of_others_are_nobodys_affair() -> None:
    """Another user gets 403 with a sentence, also for a tenant that is gone; what is no tenant's id
    404."""
    office = Office()
    alices = waited(office)
    for tenant, status in ((alices, 403), ("nonsense", 404)):
        with pytest.raises(RequestError) as refused:
            told(office, Caller(BOB), tenant)
        assert refused.value.status == status
        assert str(refused.value).endswith(".")
    office.service.remove_tenant(Caller(ALICE), alices)
    with pytest.raises(RequestError, match="another user's"):
        told(office, Caller(BOB), alices)


@pytest.mark.promise("scheduler-86")
def test_a_scheduler_tells_why_a_tenant_waited(scheduler: SchedulerUnderTest) -> None:
    """Over its sockets: a wait that was interrupted, one that was served, and nothing of a tenant
    that is gone."""
    second_tenant = scheduler.tenant("second")
    with scheduler.joined("first") as first, scheduler.connect() as second:
        second.join(second_tenant.token)
        turn = first.take_turn()
        second.ask()
        scheduler.eventually(lambda status: status["devices"][0]["queue"])
        scheduler.client.interrupt_tenant(second_tenant.tenant_id)
        second.send(RequestWithdrawn(request_id=1))
        scheduler.eventually(lambda status: not status["devices"][0]["queue"])
        second.ask()
        scheduler.eventually(lambda status: status["devices"][0]["queue"])
        first.drop(turn.turn_id)
        scheduler.eventually(
            lambda s: [h["name"] for h in s["devices"][0]["holders"]] == ["second"]
        )
        waits = scheduler.client.past_waits(second_tenant.tenant_id)["waits"]
    assert [wait["how"] for wait in waits] == ["interrupted", "served"]
    for wait in waits:
        (part,) = wait["intervals"]
        assert (part["reason"], [had["name"] for had in part["had"]]) == ("own", ["first"])
        assert wait["begin_s"] == part["begin_s"] <= part["end_s"] == wait["end_s"] <= 0
    scheduler.client.remove_tenant(second_tenant.tenant_id)
    assert scheduler.client.past_waits(second_tenant.tenant_id)["waits"] == []
