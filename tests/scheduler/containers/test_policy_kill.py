"""The overdue policy `kill` where the processes of tenants are out of the scheduler's sight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.client import RequestRefused
from jupyter_gpushare.core.configuration.checks import why_it_cannot_kill
from jupyter_gpushare.core.settings import OverduePolicy, SchedulerSettings
from tests.scheduler.containers.test_foreign_peers import Container, SchedulerInAContainer, as_
from tests.scheduler.test_tenants_dir import hub_url
from tests.support.other_user import let_others_in
from tests.support.scheduler_process import (
    END_S_MAX,
    SchedulerDidNotStart,
    SchedulerUnderTest,
    running_scheduler,
)
from tests.support.waits import wait_until

__all__ = ["hub_url"]

KILL = SchedulerSettings(overdue_policy=OverduePolicy.KILL)
WARN = SchedulerSettings()
HIDDEN = "this scheduler does not see the processes of notebooks"
REMEDY = "Leave overdue_policy at warn, or let the scheduler see them"


@pytest.mark.promise(
    "scheduler-59",
    "A scheduler that does not see the processes of its tenants refuses the overdue policy `kill`: "
    "at its start, in its settings file, and while it runs",
)
@pytest.mark.parametrize(
    ("settings", "before", "hidden_tenants", "unseen", "words"),
    [
        (WARN, None, True, 3, ""),
        (WARN, KILL, False, 3, ""),
        (KILL, None, False, 0, ""),
        (KILL, WARN, False, 0, ""),
        (KILL, KILL, False, 3, ""),
        (KILL, None, True, 0, HIDDEN),
        (KILL, WARN, True, 3, HIDDEN),
        (KILL, WARN, False, 3, "3 of the processes that are connected run out of"),
    ],
)
def test_when_it_is_refused(
    settings: SchedulerSettings,
    before: SchedulerSettings | None,
    hidden_tenants: bool,
    unseen: int,
    words: str,
) -> None:
    """A policy that holds already keeps no other setting from being changed."""
    why = why_it_cannot_kill(settings, before, hidden_tenants=hidden_tenants, unseen=unseen)
    assert words in why and bool(words) == bool(why)
    assert not why or REMEDY in why


@pytest.mark.promise("scheduler-59")
def test_a_start_with_it(runtime: Path) -> None:
    """The flag that the chart gives is enough."""
    with pytest.raises(SchedulerDidNotStart, match=f"{HIDDEN}.*{REMEDY}"):
        SchedulerUnderTest(runtime, "--hidden-tenants", "--overdue-policy=kill")


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text('overdue_policy = "kill"\nquantum_s = 9\n')
    path.chmod(0o644)
    return path


@pytest.mark.promise("scheduler-59")
def test_a_running_one(runtime: Path, settings_file: Path) -> None:
    """`PATCH /settings` is answered with 400, and nothing of the request counts. A settings file
    with it counts for nothing as a whole."""
    flags = ("--hidden-tenants", f"--settings-file={settings_file}")
    with running_scheduler(runtime, *flags) as scheduler:
        with pytest.raises(RequestRefused, match=HIDDEN) as refused:
            scheduler.client.change_settings({"quantum_s": 7, "overdue_policy": "kill"})
        assert refused.value.status == 400
        assert HIDDEN in scheduler.log
        settings = scheduler.status()["settings"]
        assert (settings["overdue_policy"], settings["quantum_s"]) == ("warn", WARN.quantum_s)
        changed = scheduler.client.change_settings({"quantum_s": 7, "overdue_policy": "warn"})
        assert changed["quantum_s"] == 7


def test_where_processes_are_seen(scheduler: SchedulerUnderTest) -> None:
    """It is taken, and taken back."""
    for policy in ("kill", "warn"):
        changed = scheduler.client.change_settings({"overdue_policy": policy})
        assert changed["overdue_policy"] == policy


@pytest.fixture
def in_a_container(runtime: Path, hub_url: str) -> Iterator[SchedulerUnderTest]:
    """A scheduler that nobody has told of what it does not see."""
    let_others_in(runtime.parent)
    scheduler = SchedulerInAContainer(runtime, api_url=hub_url)
    yield scheduler
    scheduler.process.kill()
    scheduler.process.wait(END_S_MAX)


@pytest.mark.promise("scheduler-59")
def test_what_is_seen_counts_too(in_a_container: SchedulerUnderTest) -> None:
    """While a process is connected that has no number here, the policy is refused; other settings
    are not, and without such a process it is taken."""
    set_ = as_(in_a_container, "desk").change_settings
    with Container(in_a_container):
        with pytest.raises(
            RequestRefused, match="1 of the processes that are connected"
        ) as refused:
            set_({"overdue_policy": "kill"})
        assert refused.value.status == 400
        assert set_({"quantum_s": 7})["quantum_s"] == 7
    wait_until(lambda: _is_taken(set_), "the process is gone, and the policy is taken")


@pytest.mark.promise("scheduler-59")
def test_it_does_not_come_back_by_itself(runtime: Path, hub_url: str) -> None:
    """The value of the start would count again, once that of now is taken away."""
    let_others_in(runtime.parent)
    scheduler = SchedulerInAContainer(runtime, "--overdue-policy=kill", api_url=hub_url)
    try:
        desk = as_(scheduler, "desk")
        desk.change_settings({"overdue_policy": "warn"})
        with Container(scheduler):
            with pytest.raises(RequestRefused, match="1 of the processes") as refused:
                desk.unset_setting("overdue_policy")
            assert refused.value.status == 400
            assert desk.status()["settings"]["overdue_policy"] == "warn"
    finally:
        scheduler.process.kill()
        scheduler.process.wait(END_S_MAX)


def _is_taken(set_: Callable[[dict[str, str]], Any]) -> bool:
    try:
        set_({"overdue_policy": "kill"})
    except RequestRefused:
        return False
    return True
