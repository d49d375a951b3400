"""How much device memory the notebooks of a user may have: each, and all together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Command, TellMemoryLimit
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.settings import SchedulerSettings, SettingsError
from jupyter_gpushare.core.shares.entries import parse_caps as caps_of

from .desk import Desk
from .many_runs import many_runs

CAPS = pytest.mark.promise(
    "scheduler-3",
    "Memory caps of users and groups hold for each notebook and for all of a user together, and "
    "change while notebooks run",
)
GIB = 1 << 30


def told(desk: Desk) -> dict[int, tuple[int, int]]:
    """The cap and what others have under it, as each client has just been told."""
    return {each.client: (each.cap_bytes, each.others_bytes) for each in desk.all(TellMemoryLimit)}


def has(desk: Desk, client: int, allocated: int) -> None:
    desk.do(
        ev.MemoryReported(
            client=client,  # type: ignore[arg-type]
            device=DeviceId("A"),
            bytes_allocated=allocated,
            bytes_fixed=0,
        )
    )


@CAPS
def test_a_cap_changes_while_a_notebook_runs() -> None:
    desk = Desk()
    a = desk.client("a")
    desk.set(memory_caps="me=2GiB")
    assert told(desk) == {a: (2 * GIB, 0)}
    assert desk.status("a").cap_bytes == 2 * GIB
    desk.set(memory_caps="")
    assert told(desk) == {a: (0, 0)}


@CAPS
def test_the_smaller_cap_counts() -> None:
    desk = Desk()
    desk.tenant("a", cap_bytes=3 * GIB)
    desk.set(memory_caps="me=4GiB")
    assert desk.status("a").cap_bytes == 3 * GIB
    desk.set(memory_caps="me=512MiB")
    assert desk.status("a").cap_bytes == GIB // 2


@CAPS
def test_a_cap_of_a_group() -> None:
    desk = Desk(SchedulerSettings(memory_caps="@guests=1GiB"))
    desk.do(
        ev.TenantRegistered(
            tenant=TenantId("a"), name="", owner="gil", kind="kernel", groups=("guests",)
        )
    )
    assert desk.status("a").cap_bytes == GIB


@CAPS
def test_a_cap_of_one_notebook_goes_before_its_users() -> None:
    """And follows its name."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    desk.set(memory_caps="me=2GiB, me:notebook a=3GiB")
    assert told(desk) == {a: (3 * GIB, 0), b: (2 * GIB, 0)}
    desk.do(ev.TenantRegistered(tenant=TenantId("a"), name="b", owner="me", kind="kernel"))
    assert told(desk) == {a: (2 * GIB, 0)}


@CAPS
def test_a_cap_below_what_is_held_takes_nothing() -> None:
    """It is told, and what there is stays."""
    desk = Desk()
    a = desk.client("a")
    has(desk, a, 3 * GIB)
    desk.set(memory_caps="me:notebook a=1GiB")
    assert told(desk) == {a: (GIB, 0)}
    assert desk.status("a").memory[0].bytes_resident == 3 * GIB


@CAPS
def test_what_a_users_notebooks_have_together() -> None:
    """Each hears what the others leave, and again when they have freed it or have ended."""
    desk = Desk()
    desk.set(user_memory_caps="me=4000")
    a, b = desk.client("a"), desk.client("b")
    has(desk, a, 1500)
    assert told(desk) == {b: (4000, 1500)}
    has(desk, b, 500)
    assert told(desk) == {a: (4000, 500)}
    desk.do(ev.TenantRemoved(tenant=TenantId("a")))
    assert told(desk) == {b: (4000, 0)}


@CAPS
def test_the_tighter_of_both_is_told() -> None:
    desk = Desk()
    desk.set(user_memory_caps="me=4000", memory_caps="me=1000")
    a, b = desk.client("a"), desk.client("b")
    has(desk, a, 900)
    assert told(desk) == {}  # 3,100 are left of the one cap, and 1,000 of the other
    desk.set(memory_caps="me=3500")
    assert told(desk) == {a: (3500, 0), b: (4000, 900)}


@CAPS
def test_another_users_notebooks_do_not_count() -> None:
    desk = Desk()
    desk.set(user_memory_caps="me=4000")
    desk.tenant("b", owner="other")
    a, b = desk.client("a"), desk.client("b")
    has(desk, b, 500)
    assert a not in told(desk) and b not in told(desk)


@pytest.mark.promise("bad-input-31")
@pytest.mark.parametrize(
    "text", ["ann=", "ann=lots", "ann=-1", "ann=nan", "ann=0", "ann=1e9", "ann"]
)
@pytest.mark.parametrize("name", ["memory_caps", "user_memory_caps"])
def test_what_is_no_size_is_refused(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: "):
        SchedulerSettings().replace(**{name: text})


OWNERS = ("ann", "ben")
CAP_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("has"), st.integers(0, 4), st.sampled_from("AB"), st.integers(0, 9000)),
        st.tuples(
            st.just("set"),
            st.sampled_from(["", "ann=1000", "ann=5000, ben=300", "@all=700, ben=4000"]),
            st.sampled_from(["", "ann=4000", "@all=2000, ann=6000"]),
        ),
        st.tuples(st.just("gone"), st.integers(0, 4)),
    ),
    max_size=25,
)


class HeardDesk(Desk):
    """Keeps what each client has been told last: a cap, and what others have under it."""

    def __init__(self) -> None:
        self.heard: dict[tuple[int, str], tuple[int, int]] = {}
        super().__init__(devices="AB")

    def do(self, event: ev.Event, *, after_s: float = 0.0) -> list[Command]:
        super().do(event, after_s=after_s)
        for told in self.all(TellMemoryLimit):
            self.heard[told.client, told.device] = (told.cap_bytes, told.others_bytes)
        return self.last


def caps_are_told(events: list[tuple[Any, ...]], own_caps: tuple[int, ...]) -> None:
    """Two notebooks of each of two owners, the first with two processes. After each event, each
    process knows what it may have, as counted anew from all reports."""
    desk = HeardDesk()
    for number, cap in enumerate(own_caps):
        name, owner = f"n{number}", OWNERS[number % 2]
        desk.do(
            ev.TenantRegistered(
                tenant=TenantId(name),
                name=name,
                owner=owner,
                kind="kernel",
                cap_bytes=cap,
                groups=("all",),
            )
        )
    clients = [desk.client(f"n{number}", "AB") for number in (0, 0, 1, 2, 3)]
    tenant_of = dict(zip(clients, (0, 0, 1, 2, 3), strict=True))
    allocated = {(client, device): 0 for client in clients for device in "AB"}
    caps: dict[str, int] = {}
    together: dict[str, int] = {}
    for what, *details in events:
        if what == "has":
            client = clients[details[0]]
            if client not in tenant_of:
                continue
            allocated[client, details[1]] = details[2]
            desk.do(
                ev.MemoryReported(
                    client=client,
                    device=DeviceId(details[1]),
                    bytes_allocated=details[2],
                    bytes_fixed=0,
                )
            )
        elif what == "set":
            desk.set(memory_caps=details[0], user_memory_caps=details[1])
            caps, together = (dict(caps_of(text)) for text in details)
        elif clients[details[0]] in tenant_of:
            gone = tenant_of[clients[details[0]]]
            desk.do(ev.TenantRemoved(tenant=TenantId(f"n{gone}")))
            tenant_of = {client: number for client, number in tenant_of.items() if number != gone}
        for client, number in tenant_of.items():
            owner = OWNERS[number % 2]
            own = [own_caps[number], caps.get(owner, caps.get("@all", 0))]
            cap = min(filter(None, own), default=0)
            all_of_owner = together.get(owner, together.get("@all", 0))
            for device in "AB":
                others = sum(
                    allocated[each, device]
                    for each, mine in tenant_of.items()
                    if mine == number and each != client
                )
                beside = sum(
                    allocated[each, device]
                    for each, mine in tenant_of.items()
                    if mine % 2 == number % 2 and each != client
                )
                may = [cap - others] * bool(cap) + [all_of_owner - beside] * bool(all_of_owner)
                cap_told, others_told = desk.heard.get((client, device), (0, 0))
                if may:
                    assert cap_told and cap_told - others_told == min(may)
                else:
                    assert not cap_told


OWN_CAPS = st.tuples(*[st.sampled_from([0, 0, 500, 3000])] * 4)


@CAPS
@settings(max_examples=15)
@given(events=CAP_EVENTS, own_caps=OWN_CAPS)
def test_each_process_knows_what_it_may_have(
    events: list[tuple[Any, ...]], own_caps: tuple[int, ...]
) -> None:
    caps_are_told(events, own_caps)


@CAPS
@many_runs
@given(events=CAP_EVENTS, own_caps=OWN_CAPS)
def test_each_process_knows_what_it_may_have_in_many_runs(
    events: list[tuple[Any, ...]], own_caps: tuple[int, ...]
) -> None:
    """The same in many more runs."""
    caps_are_told(events, own_caps)
