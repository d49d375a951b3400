"""An environment with the oldest JupyterLab, Jupyter Notebook and JupyterHub that we promise to
work with, and this checkout's wheel."""

from __future__ import annotations

from pathlib import Path

from tests.support.environments import shared_python

OLDER = ["jupyterlab==4.2.*", "notebook==7.2.*", "jupyterhub==5.2.*", "cuda-bindings>=13.0"]


def older_python() -> Path:
    return shared_python("older-jupyter", OLDER, with_our_wheel=True)
