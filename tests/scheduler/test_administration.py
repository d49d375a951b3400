"""What administrators may do over HTTP, and the log of what they have done."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from jupyter_gpushare.core.errors import CoreError
from jupyter_gpushare.scheduler.base.errors import RequestError
from jupyter_gpushare.scheduler.identity.caller import Caller
from jupyter_gpushare.scheduler.service.audit import ENTRIES_MAX, Audit
from tests.scheduler.test_other_users import ALICE, BOB, DEVICE, Office

ROOT = Caller(0)


@pytest.fixture
def office() -> Office:
    office = Office()
    office.busy_tenants_of(BOB)
    return office


def tenant_ids(office: Office) -> list[str]:
    return [tenant["id"] for tenant in office.status(ROOT)["tenants"]]


@pytest.mark.promise(
    "scheduler-68",
    "What an administrator does, and what is refused to one, stands in the audit log: who, when, "
    "what, on whom and what came of it",
)
def test_what_is_done_is_noted(office: Office) -> None:
    """Also what is refused; what a user does with a notebook of their own is not."""
    admin, (holder, waiter) = office.administration, tenant_ids(office)
    admin.set_mode(ROOT, DEVICE, {"mode": "drained"})
    admin.set_mode(ROOT, DEVICE, {"mode": "open"})
    admin.boost(ROOT, waiter)
    admin.evict(ROOT, holder)
    assert admin.hold(ROOT, waiter, {"hold_s": 9999}) == {"hold_s": 600}
    with pytest.raises(CoreError):  # it has no GPU yet
        admin.set_need(ROOT, waiter, {"need": "1GiB"})
    office.service.interrupt_tenant(ROOT, waiter)
    office.service.interrupt_tenant(Caller(BOB), waiter)
    admin.change_settings(ROOT, {"quantum_s": 3})
    with pytest.raises(RequestError):
        admin.change_settings(ROOT, {"quantum_s": -1})
    with pytest.raises(CoreError):
        admin.set_mode(ROOT, "f" * 32, {"mode": "paused"})
    admin.unset_setting(ROOT, "quantum_s")
    bobs = f"uid {BOB}:secret project"
    told = [(e["who"], e["verb"], e["on"], e["what"]) for e in office.audit.latest(99)]
    assert told == [
        ("root", "drain", DEVICE, {}),
        ("root", "resume", DEVICE, {}),
        ("root", "boost", f"{bobs} too", {}),
        ("root", "evict", bobs, {}),
        ("root", "hold", f"{bobs} too", {"hold_s": "9999"}),
        ("root", "need", f"{bobs} too", {"need": "1GiB"}),
        ("root", "interrupt", f"{bobs} too", {}),
        ("root", "set", "", {"quantum_s": "3"}),
        ("root", "set", "", {"quantum_s": "-1"}),
        ("root", "pause", "f" * 32, {}),
        ("root", "unset", "", {"name": "quantum_s"}),
    ]
    results = [entry["result"] for entry in office.audit.latest(99)]
    failed = [result for result in results if result != "done"]
    assert failed == [results[5], results[8], results[9]]
    assert "quantum_s is -1.0" in failed[1] and "There is no device" in failed[2]


@pytest.mark.promise("scheduler-68")
def test_names_of_settings_cannot_disturb_the_log(office: Office) -> None:
    """Whatever a request calls them, and however many there are."""
    with pytest.raises(RequestError):
        office.administration.change_settings(ROOT, {"who": 1, "verb": 2, "x" * 9000: "y" * 9000})
    with pytest.raises(RequestError):
        office.administration.change_settings(ROOT, {str(number): 1 for number in range(9000)})
    one, other = office.audit.latest(9)
    assert one["who"] == "root" and one["what"]["who"] == "1"
    assert max(len(json.dumps(one)), len(json.dumps(other))) < 5000


@pytest.mark.promise(
    "scheduler-69", "Devices, boosts, settings and the audit log are the administrators' alone"
)
def test_others_may_not(office: Office) -> None:
    """Of a notebook of their own they may hold and evict; of others' nothing. Nothing is noted."""
    admin, (holder, _) = office.administration, tenant_ids(office)
    for deed in (
        lambda: admin.set_mode(Caller(ALICE), DEVICE, {"mode": "paused"}),
        lambda: admin.boost(Caller(BOB), holder),
        lambda: admin.unset_setting(Caller(BOB), "quantum_s"),
        lambda: admin.entries(Caller(BOB), "5"),
        lambda: admin.evict(Caller(ALICE), holder),
        lambda: admin.hold(Caller(ALICE), holder, {"hold_s": 5}),
        lambda: admin.set_need(Caller(ALICE), holder, {"need": "1GiB"}),
    ):
        with pytest.raises(RequestError) as refused:
            deed()
        assert refused.value.status == 403
    assert admin.hold(Caller(BOB), holder, {"hold_s": 5}) == {"hold_s": 5}
    admin.evict(Caller(BOB), holder)
    assert office.audit.latest(9) == []


@pytest.mark.parametrize("hold_s", [None, True, "10", -1, float("nan"), float("inf"), [5]])
def test_a_hold_has_a_time(office: Office, hold_s: object) -> None:
    """One that is none is refused; so is each where holds are switched off."""
    admin, (holder, _) = office.administration, tenant_ids(office)
    with pytest.raises(RequestError, match="is not a time"):
        admin.hold(ROOT, holder, {"hold_s": hold_s})
    admin.change_settings(ROOT, {"hold_max_s": 0})
    with pytest.raises(RequestError, match="Holds are switched off"):
        admin.hold(ROOT, holder, {"hold_s": 5})


def test_without_turns_there_is_nothing_to_pause(office: Office) -> None:
    """What was paused before can still be opened."""
    admin, (holder, _) = office.administration, tenant_ids(office)
    admin.change_settings(ROOT, {"turns": "off"})
    with pytest.raises(RequestError, match="Turns are switched off"):
        admin.set_mode(ROOT, DEVICE, {"mode": "paused"})
    with pytest.raises(RequestError, match="Turns are switched off"):
        admin.boost(ROOT, holder)
    admin.set_mode(ROOT, DEVICE, {"mode": "open"})
    for mode in (None, "shut", 5, ["open"]):
        with pytest.raises(RequestError, match=r"Send one of: open, paused, drained\."):
            admin.set_mode(ROOT, DEVICE, {"mode": mode})


@pytest.mark.parametrize("count", ["", "-1", "x", "5.0", "٣", "9" * 99])
def test_a_count_is_a_number(office: Office, count: str) -> None:
    """What is none is refused."""
    with pytest.raises(RequestError, match="is not a count"):
        office.administration.entries(ROOT, count)


# ---- the file ------------------------------------------------------------------------------------


@pytest.mark.promise("scheduler-1")
@pytest.mark.promise("scheduler-68")
def test_the_log_is_a_private_file_that_outlives_the_scheduler(tmp_path: Path) -> None:
    """A new scheduler knows what was done before; half a line of a crash is left out. The time of
    day may go back: the order is that of the deeds."""
    path, clock = tmp_path / "audit.log", iter([1000.0, 10.0])
    audit = Audit(path, wall_clock=lambda: next(clock))
    audit.note("root", "pause", "GPU", {}, "done")
    audit.note("ann", "resume", "GPU", {}, "done")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("a") as file:
        file.write('{"at": "19\n[1]\n{}\n')
    entries = Audit(path).latest(9)
    assert [(e["at"], e["who"]) for e in entries] == [
        ("1970-01-01T00:16:40Z", "root"),
        ("1970-01-01T00:00:10Z", "ann"),
    ]


def test_the_log_does_not_grow_without_bound(tmp_path: Path) -> None:
    """Two files, and so many entries in memory."""
    path = tmp_path / "audit.log"
    audit = Audit(path, file_bytes_max=10_000)
    for number in range(ENTRIES_MAX + 10):
        audit.note("root", "pause", str(number), {}, "done")
    assert {each.name for each in tmp_path.iterdir()} == {"audit.log", "audit.log.1"}
    assert all(each.stat().st_size < 11_000 for each in tmp_path.iterdir())
    assert len(audit.latest(10**9)) == ENTRIES_MAX
    assert [entry["on"] for entry in Audit(path).latest(2)] == ["1008", "1009"]


def test_a_log_that_cannot_be_written_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The scheduler's own log says so."""
    audit = Audit(tmp_path / "gone" / "audit.log")
    with audit.of("root", "pause", "GPU"):
        pass
    assert "audit.log cannot be written: No such file" in caplog.text
    assert len(audit.latest(9)) == 1
    assert list(tmp_path.iterdir()) == []
