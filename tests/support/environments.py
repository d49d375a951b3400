"""Virtual environments that tests share, below build/environments. Each is made once, by one test
worker while the others wait, and is never changed while another worker may use it."""

from __future__ import annotations

import fcntl
import hashlib
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
    python, ready = folder / "bin" / "python", folder / ".ready"
    wanted = "\n".join([*requirements, _digest_of_sources() if with_our_wheel else ""])
    with _one_at_a_time(name):
        if not ready.exists() or ready.read_text() != wanted:
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            with tempfile.TemporaryDirectory() as scratch:
                wheel = [str(build_wheel_without_panel(Path(scratch)))] if with_our_wheel else []
                options = ["--quiet", "--no-compile", "--disable-pip-version-check"]
                pip = [python, "-m", "pip", "install", *options]
                subprocess.run([*pip, *requirements, *wheel], check=True, env=clean_env())
            ready.write_text(wanted)
    return python


def version_of(python: Path, package: str) -> str:
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    return run([python, "-c", ask], cwd=python.parent).strip()


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for name in SOURCES:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not BUILT.intersection(file.relative_to(ROOT).parts):
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()
