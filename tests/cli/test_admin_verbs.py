"""`pause`, `drain`, `resume`, `release`, `interrupt`, `hold`, `evict`, `boost` and `audit` against
a running scheduler."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jupyter_gpushare.cli.entries import held_by
from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.protocol.messages import (
    HoldChanged,
    QueuePosition,
    TurnGranted,
    TurnRecalled,
    WaitCancelled,
)
from tests.cli.conftest import Command
from tests.support.scheduler_process import SchedulerDidNotStart, SchedulerUnderTest


@pytest.mark.promise(
    "cli-1",
    "`pause`, `drain` and `resume` a device, and `release`, `interrupt`, `hold`, `evict` and "
    "`boost` a notebook by its name; `audit` shows what was done",
)
def test_devices_are_paused_and_go_on(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """The holder is asked for its turn with the reason, and is served again after `resume`."""
    with scheduler.joined("first") as client:
        turn = client.take_turn()
        done = gpushare("pause", "0")
        assert done.returncode == 0 and "paused: no turn begins" in done.stdout
        assert client.expect(TurnRecalled).cause.startswith("an administrator has paused ")
        client.drop(turn.turn_id)
        client.ask()
        scheduler.eventually(lambda s: s["devices"][0]["queue"])
        assert "An administrator has paused" in gpushare("status").stdout
        assert "drained: empty" in gpushare("drain", "all").stdout
        assert gpushare("resume", "0").returncode == 0
        client.expect(TurnGranted)
    told = [json.loads(line) for line in gpushare("audit", "--json").stdout.splitlines()]
    assert [entry["verb"] for entry in told] == ["pause", "drain", "resume"]
    assert "WHEN" in gpushare("audit", "-n", "1").stdout


@pytest.mark.promise("cli-1")
def test_notebooks_are_acted_on_by_name(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """Each verb does what it says, and says what it did."""
    assert gpushare("set", "quantum_s", "600").returncode == 0  # no turn ends by itself meanwhile
    first, second, third = (scheduler.joined(name) for name in ("first", "second", "third"))
    with first, second, third:
        turn = first.take_turn()
        for client in (second, third):
            client.ask()
            client.expect(QueuePosition)
        assert "third has the next turn" in gpushare("boost", "th").stdout
        assert "keeps its turn" in gpushare("hold", "first", "10m").stdout
        assert first.expect(HoldChanged).hold_ms == 600_000
        assert gpushare("interrupt", "sec").returncode == 0
        second.expect(WaitCancelled)
        assert gpushare("evict", "first").returncode == 0
        first.expect(TurnRecalled)
        first.drop(turn.turn_id)
        turn = third.expect(TurnGranted)
        assert gpushare("release", "third").returncode == 0
        third.expect(TurnRecalled)
        assert gpushare("release", "second").returncode == 76
    for wrong in (["hold", "x", "soon"], ["boost", "nobody"], ["pause", "9"]):
        done = gpushare(*wrong)
        assert done.returncode == 2 and done.stderr.count(". ") == 1


@pytest.mark.promise(
    "cli-2",
    "`cap` changes the entry of a user, a group or a notebook in the settings, live, and `limit` "
    "that of a user or a group; `unset` takes it back, the others stay, and the audit log has it",
)
def test_entries_are_changed_one_by_one(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    me = user_name(os.getuid())
    with scheduler.joined("train.ipynb"):
        done = gpushare("cap", f"{me}:tr", "8GiB")
        assert done.stdout == f"{me}:train.ipynb may allocate 8.0 GiB on each GPU.\n"
        assert gpushare("cap", me, "20GiB").returncode == 0
        assert gpushare("limit", me, "--limit", "0.5", "--request=0.25").returncode == 0
        settings = scheduler.status()["settings"]
        assert settings["memory_caps"] == f"{me}:train.ipynb=8GiB"
        assert settings["user_memory_caps"] == f"{me}=20GiB"
        assert settings["limits"] == f"{me}=0.5"
        assert gpushare("limit", me, "--limit", "0.2").returncode == 76  # less than is requested
        done = gpushare("limit", "@guests", "--request", "0.1", "--hard-limit", "0.2")
        assert done.stdout.splitlines()[:2] == [
            "request of @guests: 0.1 of each GPU's time",
            "hard-limit of @guests: 0.2 of each GPU's time",
        ]
        assert scheduler.status()["settings"]["requests"] == f"{me}=0.25, @guests=0.1"
        told = "0% of the last 1 min (25% guaranteed, 50% limit)"
        assert f"  {me}: {told}" in gpushare("status").stdout.splitlines()
        done = gpushare("limit", f"{me}:train.ipynb", "--request", "0.1")
        assert done.returncode == 76 and "give their users shares" in done.stderr
        assert gpushare("limit", "@guests", "--request=unset", "--hard-limit=unset").returncode == 0
        assert gpushare("cap", f"{me}:tr", "unset").returncode == 0
        assert gpushare("limit", me, "--limit", "unset").returncode == 0
        settings = scheduler.status()["settings"]
        assert (settings["memory_caps"], settings["limits"]) == ("", "")
        assert settings["requests"] == f"{me}=0.25"
    explained = scheduler.client.explain_settings()
    assert explained["settings"]["memory_caps"]["from"] == "default"
    assert explained["unseen"] == {}
    told = [json.loads(line) for line in gpushare("audit", "--json").stdout.splitlines()]
    assert [entry["verb"] for entry in told] == ["set"] * 9
    for wrong in (["cap", "ann", "lots"], ["limit", "ann"], ["limit", "ann:a"]):
        done = gpushare(*wrong)
        assert done.returncode == 2 and done.stderr.count(". ") == 1


@pytest.mark.promise(
    "cli-36",
    "A size below 1 MiB is refused wherever a cap or another size is set, for it lacks its unit; "
    "0 stays what it means",
)
def test_a_size_without_its_unit_is_refused(
    scheduler: SchedulerUnderTest, gpushare: Command
) -> None:
    """Nothing is changed, and the sentence says what to write."""
    me = user_name(os.getuid())
    for wrong, what in (
        (["cap", me, "20"], f"user_memory_caps: The cap of {me} is 20 bytes"),
        (["set", "memory_caps", "@guests=8"], "memory_caps: The cap of @guests is 8 bytes"),
        (["set", "device_bytes_max", "20"], "device_bytes_max is 20 bytes"),
    ):
        done = gpushare(*wrong)
        assert done.returncode == 76
        assert f"{what}, less than 1 MiB. Write a unit: 20GiB." in done.stderr
    settings = scheduler.status()["settings"]
    assert (settings["user_memory_caps"], settings["memory_caps"]) == ("", "")
    for right in (["set", "device_bytes_max", "0"], ["set", "device_reserve_bytes", "-1"]):
        assert gpushare(*right).returncode == 0
    assert gpushare("cap", me, str(1 << 20)).returncode == 0


@pytest.mark.promise("cli-36")
@pytest.mark.parametrize("setting", ["memory_cap_bytes=20", "user_memory_caps=ann=20"])
def test_a_scheduler_does_not_start_with_a_size_without_its_unit(
    runtime: Path, setting: str
) -> None:
    """The flag is named."""
    with pytest.raises(SchedulerDidNotStart) as refused:
        SchedulerUnderTest(runtime, f"--GPUShareScheduler.{setting}")
    assert setting.partition("=")[0] in refused.value.output
    assert "20 bytes, less than 1 MiB. Write a unit: 20GiB." in refused.value.output


@pytest.mark.promise(
    "cli-3",
    "`set` and `config --show` name the users and groups in settings that nobody has seen",
)
def test_names_of_nobody_are_told(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """Accounts and groups of the system are somebody's; a notebook is its user's."""
    me = user_name(os.getuid())
    entries = f"{me}=2, nobody-such=3, @no-such-group=1, @root=1"
    told = "(weights)."
    for done in (gpushare("set", "weights", entries), gpushare("config", "--show")):
        assert done.returncode == 0
        assert done.stdout.strip().endswith(f"for them: nobody-such, @no-such-group {told}")
    assert "Nobody has seen" not in gpushare("set", "weights", f"{me}=2").stdout
    assert "zed:a (memory_caps)" in gpushare("cap", "zed:a", "8GiB").stdout
    told = f"No notebook is called {me}:a:b now. The entry waits for one.\n"
    assert told in gpushare("cap", f"{me}:a:b", "8GiB").stdout
    assert gpushare("limit", f"{me}:", "--limit", "0.5").returncode == 76


def test_what_is_held_is_told() -> None:
    """Of a user all together, of notebooks with one name the largest, and nothing of groups."""

    def tenant(name: str, held: int) -> dict[str, object]:
        devices = [{"device": "d", "bytes_allocated": held}]
        return {"owner": "ann", "name": name, "clients": [{"devices": devices}]}

    tenants = [tenant("a", 3), tenant("a", 4), tenant("b", 5)]
    status = {"devices": [{"id": "d", "name": "GPU"}], "tenants": tenants}
    assert held_by("ann", status) == {"GPU": 12}
    assert held_by("ann:a", status) == {"GPU": 4}
    assert held_by("@staff", status) == held_by("ben", status) == {}
