"""When a newer package takes the place of an older one's scheduler: pure."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpushare.server.predecessor import Predecessor, is_older


def status(version: object = "0.1.0", *clients: int) -> dict[str, Any]:
    return {"scheduler": {"version": version}, "tenants": [{"clients": [c]} for c in clients]}


@pytest.mark.parametrize(
    ("theirs", "ours", "older"),
    [
        ("0.1.0", "0.1.0", False),
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "0.10.0", True),
        ("0.10.0", "0.9.0", False),
        ("1.0", "1.0.1", True),
        ("0.2.0a1", "0.2.0", False),
        ("0.1.0.dev3+gabc", "0.2.0", True),
        ("", "0.1.0", False),
        ("unknown", "0.1.0", False),
    ],
)
def test_versions_are_compared_by_release(theirs: str, ours: str, older: bool) -> None:
    """As numbers; what is no version is left alone."""
    assert is_older(theirs, ours) is older


def test_an_idle_one_is_asked_to_end() -> None:
    """One of the same version, of a newer one, and one that is in use are not."""
    ours = Predecessor(replaceable=True, version="0.2.0")
    for told, asked in [
        (status("0.2.0"), False),
        (status("0.3.0"), False),
        (status("0.1.0", 7), False),
        (status("0.1.0"), True),
        ({"tenants": []}, False),
        (status(None), False),
    ]:
        ours.tells(told)
        assert ours.may_be_asked_to_end is asked


def test_people_read_that_an_older_one_serves() -> None:
    """In one sentence while it is in use, and what to do where it will not end by itself."""
    still = "The scheduler is still that of an older jupyter-gpushare (0.1.0)"
    ours = Predecessor(replaceable=True, version="0.2.0")
    ours.tells(status("0.1.0", 7))
    assert ours.notice == f"{still}; a newer one takes its place once no kernel has the GPU open."
    ours.refuses("It was started to stay. Restart it.")
    assert ours.notice == f"{still}. It was started to stay. Restart it."
    ours.tells(status("0.1.0"))
    assert not ours.may_be_asked_to_end
    ours.tells(status("0.2.0"))
    assert ours.notice == ""


def test_who_starts_no_scheduler_ends_none() -> None:
    """Under a hub its administrator is the one to ask."""
    ours = Predecessor(replaceable=False, version="0.2.0")
    ours.tells(status("0.1.0"))
    assert not ours.may_be_asked_to_end
    assert ours.notice.endswith("Ask whoever looks after it to restart it with 0.2.0.")
