"""What is reported besides the core's own figures: owners, groups, words and problems."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.snapshot import (
    DeviceSnapshot,
    Snapshot,
    TenantMemorySnapshot,
    TenantSnapshot,
)
from jupyter_gpushare.core.space.requests import Obstacle, ObstacleKind
from jupyter_gpushare.reports.delta import Whose
from jupyter_gpushare.reports.problems import problems_of
from jupyter_gpushare.reports.waits import WaitCounter
from jupyter_gpushare.scheduler.identity.tenants import TenantBook
from jupyter_gpushare.scheduler.identity.tokens import TenantRecord
from jupyter_gpushare.scheduler.report.found import PluginProblems
from jupyter_gpushare.scheduler.report.node import NodeTeller
from jupyter_gpushare.scheduler.service.looks import Look
from tests.reports.test_delta import GIB, device, holder, now, tenant

ME = user_name(os.getuid())


class Room:
    """A node with tenants a and b, and their owners: users of the hub, unless they are empty."""

    def __init__(self, folder: Path, *, hub: bool = True, a: str = "ann", b: str = "bob") -> None:
        self.tenants = TenantBook()
        for name, owner in (("a", a), ("b", b)):
            record = TenantRecord(name, os.getuid(), f"notebook {name}", "kernel", hub_user=owner)
            self.tenants.add(record, registrant_lives=True)
        groups = {"ann": ("lab", "staff"), ME: ("lab",)}
        self.teller = NodeTeller(
            tenants=self.tenants,
            groups_of=lambda tenant, owner: groups.get(owner, ()),
            waits=WaitCounter(),
            plugin=PluginProblems(folder),
            version="1",
            platform="docker",
            hub=hub,
            started_at=7.0,
        )

    def whose(self, *things: DeviceSnapshot | TenantSnapshot, of: int = 0) -> Whose:
        """Of the tenant with this number."""
        found = self.teller.now(Look(snapshot(*things)))
        return found.whose(found.snapshot.tenants[of])


def snapshot(*things: DeviceSnapshot | TenantSnapshot) -> Snapshot:
    return now(*things).snapshot


def memory(staying: int = 0) -> tuple[TenantMemorySnapshot, ...]:
    on_a = TenantMemorySnapshot(
        device=DeviceId("A"),
        bytes_resident=GIB,
        bytes_parked=0,
        bytes_fixed=0,
        bytes_staying=staying,
        cap_bytes=0,
    )
    return (on_a,)


def test_the_node(tmp_path: Path) -> None:
    """What its owners are, and what it is."""
    row = Room(tmp_path).teller.now(Look(snapshot())).node
    assert (row.owners, row.platform, row.version, row.started_at) == ("hub", "docker", "1", 7.0)
    assert Room(tmp_path, hub=False).teller.now(Look(snapshot())).node.owners == "accounts"


@pytest.mark.promise(
    "scheduler-60",
    "Reports tell owners as the hub names them, with their groups, and no account for one",
)
def test_owners_and_groups(tmp_path: Path) -> None:
    """A hub's user may have the name of the node's account, and is another person."""
    assert Room(tmp_path).whose(tenant("a")) == Whose("ann", ("lab", "staff"))
    assert Room(tmp_path).whose(tenant("b")) == Whose("bob", ())
    assert Room(tmp_path, a="").whose(tenant("a")) == Whose(f"{ME} (account of the node)")
    assert Room(tmp_path, hub=False, a="").whose(tenant("a")) == Whose(ME, ("lab",))
    assert Room(tmp_path).whose(tenant("c", owner="cy")) == Whose("cy")


@pytest.mark.promise("scheduler-60")
@pytest.mark.parametrize(("b", "is_named"), [("bob", False), ("ann", True)])
def test_why_it_waits_names_nobody_else(tmp_path: Path, b: str, is_named: bool) -> None:
    """The sentence is for the tenant's owner, who reads the names of their own notebooks."""
    in_the_way = Obstacle(
        kind=ObstacleKind.FIXED,
        device=DeviceId("A"),
        bytes_in_the_way=GIB,
        bytes_short=GIB,
        tenant=TenantId("b"),
    )
    waits = tenant("a", state="waiting", obstacle=in_the_way, memory=memory())
    keeps = tenant("b", memory=memory(staying=GIB))
    why = Room(tmp_path, b=b).whose(device(), waits, keeps).why
    whose = "notebook b" if is_named else "A notebook of another user"
    assert why.startswith(f"{whose} has 1.0 GiB on GPU A that cannot be moved")
    gone = Room(tmp_path, b=b).whose(device(), waits).why
    assert gone == ""


def test_why_it_waits_for_a_device_that_is_shut(tmp_path: Path) -> None:
    """A paused one, and one whose holder is frozen."""
    room = Room(tmp_path)
    waits = tenant("a", state="waiting", memory=memory())
    assert room.whose(device(), waits).why == ""
    assert "has paused GPU A" in room.whose(device(mode="paused"), waits).why
    frozen = device(holders=(holder("b", frozen=True),))
    assert "A notebook of another user has GPU A and was stopped" in room.whose(frozen, waits).why
    assert room.whose(frozen, replace(waits, state="idle")).why == ""


@pytest.mark.promise(
    "scheduler-61", "A lost device and a holder that is frozen or overdue are problems of the node"
)
def test_problems(tmp_path: Path) -> None:
    """Without the name of anybody's notebook."""
    assert problems_of(snapshot(device(holders=(holder("a"),)))) == ()
    for changed, words in (
        ({"lost": True}, "GPU A (A) does not answer any more. Look at `nvidia-smi`"),
        ({"holders": (holder("secret", frozen=True),)}, "was stopped from outside"),
        ({"holders": (holder("secret", overdue=True),)}, "was asked for its turn and still works"),
        ({"holders": (holder("secret", overdue=True, frozen=True),)}, "was stopped from outside"),
    ):
        (sentence,) = problems_of(snapshot(device(**changed)))
        assert words in sentence and "secret" not in sentence
    lost = snapshot(device(lost=True))
    assert Room(tmp_path).teller.now(Look(lost)).node.problems == problems_of(lost)
