"""Many Jupyter notebooks share a GPU as if each had it alone."""

from __future__ import annotations

from typing import Any

from .version import __version__ as __version__


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Asked by Jupyter servers; nobody else has to have one installed."""
    from .server.app import GPUShareExtension

    return [{"module": "jupyter_gpushare", "app": GPUShareExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Asked by `jupyter-builder develop`, which links the built panel into JupyterLab. A wheel has
    it as a data file (hatch_build.py)."""
    return [{"src": "labextension", "dest": "@jupyter-gpushare/labextension"}]


def load_ipython_extension(shell: object) -> None:
    """`%load_ext jupyter_gpushare`. Imported here, so that the package itself stays light."""
    from .kernel.extension import load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """`%unload_ext jupyter_gpushare`."""
    from .kernel.extension import unload

    unload(shell)
