"""How much device memory the notebooks of a user may have: each, and all together."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import TellMemoryLimit
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.settings import SchedulerSettings, SettingsError

from .desk import Desk

CAPS = pytest.mark.promise(
    "scheduler",
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


@pytest.mark.promise("Requests above limits, requests...")
@pytest.mark.parametrize(
    "text", ["ann=", "ann=lots", "ann=-1", "ann=nan", "ann=0", "ann=1e9", "ann"]
)
@pytest.mark.parametrize("name", ["memory_caps", "user_memory_caps"])
def test_what_is_no_size_is_refused(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: "):
        SchedulerSettings().replace(**{name: text})
