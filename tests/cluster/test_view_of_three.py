"""docs/view.md with three platforms at once: one hub's view shows its own scheduler, whose users'
servers are containers, a node of Slurm and a node of Kubernetes, in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from jupyter_gpushare.hub.view import own_name
from jupyter_gpushare.view.pages import NOT_BUILT, SCRIPT
from tests.browser.chromium import find_chromium
from tests.cluster.kubernetes import STORE, CannotRun, check_machine, prepare
from tests.cluster.pod_images import make_images
from tests.cluster.podman import CannotRun as NoPodman
from tests.cluster.podman import check_machine as check_podman
from tests.cluster.slurm import check_machine as check_slurm
from tests.cluster.slurm import packages
from tests.hub.proxy import NoProxy, proxy_command
from tests.hub.running_hub import end_leftovers
from tests.support.node import NoProgram
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.timeout(5400),
]
RUN_S_MAX = 1200
SLURM, KUBERNETES = "slurm-n1", "node1"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Users of containers may enter it."""
    with TemporaryDirectory(prefix="gpushare-three-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
        end_leftovers(Path(name))


@pytest.fixture(scope="module")
def seen(folder: Path) -> dict[str, Any]:
    """What has happened; see three_platforms.py."""
    if not SCRIPT.exists():
        pytest.fail(NOT_BUILT)
    try:
        check_machine()
        check_podman()
        check_slurm()
        packages()
        proxy_command()
        find_chromium()
        prepare()
        make_images()
    except (CannotRun, NoPodman, NoProgram, NoProxy) as error:
        pytest.fail(str(error))
    namespaces = ["unshare", "--mount", "--net", "--propagation", "private"]
    done = subprocess.run(
        [*namespaces, sys.executable, "-m", "tests.cluster.three_platforms", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\nMore is in {STORE}/*.log"
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.promise(
    "view-11",
    "One view shows schedulers of containers, Slurm and Kubernetes in a browser, and who has their "
    "GPUs",
)
def test_an_administrator_sees_three_platforms(seen: dict[str, Any]) -> None:
    """Each reports by its own credential: the hub's own token, one that was made for the node, and
    a pod's token that a real API server reviews."""
    names = {own_name(): "docker", SLURM: "slurm", KUBERNETES: "kubernetes"}
    assert seen["platforms"] == names
    assert all(platform in seen["rows"][name] for name, platform in names.items())
    assert set(seen["states"].values()) == {"live"}
    for name, book in (
        (own_name(), "alice: alices.ipynb"),
        (SLURM, "carol: "),
        (KUBERNETES, "bob: "),
    ):
        assert book in seen["opened"][name]
    assert Path(seen["picture"]).stat().st_size > 0


@pytest.mark.promise("view-11")
def test_a_user_sees_their_own(seen: dict[str, Any]) -> None:
    """Nothing of the others' is in what her browser got."""
    assert "alices.ipynb" in seen["alices"]
    assert seen["strangers_in_her_page"] == []


@pytest.mark.promise("view-11")
def test_a_scheduler_that_is_killed(seen: dict[str, Any]) -> None:
    """Its node turns silent on the open page, and comes back with its job."""
    assert "silent for" in seen["silent"]
    assert "silent for" not in seen["reconnected"] and "carol" in seen["reconnected"]
