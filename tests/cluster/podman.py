"""Podman as the Docker that DockerSpawner speaks to, in a folder of its own: nothing of the
machine's containers, images or settings is used or changed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.paths import BUILD

PROGRAMS = ("podman", "runc", "mmdebstrap", "iptables")
GATEWAY = "10.88.0.1"
"""This machine, as containers of podman's own network reach it."""
STORE = BUILD / "cluster" / "podman"
"""Images are made once."""
_START_S_MAX = 30.0
_COMMAND_S_MAX = 600.0
# Crun refuses control groups of both versions, and limits may not be raised everywhere.
_CONTAINERS = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=8192:8192"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{store}/graph"
runroot = "{store}/run"
"""


class CannotRun(Exception):
    """Containers cannot be had here; the message says what is missing, and what to do."""


def check_machine() -> None:
    """Raises CannotRun."""
    if os.getuid() != 0:
        raise CannotRun("Containers with memory limits need root. Run this test as root.")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise CannotRun(
            f"{' and '.join(missing)} cannot be found. Install what is missing: apt-get install "
            f"--no-install-recommends {' '.join(missing)}"
        )


class Podman:
    """The command line, and the socket at which it answers as Docker does."""

    def __init__(self, folder: Path) -> None:
        check_machine()
        self.socket = folder / "podman.sock"
        self.log = folder / "podman.log"
        STORE.mkdir(parents=True, exist_ok=True)
        (STORE / "containers.conf").write_text(_CONTAINERS)
        (STORE / "storage.conf").write_text(_STORAGE.format(store=STORE))
        self.env = {
            **os.environ,
            "CONTAINERS_CONF": str(STORE / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(STORE / "storage.conf"),
        }

    def __call__(self, *words: str | Path, fails: bool = False) -> str:
        """What a command that has to succeed prints."""
        done = subprocess.run(
            ["podman", *map(str, words)],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S_MAX,
        )
        if done.returncode != 0 and not fails:
            raise AssertionError(
                f"podman {words} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
            )
        return done.stdout

    def has_image(self, name: str) -> bool:
        return bool(self("images", "--quiet", name).strip())

    def inspect(self, container: str) -> dict[str, Any]:
        (found,) = json.loads(self("inspect", container))
        return dict(found)

    def group(self, container: str) -> Path:
        """Where the container's memory is counted and limited."""
        pid = self.inspect(container)["State"]["Pid"]
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return Path("/sys/fs/cgroup/memory") / path.lstrip("/")
        raise AssertionError(f"{container} has no control group of memory")

    @contextlib.contextmanager
    def service(self) -> Iterator[None]:
        """It answers on its socket; at the end nothing of it runs."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                ["podman", "system", "service", "--time=0", f"unix://{self.socket}"],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._await_answer(process)
            yield
        finally:
            self("rm", "--force", "--all", "--time=0", fails=True)
            process.terminate()
            process.wait(_START_S_MAX)

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        until_s = time.monotonic() + _START_S_MAX
        while not self.socket.exists():
            if process.poll() is not None or time.monotonic() > until_s:
                said = self.log.read_text()[-2000:]
                raise CannotRun(f"podman's service does not start. Look at what it said: {said}")
            time.sleep(0.05)
