"""What `%gpushare` shows of a status: pure."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpushare.kernel.magics import (
    NotebookView,
    memory_bar,
    notes_on_memory,
    notes_on_waiting,
    rows_of,
)

GIB = 1 << 30


def tenant(tenant_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": tenant_id,
        "name": f"{tenant_id}.ipynb",
        "owner": "ann",
        "state": "idle",
        **fields,
    }


def memory(**amounts: int) -> dict[str, Any]:
    blank = {"bytes_resident": 0, "bytes_parked": 0, "bytes_fixed": 0, "cap_bytes": 0}
    return {"device": "0", **blank, **amounts}


def status(*tenants: dict[str, Any], **device: Any) -> dict[str, Any]:
    blank = {"id": "0", "name": "Test <b>GPU", "bytes_total": 80 * GIB, "bytes_used": 20 * GIB}
    queued = {"lost": False, "holders": [], "queue": []}
    return {"devices": [{**blank, **queued, **device}], "tenants": list(tenants)}


@pytest.mark.promise("jupyter-27")
def test_memory_of_this_kernel_alone() -> None:
    """On the device, parked, fixed and its limit, each where there is something to say."""
    amounts = {"bytes_resident": 8 * GIB, "bytes_parked": 12 * GIB, "bytes_fixed": GIB // 2}
    told = status(
        tenant("a", memory=[memory(**amounts, cap_bytes=40 * GIB)]),
        tenant("b", memory=[memory(bytes_parked=GIB)]),
        tenant("c", memory=[memory(cap_bytes=GIB)]),
    )
    assert notes_on_memory(told, "a") == [
        "Memory of this kernel: 8.0 GiB on Test <b>GPU, parked 12.0 GiB, fixed 512 MiB, "
        "limit 40.0 GiB."
    ]
    told["tenants"][0]["memory"][0]["kinds"] = {
        "plain": 20 * GIB,
        "managed": GIB // 64,
        "graphs": GIB // 2,
    }
    assert "fixed 512 MiB (512 MiB of graphs, 16 MiB managed), " in notes_on_memory(told, "a")[0]
    assert "by kind" not in notes_on_memory(told, "a")[0]
    told["tenants"][0]["memory"][0]["kinds"] = {
        "plain": 6 * GIB,
        "mapped": 13 * GIB,
        "pooled": GIB,
    }
    assert notes_on_memory(told, "a") == [
        "Memory of this kernel: 8.0 GiB on Test <b>GPU, parked 12.0 GiB, by kind 13.0 GiB mapped + "
        "6.0 GiB plain + 1.0 GiB stream-ordered, fixed 512 MiB, limit 40.0 GiB."
    ]
    assert notes_on_memory(told, "b") == [
        "Memory of this kernel: 0 MiB on Test <b>GPU, parked 1.0 GiB."
    ]
    assert notes_on_memory(told, "c") == notes_on_memory(told, "nobody") == []


@pytest.mark.promise("jupyter-27")
def test_an_older_or_silent_scheduler_tells_no_memory() -> None:
    """Then there is no line about it, and no error."""
    assert notes_on_memory(status(tenant("a")), "a") == notes_on_memory(None, "a") == []
    assert notes_on_waiting(status(tenant("a")), "a") == notes_on_waiting(None, "a") == []


@pytest.mark.promise("jupyter-27")
def test_fixed_memory_in_the_way_is_told_to_who_waits() -> None:
    """The scheduler's sentence, after the holder's hold."""
    waiting = tenant("a", state="waiting", blocked_reason="9.0 GiB of bob cannot be moved.")
    told = status(waiting, queue=[{"tenant": "a", "name": "a.ipynb", "waited_s": 1.0}])
    assert notes_on_waiting(told, "a") == ["9.0 GiB of bob cannot be moved."]


@pytest.mark.promise("scheduler-16")
def test_who_waits_reads_when_it_goes_on() -> None:
    """And why not now."""
    estimate = {"when": "Paused after 30 s, goes on in about 5 s.", "why": "Others are before it."}
    told = status(tenant("a", state="waiting", estimate=estimate))
    assert notes_on_waiting(told, "a") == list(estimate.values())


@pytest.mark.promise("together-7")
def test_who_is_in_the_way_reads_so() -> None:
    """The user of the memory that others wait for is asked, too."""
    told = status(tenant("a", in_the_way="Others wait for 9.0 GiB. Free them."))
    assert notes_on_waiting(told, "a") == ["Others wait for 9.0 GiB. Free them."]
    assert notes_on_waiting(told, "b") == []


@pytest.mark.promise("jupyter-27")
def test_each_device_has_a_bar() -> None:
    """In text and in HTML, in which names are text; never longer than it should be."""
    view = NotebookView(
        "It is idle.", status(tenant("a", memory=[memory(bytes_resident=GIB)])), "a"
    )
    assert "\n  █████░░░░░░░░░░░░░░░ 20.0 GiB of 80.0 GiB in use\n  free" in repr(view)
    markup = view._repr_html_()
    assert "<p><b>Test &lt;b&gt;GPU</b><br>█████░" in markup
    assert "1.0 GiB on Test &lt;b&gt;GPU" in markup
    for used, total, letter in ((9, 3, "█"), (9, 0, "░")):
        device = {"id": "0", "bytes_used": used, "bytes_total": total}
        assert memory_bar(device, []).startswith(letter * 20 + " ")


def test_the_bar_knows_what_tenants_have_taken_since() -> None:
    """NVML was asked before they took it; of the device's own figures the larger counts."""
    taken = [tenant("a", memory=[memory(bytes_resident=GIB)]), tenant("b", memory=[{**memory()}])]
    device = {"id": "0", "bytes_used": GIB, "bytes_total": 8 * GIB, "bytes_foreign": GIB}
    assert memory_bar(device, taken).endswith(" 2.0 GiB of 8.0 GiB in use")
    assert memory_bar({**device, "bytes_used": 3 * GIB}, taken).endswith(
        " 3.0 GiB of 8.0 GiB in use"
    )


def test_notebooks_of_several_users_are_named_with_their_users() -> None:
    """Of mine alone the name is enough; where only users are told, their name stands once."""
    held = {"held_for_s": 1.0, "recalled": False, "hold_left_s": 0.0}
    places = [{"tenant": each, "name": f"{each}.ipynb", **held} for each in "ab"]
    mine, others = tenant("a"), tenant("b", owner="bob")

    def told(*tenants: dict[str, Any], **changes: Any) -> list[str]:
        shown = status(*tenants, holders=[places[0], {**places[1], **changes}])
        return [row[1] for row in rows_of(shown["devices"][0], "a", shown["tenants"])]

    assert told(mine, others) == ["ann: a.ipynb (this kernel)", "bob: b.ipynb"]
    assert told(mine, tenant("b")) == ["a.ipynb (this kernel)", "b.ipynb"]
    assert told(mine, others, name="bob")[1] == "bob"
    unknown = tenant("b", owner="another user")
    assert told(mine, unknown, name="another user") == ["a.ipynb (this kernel)", "another user"]


def test_everything_begins_at_the_left() -> None:
    """Jupyter would centre a caption and the table, and put names to the right of their cells."""
    held = {"tenant": "a", "name": "a.ipynb", "held_for_s": 1.0, "recalled": False}
    shown = status(tenant("a"), holders=[{**held, "hold_left_s": 0.0}])
    markup = NotebookView("It has the GPU.", shown, "a")._repr_html_()
    assert "<caption" not in markup and '<table style="margin-left: 0">' in markup
    assert markup.count("<td") == markup.count('<td style="text-align: left">') == 4
