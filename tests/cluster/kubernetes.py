"""A real Kubernetes for the tests: containerd and etcd from Debian's packages, and the rest built
once from Debian's source package of Kubernetes 1.20 into `build/cluster/kubernetes`. Nothing is
installed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.support.paths import BUILD

STORE = BUILD / "cluster" / "kubernetes"
ROOT = STORE / "root"
"""Where Debian's packages are unpacked."""
KUBELET = STORE / "kubelet"
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
BUILT = ("kubelet", "kubectl", *CONTROL_PLANE)
"""By their names in STORE."""
PROGRAMS = ("apt-get", "dpkg", "dpkg-source", "make", "patch", "unshare", "runc", "ip", "openssl")
PACKAGES = {
    "golang-1.19-go": "usr/lib/go-1.19/bin/go",
    "golang-1.19-src": "usr/share/go-1.19/src",
    "containerd": "usr/bin/containerd",
    "busybox-static": "bin/busybox",
    "etcd-server": "usr/bin/etcd",
    "containernetworking-plugins": "usr/lib/cni/bridge",
}
"""With a file of each."""
VERSION = "v1.20.2"
BUILD_S_MAX = 3000
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_TARGETS = "$(CREATED_BY) $(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)"
PAUSE, USER = "localhost/pause:1", "localhost/user:1"
IMAGES = {PAUSE: ["/bin/sleep", "1000000"], USER: ["/bin/sh"]}
_APPLETS = ("sh", "env", "cat", "sleep", "grep", "ls", "touch")


class CannotRun(Exception):
    """A node cannot be had here; the message says what is missing, and what to do."""


def check_machine() -> None:
    """Raises CannotRun."""
    if os.getuid() != 0:
        raise CannotRun("A kubelet needs root. Run this test as root.")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise CannotRun(
            f"{' and '.join(missing)} cannot be found. Install what is missing: apt-get install "
            f"--no-install-recommends dpkg-dev make patch util-linux runc iproute2 openssl"
        )


def prepare() -> None:
    """Make what is not there yet; some ten minutes the first time. Raises CannotRun."""
    STORE.mkdir(parents=True, exist_ok=True)
    try:
        if not all((ROOT / each).exists() for each in PACKAGES.values()):
            _unpack()
        if missing := [name for name in BUILT if not (STORE / name).exists()]:
            _build(missing)
        for name, command in IMAGES.items():
            _write_image(name, command)
    except subprocess.SubprocessError as error:
        raise CannotRun(
            f"Kubernetes could not be built: {error}. See {STORE / 'build.log'}, and whether this "
            f"machine can reach Debian's archive."
        ) from error


def image_file(name: str) -> Path:
    return STORE / f"{name.partition('/')[2].partition(':')[0]}.tar"


def _unpack() -> None:
    packages = STORE / "packages"
    packages.mkdir(exist_ok=True)
    _run(["apt-get", "download", *PACKAGES], cwd=packages)
    for each in packages.glob("*.deb"):
        _run(["dpkg", "-x", str(each), str(ROOT)])
    go, shared = ROOT / "usr/lib/go-1.19", ROOT / "usr/share/go-1.19"
    for name in ("api", "misc", "src", "test"):
        (go / name).unlink(missing_ok=True)
        (go / name).symlink_to(shared / name)


def _build(names: list[str]) -> None:
    parts, lists = STORE / "parts", STORE / "lists"
    for each in (parts, lists / "partial"):
        each.mkdir(parents=True, exist_ok=True)
    (parts / "src.list").write_text(_sources())
    only_these = [
        *("-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={parts}"),
        *("-o", f"Dir::State::lists={lists}"),
    ]
    _run(["apt-get", *only_these, "update"])
    _run(["apt-get", *only_these, "source", "--download-only", "kubernetes"], cwd=STORE)
    (description,) = STORE.glob("kubernetes_*.dsc")
    path = STORE / "go"
    source = path / "src/k8s.io/kubernetes"
    source.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(source, ignore_errors=True)
    _run(["dpkg-source", "--no-check", "-x", str(description), str(source)])
    # Its own Makefile also writes the parts of the source that no archive has.
    what = " ".join(f"cmd/{name}" for name in names)
    _run(["make", f"WHAT={what}", "GOLDFLAGS=-s -w"], cwd=source, env=_build_environment(path))
    for name in names:
        shutil.copy2(source / "_output/local/bin/linux/amd64" / name, STORE / name)
    shutil.rmtree(path)


def _build_environment(path: Path) -> dict[str, str]:
    go, tools = ROOT / "usr/lib/go-1.19", path / "tools"
    tools.mkdir()
    (tools / "rsync").write_text('#!/bin/sh\nexec cp -p "$2" "$3"\n')  # `rsync -pc FILE FOLDER`
    (tools / "rsync").chmod(0o755)
    major, minor, _ = VERSION.strip("v").split(".")
    return {
        "PATH": f"{tools}:{go / 'bin'}:{os.environ['PATH']}",
        "HOME": str(path),
        "GOROOT": str(go),
        "GOPATH": str(path),
        "GOCACHE": str(path / "cache"),
        "CGO_ENABLED": "0",
        "KUBE_GIT_COMMIT": "debian",
        "KUBE_GIT_TREE_STATE": "archive",
        "KUBE_GIT_VERSION": VERSION,
        "KUBE_GIT_MAJOR": major,
        "KUBE_GIT_MINOR": minor,
    }


def _sources() -> str:
    """The sources of what this machine has packages of: Debian, from wherever it gets it."""
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", _TARGETS],
        capture_output=True,
        text=True,
        check=True,
    )
    archives = {tuple(line.split()[2:]) for line in told.stdout.splitlines() if " Debian " in line}
    lines = [f"deb-src [signed-by={_KEYS}] {' '.join(each)}" for each in sorted(archives)]
    return "\n".join([*lines, ""])


def _run(command: list[str], *, cwd: Path = STORE, env: dict[str, str] | None = None) -> None:
    with (STORE / "build.log").open("ab") as log:
        subprocess.run(
            command, cwd=cwd, env=env, stdout=log, stderr=log, check=True, timeout=BUILD_S_MAX
        )


def _write_image(name: str, command: list[str]) -> None:
    """An image with busybox alone, as `docker save` writes one."""
    layer = _layer()
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": command},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    files = {
        f"{hashlib.sha256(config).hexdigest()}.json": config,
        f"{digest}/layer.tar": layer,
    }
    config_name, layer_name = files
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]
    with tarfile.open(image_file(name), "w") as archive:
        for path, content in {**files, "manifest.json": json.dumps(manifest).encode()}.items():
            _add(archive, path, content)


def _layer() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for path in ("bin", "tmp", "etc", "proc", "sys", "dev", "run", "usr", "usr/lib"):
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        _add(archive, "bin/busybox", (ROOT / "bin/busybox").read_bytes())
        for name in _APPLETS:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(entry)
    return made.getvalue()


def _add(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))
