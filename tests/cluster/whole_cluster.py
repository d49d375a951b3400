"""etcd, an API server, its controllers, Kubernetes' scheduler and one node, in the namespaces that
this process is in. Pods have addresses of their own on a bridge."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_gpushare.client import ClientError
from tests.cluster.kubernetes import KUBELET, PAUSE, ROOT, STORE, image_file
from tests.cluster.nvidias_runtime import write_runtime
from tests.cluster.pod_images import ARCHIVE
from tests.cluster.real_node import KUBELET_DIR, Node, ctr

NODE, NODE_ADDRESS = "node1", "10.77.0.1"
GATEWAY = "10.99.0.1"
"""This machine, as pods reach it."""
NAMESPACE = "jhub"
SERVER = "https://127.0.0.1:6443"
TOKEN = "a-token-for-the-test"
RUNTIME = "nvidia"
"""The class of containers, as the chart's values name it."""
DISK = STORE / "containerd"
"""Where unpacked images lie: they are too large for memory."""
READY_S_MAX = 180.0
_CONTAINERD = """
version = 2
root = "{disk}"
state = "{dir}/containerd-state"
[grpc]
  address = "{dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "{runtime}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{runtime}]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{runtime}.options]
        BinaryName = "{program}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{root}/usr/lib/cni"
    conf_dir = "{dir}/cni"
"""
_NETWORK = {
    "cniVersion": "0.3.1",
    "name": "pods",
    "type": "bridge",
    "bridge": "pods0",
    "isGateway": True,
    "ipam": {
        "type": "host-local",
        "subnet": "10.99.0.0/24",
        "dataDir": str(KUBELET_DIR / "addresses"),
    },
}
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "test",
    "clusters": [{"name": "test", "cluster": {"server": SERVER, "insecure-skip-tls-verify": True}}],
    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    "users": [{"name": "test", "user": {"token": TOKEN}}],
}


def as_pods_reach(url: str) -> str:
    """An address of this machine's own."""
    return url.replace("127.0.0.1", GATEWAY)


class Cluster(Node):
    """All of it. Logs lie in the store."""

    def __init__(self, machine: Path) -> None:
        super().__init__()
        self._machine = machine
        self._keys = KUBELET_DIR / "keys"
        self.kubeconfig = KUBELET_DIR / "kubeconfig"

    def begin(self) -> None:
        """Until a node is ready for pods."""
        self._keys.mkdir()
        self.kubeconfig.write_text(json.dumps(KUBECONFIG))
        self.containerd()
        self._control_plane()
        self.kubelet()
        self.wait_until(self._node_is_ready, "the node is ready")

    def containerd(self) -> None:
        shutil.rmtree(DISK, ignore_errors=True)
        program = KUBELET_DIR / "nvidia-container-runtime"
        write_runtime(program, self._machine)
        (KUBELET_DIR / "cni" / "pods.conf").write_text(json.dumps(_NETWORK))
        config = KUBELET_DIR / "containerd.toml"
        config.write_text(
            _CONTAINERD.format(
                dir=KUBELET_DIR, disk=DISK, pause=PAUSE, root=ROOT, runtime=RUNTIME, program=program
            )
        )
        self.start("containerd", str(ROOT / "usr/bin/containerd"), "-c", str(config))
        self.wait_until(lambda: ctr("version").returncode == 0, "containerd answers")
        for archive in (image_file(PAUSE), ARCHIVE):
            done = ctr("images", "import", "--snapshotter=overlayfs", str(archive))
            assert done.returncode == 0, done.stderr

    def _control_plane(self) -> None:
        key = self._keys / "accounts.key"
        make = ["openssl", "genrsa", "-out", str(key), "2048"]
        subprocess.run(make, check=True, capture_output=True)
        tokens = self._keys / "tokens.csv"
        tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
        etcd = "http://127.0.0.1:2379"
        self.start(
            *("etcd", str(ROOT / "usr/bin/etcd"), f"--data-dir={KUBELET_DIR / 'etcd'}"),
            *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}"),
            "--unsafe-no-fsync",
        )
        issuer = "https://kubernetes.default.svc"
        self.start(
            *("kube-apiserver", str(STORE / "kube-apiserver"), f"--etcd-servers={etcd}"),
            *("--bind-address=127.0.0.1", f"--advertise-address={NODE_ADDRESS}"),
            *(f"--cert-dir={self._keys}", f"--token-auth-file={tokens}"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            *(f"--service-account-issuer={issuer}", "--service-cluster-ip-range=10.96.0.0/24"),
            *("--authorization-mode=Node,RBAC", "--kubelet-preferred-address-types=InternalIP"),
        )
        self.wait_until(
            lambda: self.kubectl("get", "--raw=/readyz") == "ok", "the API server answers"
        )
        mine = (
            *(f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--port=0"),
            *("--bind-address=127.0.0.1", f"--cert-dir={self._keys}"),
        )
        # Into the Secrets with the tokens of accounts.
        authority = f"--root-ca-file={self._keys / 'apiserver.crt'}"
        controllers = (f"--service-account-private-key-file={key}", authority, *mine)
        self.start("controllers", str(STORE / "kube-controller-manager"), *controllers)
        self.start("kube-scheduler", str(STORE / "kube-scheduler"), *mine)

    def kubelet(self) -> subprocess.Popen[bytes]:
        flags = (
            *("--container-runtime=remote", "--fail-swap-on=false", "--cgroup-driver=cgroupfs"),
            f"--container-runtime-endpoint=unix://{KUBELET_DIR / 'containerd.sock'}",
            *(f"--hostname-override={NODE}", "--enforce-node-allocatable=", "--eviction-hard="),
            *(f"--address={NODE_ADDRESS}", "--read-only-port=0", f"--node-ip={NODE_ADDRESS}"),
            *("--make-iptables-util-chains=false", "--resolv-conf="),
            *(f"--kubeconfig={self.kubeconfig}", "--node-labels=nvidia.com/gpu.present=true"),
            f"--volume-plugin-dir={KUBELET_DIR / 'volume-plugins'}",
        )
        return self.start("kubelet", str(KUBELET), *flags)

    def _node_is_ready(self) -> bool:
        conditions = self.get("node", NODE)["status"]["conditions"]
        return {"Ready": "True"} in [{each["type"]: each["status"]} for each in conditions]

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(DISK, ignore_errors=True)

    # ---- kubectl ------------------------------------------------------------------------------

    def kubectl(self, *words: str, given: object = None, fails: bool = False) -> str:
        """What a command prints that has to succeed, unless it may fail. `given` are objects for
        `--filename=-`."""
        done = subprocess.run(
            [str(STORE / "kubectl"), f"--namespace={NAMESPACE}", *words],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(KUBELET_DIR)},
            input=json.dumps(given) if given is not None else None,
            capture_output=True,
            text=True,
            timeout=READY_S_MAX,
            check=False,
        )
        if done.returncode != 0 and not fails:
            raise Refused(f"kubectl {words}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done.stdout + (done.stderr if fails else "")

    def apply(self, objects: list[dict[str, Any]]) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "--filename=-", given=items)

    def get(self, *words: str) -> dict[str, Any]:
        return dict(json.loads(self.kubectl("get", *words, "--output=json")))

    def allocatable(self, resource: str) -> int:
        return int(self.get("node", NODE)["status"]["allocatable"].get(resource, 0))

    # ---- pods ---------------------------------------------------------------------------------

    def pod(self, name: str) -> dict[str, Any]:
        return self.get("pod", name)

    def container(self, pod: dict[str, Any], name: str) -> dict[str, Any]:
        """What the kubelet says of it."""
        (found,) = [each for each in pod["status"]["containerStatuses"] if each["name"] == name]
        return dict(found)

    def our_pod(self) -> dict[str, Any]:
        """The DaemonSet's, of which one may be ending while the next one is made."""
        pods = self.get("pods", "--selector=app.kubernetes.io/name=gpushare")["items"]
        (found,) = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        return dict(found)

    def kill(self, container: str) -> None:
        """As the machine's out-of-memory killer would; and wait until it runs again."""
        before = self.container(self.our_pod(), container)
        number = before["containerID"].rpartition("/")[2]
        done = ctr("tasks", "kill", "--signal=SIGKILL", number)
        assert done.returncode == 0, done.stderr

        def runs_again() -> bool:
            now = self.container(self.our_pod(), container)
            return bool(now["ready"] and now["restartCount"] == before["restartCount"] + 1)

        self.wait_until(runs_again, f"the {container} runs again")

    def memory(self, pod: str, container: str) -> Path:
        """Where the container's memory is counted and limited."""
        number = self.container(self.pod(pod), container)["containerID"].rpartition("/")[2]
        (found,) = Path("/sys/fs/cgroup/memory/kubepods").rglob(number)
        return found

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        """What is not there yet may raise."""
        until_s = time.monotonic() + READY_S_MAX
        while True:
            try:
                if holds():
                    return
                why: object = "no"
            except (OSError, LookupError, ValueError, ClientError) as error:
                why = repr(error)
            if time.monotonic() > until_s:
                raise AssertionError(f"not in time: {what} ({why})\n{self.described()}")
            time.sleep(0.2)

    def described(self) -> str:
        """For a test that fails: the pods, what happened to them, and what ours say."""
        events = ("get", "events", "--sort-by=.lastTimestamp")
        looks = [("get", "pods", "--output=wide"), events]
        looks += [
            ("logs", "daemonset/gpushare", f"--container={c}") for c in ("scheduler", "plugin")
        ]
        return "\n".join(f"== {look}\n{self.kubectl(*look, fails=True)[-4000:]}" for look in looks)


class Refused(ValueError):
    """A command that failed; the message has what it said."""
