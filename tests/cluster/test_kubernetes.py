"""Our plugin with a real kubelet (Kubernetes 1.20) and containerd: pods get seats, and restarts of
the kubelet and of the plugin end nobody."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.cluster.kubernetes import STORE, CannotRun, check_machine, prepare
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
]
RUN_S_MAX = 600
SEATS = ["seat-0", "seat-1", "seat-2", "seat-3"]


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What has happened on the node; see real_node.py."""
    try:
        check_machine()
        prepare()
    except CannotRun as error:
        pytest.fail(str(error))
    namespaces = ["unshare", "--mount", "--net", "--propagation", "private"]
    done = subprocess.run(
        [*namespaces, sys.executable, "-m", "tests.cluster.real_node"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    logs = {each.name: each.read_text()[-4000:] for each in STORE.glob("*.log")}
    assert done.returncode == 0, (done.stderr, logs)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.promise("kubernetes-16")
def test_a_real_kubelet_gives_a_pod_its_seat(seen: dict[str, Any]) -> None:
    """The pod asks for a seat and names no directory of the node; it can write nothing there."""
    assert seen["registered"] == SEATS
    library = "/usr/lib/jupyter-gpushare/libgpushare.so"
    runtime, hook, *rest = seen["pod"]
    assert {runtime, hook} == {
        "GPUSHARE_RUNTIME_DIR=/run/jupyter-gpushare",
        f"GPUSHARE_LIBRARY={library}",
    }
    *mounts, listed, last = rest
    assert [each.split()[1] for each in mounts] == [
        "/run/jupyter-gpushare",
        "/usr/lib/jupyter-gpushare",
    ]
    assert all(each.split()[3].startswith("ro") for each in mounts)
    assert (listed, last) == ("libgpushare.so", "nothing written")


@pytest.mark.promise("kubernetes-19")
def test_a_real_kubelet_tells_who_has_what(seen: dict[str, Any]) -> None:
    """By its PodResources API: this pod has a seat, and no GPU of NVIDIA's."""
    ((resource, (seat,)),) = seen["devices"][0].items()
    assert (resource, seat in SEATS) == ("gpushare.jupyter.org/turn", True)
    (mistake,) = seen["mistakes"]
    assert mistake.endswith("has a seat and no GPU of NVIDIA's, so it keeps a seat from others.")


@pytest.mark.promise("kubernetes-17")
def test_restarts_with_a_real_kubelet(seen: dict[str, Any]) -> None:
    """The kubelet is killed, then the plugin, then the plugin is ended: the pod has started once,
    and goes when it is told to."""
    assert seen["registered_again"] == SEATS
    assert (seen["plugin_ends_with"], seen["socket_is_left"]) == (0, False)
    assert seen["pod_started"] == 1
    assert seen["pod_is_gone"]
