"""Virtual environments that tests share, below build/environments. Each is made once, by one test
worker while the others wait, and is never changed while another worker may use it."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.packaging.environments import build_wheel_without_panel, clean_env, only, run
from tests.support.paths import BUILD, ROOT

FOLDER = BUILD / "environments"
SOURCES = (
    *("deploy", "hook", "jupyter-config", "jupyter_gpushare", "hatch_build.py", "pyproject.toml"),
    *("LICENSE", "README.md"),
)
"""What a wheel without the panel is built from."""
BUILT = {"__pycache__", "lib", "labextension"}


def shared_python(name: str, requirements: list[str], *, with_our_wheel: bool = False) -> Path:
    """Its interpreter. The environment is made anew when the requirements are others; another
    wheel of ours replaces the one in it."""
    folder = FOLDER / name
    python = folder / "bin" / "python"
    with made_once(folder, "\n".join(requirements)) as is_there:
        if not is_there:
            make = [sys.executable, "-m", "venv", "--clear", "--without-pip", folder]
            subprocess.run(make, check=True)
            _install_into(python, *requirements)
    if with_our_wheel:
        wheel = shared_wheel()
        with made_once(folder, _digest_of_sources(), ready=".ours") as is_there:
            if not is_there:
                _install_into(python, "--no-deps", "--force-reinstall", str(wheel))
                _install_into(python, str(wheel))  # what it needs
    return python


def shared_wheel() -> Path:
    """Of this checkout, without the panel."""
    folder = FOLDER / "wheel"
    with made_once(folder, _digest_of_sources()) as is_there:
        if not is_there:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build_wheel_without_panel(folder)
    return only(folder, "*.whl")


def shared_packages(name: str, requirements: list[str]) -> Path:
    """A folder with these packages alone, for a PYTHONPATH that has what they need as well. It is
    made in a fraction of the time that an environment takes."""
    folder = FOLDER / name
    with made_once(folder, "\n".join(requirements)) as is_there:
        if not is_there:
            shutil.rmtree(folder, ignore_errors=True)
            _install("--no-deps", "--target", str(folder), *requirements)
    return folder


def version_of(python: Path, package: str) -> str:
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    return run([python, "-c", ask], cwd=python.parent).strip()


def _install_into(python: Path, *arguments: str) -> None:
    _pip("--python", str(python), "install", *arguments)


def _install(*arguments: str) -> None:
    _pip("install", *arguments)


def _pip(*arguments: str) -> None:
    """This environment's: a new one takes a third of the time."""
    options = ["--quiet", "--no-compile", "--disable-pip-version-check"]
    at = arguments.index("install") + 1
    command = [sys.executable, "-m", "pip", *arguments[:at], *options, *arguments[at:]]
    subprocess.run(command, check=True, env=clean_env())


@contextmanager
def made_once(folder: Path, wanted: str, ready: str = ".ready") -> Iterator[bool]:
    """Whether it is there as wanted. If not, it is when this ends; others wait meanwhile."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    note = folder / ready
    with (FOLDER / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_there = note.exists() and note.read_text() == wanted
        yield is_there
        if not is_there:
            note.write_text(wanted)


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for name in SOURCES:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not BUILT.intersection(file.relative_to(ROOT).parts):
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()
