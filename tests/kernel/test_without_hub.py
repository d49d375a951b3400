"""Kernels that start while their JupyterHub cannot be reached: they wait, or start unshared."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec

from jupyter_gpushare.kernel import provisioner as module
from jupyter_gpushare.kernel.provisioner import GPUShareProvisioner, KernelNotStarted
from tests.kernel.conftest import Recording
from tests.kernel.stub_scheduler import StubScheduler

NOTICE = "GPUSHARE_NOTICE"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait asks again at once."""
    monkeypatch.setattr(module, "HUB_RETRY_S", 0.01)


def environment(directory: Path, recording: Recording, **more: str) -> dict[str, str]:
    ours = {
        "GPUSHARE_RUNTIME_DIR": str(directory),
        "GPUSHARE_LIBRARY": str(recording.library),
        "JUPYTERHUB_API_TOKEN": "of ann's server",
    }
    return {**ours, **more}


def launch(env: dict[str, str], **traits: Any) -> dict[str, str]:
    """The environment that a kernel would be started with."""
    spec = KernelSpec(argv=["python", "-m", "ipykernel_launcher"], display_name="Test")
    provisioner = GPUShareProvisioner(kernel_id="k-1", kernel_spec=spec, **traits)
    started: dict[str, str] = asyncio.run(provisioner.pre_launch(env=env))["env"]
    return started


@pytest.mark.promise(
    "hub-30",
    "A kernel that starts while the hub cannot be reached waits for it, or starts unshared and "
    "says so, as the administrator has chosen",
)
@pytest.mark.parametrize("chosen", [{}, {"GPUSHARE_WITHOUT_HUB": "unshared"}], ids=str)
def test_it_starts_unshared_and_says_so(
    chosen: dict[str, str], tmp_path: Path, recording: Recording
) -> None:
    """It asks once; its notebook shows the reason."""
    with StubScheduler(tmp_path / "run", without_hub=9) as stub:
        env = launch(environment(stub.directory, recording, **chosen))
        assert len(stub.requests) == 1
    assert "JupyterHub does not answer" in env[NOTICE] and "GPUSHARE_TOKEN" not in env


@pytest.mark.promise("hub-30")
def test_it_waits_for_the_hub(tmp_path: Path, recording: Recording) -> None:
    """It asks until the hub is back, and shares the GPU then."""
    with StubScheduler(tmp_path / "run", without_hub=3) as stub:
        env = launch(environment(stub.directory, recording, GPUSHARE_WITHOUT_HUB="wait"))
        assert len(stub.requests) == 4
    assert env["GPUSHARE_TOKEN"] and NOTICE not in env


@pytest.mark.promise("hub-30")
def test_it_waits_for_the_scheduler_of_the_hub(tmp_path: Path, recording: Recording) -> None:
    """That one ends with its hub, and comes back with it. A start that has waited too long fails,
    with a sentence."""
    env = environment(tmp_path / "nobody", recording, GPUSHARE_WITHOUT_HUB="wait")
    with pytest.raises(KernelNotStarted, match=r"waited 0\.05 s for JupyterHub, and does not"):
        launch(env, hub_wait_s=0.05)


@pytest.mark.promise("hub-30")
def test_other_trouble_is_not_waited_for(tmp_path: Path, recording: Recording) -> None:
    """A missing library, and a scheduler that no hub provides."""
    chosen = {"GPUSHARE_WITHOUT_HUB": "wait"}
    env = environment(tmp_path / "nobody", recording, **chosen, JUPYTERHUB_API_TOKEN="")
    assert "No scheduler serves" in launch(env)[NOTICE]
    with StubScheduler(tmp_path / "run") as stub:
        env = environment(stub.directory, recording, **chosen, GPUSHARE_LIBRARY="/nowhere.so")
        assert "/nowhere.so does not exist" in launch(env)[NOTICE]
