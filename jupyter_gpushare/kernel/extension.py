"""`%load_ext jupyter_gpushare`, for shells that the provisioner did not start."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

from .environment import SHIM_DIR, SHIM_MODULE


def load(shell: Any) -> None:
    """What the kernel's own start does: the magics, and reports of cells where the hook is.

    A bootstrap that is there already is used again, so that no cell is reported twice."""
    bootstrap = sys.modules.get(SHIM_MODULE) or _loaded()
    bootstrap.load_ipython_extension(shell)


def unload(shell: Any) -> None:
    """For `%unload_ext`."""
    if bootstrap := sys.modules.get(SHIM_MODULE):
        bootstrap.unload_ipython_extension(shell)


def _loaded() -> ModuleType:
    path = SHIM_DIR / f"{SHIM_MODULE}.py"
    spec = importlib.util.spec_from_file_location(SHIM_MODULE, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[SHIM_MODULE] = module
    spec.loader.exec_module(module)
    return module
