"""A kernel of another language, for all that Jupyter can see: it knows nothing of our bootstrap.

A cell is the path of a file: it runs until the file exists. Started with a connection file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel


class OtherLanguageKernel(Kernel):
    implementation = "other"
    implementation_version = "1"
    language_info = {"name": "other", "mimetype": "text/plain", "file_extension": ".other"}  # noqa: RUF012
    banner = "another language"

    async def do_execute(self, code: str, *_: Any, **__: Any) -> dict[str, Any]:
        while code and not Path(code).exists():
            time.sleep(0.01)
        return {"status": "ok", "execution_count": 1, "payload": [], "user_expressions": {}}


if __name__ == "__main__":
    IPKernelApp.launch_instance([f"--f={sys.argv[1]}"], kernel_class=OtherLanguageKernel)
