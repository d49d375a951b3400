"""Where things lie in the repository and in its build folder."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
SIM_LIBRARIES = BUILD / "sim"
SIM_DRIVER = SIM_LIBRARIES / "libcuda.so.1"
SIM_NVML = SIM_LIBRARIES / "libnvidia-ml.so.1"
HOOK_LIBRARY = BUILD / "hook" / "libgpushare.so"
HOOK_GENERATED = BUILD / "hook" / "generated"
BUILTINS_PTX = ROOT / "hook" / "sim" / "builtins.ptx"


def hook_source(name: str) -> Path:
    """A source file of the hook, whichever room it is in: names are unique."""
    (found,) = (ROOT / "hook" / "src").glob(f"*/{name}")
    return found
