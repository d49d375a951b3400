"""A notebook whose framework keeps 4 GiB in its cache at the end of each cell, beside 512 MiB that
it uses: the bootstrap tells the hook of its cells, as in a kernel.

usage: cached_cells torch|cupy on|off CELLS (`%gpushare trim`)"""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from jupyter_gpushare.kernel.environment import SHIM_DIR, SHIM_MODULE
from tests.gpu.workloads.report import digest, report

BEGIN = {
    "torch": "import torch\nkept = torch.arange(128 << 20, dtype=torch.int32, device='cuda')",
    "cupy": "import cupy\nkept = cupy.arange(128 << 20, dtype=cupy.int32)",
}
CELL = """
parts = [kept[: 64 << 20] * (number + {cell}) for number in range(16)]
total = (total * 31 + sum(int(part.sum()) for part in parts)) % 2**61
del parts
"""
UNUSED = {
    "torch": "torch.cuda.memory_reserved() - torch.cuda.memory_allocated()",
    "cupy": "cupy.get_default_memory_pool().free_bytes()",
}
HOST = {"torch": "kept.cpu().numpy()", "cupy": "cupy.asnumpy(kept)"}


class Notebook:
    """What IPython does around a cell. Without the hook in the process (an unshared run) nobody
    is told."""

    def __init__(self, bootstrap: Any) -> None:
        self.names: dict[str, Any] = {}
        hook = bootstrap._find_hook()
        shell = SimpleNamespace(showtraceback=None)
        self._reporter = bootstrap.CellReporter(hook, shell) if hook is not None else None

    def run(self, code: str) -> None:
        result = SimpleNamespace(info=SimpleNamespace(raw_cell=code))
        if self._reporter is not None:
            self._reporter.pre_run_cell(result.info)
        exec(code, self.names)
        if self._reporter is not None:
            self._reporter.post_run_cell(result)


if __name__ == "__main__":
    framework, trim, cells = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.path.insert(0, str(SHIM_DIR))
    bootstrap = import_module(SHIM_MODULE)
    notebook = Notebook(bootstrap)
    caches = bootstrap._magics().CACHES
    caches.is_on = trim == "on"
    notebook.run(f"{BEGIN[framework]}\ntotal = 0")
    unused_bytes = []
    for cell in range(cells):
        notebook.run(CELL.format(cell=cell))
        unused_bytes.append(int(eval(UNUSED[framework], notebook.names)))
    notebook.run(f"on_host = {HOST[framework]}")
    report(
        workload="cached_cells",
        digest=digest(notebook.names["on_host"], memoryview(str(notebook.names["total"]).encode())),
        unused_bytes=unused_bytes,
        given_bytes=sum(caches.given.values()),
        problem=caches.problem,
    )
