"""Stands for NVIDIA's container runtime, which containerd calls in runc's place: a container with
NVIDIA_VISIBLE_DEVICES gets the driver's libraries and the device, here the simulated one."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.paths import ROOT, SIM_LIBRARIES

_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_WHERE = "/usr/lib/x86_64-linux-gnu"
_MACHINE = "/opt/machine"
_SCRIPT = """#!{python} -IS
import json, os, sys

def add_gpu(process):
    env = process.get("env", [])
    names = dict(each.partition("=")[::2] for each in env)
    if names.get("NVIDIA_VISIBLE_DEVICES", "void") in ("", "void"):
        return False
    env.append("GPUSHARE_SIM_DIR={machine}")
    return True

def edit(path, change):
    with open(path) as file:
        content = json.load(file)
    change(content)
    with open(path, "w") as file:
        json.dump(content, file)

def change(spec):
    if add_gpu(spec["process"]):
        spec["mounts"] += {mounts!r}

arguments = sys.argv[1:]
if "create" in arguments:
    edit(os.path.join(arguments[arguments.index("--bundle") + 1], "config.json"), change)
elif "exec" in arguments:
    edit(arguments[arguments.index("--process") + 1], add_gpu)
os.execv({runc!r}, ["runc", *arguments])
"""


def write_runtime(path: Path, machine: Path) -> None:
    """The program itself, which gives out the device of this simulated machine."""
    read_only = {f"{_WHERE}/{name}": SIM_LIBRARIES / name for name in _LIBRARIES}
    # Cells of the tests read the simulated driver's own kernels where this checkout has them.
    mounts = [
        *(_bind(inside, source, "ro") for inside, source in read_only.items()),
        _bind(str(ROOT / "hook" / "sim"), ROOT / "hook" / "sim", "ro"),
        _bind(_MACHINE, machine, "rw"),
    ]
    runc = shutil.which("runc")
    assert runc is not None
    path.write_text(
        _SCRIPT.format(python=sys.executable, machine=_MACHINE, mounts=mounts, runc=runc)
    )
    path.chmod(0o755)


def _bind(inside: str, source: Path, mode: str) -> dict[str, object]:
    options = ["rbind", "rprivate", mode]
    return {"destination": inside, "type": "bind", "source": str(source), "options": options}
