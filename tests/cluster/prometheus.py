"""A real Prometheus, and promtool: those of the machine, or Debian's package unpacked in the build
folder, so that no service of the machine is started."""

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
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.packaging.readme import blocks_under
from tests.support.paths import BUILD, ROOT
from tests.support.ports import free_ports

STORE = BUILD / "cluster" / "prometheus"
READY_S_MAX = 60.0
_DOWNLOAD_S_MAX = 300.0
PAGE = ROOT / "docs" / "monitoring.md"
EVERY = "200ms"


class CannotRun(AssertionError):
    """What the machine lacks, and what to do."""


def program(name: str) -> Path:
    """Raises CannotRun."""
    if found := shutil.which(name):
        return Path(found)
    unpacked = STORE / "usr" / "bin" / name
    if not unpacked.exists():
        _unpack()
    return unpacked


def _unpack() -> None:
    STORE.mkdir(parents=True, exist_ok=True)
    try:
        for command in (["apt-get", "download", "prometheus"], ["dpkg", "-x", "PACKAGE", "."]):
            words = [str(next(STORE.glob("*.deb"))) if w == "PACKAGE" else w for w in command]
            subprocess.run(
                words, cwd=STORE, check=True, capture_output=True, timeout=_DOWNLOAD_S_MAX
            )
    except (OSError, StopIteration, subprocess.SubprocessError) as error:
        raise CannotRun(
            f"Prometheus is not installed, and its package cannot be had ({error}). Run "
            f"`apt-get install prometheus` (Debian, Ubuntu)."
        ) from error


def promtool(*words: str | Path, text: bytes | None = None) -> str:
    """What it says of something that it has to find right."""
    done = subprocess.run(
        [program("promtool"), *map(str, words)], input=text, capture_output=True, check=False
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def asked(self, path: str, **arguments: str) -> Any:
        with urlopen(f"{self._url}/api/v1/{path}?{urlencode(arguments)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def found(self, query: str) -> list[dict[str, Any]]:
        """Series with their values now."""
        return list(self.asked("query", query=query)["result"])

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (HTTPError, URLError, OSError):
            return False


@contextlib.contextmanager
def running_prometheus(
    folder: Path, *, target: str, rules: Path, token: Path
) -> Iterator[Prometheus]:
    """Configured by the page, with other places, and more often."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    configuration = folder / "prometheus.yml"
    (text,) = blocks_under("Prometheus", "yaml", PAGE)
    for said, here in (
        ("/opt/jupyter/share/jupyter-gpushare/prometheus/gpushare.rules.yaml", str(rules)),
        ("/etc/prometheus/gpushare-token", str(token)),
        ("127.0.0.1:10150", target),
        ("scrape_interval: 30s", f"scrape_interval: {EVERY}"),
    ):
        assert said in text, f"{PAGE.name} has no {said} any more"
        text = text.replace(said, here)
    configuration.write_text(f"global: {{evaluation_interval: {EVERY}}}\n{text}")
    promtool("check", "config", configuration)
    command = [
        program("prometheus"),
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
    try:
        prometheus = Prometheus(port)
        until_s = time.monotonic() + READY_S_MAX
        while not prometheus.is_ready():
            assert process.poll() is None and time.monotonic() < until_s, (
                folder / "log"
            ).read_text()
            time.sleep(0.1)
        yield prometheus
    finally:
        process.terminate()
        process.wait(30)
