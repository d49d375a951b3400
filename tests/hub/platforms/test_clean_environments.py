"""SystemdSpawner and SudoSpawner start servers from an environment of their own making: what
setup(c) configures comes through it, by the spawners' own code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.objects import Hub
from jupyterhub.spawner import Spawner
from sudospawner import SudoSpawner
from sudospawner import mediator as sudo_mediator
from systemdspawner.systemd import make_environment_file
from systemdspawner.systemdspawner import SystemdSpawner
from traitlets.config import Config

from jupyter_gpushare.hub import setup
from tests.support.paths import ROOT

ASK = """
import json, os
from jupyter_gpushare.client.paths import WITHOUT_HUB, http_socket_path, hub_provides, trusted_uids
print(json.dumps([
    str(http_socket_path()), sorted(trusted_uids()), os.environ[WITHOUT_HUB], hub_provides(),
    os.environ["THEIRS"], "FROM_THE_HUB" in os.environ,
]))
"""


@pytest.fixture
def c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The hub has variables of its own, which none of these spawners hands on."""
    monkeypatch.setenv("FROM_THE_HUB", "1")
    c = Config()
    c.GPUShare.runtime_dir = str(tmp_path / "run")
    c.GPUShare.without_hub = "wait"
    return c


def environment_of(c: Config, kind: type[Spawner], monkeypatch: pytest.MonkeyPatch) -> Any:
    """As the spawner would give it to a server of ann's."""
    user = SimpleNamespace(
        name="ann", url="/user/ann/", settings={}, escaped_name="ann", id=1, json_escaped_name="ann"
    )
    monkeypatch.setattr(kind, "user_env", lambda self, env: env, raising=False)
    monkeypatch.setattr(kind, "oauth_roles", [])
    monkeypatch.setattr(kind, "oauth_access_scopes", ["access:servers!server=ann/"], raising=False)
    made = kind(
        config=c,
        user=user,
        hub=Hub(ip="127.0.0.1", port=8081),
        api_token="a token",
        oauth_client_id="jupyterhub-user-ann",
    )
    return made.get_env()


def through_systemd(environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """By the file that systemd reads: it takes a value in single quotes as a shell does."""
    file = make_environment_file(str(folder / "private"), "jupyter-ann", environment)
    script = f"set -a; . {file}; exec {sys.executable} -c '{ASK}'"
    command = ["env", "-i", f"PYTHONPATH={ROOT}", "sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, cwd="/")


def through_sudo(environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """By the mediator that sudo starts: it gets the environment as JSON, and starts what lies
    beside its own script."""
    answer = folder / "answer"
    server = folder / "sudospawner-singleuser"
    script = f"sys.path.insert(0, {str(ROOT)!r})\nsys.stdout = open({str(answer)!r}, 'w')\n{ASK}"
    server.write_text(f"#!{sys.executable}\nimport sys\n{script}")
    server.chmod(0o755)
    mediator = folder / "sudospawner"
    mediator.write_text(f"#!{sys.executable}\nfrom {sudo_mediator.__name__} import main\nmain()\n")
    mediator.chmod(0o755)
    order = json.dumps({"action": "spawn", "args": [], "env": environment})
    said = subprocess.run([mediator], input=order, capture_output=True, text=True, cwd="/")
    assert json.loads(said.stdout)["ok"], said.stderr
    return subprocess.CompletedProcess([], 0, answer.read_text(), "")


SPAWNERS: dict[str, tuple[type[Spawner], Callable[..., subprocess.CompletedProcess[str]]]] = {
    "SystemdSpawner": (SystemdSpawner, through_systemd),
    "SudoSpawner": (SudoSpawner, through_sudo),
}


@pytest.mark.promise("hub-15")
@pytest.mark.parametrize(
    ("name", "own"), [("SystemdSpawner", False), ("SystemdSpawner", True), ("SudoSpawner", True)]
)
def test_a_server_finds_the_scheduler(
    c: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, own: bool
) -> None:
    """A server that gets what the spawner hands on, and nothing else, finds the socket, knows whom
    to trust and that the hub provides the scheduler; the administrator's variable is there too."""
    c["Spawner" if not own else name].environment = {"THEIRS": "it's $HOME and 100% \\theirs"}
    setup(c)
    setup(c)
    kind, through = SPAWNERS[name]
    done = through(environment_of(c, kind, monkeypatch), tmp_path)
    assert done.returncode == 0, done.stderr
    socket, uids, without_hub, provides, theirs, leaked = json.loads(done.stdout)
    assert socket == str(tmp_path / "run" / "http.sock")
    assert uids == sorted({0, os.getuid()})
    assert (without_hub, provides, leaked) == ("wait", True, False)
    assert theirs == "it's $HOME and 100% \\theirs"


@pytest.mark.promise("hub-16")
@pytest.mark.parametrize("name", SPAWNERS)
def test_switched_off(c: Config, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """They are told so too."""
    c.GPUShare.enabled = False
    setup(c)
    environment = environment_of(c, SPAWNERS[name][0], monkeypatch)
    assert environment["GPUSHARE_DISABLE"] == "1"
    assert "GPUSHARE_RUNTIME_DIR" not in environment
