"""A small `make demo-cluster`, from the outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cluster.slurm import check_machine
from tests.hub.running_hub import MARK
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
]
END_S_MAX = 60.0


@contextmanager
def started_demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Its own folders are made in this one."""
    folder.chmod(0o711)
    command = [sys.executable, "-u", "-m", "tests.demo.cluster", f"--output={folder}", *options]
    demo = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield demo
    finally:
        if demo.poll() is None:  # the test has failed
            demo.terminate()
            demo.communicate(timeout=300)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own, which other users may not enter."""
    check_machine()
    with TemporaryDirectory(prefix="gpushare-demo-") as name:
        yield Path(name)


def await_nothing_left(folder: Path) -> None:
    """No process of the cluster or of its hub lives, and its folders are gone."""
    needle = f"{MARK}={folder}/".encode()
    until_s = time.monotonic() + END_S_MAX
    while True:
        left = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # ended meanwhile
                if needle in environ.read_bytes():
                    left.append((environ.parent / "cmdline").read_bytes().replace(b"\0", b" "))
        if not left:
            break
        assert time.monotonic() < until_s, f"these have not ended: {left}"
        time.sleep(0.2)
    assert list(folder.glob("gpushare-slurm-*")) == []


@pytest.mark.promise(
    "demo-1",
    "`make demo-cluster` runs two Slurm nodes behind a real JupyterHub: notebooks hold more memory "
    "than the devices have, take turns without overlap and find every byte, and a scheduler that "
    "is restarted in the middle costs no kernel",
)
def test_a_small_demo(folder: Path) -> None:
    """Four users, two on each node: it exits 0, tells what happens, and its report has what the
    project promises."""
    with started_demo(folder, "--users=4", "--cells=4", "--launches=4", "--thinking-s=0.5") as demo:
        output, errors = demo.communicate(timeout=600)
    assert demo.returncode == 0, output + errors
    assert "alice, bob, carol, dave log in at http://127.0.0.1:" in output
    assert " holds, " in output and "n1: no scheduler answers" in output
    report = json.loads((folder / "demo-cluster-report.json").read_text())
    assert (report["users"], report["owners_are_accounts"]) == (4, True)
    assert {name: node["users"] for name, node in report["nodes"].items()} == {
        "n1": ["alice", "carol"],
        "n2": ["bob", "dave"],
    }
    assert (report["overlaps"], report["cells_failed"], report["cells"]) == (0, 0, 24)
    assert report["overlaps_without_turns"] > 0 and report["waits_min"] >= 1
    assert 0 < report["cell_wait_s_p50"] <= report["cell_wait_s_p95"]
    assert all(n > 0 for node in report["nodes"].values() for n in node["turns"].values())
    assert (report["oversubscribed"], report["checksums_ok"], report["oom"]) == (True, True, 0)
    assert report["bytes_parked"] >= report["device_bytes"]
    assert (report["scheduler_restarts"], report["tenants_lost"]) == (1, 0)
    assert (report["kernels"], report["kernels_lost"]) == (4, 0)
    assert (folder / "demo-cluster-timeline.png").stat().st_size > 10_000
    await_nothing_left(folder)


def test_a_stopped_demo_leaves_nothing_behind(folder: Path) -> None:
    """Ctrl-C while servers start: Slurm, its jobs and the hub end."""
    with started_demo(folder, "--users=4") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "log in at" in line:
                break
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=300)
    assert demo.returncode == 130, errors
    assert "everything that the demo started has ended" in errors
    await_nothing_left(folder)
