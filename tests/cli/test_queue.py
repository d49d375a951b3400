"""What `queue` prints of a status: pure."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpushare.cli.queue import queue_lines, rendered

HOLDER = {
    "held_for_s": 5.0,
    "hold_left_s": 0.0,
    "overdue": False,
    "recalled": False,
    "frozen": False,
}


def printed(*tenants: tuple[str, str]) -> list[str]:
    """Of a device that the first of these (owner, name) holds and the others wait for."""
    numbered = list(enumerate(tenants))
    places = [{"tenant": str(n), "name": name, "waited_s": 5.0} for n, (_, name) in numbered]
    device: dict[str, Any] = {"id": "0" * 32, "name": "GPU", "mode": "open"}
    device |= {"holders": [{**places[0], **HOLDER}], "queue": places[1:]}
    owners = [{"id": str(number), "owner": owner} for number, (owner, _) in numbered]
    return rendered({"devices": [device], "tenants": owners}).splitlines()[1:]


@pytest.mark.promise("cli-15", "If users see each other, `queue` and `%gpushare` name the users")
def test_notebooks_of_several_users_are_named_with_their_users() -> None:
    """Thirty notebooks are called Untitled.ipynb."""
    assert printed(("ann", "Untitled.ipynb"), ("bob", "Untitled.ipynb")) == [
        "  held by ann: Untitled.ipynb for 5.0 s",
        "  1. bob: Untitled.ipynb has waited for 5.0 s",
    ]


def test_mine_alone_need_no_user() -> None:
    """Nor does a tenant of which only the user is told, or not even that."""
    assert printed(("ann", "a.ipynb"), ("another user", "another user")) == [
        "  held by a.ipynb for 5.0 s",
        "  1. another user has waited for 5.0 s",
    ]
    assert printed(("ann", "a.ipynb"), ("bob", "bob"))[1] == "  1. bob has waited for 5.0 s"


@pytest.mark.promise("scheduler-16")
def test_who_waits_reads_when_it_starts() -> None:
    """And why not now; of another user's notebook nothing is told."""
    device: dict[str, Any] = {"id": "0" * 32, "name": "GPU", "mode": "open", "holders": []}
    queue = [{"tenant": each, "name": f"{each}.ipynb", "waited_s": 5.0} for each in "ab"]
    estimate = {"when": "Starts in about 5 s.", "why": "Others are before it."}
    tenants = [{"id": "a", "owner": "ann", "estimate": estimate}]
    tenants.append({"id": "b", "owner": "ann", "estimate": None})
    assert queue_lines({**device, "queue": queue}, tenants) == [
        "  1. a.ipynb has waited for 5.0 s. Starts in about 5 s. Others are before it.",
        "  2. b.ipynb has waited for 5.0 s",
    ]


@pytest.mark.promise("scheduler-34")
def test_a_paused_device_says_so() -> None:
    """And a drained one, what is left of tenants' memory there."""
    device: dict[str, Any] = {"id": "0" * 32, "name": "GPU", "holders": [], "queue": []}
    memory = {"device": "0" * 32, "bytes_resident": 1 << 30, "bytes_parked": 0}
    tenant = {"id": "1", "owner": "ann", "memory": [{**memory, "bytes_fixed": 0, "cap_bytes": 0}]}

    def lines(mode: str, *tenants: dict[str, Any]) -> list[str]:
        return queue_lines({**device, "mode": mode}, list(tenants))

    assert lines("open") == ["  free"]
    assert lines("paused") == ["  paused: no turn begins", "  free"]
    assert lines("drained", tenant)[0] == "  drained: 1.0 GiB of tenants are left"
    assert lines("drained")[0] == "  drained: empty"
