"""Why a tenant gets no turn, in words for its user."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.core.snapshot import Snapshot, TenantCounters, TenantSnapshot
from jupyter_gpushare.core.space.requests import Obstacle, ObstacleKind
from jupyter_gpushare.scheduler.identity.tenants import TenantBook
from jupyter_gpushare.scheduler.identity.tokens import TenantRecord
from jupyter_gpushare.scheduler.service.blocked import (
    blocked_reason,
    in_the_way,
    was_in_the_way,
    without_what_is_gone,
)
from jupyter_gpushare.scheduler.service.cut import Plain, status_of

DEVICE = "0" * 32
DEVICES: dict[str, dict[str, Any]] = {
    DEVICE: {"id": DEVICE, "name": "A100", "mode": "open", "holders": []}
}
_GIB = 1 << 30
STAYS = (
    ObstacleKind.FIXED,
    ObstacleKind.FAILED,
    ObstacleKind.SILENT,
    ObstacleKind.HOST,
    ObstacleKind.CONTEXTS,
    ObstacleKind.NEEDED,
)
"""Kinds of memory that its user could free."""
OTHER: dict[str, Any] = {
    "id": "other",
    "obstacle": None,
    "memory": [{"device": DEVICE, "bytes_staying": 9, "bytes_context": 9, "bytes_parked": 9}],
}


def waiting_for(kind: ObstacleKind) -> dict[str, Any]:
    """A tenant in whose way the memory of OTHER is."""
    obstacle = {
        "kind": kind.value,
        "device": DEVICE,
        "bytes_in_the_way": 9 * _GIB,
        "bytes_short": _GIB,
        "tenant": "other",
    }
    return {"id": "bob", "name": "bob.ipynb", "obstacle": obstacle, "memory": []}


def reason(kind: ObstacleKind, name: str | None) -> str:
    said = blocked_reason(waiting_for(kind), DEVICES, lambda tenant_id: name)
    assert said is not None
    return said


@pytest.mark.parametrize("name", [None, "{known} {0} <b>.ipynb"], ids=["hidden", "known"])
@pytest.mark.parametrize("kind", ObstacleKind)
def test_each_obstacle_of_a_past_wait_is_said(kind: ObstacleKind, name: str | None) -> None:
    """In one sentence, with nothing to do about it."""
    obstacle = Obstacle(
        kind=kind, device=DeviceId(DEVICE), bytes_in_the_way=9 * _GIB, bytes_short=_GIB
    )
    said = was_in_the_way(obstacle, "A100", name)
    assert said.count(". ") == 0 or name
    assert said.endswith(".") and "A100" in said
    whose = _then(kind).startswith("{whose}")
    assert ((name or "A notebook of another user") in said) == whose


def _then(kind: ObstacleKind) -> str:
    return was_in_the_way(
        Obstacle(kind=kind, device=DeviceId(DEVICE), bytes_in_the_way=1, bytes_short=1),
        "A100",
        "{whose}",
    )


@pytest.mark.parametrize("name", [None, "{known} {0} <b>.ipynb"], ids=["hidden", "known"])
@pytest.mark.parametrize("kind", ObstacleKind)
def test_each_obstacle_is_said(kind: ObstacleKind, name: str | None) -> None:
    """One sentence on what is in the way and one on what to do; a name is text, whatever is in it,
    and nobody is told to restart another user's notebook or its owner."""
    said = reason(kind, name)
    assert not said[0].islower() and said.endswith(".") and ". " in said
    assert "Restart" not in said and "Interrupt" not in said
    assert "{" not in said.replace(name or "", "")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            ObstacleKind.ENDED,
            "Processes that have ended still have 9.0 GiB on A100. Wait a moment. If they keep it, "
            "look for processes that hang.",
        ),
        (
            ObstacleKind.RETRY,
            "The memory of this notebook did not fit on A100 a moment ago. Wait. The scheduler "
            "tries again by itself.",
        ),
    ],
)
def test_what_goes_away_by_itself_is_waited_for(kind: ObstacleKind, words: str) -> None:
    """Nobody else has to do anything about it."""
    assert reason(kind, None) == words


@pytest.mark.promise(
    "accounts-56",
    "Memory that CUDA contexts of notebooks take is told from that of programs outside, in the "
    "status and in what is in the way",
)
def test_contexts_are_told_from_programs_outside() -> None:
    """Whose contexts take most is said, if there is somebody, as far as it may be known; where they
    cannot be told apart, that is said as well."""
    told = reason(ObstacleKind.CONTEXTS, "alice.ipynb")
    assert told.startswith("CUDA contexts of notebooks take 9.0 GiB of A100")
    assert told.endswith("alice.ipynb has most of them.")
    assert reason(ObstacleKind.CONTEXTS, None).endswith(
        "A notebook of another user has most of them."
    )
    own = waiting_for(ObstacleKind.CONTEXTS)
    own["obstacle"]["tenant"] = None
    assert "most of them" not in str(blocked_reason(own, DEVICES, lambda tenant_id: None))
    assert "CUDA contexts" in reason(ObstacleKind.FOREIGN, None)
    known = {DEVICE: {**DEVICES[DEVICE], "bytes_contexts": _GIB}}
    strangers = blocked_reason(waiting_for(ObstacleKind.FOREIGN), known, lambda tenant_id: None)
    assert "CUDA contexts" not in str(strangers) and "not under gpushare" in str(strangers)


def test_a_limit_of_its_server_may_be_what_is_short() -> None:
    """Where the host has no room, the memory limit of a server may be why, and can be raised."""
    whoever_waits = reason(ObstacleKind.HOST, "alice.ipynb")
    assert "memory limit" in whoever_waits and "Raise that limit" in whoever_waits
    (whose,) = in_the_way([waiting_for(ObstacleKind.HOST), OTHER], DEVICES).values()
    assert "memory limit" in whose and "raise that limit" in whose
    for said in (whoever_waits, whose):
        # Memory moves in pieces: a limit that is raised by so much may not be enough.
        assert "at least 1.0 GiB of host memory are missing" in said


@pytest.mark.promise("together-7")
@pytest.mark.parametrize("kind", ObstacleKind)
def test_who_is_in_the_way_is_told_what_to_do(kind: ObstacleKind) -> None:
    """Where its user can do something about it: memory that stays. Who waits is not named."""
    waiting = waiting_for(kind)
    told = in_the_way([waiting, OTHER], DEVICES)
    assert list(told) == (["other"] if kind in STAYS else [])
    for said in told.values():
        assert "9.0 GiB" in said and "A100" in said and "bob" not in said
        assert said.endswith(".") and ". " in said
    nobodys = {**waiting, "obstacle": {**waiting["obstacle"], "tenant": None}}
    assert in_the_way([nobodys, OTHER], DEVICES) == {}


@pytest.mark.parametrize("kind", [*STAYS, ObstacleKind.HOLDER])
def test_what_is_gone_is_in_nobodys_way(kind: ObstacleKind) -> None:
    """A refusal is told for minutes: a notebook that has ended since, or freed what stayed, is not
    blamed for it, and is not told that others wait."""
    there, ended, freed = waiting_for(kind), waiting_for(kind), waiting_for(kind)
    without_what_is_gone([there, OTHER])
    without_what_is_gone([ended])
    without_what_is_gone([freed, {**OTHER, "memory": []}])
    assert there["obstacle"] is not None and ended["obstacle"] is None
    assert (freed["obstacle"] is None) == (kind in STAYS)


@pytest.mark.promise("scheduler-83")
def test_it_is_told_to_its_user_alone() -> None:
    """Others see that the tenant waits, and not what it has and lacks."""
    tenants = TenantBook()
    for number, uid in enumerate((1001, 1002)):
        record = TenantRecord(f"{uid}-{number:016x}", uid, f"of {uid}", "kernel")
        tenants.add(record, registrant_lives=True)
    obstacle = Obstacle(
        kind=ObstacleKind.ITSELF,
        device=DeviceId(DEVICE),
        bytes_in_the_way=9 * _GIB,
        bytes_short=_GIB,
    )
    snapshot = Snapshot(
        at_s=0.0,
        recovering=False,
        devices=(),
        tenants=tuple(
            TenantSnapshot(
                id=TenantId(f"{uid}-{number:016x}"),
                name=f"of {uid}",
                owner=str(uid),
                kind="kernel",
                state="waiting",
                cap_bytes=0,
                clients=(),
                counters=TenantCounters(),
                obstacle=obstacle,
            )
            for number, uid in enumerate((1001, 1002))
        ),
        settings=SchedulerSettings(),
    )
    plain = Plain.of(snapshot)
    plain.devices.append({**DEVICES[DEVICE], "holders": [], "queue": []})
    seen = status_of(plain, tenants, process={}, may_see=lambda key: key == "1001")
    mine, others = seen["tenants"]
    assert "This notebook has 9.0 GiB on A100" in mine["blocked_reason"]
    assert others["blocked_reason"] is None
    assert "obstacle" not in json.dumps(seen)


@pytest.mark.promise("scheduler-34")
@pytest.mark.parametrize(
    ("mode", "is_told"), [("open", False), ("paused", True), ("drained", True)]
)
def test_who_waits_for_a_paused_device_is_told(mode: str, is_told: bool) -> None:
    """While it waits, and not else."""
    devices = {DEVICE: {**DEVICES[DEVICE], "mode": mode}}
    waiting = {**OTHER, "state": "waiting"}
    said = blocked_reason(waiting, devices, lambda tenant_id: None)
    assert (said is not None and "An administrator has paused A100. Wait" in said) == is_told
    assert blocked_reason({**OTHER, "state": "idle"}, devices, lambda tenant_id: None) is None


@pytest.mark.promise("scheduler-25")
@pytest.mark.parametrize("name", [None, "ann: train.ipynb"])
def test_who_waits_for_a_frozen_holder_is_told(name: str | None) -> None:
    """By the name that the reader may know."""
    holder = {"tenant": "ann", "frozen": True}
    waiting = {**OTHER, "state": "waiting"}
    for frozen in (True, False):
        devices = {DEVICE: {**DEVICES[DEVICE], "holders": [{**holder, "frozen": frozen}]}}
        said = blocked_reason(waiting, devices, lambda tenant_id: name)
        whose = name or "A notebook of another user"
        assert (said is not None and said.startswith(f"{whose} has A100 and was stopped")) == frozen
