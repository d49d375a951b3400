"""From the scheduler's status to the panel's state: pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpushare.client.news import without_times
from jupyter_gpushare.server.state import ServerKernel, State, panel_state

HOLDER = {
    "turn": 1,
    "hold_left_s": 0.0,
    "held_for_s": 4.0,
    "recalled": False,
    "overdue": False,
    "frozen": False,
}


def kernel(name: str, tenant_id: str | None, why_unshared: str = "") -> ServerKernel:
    return ServerKernel(
        kernel_id=f"kernel-{name}",
        name=name,
        path=f"work/{name}",
        tenant_id=tenant_id,
        why_unshared=why_unshared,
    )


def tenant(tenant_id: str, state: str, *, failed: bool = False) -> dict[str, Any]:
    opened = {"device": "0", "bytes_allocated": 5, "bytes_fixed": 0, "failed": failed}
    return {
        "id": tenant_id,
        "name": f"name of {tenant_id}",
        "owner": "bob",
        "state": state,
        "clients": [{"devices": [opened]}, {"devices": [opened]}],
        "memory": [
            {
                "device": "0",
                "bytes_resident": 10,
                "bytes_parked": 0,
                "bytes_fixed": 0,
                "cap_bytes": 0,
            }
        ],
        "hold_left_s": 0.0,
    }


def device(holders: list[str], queue: list[str]) -> dict[str, Any]:
    return {
        "id": "0",
        "name": "GPU",
        "bytes_total": 100,
        "bytes_used": 50,
        "bytes_foreign": 0,
        "bytes_reserved": 0,
        "lost": False,
        "holders": [{**HOLDER, "tenant": t, "name": f"name of {t}"} for t in holders],
        "queue": [{"tenant": t, "name": f"name of {t}", "waited_s": 1.0} for t in queue],
    }


def state_of(
    kernels: list[ServerKernel],
    tenants: list[dict[str, Any]],
    *devices: dict[str, Any],
    user: str = "alice",
) -> State:
    return panel_state(
        scheduler="up",
        message="",
        user=user,
        status={"devices": list(devices), "tenants": tenants, "settings": {"quantum_s": 10.0}},
        age_s=0.5,
        kernels=kernels,
    )


@pytest.mark.promise("jupyter-33")
def test_what_is_paused_frozen_and_placed() -> None:
    """The panel says so of devices, holders and kernels; an older scheduler says nothing of it."""
    told = {**tenant("t1", "holding"), "placement": "Placed on GPU 0: needs 1 GiB."}
    told["clients"] = [{"devices": [], "frozen": True}, {"devices": [], "frozen": False}]
    paused = {**device(["t1"], []), "mode": "paused"}
    paused["holders"][0]["frozen"] = True
    found = state_of([kernel("a", "t1")], [told], paused)
    (shown,), (shown_kernel,) = found["devices"], found["kernels"]
    assert (shown["mode"], shown["holder"]["frozen"]) == ("paused", True)
    assert (shown_kernel["frozen"], shown_kernel["placement"]) == (True, told["placement"])
    found = state_of([kernel("a", "t1")], [tenant("t1", "idle")], device([], []))
    assert found["devices"][0]["mode"] == "open"
    assert (found["kernels"][0]["frozen"], found["kernels"][0]["placement"]) == (False, "")


@pytest.mark.promise("panel-18")
def test_the_class_of_a_kernel() -> None:
    """The panel says it of each kernel; an older scheduler says nothing of it."""
    told = [{**tenant("t1", "idle"), "runs_as": "batch"}, tenant("t2", "idle")]
    found = state_of([kernel("a", "t1"), kernel("b", "t2")], told, device([], []))
    assert [each["runs_as"] for each in found["kernels"]] == ["batch", ""]


def test_holder_and_queue() -> None:
    """Whose they are, since when, and who is next."""
    tenants = [tenant("a", "holding"), tenant("b", "waiting"), tenant("c", "waiting")]
    state = state_of([kernel("b.ipynb", "b")], tenants, device(["a"], ["c", "b"]))
    (shown,) = state["devices"]
    assert shown["holder"] == {
        "name": "name of a",
        "owner": "bob",
        "mine": False,
        "tenant_id": "a",
        "held_s": 4.5,
        "hold_left_s": 0.0,
        "runs_as": "",
        "turn_left_s": None,
        "frozen": False,
    }
    assert [(w["position"], w["tenant_id"], w["mine"]) for w in shown["queue"]] == [
        (1, "c", False),
        (2, "b", True),
    ]
    assert shown["queue"][0]["waited_s"] == 1.5


@pytest.mark.promise(
    "panel-34",
    "In a second JupyterLab of one user, the notebooks of the first are that user's too",
)
def test_notebooks_of_another_server_of_the_same_user() -> None:
    """They count as mine, and what is in the way of one stands beside it: it has no row here."""
    blocked = {"blocked_reason": "It needs 2 GiB more."}
    tenants = [tenant("a", "waiting") | blocked, tenant("b", "waiting") | blocked]
    shown = state_of([kernel("b.ipynb", "b")], tenants, device([], ["a", "b"]), user="bob")
    queue = shown["devices"][0]["queue"]
    assert [each["mine"] for each in queue] == [True, True]
    assert [each["why"] for each in queue] == ["It needs 2 GiB more.", ""]
    (ours,) = shown["kernels"]
    assert ours["blocked"] == "It needs 2 GiB more."


def test_what_is_left_of_a_turn_and_whose_the_memory_is() -> None:
    """The time goes on while the status is on its way. Mine is first, then who has the most; a
    tenant without memory on the device is left out."""
    tenants = [tenant("a", "holding"), tenant("b", "waiting"), tenant("c", "idle")]
    tenants[2]["memory"] = [{**tenants[2]["memory"][0], "bytes_resident": 30}]
    tenants += [{**tenant("d", "idle"), "memory": []}]
    held = {**device(["a"], ["b"]), "name": "Simulated GPU"}
    held["holders"][0]["turn_left_s"] = 8.0
    (shown,) = state_of([kernel("b.ipynb", "b")], tenants, held)["devices"]
    assert (shown["holder"]["turn_left_s"], shown["simulated"]) == (7.5, True)
    owned = [(each["tenant_id"], each["bytes_resident"]) for each in shown["tenants"]]
    assert owned == [("b", 10), ("c", 30), ("a", 10)]


def test_when_others_start_is_told_where_the_scheduler_tells_it() -> None:
    """An administrator reads ranges and reasons of everybody; a user those of the user's own."""
    estimate = {"earliest_s": 3.0, "latest_s": 9.0, "used_s": 0.0, "share": 0.5}
    told = {**tenant("b", "waiting"), "runs_as": "batch"}
    told["estimate"] = {**estimate, "reason": "class", "why": "Others go first."}
    (shown,) = state_of([], [told, tenant("c", "waiting")], device([], ["b", "c"]))["devices"]
    first, second = shown["queue"]
    assert (first["wait"]["latest_s"], first["why"], first["runs_as"]) == (
        8.5,
        "Others go first.",
        "batch",
    )
    assert (second["wait"], second["why"]) == (None, "")


def test_a_free_device_has_no_holder() -> None:
    """It is null, and not an empty name."""
    assert state_of([], [], device([], []))["devices"][0]["holder"] is None


@pytest.mark.parametrize(
    ("told", "shown", "reason"),
    [
        ("idle", "idle", ""),
        ("holding", "holds", ""),
        ("recalled", "holds", "It has been asked to give the GPU back."),
        ("stalled", "holds", ""),
        ("something newer", "idle", ""),
    ],
)
def test_states_of_my_kernels(told: str, shown: str, reason: str) -> None:
    """The scheduler's words become the panel's; of words that it does not know, it says nothing."""
    (mine,) = state_of([kernel("a", "t")], [tenant("t", told)])["kernels"]
    assert (mine["state"], mine["reason"]) == (shown, reason)
    assert (mine["bytes_allocated"], mine["position"]) == (10, None)


def test_a_kernel_that_waits_knows_its_place_and_why() -> None:
    """Its position and whom it waits for."""
    tenants = [tenant("a", "holding"), tenant("c", "waiting"), tenant("b", "waiting")]
    held = device(["a"], ["c", "b"])
    (mine,) = state_of([kernel("b", "b")], tenants, held)["kernels"]
    assert (mine["state"], mine["position"]) == ("waits", 2)
    assert mine["reason"] == "Waiting for name of a."
    assert mine["wait"] is None, "an older scheduler tells no time"


@pytest.mark.parametrize(
    ("name", "owner", "told"),
    [
        ("Untitled.ipynb", "ann", "ann: Untitled.ipynb"),
        ("Untitled.ipynb", "bob", "Untitled.ipynb"),
        ("ann", "ann", "ann"),
        ("another user", "another user", "another user"),
    ],
)
def test_who_is_waited_for_is_named_with_its_user(name: str, owner: str, told: str) -> None:
    """Thirty notebooks are called Untitled.ipynb; mine need no user, and a user alone is one."""
    tenants = [{**tenant("a", "holding"), "owner": owner}, tenant("b", "waiting")]
    held = device(["a"], ["b"])
    held["holders"][0]["name"] = name
    (mine,) = state_of([kernel("b", "b")], tenants, held)["kernels"]
    assert mine["reason"] == f"Waiting for {told}."


@pytest.mark.promise(
    "server-23",
    "Of a kernel that waits, browsers are told which cell it is executing, and of no other",
)
def test_a_kernel_that_waits_names_its_cells() -> None:
    """The messages that it is executing, and what is in its way; without the wait, none of it."""
    mine = replace(kernel("b", "b"), cells=("m1", "m2"))
    stuck = {**tenant("b", "waiting"), "blocked_reason": "Bob has it all. Ask him."}
    (waits,) = state_of([mine], [tenant("a", "holding"), stuck], device(["a"], ["b"]))["kernels"]
    assert (waits["cells"], waits["blocked"]) == (["m1", "m2"], "Bob has it all. Ask him.")
    assert waits["reason"] == "Waiting for name of a. Bob has it all. Ask him."
    (holds,) = state_of([mine], [tenant("b", "holding")], device(["b"], []))["kernels"]
    assert (holds["cells"], holds["blocked"]) == ([], "")


@pytest.mark.promise(
    "panel-35", "A cell whose memory comes back shows how much of it, and how long"
)
def test_a_kernel_whose_memory_comes_back_names_its_cells() -> None:
    """It has its turn, and its cell waits for what is parked still."""
    mine = replace(kernel("b", "b"), cells=("m1",))
    parked = {"device": "d", "bytes_resident": 1, "bytes_parked": 7, "bytes_fixed": 0}
    told = {**tenant("b", "holding"), "memory": [{**parked, "cap_bytes": 0}]}
    (restores,) = state_of([mine], [told], device(["b"], []))["kernels"]
    assert restores["cells"] == ["m1"]


def test_a_failed_context_is_told_before_everything() -> None:
    """The user is told to restart the kernel, and what that brings."""
    (mine,) = state_of([kernel("a", "t")], [tenant("t", "idle", failed=True)])["kernels"]
    assert mine["state"] == "failed"
    assert "Restart the kernel" in mine["reason"]


def test_an_unshared_kernel_says_why() -> None:
    """It has no tenant, and the reason is shown."""
    (mine,) = state_of([kernel("a", None, "Because.")], [])["kernels"]
    assert (mine["state"], mine["reason"], mine["tenant_id"]) == ("unshared", "Because.", None)


@pytest.mark.promise("panel-36", "Without a GPU the panel says what is wrong and what to do")
def test_it_tells_why_there_is_no_gpu() -> None:
    """In the scheduler's words; an older scheduler has none, and where there is a GPU, none are
    needed: programs may have named one that the driver does not list."""

    def told(*devices: dict[str, Any], scheduler: dict[str, Any]) -> object:
        status = {"devices": list(devices), "tenants": [], "scheduler": scheduler}
        given = {"scheduler": "up", "message": "", "user": "me", "age_s": 0.0, "kernels": []}
        return panel_state(status=status, **given)["no_gpu"]

    why = {"no_gpu": "The NVIDIA driver does not answer: it is not there. Install it."}
    assert told(scheduler=why) == why["no_gpu"]
    assert told(device([], []), scheduler=why) == told(scheduler={}) == ""
    assert state_of([], [])["no_gpu"] == ""


def test_kernels_are_shown_while_the_scheduler_is_away() -> None:
    """Without a status there are no devices; kernels are listed all the same."""
    state = panel_state(
        scheduler="down",
        message="It is away. Wait.",
        user="bob",
        status=None,
        age_s=0.0,
        kernels=[kernel("a", "t")],
    )
    assert (state["scheduler"], state["message"], state["devices"]) == (
        "down",
        "It is away. Wait.",
        [],
    )
    assert [k["state"] for k in state["kernels"]] == ["idle"]


@pytest.mark.promise(
    "server-24",
    "Browsers are told whose the memory is, what of a kernel's is resident, parked and fixed, and "
    "what is in its way",
)
def test_memory_that_is_resident_parked_and_fixed() -> None:
    """Of each device what my kernels have and may have, and of the device what is not theirs."""
    amounts = {"bytes_resident": 30, "bytes_parked": 12, "bytes_fixed": 2, "cap_bytes": 60}
    kinds = {"plain": 40, "managed": 2}
    mine = {**tenant("a", "idle"), "memory": [{"device": "0", **amounts, "kinds": kinds}]}
    others = {"bytes_resident": 5, "bytes_parked": 0, "bytes_fixed": 0, "cap_bytes": 0}
    other = {"id": "other-1", "memory": [{"device": "0", **others}]}
    told = {**device([], []), "bytes_foreign": 7, "bytes_reserved": 3}
    state = state_of([kernel("a", "a")], [mine, other], told)
    (shown,) = state["devices"]
    assert [shown[f"bytes_{each}"] for each in ("tenants", "foreign", "reserved")] == [35, 7, 3]
    assert shown["bytes_used"] == 50
    told["bytes_used"] = 1  # NVML was asked before they took it
    assert state_of([kernel("a", "a")], [mine, other], told)["devices"][0]["bytes_used"] == 42
    assert state["kernels"][0]["memory"] == [{"device": "0", **amounts, "kinds": kinds}]


@pytest.mark.promise("server-24")
@pytest.mark.parametrize(
    ("holders", "reason"),
    [
        (["a"], "Waiting for name of a. Bob's 9 GiB cannot be moved."),
        ([], "Bob's 9 GiB cannot be moved."),
    ],
)
def test_fixed_memory_in_the_way_is_told(holders: list[str], reason: str) -> None:
    """The scheduler's sentence stands with the kernel that waits for the room."""
    blocked = {**tenant("b", "waiting"), "blocked_reason": "Bob's 9 GiB cannot be moved."}
    state = state_of([kernel("b", "b")], [tenant("a", "holding"), blocked], device(holders, ["b"]))
    assert state["kernels"][0]["reason"] == reason


@pytest.mark.promise("scheduler-16")
@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("turn", "Waiting for name of a."),
        ("share", "Waiting for name of a. Others go first."),
    ],
)
def test_who_waits_reads_when_it_starts(reason: str, shown: str) -> None:
    """The range is as of now, and a reason that the holder's name does not tell has a sentence."""
    told = {
        "position": 1,
        "earliest_s": 10.25,
        "latest_s": 40.0,
        "reason": reason,
        "used_s": 30.0,
        "share": 0.5,
        "when": "Paused after 30 s.",
        "why": "Others go first.",
    }
    waits = {**tenant("b", "waiting"), "estimate": told}
    held = device(["a"], ["b"])
    (mine,) = state_of([kernel("b", "b")], [tenant("a", "holding"), waits], held)["kernels"]
    assert mine["wait"] == {"earliest_s": 9.8, "latest_s": 39.5, "used_s": 30.0, "share": 0.5}
    assert mine["reason"] == shown
    told.update(earliest_s=None, latest_s=None)
    (mine,) = state_of([kernel("b", "b")], [tenant("a", "holding"), waits], held)["kernels"]
    assert (mine["wait"]["earliest_s"], mine["wait"]["latest_s"]) == (None, None)


def test_who_waits_for_a_device_that_nobody_holds() -> None:
    """It is told that the device is given to the next, where no memory is in the way."""
    waits = tenant("b", "waiting")
    (shown,) = state_of([kernel("b", "b")], [waits], device([], ["b"]))["kernels"]
    assert shown["reason"] == "The next in the queue gets GPU in a moment."


def test_who_needs_two_devices_waits_for_the_one_that_is_held() -> None:
    """Not for the other, which nobody holds, although it stands in the queue of both."""
    tenants = [tenant("a", "holding"), tenant("b", "waiting")]
    free, held = device([], ["b"]), {**device(["a"], ["b"]), "id": "1"}
    (shown,) = state_of([kernel("b", "b")], tenants, free, held)["kernels"]
    assert shown["reason"] == "Waiting for name of a."


@pytest.mark.promise("together-7")
@pytest.mark.parametrize("state", ["idle", "holding"])
def test_who_is_in_the_way_is_told_so(state: str) -> None:
    """The scheduler's sentence stands with the kernel whose memory others wait for."""
    told = {**tenant("a", state), "in_the_way": "Others wait for it."}
    assert state_of([kernel("a", "a")], [told], device([], []))["kernels"][0]["reason"] == (
        "Others wait for it."
    )


@pytest.mark.parametrize("state", ["idle", "holding"])
def test_why_memory_was_refused_is_seen_afterwards(state: str) -> None:
    """The failed cell waits for nothing any more; what others ask of its user comes first."""
    refused = {**tenant("a", state), "blocked_reason": "Bob's 9 GiB cannot be moved."}
    shown = state_of([kernel("a", "a")], [refused], device([], []))["kernels"][0]
    assert shown["reason"] == "Bob's 9 GiB cannot be moved."
    refused["in_the_way"] = "Others wait for it."
    shown = state_of([kernel("a", "a")], [refused], device([], []))["kernels"][0]
    assert shown["reason"] == "Others wait for it."


@pytest.mark.promise("server-15")
def test_a_turn_that_is_kept_by_hand() -> None:
    """The holder tells for how much longer, and so does the kernel, also while it waits for it."""
    kept = device(["a"], ["b"])
    kept["holders"][0]["hold_left_s"] = 60.0
    tenants = [{**tenant("a", "holding"), "hold_left_s": 60.0}, tenant("b", "waiting")]
    state = state_of([kernel("a", "a"), kernel("b", "b")], tenants, kept)
    assert state["devices"][0]["holder"]["hold_left_s"] == 59.5
    assert [k["hold_left_s"] for k in state["kernels"]] == [59.5, 0.0]


def test_a_hold_that_begins_with_the_next_turn() -> None:
    """It is told as such, and nothing of it passes meanwhile."""
    waiting = [{**tenant("a", "idle"), "hold_left_s": 0.0, "hold_to_come_s": 60.0}]
    (shown,) = state_of([kernel("a", "a")], waiting, device([], []))["kernels"]
    assert (shown["state"], shown["hold_left_s"], shown["hold_to_come_s"]) == ("idle", 0.0, 60.0)


def test_a_hold_is_news_when_it_is_prolonged() -> None:
    """What is left of it is none as it gets less; that it will end later is."""
    whole, rest, more = ({"hold_left_s": left} for left in (60.0, 20.0, 50.0))
    assert without_times(whole, 100.0) == without_times(rest, 140.0) != without_times(more, 140.0)


def test_time_alone_is_no_news() -> None:
    """States that differ in times alone are the same to who sends them."""
    tenants = [tenant("a", "holding"), tenant("b", "waiting")]
    before = state_of([], tenants, device(["a"], ["b"]))
    after = state_of([], tenants, device(["a"], ["b"]))
    after["devices"][0]["holder"]["held_s"] += 9
    after["devices"][0]["queue"][0]["waited_s"] += 9
    assert before != after
    assert without_times(before) == without_times(after)
