"""`jupyter gpushare view`, and `view token`."""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import websocket

from jupyter_gpushare.cli.main import main
from jupyter_gpushare.reports.format import NodeHello, message_of, text_of
from jupyter_gpushare.reports.node_tokens import read_tokens
from jupyter_gpushare.view.usage_file import USAGE_FILE
from tests.reports.rows import BOOT
from tests.support.nursery import Nursery
from tests.support.ports import free_ports
from tests.support.scheduler_process import command_line
from tests.support.waits import WAIT_S_MAX

COMMAND = [sys.executable, "-m", "jupyter_gpushare.cli.main", "view"]
OF_KUBERNETES = ["--kubernetes", "--service-account=jhub:gpushare"]


def hub_environment(port: int) -> dict[str, str]:
    """As a hub gives it to its service; there is no hub."""
    names = ("JUPYTERHUB_", "GPUSHARE_", "KUBERNETES_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return {
        **kept,
        "JUPYTERHUB_API_URL": "http://127.0.0.1:9/hub/api",
        "JUPYTERHUB_API_TOKEN": "t",
        "JUPYTERHUB_CLIENT_ID": "service-gpushare-view",
        "JUPYTERHUB_SERVICE_NAME": "gpushare-view",
        "JUPYTERHUB_SERVICE_PREFIX": "/base/services/gpushare-view/",
        "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}",
    }


@functools.cache
def view_nursery() -> Nursery:
    """What the view imports takes a second, for each process that does it."""
    modules = ("cli.main", "hub.auth", "hub.api", "view.callers", "view.service", "view.usage_file")
    return Nursery(*(f"jupyter_gpushare.{each}" for each in modules), env=hub_environment(9))


def view(*flags: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`jupyter gpushare view FLAGS`, to its end."""
    order = command_line(["view", *flags])
    return view_nursery().run(order, env=env, timeout=WAIT_S_MAX)


def test_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed once, alone in its line."""
    path = tmp_path / "tokens"
    assert main(["view", "token", "node-a", "--tokens", str(path)]) == 0
    (token,) = capsys.readouterr().out.splitlines()
    assert read_tokens(path).name_of(token) == "node-a"


@pytest.mark.promise(
    "view-8", "What is wrong with the view's flags is one sentence, with what to do"
)
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "knows no credentials. Give --tokens FILE, or"),
        (["--kubernetes"], "any pod of the cluster could be a node. Name the account"),
        (["--kubernetes", "--service-account=x"], "'x' names no service account. Give"),
        ([*OF_KUBERNETES, "--api-server=https://k"], "--api-token-file FILE together."),
        (["--tokens={file}", "--api-ca={file}"], "--api-token-file FILE together."),
        (
            [*OF_KUBERNETES, "--api-server=http://k", "--api-token-file={file}"],
            "Give --api-server an address that begins with https.",
        ),
        (["--tokens=/none/file"], "cannot be read: No such file or directory. Make it with"),
        (["--tokens={file}", "--report-port=0"], "There is no port 0. Give --report-port"),
        (["--tokens={file}", "--report-port=1"], "go together: nodes report from other"),
        (["--tokens={file}", "--tls-cert={file}"], "go together"),
        (["--tokens={file}", "--report-port=65000", "--tls-cert={file}"], "cannot be used: "),
        (["--tokens={file}", "--data-dir={file}"], "cannot be used: File exists. Name one in"),
        (["--tokens={file}", "--data-dir={unusable}"], "cannot be written: Is a directory"),
        (["--kubernetes", "--service-account=a:b"], "not a pod of Kubernetes"),
        (["token", "a b", "--tokens={file}"], "A node cannot be called 'a b'. Give it a name"),
        (["token", "a", "--tokens=/none/file"], "cannot be written: No such file"),
    ],
)
def test_wrong_flags(tmp_path: Path, flags: list[str], says: str) -> None:
    """Exit status 2."""
    file = tmp_path / "file"
    file.touch()
    unusable = tmp_path / "unusable"
    (unusable / f"{USAGE_FILE}.lock").mkdir(parents=True)
    (port,) = free_ports(1)
    given = (each.format(file=file, unusable=unusable) for each in flags)
    done = view(*given, env=hub_environment(port))
    (line,) = done.stderr.splitlines()
    assert (done.returncode, says in line) == (2, True), line
    assert line.startswith("jupyter gpushare: ") and line.endswith(".")


@pytest.mark.promise("view-8")
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("JUPYTERHUB_API_URL", "", "there is no hub to ask. Let JupyterHub start"),
        ("JUPYTERHUB_API_TOKEN", "", "nobody could log in. Let JupyterHub start the view"),
        ("JUPYTERHUB_SERVICE_URL", "https://x", "not such as http://127.0.0.1"),
        ("JUPYTERHUB_SERVICE_URL", "http://x:port", "not such as http://127.0.0.1"),
        ("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:{taken}", "cannot listen at 127.0.0.1"),
    ],
)
def test_a_wrong_environment(tmp_path: Path, variable: str, value: str, says: str) -> None:
    """Also a port that somebody has."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "tokens").touch()
        port = taken.getsockname()[1]
        env = {**hub_environment(port), variable: value.format(taken=port)}
        done = view(f"--tokens={tmp_path / 'tokens'}", env=env)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, says in line) == (2, True), line


@pytest.mark.promise("view-9", "A view takes more connections than a process may have at first")
def test_many_connections(tmp_path: Path) -> None:
    """As the hub starts it: with a soft limit that a thousand nodes go beyond."""
    tokens = tmp_path / "tokens"
    tokens.touch()
    (port,) = free_ports(1)
    process = subprocess.Popen(
        ["sh", "-c", 'ulimit -Sn 128 && exec "$@"', "sh", *COMMAND, f"--tokens={tokens}"],
        env=hub_environment(port),
        stderr=subprocess.PIPE,
        text=True,
    )
    held: list[socket.socket] = []
    try:
        assert process.stderr is not None
        assert "view of all nodes" in process.stderr.readline()
        held += [socket.create_connection(("127.0.0.1", port)) for _ in range(256)]
        url = f"http://127.0.0.1:{port}/base/services/gpushare-view/api/v1/nodes"
        assert requests.get(url, timeout=WAIT_S_MAX).status_code == 403
    finally:
        for each in held:
            each.close()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=WAIT_S_MAX)
    assert (process.returncode, "Traceback" in log) == (0, False), log


@pytest.mark.promise("view-44")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process(
    tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """It serves, ends well at a signal while a node is connected, and its directory is its own."""
    tokens, data = tmp_path / "tokens", tmp_path / "data"
    assert main(["view", "token", "node-a", "--tokens", str(tokens)]) == 0
    token = capsys.readouterr().out.strip()
    (port,) = free_ports(1)
    ours, theirs = os.pipe()
    order = command_line(["view", f"--tokens={tokens}", f"--data-dir={data}"])
    process = view_nursery().start(order, env=hub_environment(port), descriptors={2: theirs})
    os.close(theirs)
    errors = os.fdopen(ours)
    try:
        assert f"http://127.0.0.1:{port}/base/services/gpushare-view/" in errors.readline()
        url = f"127.0.0.1:{port}/base/services/gpushare-view/"
        assert requests.get(f"http://{url}api/v1/nodes", timeout=WAIT_S_MAX).status_code == 403
        refused = requests.get(
            f"http://{url}api/v1/nodes", headers={"Authorization": "token x"}, timeout=WAIT_S_MAX
        )
        assert (refused.status_code, "does not answer" in refused.text) == (503, True)
        sock = websocket.create_connection(
            f"ws://{url}api/v1/reports",
            header=[f"Authorization: Bearer {token}"],
            suppress_origin=True,
            timeout=WAIT_S_MAX,
        )
        sock.send(text_of(NodeHello(boot=BOOT, version="1")))
        message_of(sock.recv())
        process.send_signal(number)
        opcode, data_of_close = sock.recv_data()
        assert (opcode, int.from_bytes(data_of_close[:2], "big")) == (8, 1001)
    finally:
        process.send_signal(signal.SIGTERM)
        with errors:
            log = errors.read()
    assert process.wait(WAIT_S_MAX) == 0, log
    assert "Traceback" not in log, log
    assert data.stat().st_mode & 0o777 == 0o700
