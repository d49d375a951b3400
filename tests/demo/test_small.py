"""The demo without a hub, from the outside: it tells the truth, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.training import other_complaints
from tests.support.paths import ROOT
from tests.support.waits import WAIT_S_MAX, wait_until

MARK = "GPUSHARE_TEST_MARK"


def start_demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    """On the simulated GPU, wherever it runs; every process of it carries the folder's name."""
    command = [sys.executable, "-u", "-m", "tests.demo.small", f"--output={folder}", *options]
    env = {**os.environ, "GPUSHARE_DRIVER": "sim", MARK: str(folder)}
    return subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def processes_of(folder: Path) -> list[int]:
    """Living processes that inherited the mark."""
    needle = f"{MARK}={folder}\0".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if needle in environ.read_bytes():
                found.append(int(environ.parent.name))
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def await_no_process_of(folder: Path) -> None:
    """A process that ends because another one has ended takes its time."""
    wait_until(lambda: not processes_of(folder), f"the end of all processes that have {MARK}")


@pytest.mark.promise("demo-8")
@pytest.mark.promise("demo-13", "`make demo-small` shows the same without a hub")
@pytest.mark.full
def test_the_demo_shows_turns(tmp_path: Path) -> None:
    """It exits 0, says that the GPU is simulated, and its report holds what the project promises;
    every process that it started has ended."""
    demo = start_demo(tmp_path, "--cells=5", "--launch-ms=10")
    output, errors = demo.communicate(timeout=WAIT_S_MAX)
    assert other_complaints(errors) == [], output + errors
    assert demo.returncode == ("This does not hold: " in errors), output + errors
    assert "SIMULATED" in output and "alice.ipynb holds, bob.ipynb waits" in output
    report = json.loads((tmp_path / "demo-report.json").read_text())
    assert report["simulated"] is True
    assert (report["overlaps"], report["cells_failed"], report["cells"]) == (0, 0, 51)
    assert report["overlaps_without_turns"] > 0
    assert report["waits_min"] >= 3
    assert report["short_beside_training_s_p95"] > 0 and report["short_alone_s"] > 0
    assert report["training_share"] > 0
    assert (report["oversubscribed"], report["checksums_ok"], report["oom"]) == (True, True, 0)
    assert report["bytes_parked_per_handover"] >= 0.5 * report["device_bytes"]
    assert report["oom_without_swap"] >= 1
    assert (tmp_path / "demo-timeline.png").stat().st_size > 10_000
    await_no_process_of(tmp_path)


@pytest.mark.promise("demo-10")
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="ctrl-c"),
        pytest.param(signal.SIGTERM, id="sigterm", marks=pytest.mark.full),
    ],
)
def test_a_stopped_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Stopped in its first act, it ends its kernels and its scheduler, and says so."""
    demo = start_demo(tmp_path, "--cells=200")
    assert demo.stdout is not None
    for line in demo.stdout:
        if "holds" in line:
            break
    assert len(processes_of(tmp_path)) >= 4
    demo.send_signal(number)
    _, errors = demo.communicate(timeout=WAIT_S_MAX)
    assert demo.returncode == 130
    assert "everything that the demo started has ended" in errors
    await_no_process_of(tmp_path)
