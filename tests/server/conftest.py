"""A Jupyter server with the extension in it, and a scheduler beside it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from pytest_jupyter.jupyter_server import *  # noqa: F403 - its fixtures
from pytest_jupyter.jupyter_server import jp_fetch as plain_fetch

from jupyter_gpushare.kernel.provisioner import GPUShareMixin
from tests.server.browser import Browser
from tests.support.fake_library import fake_library
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.waits import WAIT_S_MAX

__all__ = ["fake_library", "plain_fetch"]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime directory of this test's server; it does not exist yet."""
    directory = tmp_path / "run"
    for name in ("JUPYTERHUB_API_TOKEN", "JUPYTERHUB_USER", "JUPYTER_DEFAULT_PROVISIONER_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPUSHARE_RUNTIME_DIR", str(directory))
    return directory


@pytest.fixture
def scheduler(runtime: Path) -> Iterator[SchedulerUnderTest]:
    """A scheduler that is there before the server is."""
    with running_scheduler(runtime) as running:
        yield running


@pytest.fixture
def jp_server_config() -> dict[str, Any]:
    return {
        "ServerApp": {"jpserver_extensions": {"jupyter_gpushare": True}},
        "GPUShareExtension": {"start_scheduler": False, "user": "alice"},
    }


@pytest.fixture(autouse=True)
def fresh_provisioners() -> Iterator[None]:
    """What the extension sets for a whole process is unset between tests."""
    KernelProvisionerFactory.clear_instance()
    yield
    KernelProvisionerFactory.clear_instance()
    GPUShareMixin.scheduler_decided = None


@pytest.fixture
def extension(runtime: Path, jp_serverapp: Any) -> Any:
    """The extension of the test's server."""
    (app,) = jp_serverapp.extension_manager.extension_apps["jupyter_gpushare"]
    return app


@pytest.fixture
def jp_fetch(plain_fetch: Any) -> Any:
    """Pytest-jupyter's waits 20 s for an answer."""
    return functools.partial(plain_fetch, request_timeout=WAIT_S_MAX, connect_timeout=WAIT_S_MAX)


@pytest.fixture
def browser(extension: Any, jp_serverapp: Any) -> Browser:
    """Somebody who listens to the server's events."""
    return Browser(jp_serverapp, extension.relay)
