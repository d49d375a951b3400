"""The environment that makes a process a tenant. Pure functions over mappings.

Everything that starts a tenant (the kernel provisioner, `jupyter gpushare run`) adds it with
`tenant_environment`; everything that must not be one (the scheduler) is started with
`without_gpushare`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from jupyter_gpushare.client.paths import LIBRARY as LIBRARY
from jupyter_gpushare.client.paths import LIBRARY_NAME as LIBRARY_NAME
from jupyter_gpushare.client.paths import PACKAGED_LIBRARY

SHIM_DIR = Path(__file__).parent / "shim"
"""The only thing that is put on a kernel's PYTHONPATH: a folder with the bootstrap and no more."""
SHIM_MODULE = "gpushare_bootstrap"

PRELOAD = "LD_PRELOAD"
SOCKET = "GPUSHARE_SOCKET"
TOKEN = "GPUSHARE_TOKEN"
NOTICE = "GPUSHARE_NOTICE"
"""One line that the bootstrap shows at the first cell; the bootstrap takes it away at once."""
SERVER_PYTHON = "GPUSHARE_SERVER_PYTHON"
"""The interpreter that has this package, which the kernel's own may not have."""
DISABLE = "GPUSHARE_DISABLE"
"""With 1, a process and those that it starts do not share the GPU."""
DISABLED_BY = "GPUSHARE_DISABLED_BY"
"""Who has set DISABLE, where it is not the user: `administrator`, or `slurm` for a job with whole
GPUs (deploy/slurm/task_prolog.sh)."""
NEED, NEED_DEVICES = "GPUSHARE_NEED", "GPUSHARE_NEED_DEVICES"
"""What has to be free on the devices of a tenant, such as 20GiB, and on how many devices. It is
placed then before it opens CUDA."""
CLASS = "GPUSHARE_CLASS"
"""When a tenant is to be served: realtime, interactive or batch."""
MAY_LEAVE = "GPUSHARE_MAY_LEAVE"
"""With 1, `%gpushare off` may take a kernel out of the sharing at its next restart."""
LEAVE_FILE = "GPUSHARE_LEAVE_FILE"
"""While there is a file of this name, the kernel's next start does not share the GPU."""
PLACEMENT = "GPUSHARE_PLACEMENT"
"""Where the tenant was placed, or why not: for `%gpushare`."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
PYTHONPATH = "PYTHONPATH"
DEFAULT_PROVISIONER = "JUPYTER_DEFAULT_PROVISIONER_NAME"
"""Jupyter's variable. Inherited by an environment that does not have our entry point, it hides
every kernelspec there, so no kernel gets it."""

FRAMEWORK_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        # JAX and TensorFlow take most of a device when they start, which others would have to make
        # room for at every turn.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        # NCCL hangs where memory that it registered with a graph has been mapped anew.
        "NCCL_GRAPH_REGISTER": "0",
    }
)
"""Under which frameworks live well with memory that follows the turn. What a user has set stays."""

_WISH_MAX = 100
_PRELOAD_SEPARATORS = re.compile(r"[ :]+")


def why_switched_off(environ: Mapping[str, str]) -> str:
    """A sentence for people; empty where sharing is not switched off."""
    if environ.get(DISABLE) != "1":
        return ""
    if environ.get(DISABLED_BY) == "administrator":
        return "Your administrator has switched GPU sharing off."
    if environ.get(DISABLED_BY) == "slurm":
        return "This Slurm job has whole GPUs, which it shares with nobody."
    return f"GPU sharing is switched off here ({DISABLE}=1)."


def why_left(environ: Mapping[str, str], leave_file: str) -> str:
    """A sentence for people; empty where the kernel has not left, or may not."""
    if environ.get(MAY_LEAVE) != "1" or not leave_file or not os.path.exists(leave_file):  # noqa: PTH110 - Path.exists raises where a folder is closed
        return ""
    return "It has left GPU sharing by `%gpushare off`; `%gpushare on` and a restart bring it back."


def wish_of(environ: Mapping[str, str], metadata: object = None) -> dict[str, str]:
    """What a tenant says of its needs and its class, for its registration; empty where it says
    nothing.

    `metadata` is a kernelspec's entry `gpushare`, such as `{"need": "20GiB", "class": "batch"}`,
    and goes before the environment. Whoever has chosen devices already keeps them."""
    entry = metadata if isinstance(metadata, Mapping) else {"need": metadata} if metadata else {}
    said = {"class": entry.get("class", environ.get(CLASS))}
    if VISIBLE not in environ:
        said["need"] = entry.get("need", environ.get(NEED))
        said["need_devices"] = entry.get("devices", environ.get(NEED_DEVICES))
    texts = {name: "" if each is None else str(each) for name, each in said.items()}
    return {name: text[:_WISH_MAX] for name, text in texts.items() if text}


class LibraryMissing(Exception):
    """There is no usable libgpushare.so; the message says why, and what to do."""


def library_path(environ: Mapping[str, str] | None = None) -> Path:
    """The hook's library: GPUSHARE_LIBRARY, else the one shipped with this package.

    Raises LibraryMissing where preloading it could only make the dynamic loader complain on every
    start of a program.
    """
    chosen = (os.environ if environ is None else environ).get(LIBRARY)
    path = Path(chosen).absolute() if chosen else PACKAGED_LIBRARY
    if chosen:
        remedy = f"Correct {LIBRARY}, or remove it to use the packaged library."
    else:
        remedy = "Reinstall jupyter-gpushare from a wheel for this platform, or run `make build`."
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises where a folder is closed
        raise LibraryMissing(f"The library {path} does not exist. {remedy}")
    if not os.access(path, os.R_OK):
        raise LibraryMissing(f"The library {path} cannot be read by this user. {remedy}")
    if _PRELOAD_SEPARATORS.search(str(path)):
        raise LibraryMissing(
            f"The library's path {path} contains a space or a colon, which {PRELOAD} cannot name. "
            f"Copy it elsewhere and name the copy in {LIBRARY}."
        )
    return path


def tenant_environment(
    base_env: Mapping[str, str],
    *,
    socket: str | os.PathLike[str],
    token: str,
    library: str | os.PathLike[str],
    visible_devices: str = "",
    placement: str = "",
) -> dict[str, str]:
    """A copy of `base_env` for a process that is to be a tenant. Applying it twice changes nothing.

    The hook goes behind what the user preloads, and another copy of it is dropped: two hooks in
    one process would each wait for the other's turn. Frameworks are told not to take memory that
    they do not use (`FRAMEWORK_SETTINGS`), unless the user has told them otherwise.
    `visible_devices` are those that it was placed on, and `placement` says so to its user.
    """
    env = without_gpushare(base_env)
    env[PRELOAD] = ":".join([*_preloads(env, without=os.fspath(library)), os.fspath(library)])
    env[SOCKET] = os.fspath(socket)
    env[TOKEN] = token
    _set_or_drop(env, PLACEMENT, placement)
    if visible_devices:
        env[VISIBLE] = visible_devices
    return {**FRAMEWORK_SETTINGS, **env}


def python_environment(base_env: Mapping[str, str], *, notice: str = "") -> dict[str, str]:
    """A copy of `base_env` in which Python finds the bootstrap: the shim folder first.

    `notice` is shown in the notebook at the first cell. The user's PYTHONPATH keeps its meaning,
    an empty part of it (the current directory) included.
    """
    env = dict(base_env)
    own = _python_paths(env)
    env[PYTHONPATH] = os.pathsep.join([str(SHIM_DIR), *own])
    env[SERVER_PYTHON] = sys.executable
    env.pop(NOTICE, None)
    if notice:
        env[NOTICE] = notice
    return env


def without_gpushare(env: Mapping[str, str]) -> dict[str, str]:
    """A copy of `env` without what makes a process a tenant, and without Jupyter's default
    provisioner. What a person sets (GPUSHARE_LOG, GPUSHARE_LIBRARY, …) stays, and so does what
    frameworks were told."""
    cleaned = dict(env)
    ours = (SOCKET, TOKEN, NOTICE, PLACEMENT, LEAVE_FILE, SERVER_PYTHON, DEFAULT_PROVISIONER)
    for name in ours:
        cleaned.pop(name, None)
    _set_or_drop(cleaned, PRELOAD, ":".join(_preloads(env, without=env.get(LIBRARY, ""))))
    _set_or_drop(cleaned, PYTHONPATH, os.pathsep.join(_python_paths(env)))
    return cleaned


def _preloads(env: Mapping[str, str], *, without: str) -> list[str]:
    """What is preloaded besides the hook, in its order."""
    entries = _PRELOAD_SEPARATORS.split(env.get(PRELOAD, ""))
    return [e for e in entries if e and e != without and Path(e).name != LIBRARY_NAME]


def _python_paths(env: Mapping[str, str]) -> list[str]:
    """The entries of PYTHONPATH besides the shim folder; none where the variable is empty."""
    value = env.get(PYTHONPATH, "")
    return [entry for entry in value.split(os.pathsep) if entry != str(SHIM_DIR)] if value else []


def _set_or_drop(env: dict[str, str], name: str, value: str) -> None:
    if value:
        env[name] = value
    else:
        env.pop(name, None)
