"""An environment with the oldest JupyterLab, Jupyter Notebook and JupyterHub that we promise to
work with, and this checkout's wheel."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.packaging.environments import build_wheel_without_panel, clean_env, run
from tests.support.paths import BUILD

OLDER = ["jupyterlab==4.2.*", "notebook==7.2.*", "jupyterhub==5.2.*", "cuda-bindings>=13.0"]


def older_python() -> Path:
    """Its interpreter. It is made once and kept among the build outputs; our wheel is of today."""
    folder = BUILD / "environments" / "older-jupyter"
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists() or ready.read_text() != " ".join(OLDER):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        _install(python, *OLDER)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel_without_panel(Path(scratch))
        if not ready.exists():
            _install(python, str(wheel))  # with what it needs
        _install(python, "--force-reinstall", "--no-deps", str(wheel))
    ready.write_text(" ".join(OLDER))
    return python


def version_of(python: Path, package: str) -> str:
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    return run([python, "-c", ask], cwd=python.parent).strip()


def _install(python: Path, *requirements: str) -> None:
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requirements], check=True, env=clean_env())
