"""The demo, with a real JupyterHub, from the outside."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.demo.test_small import MARK, await_no_process_of, processes_of
from tests.demo.training import other_complaints
from tests.hub.proxy import NoProxy, proxy_command
from tests.support.paths import ROOT
from tests.support.waits import WAIT_S_MAX


@pytest.fixture(scope="module", autouse=True)
def with_proxy() -> None:
    """A hub needs its proxy."""
    try:
        proxy_command()
    except NoProxy as reason:
        pytest.skip(str(reason))


@contextmanager
def started_demo(folder: Path, *options: str, **extra_env: str) -> Iterator[subprocess.Popen[str]]:
    """On the simulated GPU; every process of the demo carries the folder's name."""
    command = [sys.executable, "-u", "-m", "tests.demo", f"--output={folder}", *options]
    env = {**os.environ, "GPUSHARE_DRIVER": "sim", MARK: str(folder), **extra_env}
    demo = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield demo
    finally:
        if demo.poll() is None:  # the test has failed
            demo.terminate()
            demo.communicate(timeout=WAIT_S_MAX)


@pytest.mark.promise(
    "demo-7",
    "`make demo` runs a real JupyterHub: three users log in, their notebooks take turns without "
    "overlap and are theirs by the hub's word, the control run overlaps, and the report says so",
)
@pytest.mark.promise(
    "demo-8",
    "`make demo` oversubscribes: alice and bob hold four fifths of the device each and find every "
    "byte after every hand-over, more than half of the device is parked at each, nobody is out of "
    "memory, and with memory that stays somebody is",
)
@pytest.mark.full
def test_two_users_of_a_hub_take_turns(tmp_path: Path) -> None:
    """It exits 0; its report has three users whose notebooks are theirs by the hub's word, and what
    the small demo shows; everything that it started has ended."""
    with started_demo(tmp_path, "--cells=5", "--launch-ms=10") as demo:
        output, errors = demo.communicate(timeout=WAIT_S_MAX)
    assert other_complaints(errors) == [], output + errors
    assert demo.returncode == ("This does not hold: " in errors), output + errors
    assert "alice, bob, carol log in at http://127.0.0.1:" in output
    report = json.loads((tmp_path / "demo-report.json").read_text())
    assert (report["users"], report["owners_from_hub"]) == (3, True)
    assert (report["overlaps"], report["cells_failed"], report["cells"]) == (0, 0, 51)
    assert report["overlaps_without_turns"] > 0 and report["waits_min"] >= 3
    assert (report["oversubscribed"], report["checksums_ok"], report["oom"]) == (True, True, 0)
    assert report["short_beside_training_s_p95"] > 0 and report["short_alone_s"] > 0
    assert report["training_share"] > 0
    assert report["own_work_s"] == [0.3, 1.0, 3.0]
    assert all(took_s > 0 for took_s in report["own_beside_training_s_p95"])
    assert report["bytes_parked_per_handover"] >= 0.5 * report["device_bytes"]
    assert report["oom_without_swap"] >= 1
    assert (tmp_path / "demo-timeline.png").stat().st_size > 10_000
    await_no_process_of(tmp_path)


@pytest.mark.promise(
    "demo-9",
    "`make demo KEEP=1` leaves the hub up and tells address, logins and how to end it",
)
@pytest.mark.full
def test_a_hub_that_is_kept(tmp_path: Path) -> None:
    """With KEEP=1 the hub answers after the demo's end, at the address and by the way of ending it
    that were printed. What it measures beside other programs is not judged here."""
    with started_demo(tmp_path, "--cells=4", "--launch-ms=10", KEEP="1") as demo:
        output, errors = demo.communicate(timeout=WAIT_S_MAX)
    assert other_complaints(errors) == [], output + errors
    assert demo.returncode == ("This does not hold: " in errors), output + errors
    address = re.search(r"goes on at (http://\S+)", output)
    end = re.search(r"Its files are in (\S+)\. End it with: kill (\d+)", output)
    assert address and end and "log in as alice, password: " in output
    hub = os.pidfd_open(int(end[2]))
    assert len(processes_of(tmp_path)) >= 7
    try:
        page = requests.get(f"{address[1]}/hub/login", timeout=WAIT_S_MAX)
        assert page.ok and "Sign in" in page.text
    finally:
        signal.pidfd_send_signal(hub, signal.SIGTERM)
        assert select.select([hub], [], [], WAIT_S_MAX)[0], "the hub has not ended"
        os.close(hub)
        shutil.rmtree(end[1])
    await_no_process_of(tmp_path)


@pytest.mark.promise("demo-10")
@pytest.mark.full
def test_a_stopped_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C in its first act ends hub, proxy, scheduler, servers and kernels."""
    with started_demo(tmp_path, "--cells=200") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "holds" in line:
                break
        assert len(processes_of(tmp_path)) >= 8
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=WAIT_S_MAX)
    assert demo.returncode == 130
    assert "everything that the demo started has ended" in errors
    await_no_process_of(tmp_path)
