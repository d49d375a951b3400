"""docs/kubernetes.md on a whole Kubernetes (1.20): users of a hub share a simulated GPU from pods.

What the chart renders is applied as it is: 1.20 takes all that it makes by itself. The optional
admission policy needs a newer one, and is left off, as the page's values have it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.cluster.kubernetes import STORE, CannotRun, check_machine, prepare
from tests.cluster.pod_images import make_images
from tests.cluster.podman import CannotRun as NoPodman
from tests.cluster.podman import check_machine as check_podman
from tests.hub.proxy import NoProxy, proxy_command
from tests.hub.running_hub import end_leftovers
from tests.scheduler.test_tenants_dir import ADMIN_VERBS
from tests.support.paths import ROOT
from tests.support.sim import MIB

pytestmark = [
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.timeout(5400),
]
RUN_S_MAX = 1500
SEAT, GPU = "gpushare.jupyter.org/turn", "nvidia.com/gpu"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Users of pods may enter it."""
    with TemporaryDirectory(prefix="gpushare-pods-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
        end_leftovers(Path(name))


@pytest.fixture(scope="module")
def seen(folder: Path) -> dict[str, Any]:
    """What has happened in the cluster; see real_cluster.py."""
    try:
        check_machine()
        check_podman()
        proxy_command()
        prepare()
        make_images()
    except (CannotRun, NoPodman, NoProxy) as error:
        pytest.fail(str(error))
    namespaces = ["unshare", "--mount", "--net", "--propagation", "private"]
    done = subprocess.run(
        [*namespaces, sys.executable, "-m", "tests.cluster.real_cluster", str(folder)],
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
    "kubernetes-9",
    "On a real Kubernetes, the chart with the page's values gives a node its seats, and the "
    "doctor of the node finds no problem",
)
def test_the_chart_makes_seats(seen: dict[str, Any]) -> None:
    """As many as it was told; our scheduler has the device by NVML, and the hub answers it."""
    assert seen["allocatable"] == seen["asked"]
    assert seen["visibility"] == "users"
    assert "JupyterHub answers" in seen["doctor"]
    assert "0 seats of this node are taken" in seen["doctor"]
    assert seen["doctor"].rstrip().endswith("Everything is in place.")


@pytest.mark.promise(
    "kubernetes-10",
    "Users of a hub on Kubernetes (KubeSpawner) take turns and never overlap, owned by whom the "
    "hub says, and what they park stays within their pods' limits",
)
def test_two_users_share_a_device(seen: dict[str, Any]) -> None:
    """As the device's own journal tells, and the control groups of the containers."""
    assert seen["owners"] == {"alice": "alices.ipynb", "bob": "bobs.ipynb"}
    assert (seen["overlaps"], seen["worked"]) == (0, 2)
    assert seen["bytes_parked"] > 0
    for each in seen["memory"].values():
        assert each["limit"] == 1536 * MIB > each["most"]
        assert "oom_kill 0" in each["told"]


@pytest.mark.promise("kubernetes-10")
def test_what_they_have(seen: dict[str, Any]) -> None:
    """A GPU of NVIDIA's and a seat, by the page's profile and `setup(c)`; no volume of the node's
    in their specifications, and a quota that counts their seats."""
    for limits in seen["limits"]:
        assert (limits[GPU], limits[SEAT]) == ("1", "1")
    assert seen["their_volumes"] == [[], []]
    assert "This kernel" in seen["shown"]
    assert "PROBLEM" not in seen["users_doctor"]
    assert "/usr/lib/jupyter-gpushare/libgpushare.so can be preloaded" in seen["users_doctor"]
    assert seen["quota"] == "2"


@pytest.mark.promise(
    "kubernetes-11",
    "The scheduler and the plugin are killed, and an upgrade of the chart replaces both, under "
    "users who work: no kernel is lost, their memory is whole, and they take turns as before",
)
def test_restarts_in_the_middle(seen: dict[str, Any]) -> None:
    """The upgrade is to `hostPID`: then root of the node is told from root of a container. A third
    user gets a seat afterwards."""
    assert seen["tenants_after"] == seen["tenants_before"]
    assert seen["same_kernels"]
    assert seen["restarts_of_pods"] == [0, 0]
    assert seen["overlaps_after_restarts"] == 0
    assert "2 seats of this node are taken" in seen["doctor_after_upgrade"]
    assert "PROBLEM" not in seen["doctor_after_upgrade"]
    assert seen["seen_by_root_of_the_node"] == 2
    assert seen["a_third_user"] == ["alice", "bob", "dave"]


@pytest.mark.promise(
    "kubernetes-12",
    "A pod with a share of a GPU and without a seat runs unshared, and the doctor of its node "
    "names it",
)
def test_a_pod_without_a_seat(seen: dict[str, Any]) -> None:
    """It has nothing of ours that leads to a scheduler."""
    assert "GPUSHARE_LIBRARY" not in seen["unseated_has"]
    assert "GPUSHARE_RUNTIME_DIR" not in seen["unseated_has"]
    assert seen["unseated_runs"] == "ok"
    assert seen["tenants_beside_it"] == ["alice", "bob"]
    assert "pod jhub/jupyter-carol has a share of" in seen["doctor_of_its_node"]
    assert "and no seat" in seen["doctor_of_its_node"]


@pytest.mark.promise("hub-32")
def test_root_of_a_strange_pod(seen: dict[str, Any]) -> None:
    """A pod of another namespace mounts the directory and has no seat: root there finds two sockets
    and no key, administers nothing, and registers nobody."""
    assert seen["strange_root"] == [0, [True, True], [401] * (len(ADMIN_VERBS) + 1)]


@pytest.mark.promise(
    "kubernetes-13",
    "The chart is removed as the page says: no pod ends, whose memory is on the GPU goes on "
    "without turns, and whose memory is parked goes on once it is installed again",
)
def test_removal(seen: dict[str, Any]) -> None:
    """Both have checked their memory by then."""
    assert sorted(seen["done_without_it"]) == [False, True]
    assert seen["tenants_at_the_end"] == seen["tenants_before"]
    assert seen["restarts_of_pods_at_the_end"] == [0, 0]
