"""What owners owe is known to the next scheduler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest import LogCaptureFixture

from jupyter_gpushare.core.events import OwnerRemembered
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.scheduler.owners_file import OLD_S, OWNERS_FILE, OwnersFile
from tests.support.scheduler_process import running_scheduler

ANN = OwnerRemembered(
    owner="ann",
    credit_s=0.5,
    debts=((DeviceId("A"), 30.0),),
    used=((TenantId("t"), DeviceId("A"), 3.0), (TenantId(""), DeviceId("A"), 1.0)),
    cause="a scheduler before this one",
)
LIVES = pytest.mark.promise("scheduler-23")


@LIVES
def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / OWNERS_FILE
    OwnersFile(path, wall_clock=lambda: 100.0).write([ANN])
    assert OwnersFile(path, wall_clock=lambda: 200.0).read() == [ANN]
    assert [file.name for file in tmp_path.iterdir()] == [OWNERS_FILE]
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_file_nobody_owes(tmp_path: Path, caplog: LogCaptureFixture) -> None:
    assert OwnersFile(tmp_path / OWNERS_FILE).read() == []
    assert not caplog.records


@pytest.mark.parametrize("now_s", [100.0 + OLD_S + 1, 99.0])
def test_a_file_of_another_time_does_not_count(
    tmp_path: Path, caplog: LogCaptureFixture, now_s: float
) -> None:
    """Too old, or written in the future: the time of day has changed."""
    path = tmp_path / OWNERS_FILE
    OwnersFile(path, wall_clock=lambda: 100.0).write([ANN])
    assert OwnersFile(path, wall_clock=lambda: now_s).read() == []
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00\x01",
        "[" * 100_000,
        '{"owners": 2}',
        '{"owners": 1, "wall_s": "now", "remembered": []}',
        '{"owners": 1, "wall_s": 100, "remembered": [{"owner": "ann"}]}',
        '{"owners": 1, "wall_s": 100, "remembered": '
        '[{"owner": "ann", "credit_s": 1, "debts": {"A": NaN}}]}',
        '{"owners": 1, "wall_s": 100, "remembered": '
        '[{"owner": "ann", "credit_s": 1, "debts": {"A": -5}}]}',
        '{"owners": 1, "wall_s": 100, "remembered": '
        '[{"owner": "ann", "credit_s": true, "debts": {}}]}',
        '{"owners": 1, "wall_s": 100, "remembered": '
        '[{"owner": "ann", "credit_s": 1%s, "debts": {}}]}' % ("0" * 400),
        '{"owners": 1, "wall_s": 1%s, "remembered": []}' % ("0" * 400),
    ],
)
def test_a_broken_file_does_not_count(tmp_path: Path, caplog: LogCaptureFixture, text: str) -> None:
    path = tmp_path / OWNERS_FILE
    path.write_text(text)
    assert OwnersFile(path, wall_clock=lambda: 100.0).read() == []
    assert len(caplog.records) == 1


@LIVES
def test_a_restart_keeps_it(runtime: Path) -> None:
    """A scheduler ends, and the next one still knows what that one was told."""
    path = runtime / OWNERS_FILE
    with running_scheduler(runtime) as scheduler:
        directory = scheduler.directory
    path = directory / OWNERS_FILE
    OwnersFile(path).write([ANN])
    with running_scheduler(runtime):
        pass
    (kept,) = json.loads(path.read_text())["remembered"]
    used = {(tenant, device): used_s for tenant, device, used_s in kept.pop("used")}
    assert used.keys() == {(tenant, device) for tenant, device, _ in ANN.used}
    assert all(0 < used[tenant, device] <= used_s for tenant, device, used_s in ANN.used)
    assert kept == {"owner": "ann", "credit_s": pytest.approx(0.5, abs=0.5), "debts": {"A": 30.0}}
