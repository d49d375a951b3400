"""PyTorch in a process and in a child that it starts: one tenant, both on the GPU at once."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.gpu.workloads.report import report, steps_from_argv
from tests.gpu.workloads.torch_eager import train

if __name__ == "__main__":
    steps = steps_from_argv(800)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.gpu.workloads.torch_eager", str(steps)],
        stdout=subprocess.PIPE,
        text=True,
    )
    own = train(steps)
    output, _ = child.communicate(timeout=300)
    theirs = json.loads(output.strip().splitlines()[-1])["digest"]
    report(workload="torch_children", steps=steps, digest=own + theirs, equal=own == theirs)
