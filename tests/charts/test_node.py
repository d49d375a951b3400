"""The two containers of the chart's pod, run as the chart renders them: commands, variables, and
root without a capability. The rest of the node is a fake kubelet, a hub's API and a simulated GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.client import ClientError, SchedulerClient
from jupyter_gpushare.protocol.messages import TurnGranted, Welcome
from tests.charts.chart import SMALLEST, rendered, the
from tests.kubelet.fake_kubelet import FakeKubelet
from tests.scheduler.test_tenants_dir import hub_url
from tests.support.hook_client import ScriptedClient
from tests.support.paths import ROOT
from tests.support.scheduler_process import environment
from tests.support.sim import SimulatedMachine

__all__ = ["hub_url"]

pytestmark = pytest.mark.full
SEATS = 3
WAIT_S_MAX = 120.0
NO_CAPABILITY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--")
OWN_PIDS = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Without hostPID, the first process of its container is the scheduler: number 1."""


class Pod:
    """The chart's, on a node whose directories lie below `root`."""

    def __init__(self, root: Path, api_url: str, machine: SimulatedMachine) -> None:
        self.runtime, kubelet = root / "run", root / "kubelet"
        self.plugins = kubelet / "device-plugins"
        for each in (self.runtime, root / "lib", self.plugins):
            each.mkdir(parents=True)
        objects = rendered(
            {
                **SMALLEST,
                "seats": SEATS,
                "hub": {"apiUrl": api_url},
                "scheduler": {"settings": {"quantum_s": "7s"}},
                "node": {
                    "runtimeDir": str(self.runtime),
                    "libraryDir": str(root / "lib"),
                    "kubeletDir": str(kubelet),
                },
            }
        )
        self._settings = root / "settings.toml"
        self._settings.write_text(the(objects, "ConfigMap")["data"]["settings.toml"])
        spec = the(objects, "DaemonSet")["spec"]["template"]["spec"]
        self._containers = {each["name"]: each for each in spec["containers"]}
        self._env = environment(machine.env())
        del self._env["CUDA_VISIBLE_DEVICES"]  # NVIDIA's runtime sets none
        self.logs = {name: root / f"{name}.log" for name in self._containers}

    @contextmanager
    def container(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """It is ended as Kubernetes ends one, and ends well."""
        made: dict[str, Any] = self._containers[name]
        program, *verb = made["command"]
        assert program == "jupyter-gpushare"
        args = [
            each.replace("/etc/jupyter-gpushare/settings.toml", str(self._settings))
            for each in made["args"]
        ]
        own = {each["name"]: each["value"] for each in made["env"]}
        limits = (*OWN_PIDS, *NO_CAPABILITY) if os.getuid() == 0 else ()
        ours = [sys.executable, "-m", "jupyter_gpushare.cli.main"]
        with self.logs[name].open("ab") as log:
            process = subprocess.Popen(
                [*limits, *ours, *verb, *args], env={**self._env, **own}, stderr=log, cwd=ROOT
            )
        try:
            yield process
        finally:
            for pid in _children(process.pid) if limits else [process.pid]:
                os.kill(pid, signal.SIGTERM)
            assert process.wait(WAIT_S_MAX) == 0, self.logs[name].read_text()
        assert "Traceback" not in self.logs[name].read_text()

    def doctor(self, scheduler: subprocess.Popen[bytes]) -> list[dict[str, str]]:
        """In the scheduler's container, as `kubectl exec` starts it."""
        inside: list[str] = []
        for pid in _children(scheduler.pid) if os.getuid() == 0 else []:
            inside = ["nsenter", "--pid", "--mount", f"--wdns={ROOT}", f"--target={pid}"]
        own = {each["name"]: each["value"] for each in self._containers["scheduler"]["env"]}
        done = subprocess.run(
            [*inside, sys.executable, "-m", "jupyter_gpushare.cli.main", "doctor", "--json"],
            env={**self._env, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        return list(json.loads(done.stdout)["findings"])


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in found.split()]


def status_at(tenants: Path, token: str) -> dict[str, Any]:
    """As soon as a scheduler answers there and has found its device."""
    end_s = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            status = SchedulerClient(tenants / "http.sock", hub_token=token).status()
            if status["devices"] or time.monotonic() > end_s:
                return status
        except ClientError:
            if time.monotonic() > end_s:
                raise
        time.sleep(0.05)


@pytest.mark.promise(
    "kubernetes-2",
    "The commands of the chart, run as root without any capability and without hostPID, serve a "
    "node: two users with seats take turns there, and are known again after a restart of either "
    "container",
)
def test_two_users_share_a_node(tmp_path: Path, hub_url: str) -> None:
    """Ann and desk connect by what the kubelet was told to mount into their containers."""
    with tempfile.TemporaryDirectory(prefix="gpushare-") as root:  # sockets need short paths
        Path(root).chmod(0o755)
        pod = Pod(Path(root), hub_url, SimulatedMachine(tmp_path / "machine"))
        share(pod)


def share(pod: Pod) -> None:
    """The story itself."""
    with ExitStack() as node, FakeKubelet(pod.plugins) as kubelet:
        with ExitStack() as scheduler:
            process = scheduler.enter_context(pod.container("scheduler"))
            with pod.container("plugin"):
                kubelet.wait_for_seats(SEATS)
                seated = [kubelet.admit()[0] for _ in ("ann", "desk")]
            node.enter_context(pod.container("plugin"))
            tenants = Path(seated[0].mounts[0].host_path)
            assert (Path(seated[0].mounts[1].host_path) / "libgpushare.so").stat().st_size
            status = status_at(tenants, "ann")
            found = {each["check"]: each for each in pod.doctor(process)}
            assert found["scheduler"]["level"] == "ok", found["scheduler"]
            assert found["hub"]["level"] == "ok", found["hub"]
            problems = [each for each in found.values() if each["level"] == "problem"]
            assert not problems
            assert status["settings"]["quantum_s"] == 7
            (device,) = status["devices"]
            clients = {}
            tokens = {}
            for name in ("ann", "desk"):
                registered = SchedulerClient(tenants / "http.sock", hub_token=name).register_tenant(
                    f"{name}.ipynb", "kernel"
                )
                tokens[name] = registered.token
                clients[name] = ScriptedClient(Path(registered.socket))
                clients[name].join(registered.token, device=bytes.fromhex(device["id"]))
            held = clients["ann"].take_turn()
            clients["desk"].ask()
            clients["ann"].drop(held.turn_id)
            clients["desk"].expect(TurnGranted)
        with pod.container("scheduler"):
            status_at(tenants, "ann")
            again = ScriptedClient(tenants / "hook.sock")
            again.hello(tokens["ann"])
            again.expect(Welcome)
            kubelet.wait_for_seats(SEATS)
            assert len([each for each in kubelet.seen if each.startswith("register")]) == 2
