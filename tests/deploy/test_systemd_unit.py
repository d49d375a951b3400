"""The systemd unit of a node's scheduler."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jupyter_gpushare.client import RequestRefused, SchedulerClient
from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.client.paths import HTTP_SOCKET
from jupyter_gpushare.hub.options import ROOTS_RUNTIME_DIR
from tests.deploy.unit import (
    UNIT,
    as_the_unit_bounds_it,
    entries,
    installed_text,
    scheduler_flags,
)
from tests.support.other_user import OTHER_UID, as_other_user, as_root_only
from tests.support.paths import ROOT
from tests.support.sim import SimulatedMachine
from tests.support.view_stand_in import token_file
from tests.support.waits import WAIT_S_MAX

COMMAND = [sys.executable, "-m", "jupyter_gpushare.cli.main", "scheduler"]


@pytest.mark.promise(
    "packaging-3",
    "The systemd unit starts a scheduler for all accounts and keeps what restarts need",
)
def test_the_scheduler_knows_the_flags_of_the_unit() -> None:
    """It serves all accounts, without a hub, where the directory is that systemd makes."""
    flags = scheduler_flags()
    checked = subprocess.run(
        [*COMMAND, "--check-config", *flags], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "--serve-all-users" in flags and "--hub" not in flags
    assert f"--runtime-dir={ROOTS_RUNTIME_DIR}" in flags
    assert entries("Service")["RuntimeDirectory"] == ROOTS_RUNTIME_DIR.name


def test_the_scheduler_knows_the_flags_for_a_view(tmp_path: Path) -> None:
    """The unit's comment shows them; they are those of the unit, and more."""
    (shown,) = [line for line in UNIT.read_text().splitlines() if "--report-to" in line]
    flags = shown.split(" scheduler ")[1].split()
    assert flags[: len(scheduler_flags())] == scheduler_flags()
    (token,) = [each for each in flags if each.startswith("--report-token-file=")]
    ours = f"--report-token-file={token_file(tmp_path)}"
    checked = subprocess.run(
        [*COMMAND, "--check-config", *(ours if each == token else each for each in flags)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.promise("packaging-3")
def test_what_a_restart_needs_is_kept() -> None:
    """The directory outlives the process, others may pass through it, and it always comes back."""
    service = entries("Service")
    assert service["RuntimeDirectoryPreserve"] == "yes"
    assert service["RuntimeDirectoryMode"] == "0711"
    assert service["Restart"] == "always"
    assert entries("Unit")["StartLimitIntervalSec"] == "0"
    closing = {"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "ProtectProc"}
    assert not closing & set(service), "these close /dev/nvidia*, or hide the kernels"


@pytest.mark.promise("packaging-3")
def test_systemd_understands_it(tmp_path: Path) -> None:
    """systemd's own check warns of a key that it does not know; without it a list of ours does."""
    if program := shutil.which("systemd-analyze"):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "jupyter-gpushare").symlink_to("/bin/true")
        unit = tmp_path / "jupyter-gpushare.service"
        unit.write_text(installed_text(tmp_path))
        said = subprocess.run(
            [program, "verify", unit], capture_output=True, text=True, check=False
        )
        ours = [line for line in said.stderr.splitlines() if "jupyter-gpushare" in line]
        assert (said.returncode, ours) == (0, []), said.stderr
    for section in ("Unit", "Service", "Install"):
        assert set(entries(section)) <= KNOWN, "a key that no test has seen systemd understand"


KNOWN = {
    *("Description", "After", "Before", "StartLimitIntervalSec", "WantedBy"),
    *("Type", "ExecStart", "Restart", "RestartSec", "LimitNOFILE", "OOMScoreAdjust"),
    *("RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve"),
    *("CapabilityBoundingSet", "NoNewPrivileges", "LockPersonality", "PrivateTmp"),
    *("ProtectSystem", "ProtectHome", "ProtectControlGroups", "ProtectHostname"),
    *("ProtectKernelModules", "ProtectKernelTunables", "RestrictAddressFamilies"),
    *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
}


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[Path]:
    """The runtime directory of a scheduler with the unit's flags and the unit's capabilities."""
    # Not below pytest's own folder, which other users may not enter.
    with TemporaryDirectory(prefix="gpushare-unit-") as name:
        Path(name).chmod(0o711)
        directory = Path(name) / "run"
        flags = [each for each in scheduler_flags() if not each.startswith("--runtime-dir=")]
        ready, tell = os.pipe()
        env = {**SimulatedMachine(tmp_path / "machine").env(), "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            as_the_unit_bounds_it(
                [*COMMAND, *flags, f"--runtime-dir={directory}", f"--ready-fd={tell}"]
            ),
            pass_fds=[tell],
            env=env,
        )
        os.close(tell)
        with os.fdopen(ready) as pipe:
            assert pipe.readline() == "ready\n"
        yield directory
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S_MAX) == 0


@as_root_only
def test_an_account_is_served_as_itself(bounded: Path) -> None:
    """Owners are accounts, whatever is sent; the account that asks sees itself and is no
    administrator."""

    def owner_of_a_tenant_of_mine() -> str:
        client = SchedulerClient(bounded / HTTP_SOCKET, hub_token="a token that nobody knows")
        tenant_id = client.register_tenant("a notebook", "kernel").tenant_id
        (tenant,) = client.status()["tenants"]
        assert tenant["id"] == tenant_id
        try:
            client.change_settings({"quantum_s": 1})
        except RequestRefused as refused:
            return f"{tenant['owner']}, {refused.status}"
        return "an administrator"

    assert as_other_user(owner_of_a_tenant_of_mine) == f"{user_name(OTHER_UID)}, 403"
