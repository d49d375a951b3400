"""Virtual environments that tests share, below build/environments. Each is made once, by one test
worker while the others wait, and is never changed while another worker may use it."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.packaging.environments import build_wheel_without_panel, clean_env, run
from tests.support.paths import BUILD, ROOT

FOLDER = BUILD / "environments"
SOURCES = ("hook", "jupyter-config", "jupyter_gpushare", "hatch_build.py", "pyproject.toml")
"""What a wheel without the panel is built from."""
BUILT = {"__pycache__", "lib", "labextension"}


def shared_python(name: str, requirements: list[str], *, with_our_wheel: bool = False) -> Path:
    """Its interpreter. The environment is made anew when what belongs in it has changed."""
    folder = FOLDER / name
    python = folder / "bin" / "python"
    wanted = "\n".join([*requirements, _digest_of_sources() if with_our_wheel else ""])
    with _made_once(folder, wanted) as is_there:
        if not is_there:
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            with tempfile.TemporaryDirectory() as scratch:
                wheel = [str(build_wheel_without_panel(Path(scratch)))] if with_our_wheel else []
                _install(python, *requirements, *wheel)
    return python


def shared_packages(name: str, requirements: list[str]) -> Path:
    """A folder with these packages alone, for a PYTHONPATH that has what they need as well. It is
    made in a fraction of the time that an environment takes."""
    folder = FOLDER / name
    with _made_once(folder, "\n".join(requirements)) as is_there:
        if not is_there:
            shutil.rmtree(folder, ignore_errors=True)
            _install(Path(sys.executable), "--no-deps", "--target", str(folder), *requirements)
    return folder


def version_of(python: Path, package: str) -> str:
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    return run([python, "-c", ask], cwd=python.parent).strip()


def _install(python: Path, *arguments: str) -> None:
    options = ["--quiet", "--no-compile", "--disable-pip-version-check"]
    command = [python, "-m", "pip", "install", *options, *arguments]
    subprocess.run(command, check=True, env=clean_env())


@contextmanager
def _made_once(folder: Path, wanted: str) -> Iterator[bool]:
    """Whether it is there as wanted. If not, it is when this ends; others wait meanwhile."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    ready = folder / ".ready"
    with (FOLDER / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_there = ready.exists() and ready.read_text() == wanted
        yield is_there
        if not is_there:
            ready.write_text(wanted)


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for name in SOURCES:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not BUILT.intersection(file.relative_to(ROOT).parts):
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()
