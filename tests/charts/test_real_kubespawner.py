"""A real KubeSpawner makes a pod from what setup(c) has configured."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_gpushare.hub import setup

pytestmark = pytest.mark.full
SEAT, GPU = "gpushare.jupyter.org/turn", "nvidia.com/gpu"
NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "none",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "users": [{"name": "none", "user": {"token": "none"}}],
}


async def notebook(c: Config, profile: str) -> Any:
    """The container of a server with this profile, as it would be sent to Kubernetes."""
    from kubespawner import KubeSpawner

    spawner = KubeSpawner(config=c, _mock=True)
    spawner.user_options = {"profile": profile}
    await spawner.load_user_options()
    pod = await spawner.get_pod_manifest()
    return pod.spec.containers[0]


@pytest.mark.promise("kubernetes-14")
@pytest.mark.parametrize("by_function", [False, True], ids=["list", "function"])
def test_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_function: bool) -> None:
    """One with a GPU and one without; the pod's environment does not say where a scheduler is."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(json.dumps(NOWHERE))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    c = Config()
    c.GPUShare.platform = "kubernetes"
    gpu = {"extra_resource_limits": {GPU: "1"}}
    profiles = [
        {"display_name": "Shared GPU", "slug": "gpu", "kubespawner_override": gpu},
        {"display_name": "No GPU", "slug": "none"},
    ]
    c.KubeSpawner.profile_list = (lambda spawner: profiles) if by_function else profiles
    setup(c)
    with_gpu = asyncio.run(notebook(c, "gpu"))
    assert with_gpu.resources.limits == {GPU: "1", SEAT: "1"}
    names = {each.name for each in with_gpu.env}
    assert not {"GPUSHARE_RUNTIME_DIR", "GPUSHARE_LIBRARY"} & names
    without = asyncio.run(notebook(c, "none"))
    assert not without.resources.limits
