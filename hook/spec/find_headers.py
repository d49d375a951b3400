"""Prints the folder of cuda.h and nvml.h that this interpreter's packages brought."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> int:
    try:
        package = find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        package = None
    for root in (package.submodule_search_locations or ()) if package else ():
        include = Path(root) / "include"
        if (include / "cuda.h").exists() and (include / "nvml.h").exists():
            print(include)
            return 0
    print(
        "The CUDA headers are missing. Install the package's `build` extra for this Python.",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
