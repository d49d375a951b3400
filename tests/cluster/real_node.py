"""A node with a real kubelet and our plugin, in namespaces of its own; started by unshare.

`python -m tests.cluster.real_node` prints what it has seen as one JSON object. The kubelet stands
alone, without an API server: its pods come from files."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from jupyter_gpushare.cli.checkup.node_devices import node_facts
from jupyter_gpushare.kubelet.pods import mistakes
from tests.cluster.kubernetes import IMAGES, KUBELET, PAUSE, ROOT, STORE, USER, image_file

T = TypeVar("T")
KUBELET_DIR = Path("/var/lib/kubelet")
RESOURCE = "gpushare.jupyter.org/turn"
WAIT_S_MAX = 120.0
TAKEN = "The kubelet has taken the seats"
TUNED = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
TUNED_KEYS = ("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")
"""What a kubelet sets for the whole machine."""
_CONTAINERD = """
version = 2
root = "{dir}/containerd"
state = "{dir}/containerd-state"
[grpc]
  address = "{dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{dir}/cni"
"""
_LOOKS = (
    "env | grep GPUSHARE_; grep gpushare /proc/mounts; ls /usr/lib/jupyter-gpushare; "
    "touch /run/jupyter-gpushare/x || touch /usr/lib/jupyter-gpushare/x || echo nothing written; "
    "sleep 100000"
)


class Node:
    """Its processes. Their logs lie in the store."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        path = f"{ROOT / 'usr/bin'}:{os.environ['PATH']}"
        with (STORE / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PATH": path}
            )
        self.processes.append(process)
        return process

    def containerd(self) -> None:
        config = KUBELET_DIR / "containerd.toml"
        config.write_text(_CONTAINERD.format(dir=KUBELET_DIR, pause=PAUSE))
        self.start("containerd", str(ROOT / "usr/bin/containerd"), "-c", str(config))
        wait_for(lambda: ctr("version").returncode == 0)
        for name in IMAGES:
            assert ctr("images", "import", str(image_file(name))).returncode == 0

    def kubelet(self) -> subprocess.Popen[bytes]:
        flags = (
            *("--container-runtime=remote", "--fail-swap-on=false", "--cgroup-driver=cgroupfs"),
            f"--container-runtime-endpoint=unix://{KUBELET_DIR / 'containerd.sock'}",
            *("--hostname-override=node1", "--enforce-node-allocatable=", "--eviction-hard="),
            *("--address=127.0.0.1", "--read-only-port=0", "--node-ip=10.77.0.1"),
            *("--make-iptables-util-chains=false", "--resolv-conf="),
            f"--pod-manifest-path={KUBELET_DIR / 'manifests'}",
        )
        return self.start("kubelet", str(KUBELET), *flags)

    def plugin(self) -> subprocess.Popen[bytes]:
        return self.start(
            "plugin",
            *(sys.executable, "-m", "jupyter_gpushare.cli.main", "kubelet-plugin", "--seats=4"),
            f"--runtime-dir={KUBELET_DIR / 'run'}",
            f"--library-dir={KUBELET_DIR / 'lib'}",
            "--unhealthy-after-s=3600",
        )

    def stop(self) -> None:
        """The runtime last: it ends the containers."""
        runtime, *others = self.processes
        for each in reversed(others):
            end(each)
        for task in ctr("tasks", "ls", "-q").stdout.split():
            ctr("tasks", "rm", "-f", task)
        time.sleep(1)
        end(runtime)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ctr(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "usr/bin/ctr"), "-a", str(KUBELET_DIR / "containerd.sock")]
    return subprocess.run(
        [*command, "-n", "k8s.io", *arguments], capture_output=True, text=True, check=False
    )


def wait_for(look: Callable[[], T]) -> T:
    """What it has found, once that is something. What is not there yet may raise."""
    end_s = time.monotonic() + WAIT_S_MAX
    while True:
        with contextlib.suppress(OSError, ValueError, KeyError):
            if found := look():
                return found
        assert time.monotonic() < end_s, look
        time.sleep(0.1)


@contextlib.contextmanager
def machine_as_before() -> Iterator[None]:
    """A kubelet tunes the kernel, and leaves groups of processes."""
    settings = [Path("/proc/sys") / name for name in (*TUNED, *TUNED_KEYS)]
    before = {each: each.read_text() for each in settings if each.exists()}
    try:
        yield
    finally:
        for path, value in before.items():
            path.write_text(value)
        groups = [g for g in Path("/sys/fs/cgroup").glob("*/kubepods/**/") if g.is_dir()]
        for group in sorted(groups, reverse=True):
            with contextlib.suppress(OSError):
                group.rmdir()


def prepare_directories(*others: Path) -> None:
    """Nothing of the machine's own is seen or changed."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "addr", "add", "10.77.0.1/32", "dev", "lo"], check=True)
    logs = (Path("/var/log/pods"), Path("/var/log/containers"))
    for path in (KUBELET_DIR, Path("/run/netns"), *logs, *others):
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", path], check=True)
    for name in ("manifests", "run", "lib", "cni"):
        (KUBELET_DIR / name).mkdir()
    for log in STORE.glob("*.log"):
        if log.name != "build.log":
            log.unlink()


def pod() -> dict[str, Any]:
    container = {
        "name": "notebook",
        "image": USER,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", _LOOKS],
        "resources": {"limits": {RESOURCE: "1", "memory": "64Mi"}},
    }
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container]}
    metadata = {"name": "ann", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def registered() -> list[str]:
    """The seats as the kubelet's own file has them."""
    text = (KUBELET_DIR / "device-plugins/kubelet_internal_checkpoint").read_text()
    return list(json.loads(text)["Data"]["RegisteredDevices"][RESOURCE])


def said() -> str:
    return "".join(path.read_text() for path in Path("/var/log/pods").rglob("*.log"))


def registrations() -> int:
    return (STORE / "plugin.log").read_text().count(TAKEN)


def seen_on(node: Node) -> Iterator[tuple[str, Any]]:
    """What happens, step by step."""
    node.containerd()
    kubelet = node.kubelet()
    wait_for((KUBELET_DIR / "device-plugins/kubelet.sock").exists)
    plugin = node.plugin()
    yield "registered", sorted(wait_for(registered))
    manifest = KUBELET_DIR / "manifests" / "ann.json"
    manifest.write_text(json.dumps(pod()))
    wait_for(lambda: "nothing written" in said())
    yield "pod", [line.split(" ", 3)[3] for line in said().splitlines() if " stdout " in line]
    facts = wait_for(lambda: (found := node_facts()).devices.containers and found)
    yield "devices", [dict(each.devices) for each in facts.devices.containers]
    yield "mistakes", [each.what for each in mistakes(facts.devices)]
    kubelet.kill()
    kubelet.wait()
    kubelet = node.kubelet()
    wait_for(lambda: registrations() == 2)
    yield "registered_again", sorted(wait_for(registered))
    plugin.kill()
    plugin.wait()
    plugin = node.plugin()
    wait_for(lambda: registrations() == 3)
    plugin.terminate()
    yield "plugin_ends_with", plugin.wait(WAIT_S_MAX)
    yield "socket_is_left", (KUBELET_DIR / "device-plugins/gpushare.sock").exists()
    node.plugin()
    wait_for(lambda: registrations() == 4)
    wait_for(lambda: node_facts().devices.containers)
    yield "pod_started", said().count("GPUSHARE_LIBRARY=")
    manifest.unlink()
    wait_for(lambda: not node_facts().devices.containers)
    yield "pod_is_gone", True


def main() -> None:
    prepare_directories()
    node = Node()
    with machine_as_before():
        try:
            seen = dict(seen_on(node))
        finally:
            node.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
