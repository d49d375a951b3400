"""The image that users' servers run in, made once: Debian with JupyterHub's single-user server.

It stands for images such as jupyter/minimal-notebook, which cannot be had everywhere."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cluster.podman import STORE, Podman

BASE = "localhost/gpushare-test-base"
PREFIX = "opt/jupyter"
_PACKAGES = (
    *("jupyterlab", "ipykernel", "cuda-bindings>=13.0", "nvidia-ml-py"),
    *("grpcio>=1.60", "protobuf>=6.31"),  # for the image of a Kubernetes node
)
_DEBIAN = ("bookworm", "3.11")
_CHANGES = (
    "LABEL made-by=2",
    f"ENV PATH=/{PREFIX}/bin:/usr/bin:/bin",
    "ENV HOME=/home/user",
    "WORKDIR /home/user",
    "USER 1000:1000",
)


def base_image(podman: Podman) -> str:
    """Its name. Making it takes some minutes, and needs Debian's packages and PyPI."""
    wanted = (f"jupyterhub=={version('jupyterhub')}", *_PACKAGES)
    name = f"{BASE}:{hashlib.sha256(repr((wanted, _DEBIAN, _CHANGES)).encode()).hexdigest()[:12]}"
    if podman.has_image(name):
        return name
    with TemporaryDirectory(dir=STORE, prefix="image-") as folder:
        root = Path(folder) / "root"
        _debian(root)
        _python_packages(root, wanted)
        _user(root)
        _import(podman, root, name)
    return name


def _debian(root: Path) -> None:
    packages = "--include=python3,python3-venv,procps"
    _run(["mmdebstrap", "--variant=minbase", packages, _DEBIAN[0], str(root)])


def _python_packages(root: Path, wanted: tuple[str, ...]) -> None:
    """With this environment's pip, which knows where packages come from here."""
    _run(["chroot", str(root), "/usr/bin/python3", "-m", "venv", f"/{PREFIX}"])
    site = root / PREFIX / "lib" / f"python{_DEBIAN[1]}" / "site-packages"
    platforms = [f"--platform={name}_x86_64" for name in ("manylinux2014", "manylinux_2_28")]
    options = ["--quiet", "--no-compile", "--only-binary=:all:", "--implementation=cp"]
    python = f"--python-version={_DEBIAN[1]}"
    pip = [sys.executable, "-m", "pip", "install", f"--target={site}"]
    _run([*pip, *options, python, *platforms, *wanted])
    for folder in ("bin", "share", "etc"):
        _move_into(site / folder, root / PREFIX / folder)
    for script in (root / PREFIX / "bin").iterdir():
        _lead_to_python(script)


def _move_into(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
    shutil.rmtree(source)


def _lead_to_python(script: Path) -> None:
    if script.is_symlink() or not script.is_file():
        return
    content = script.read_bytes()
    if content.startswith(f"#!{sys.executable}".encode()[:-8]) or b"/python" in content[:200]:
        _, _, rest = content.partition(b"\n")
        script.write_bytes(f"#!/{PREFIX}/bin/python3\n".encode() + rest)


def _user(root: Path) -> None:
    """Who may install packages, as in the images that this one stands for."""
    _run(["chroot", str(root), "useradd", "--uid=1000", "--create-home", "user"])
    _run(["chown", "--recursive", "1000:1000", str(root / PREFIX)])


def _import(podman: Podman, root: Path, name: str) -> None:
    archive = root.with_suffix(".tar")
    _run(["tar", "--create", f"--file={archive}", f"--directory={root}", "--exclude=./dev/*", "."])
    changes = [f"--change={change}" for change in _CHANGES]
    podman("import", *changes, archive, name)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
