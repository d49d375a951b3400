"""A real JupyterHub in a folder: proxy, hub, the managed scheduler and the servers it starts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import requests

from jupyter_gpushare.client import SchedulerClient, SchedulerUnavailable
from jupyter_gpushare.client.connection import UnixHTTPConnection
from jupyter_gpushare.client.paths import HTTP_SOCKET
from tests.hub.proxy import proxy_command
from tests.hub.visitor import Visitor
from tests.support.paths import HOOK_LIBRARY, ROOT
from tests.support.ports import free_ports
from tests.support.waits import WAIT_S_MAX

LOOK_EVERY_S = 0.05
PASSWORD = "a password for the test"
SIMPLE = "simple"
EMPTY_ENVIRONMENT = "tests.hub.spawners.EmptyEnvironmentSpawner"
_CONFIG = """
import json
from pathlib import Path

given = json.loads(Path({given!r}).read_text())
for section, entries in given.items():
    for name, value in entries.items():
        c[section][name] = value
"""
OUR_LINES = """
from jupyter_gpushare.hub import setup

setup(c)
"""
BACKING_OUT = "c.GPUShare.enabled = False"


class HubDidNotStart(AssertionError):
    """It ended, or was not ready in time; the message is its log."""


class RunningHub:
    """`start` and `stop` may be repeated: the hub's database, ports and users stay the same.

    `python` names another environment than this one, in which our wheel is installed; `our_lines`
    are what the administrator has added for us.
    """

    def __init__(
        self,
        folder: Path,
        *,
        server_env: Mapping[str, str],
        scheduler_env: Mapping[str, str],
        spawner: str = SIMPLE,
        scheduler_args: tuple[str, ...] = (),
        servers_outlive_it: bool = False,
        python: Path | None = None,
        our_lines: str = OUR_LINES,
    ) -> None:
        self.folder = folder
        self._python = python or Path(sys.executable)
        self._from_checkout = python is None
        self._our_lines = our_lines
        self._shares = True
        self.log_path = folder / "hub.log"
        self.runtime_dir = folder / "run"
        self.process: subprocess.Popen[bytes] | None = None
        port, api_port, proxy_port = free_ports(3)
        self.url = f"http://127.0.0.1:{port}"
        self.api_url = f"http://127.0.0.1:{api_port}/hub/api"
        (folder / "homes").mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)  # or the scheduler says that its users cannot come to its sockets
        self._config: dict[str, dict[str, Any]] = {
            "JupyterHub": {
                "bind_url": self.url,
                "hub_bind_url": f"http://127.0.0.1:{api_port}",
                "db_url": f"sqlite:///{folder / 'hub.sqlite'}",
                "cookie_secret_file": str(folder / "cookie_secret"),
                "authenticator_class": "dummy",
                "spawner_class": spawner,
                "log_level": "INFO",
                "cleanup_servers": not servers_outlive_it,
                "cleanup_proxy": True,
            },
            "DummyAuthenticator": {"password": PASSWORD},
            "Authenticator": {"allow_all": True, "admin_users": ["root"]},
            "ConfigurableHTTPProxy": {
                "command": proxy_command(),
                "api_url": f"http://127.0.0.1:{proxy_port}",
                "pid_file": str(folder / "proxy.pid"),
                "auth_token": os.urandom(16).hex(),
            },
            "Spawner": {
                "cmd": [str(self._python), "-m", "jupyterhub.singleuser"],
                # A browser test asks the page for its notebooks' kernels.
                "args": ["--allow-root", "--LabApp.expose_app_in_browser=True"],
                "environment": {
                    **server_env,
                    **(as_if_installed(folder) if self._from_checkout else {}),
                },
                "http_timeout": int(WAIT_S_MAX),
                "start_timeout": int(WAIT_S_MAX),
            },
            "SimpleLocalProcessSpawner": {
                "home_dir_template": f"{folder}/homes/{{username}}",
            },
            "GPUShare": {
                "runtime_dir": str(self.runtime_dir),
                "scheduler_args": list(scheduler_args),
                "scheduler_environment": dict(scheduler_env),
            },
        }

    def start(self) -> RunningHub:
        given = self.folder / "given.json"
        given.write_text(json.dumps(self._config))
        given.chmod(0o600)
        self._log_began = len(self.log)
        config = self.folder / "jupyterhub_config.py"
        config.write_text(_CONFIG.format(given=str(given)) + self._our_lines)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(config),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_until(self._is_ready, "the hub and its scheduler answer")
        return self

    def _command(self, config: Path) -> list[str]:
        """Which starts the hub."""
        return [str(self._python), "-m", "jupyterhub", f"--config={config}"]

    def _is_ready(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise HubDidNotStart(self.log[-8000:])
        if "Service gpushare exited" in self.log[self._log_began :]:  # it would try for ever
            raise HubDidNotStart(self.log[-8000:])
        try:
            answers = requests.get(f"{self.url}/hub/health", timeout=WAIT_S_MAX).ok
        except requests.RequestException:
            return False
        if not self._shares:
            return answers
        with contextlib.suppress(Exception):
            return answers and bool(self.scheduler.status())
        return False

    def back_out(self, line: str = BACKING_OUT) -> None:
        """From the next start on nobody shares, as an administrator has it configured."""
        self._our_lines = f"{line}\n{self._our_lines}"
        self._shares = False

    def forget_us(self) -> None:
        """From the next start on the administrator's configuration has nothing of ours."""
        self._our_lines = ""
        self._shares = False

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + WAIT_S_MAX
        while not holds():
            if time.monotonic() > until_s:
                raise HubDidNotStart(f"not within {WAIT_S_MAX} s: {what}\n{self.log[-8000:]}")
            time.sleep(LOOK_EVERY_S)

    def _environment(self) -> dict[str, str]:
        """The hub's own: nothing of the machine's scheduler, GPUs or Jupyter."""
        names = (
            "GPUSHARE_",
            "CUDA_",
            "XDG_RUNTIME_DIR",
            "JUPYTER",
            "LD_PRELOAD",
            "PYTEST_",
            "PYTHON",
        )
        kept = {k: v for k, v in os.environ.items() if not k.startswith(names)}
        path = os.pathsep.join([str(self._python.parent), kept.get("PATH", os.defpath)])
        checkout = {"PYTHONPATH": str(ROOT)} if self._from_checkout else {}
        return {**kept, **_marks(), **checkout, "PATH": path, MARK: str(self.folder)}

    @property
    def scheduler(self) -> SchedulerClient:
        """The scheduler as its own account sees it, which needs no token."""
        return SchedulerClient(self.runtime_dir / HTTP_SOCKET)

    def scheduler_pid(self) -> int | None:
        """None while there is none."""
        try:
            return int(self.scheduler.status()["scheduler"]["pid"])
        except SchedulerUnavailable:
            return None

    def ask(
        self, method: str, route: str, body: object = None, *, token: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        """A raw request to the scheduler, with a hub token where one is given."""
        connection = UnixHTTPConnection(
            self.runtime_dir / HTTP_SOCKET, uids=frozenset({0, os.getuid()}), timeout_s=WAIT_S_MAX
        )
        headers = {"Authorization": f"token {token}"} if token is not None else {}
        with contextlib.closing(connection):
            connection.request(method, f"/api/v1{route}", json.dumps(body or {}), headers)
            response = connection.getresponse()
            raw = response.read()
        return response.status, json.loads(raw) if raw else {}

    def visitor(self, name: str) -> Visitor:
        """A person's browser, logged in and with a running server."""
        visitor = Visitor(self.url, name, PASSWORD)
        visitor.log_in()
        visitor.start_server()
        return visitor

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def kill(self) -> None:
        """As an out-of-memory killer would. The proxy is the hub's child and stays."""
        assert self.process
        self.process.kill()
        self.process.wait(WAIT_S_MAX)
        self.process = None

    def stop(self) -> None:
        """With Ctrl-C's signal, at which a hub tidies up what it started."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WAIT_S_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(WAIT_S_MAX)
        self.process = None


@contextlib.contextmanager
def running_hub(folder: Path, **options: Any) -> Iterator[RunningHub]:
    """A hub that is stopped at the end, with everything that it has started."""
    folder.mkdir(parents=True, exist_ok=True)
    hub = RunningHub(folder, **options)
    try:
        yield hub.start()
    finally:
        hub.stop()
        end_leftovers(folder)


MARK = "GPUSHARE_TEST_HUB"


def end_leftovers(folder: Path) -> None:
    """Servers and kernels that outlive a hub on purpose, by the mark that they inherited."""
    for pid in leftovers(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def leftovers(folder: Path) -> list[int]:
    """Living processes of this folder's hub."""
    needle = f"{MARK}={folder}\0".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if needle in environ.read_bytes() and int(environ.parent.name) != os.getpid():
                found.append(int(environ.parent.name))
    return found


def server_env(machine_env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What leads the servers' kernels to a machine's device and the hook that was just built."""
    passed_on = {k: machine_env[k] for k in _LEADS_TO_DEVICE if k in machine_env}
    return {**_marks(), **passed_on, "GPUSHARE_LIBRARY": str(HOOK_LIBRARY), MARK: str(folder)}


_LEADS_TO_DEVICE = ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR", "CUDA_VISIBLE_DEVICES")


def as_if_installed(folder: Path) -> dict[str, str]:
    """This checkout need not be installed as a wheel is, which brings these two."""
    return {
        "JUPYTER_CONFIG_PATH": str(_enabled(folder)),
        "JUPYTER_PATH": str(_with_panel(folder)),
    }


def _enabled(folder: Path) -> Path:
    """A folder of Jupyter's configuration in which our server extension is on, and one is off which
    looks for language servers in a thread, for seconds."""
    file = folder / "jupyter" / "jupyter_server_config.d" / "jupyter_gpushare.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    extensions = {"jupyter_gpushare": True, "jupyter_lsp": False}
    file.write_text(json.dumps({"ServerApp": {"jpserver_extensions": extensions}}))
    return file.parent.parent


def _with_panel(folder: Path) -> Path:
    """A folder of Jupyter's data in which the panel is, where it has been built."""
    panel = folder / "share" / "labextensions" / "@jupyter-gpushare" / "labextension"
    panel.parent.mkdir(parents=True, exist_ok=True)
    if not panel.is_symlink():
        panel.symlink_to(ROOT / "jupyter_gpushare" / "labextension")
    return folder / "share"


def _marks() -> dict[str, str]:
    """By which a test finds again what it has started, however deep."""
    return {k: v for k, v in os.environ.items() if k.startswith("GPUSHARE_TEST_")}
