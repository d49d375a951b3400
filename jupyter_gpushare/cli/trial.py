"""`jupyter gpushare try`: JupyterLab on a simulated GPU, to see turns, queue and panel anywhere."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpushare.client import ClientError, SchedulerClient, http_socket_path
from jupyter_gpushare.client.paths import SOCKET_PATH_BYTES_MAX
from jupyter_gpushare.kernel.environment import without_gpushare

from .child import Child
from .errors import UsageError

_PACKAGE = Path(__file__).resolve().parent.parent
SIMULATED = _PACKAGE / "lib" / "simulated"
"""The simulated driver's libraries and the built-in kernels, which the wheel carries."""
FILES = _PACKAGE / "trial"
"""What the notebooks' folder holds at the start; below `lab`, JupyterLab's settings and layout."""
MACHINE = {"GPUSHARE_SIM_DEVICE_BYTES": "64M", "GPUSHARE_SIM_CONTEXT_BYTES": "4M"}
"""So small that all of it moves within a moment on two slow cores. The notebooks name the size."""
OWN_PLACES = {
    "JUPYTERLAB_WORKSPACES_DIR": "lab/workspaces",
    "JUPYTERLAB_SETTINGS_DIR": "lab/settings",
    "JUPYTER_CONFIG_DIR": "jupyter/config",
    "JUPYTER_DATA_DIR": "jupyter/data",
    "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
    "IPYTHONDIR": "ipython",
}
"""Where Jupyter and IPython would write into a user's home otherwise. Jupyter finds extensions and
kernels of its environment without these folders."""
_ENDS_S = 30.0
"""After a SIGTERM. JupyterLab has shut its kernels down by then; a thread of a library, which waits
for work that nobody gives it, may keep the process for ever."""
_DESCRIPTION = """Start a JupyterLab whose GPU is simulated, with two example notebooks that share
it. It needs no GPU and leaves nothing behind: its folder is temporary unless you name one. It
neither reads nor changes the settings and layout of your own JupyterLab.
Arguments after `--` go to JupyterLab, such as `-- --no-browser --port=9999`."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "try",
        help="see it work without a GPU: a JupyterLab on a simulated one",
        description=_DESCRIPTION,
        usage="jupyter gpushare try [--directory DIR] [-- JUPYTERLAB_ARGUMENT ...]",
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        type=Path,
        help="keep the notebooks there (default: a temporary folder)",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    rest: list[str] = arguments.arguments
    if rest and rest[0] != "--":
        raise UsageError(f"`try` knows no {rest[0]!r}. Write JupyterLab's arguments after `--`.")
    _check_parts()
    with tempfile.TemporaryDirectory(prefix="gpushare-try-") as scratch:
        env = trial_environment(os.environ, Path(scratch))
        _check_length(http_socket_path(env))
        notebooks: Path = (arguments.directory or Path(scratch) / "notebooks").absolute()
        _lay_out(notebooks)
        _lay_out_lab(Path(scratch) / "lab")
        print(
            "jupyter gpushare try: this GPU is simulated. Two notebooks open side by side. Run the "
            "cells of train.ipynb, then those of explore.ipynb. The notebooks lie in "
            f"{notebooks}. Ctrl-C ends it.",
            file=sys.stderr,
            flush=True,
        )
        command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={notebooks}"]
        # Language servers are looked for in a thread, for seconds, which the server's end awaits.
        extensions = {"jupyter_gpushare": True, "jupyter_lsp": False}
        command += [f"--ServerApp.jpserver_extensions={extensions!r}"]
        try:
            return Child([*command, *rest[1:]], env).wait(ends_s=_ENDS_S)
        finally:
            _end_scheduler(env)


def trial_environment(base_env: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """A copy of `base_env` in which the driver is the simulated one, with a device and a scheduler
    of its own below `scratch`, and what Jupyter and IPython keep lies there too."""
    env = without_gpushare(base_env)
    for name in ("GPUSHARE_DISABLE", "GPUSHARE_DISABLED_BY", "CUDA_VISIBLE_DEVICES"):
        env.pop(name, None)
    libraries = [str(SIMULATED), *filter(None, [env.get("LD_LIBRARY_PATH")])]
    return {
        **env,
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "GPUSHARE_SIM_DIR": str(scratch / "machine"),
        "GPUSHARE_RUNTIME_DIR": str(scratch / "run"),
        "GPUSHARE_TRY_PTX": str(SIMULATED / "builtins.ptx"),
        **MACHINE,
        **{name: str(scratch / place) for name, place in OWN_PLACES.items()},
    }


def _end_scheduler(env: Mapping[str, str]) -> None:
    """The one that the server started. It would wait for other servers, and nobody finds it."""
    with contextlib.suppress(ClientError):
        SchedulerClient(http_socket_path(env)).shut_down()


def _check_parts() -> None:
    if not (SIMULATED / "libcuda.so.1").is_file():
        raise UsageError(
            "This installation has no simulated GPU. Reinstall jupyter-gpushare from a wheel for "
            "this platform, or run `make build` in a checkout."
        )
    for module, package in (("jupyterlab", "jupyterlab"), ("ipykernel", "ipykernel")):
        if importlib.util.find_spec(module) is None:
            raise UsageError(
                f"{package} is not installed in this environment. Install it: "
                f"{sys.executable} -m pip install {package}"
            )


def _check_length(socket_path: Path) -> None:
    """The scheduler would not start, and the panel alone would say so."""
    if len(os.fsencode(socket_path)) > SOCKET_PATH_BYTES_MAX:
        raise UsageError(
            f"The path {socket_path} is too long for a socket. Name a shorter folder for temporary "
            "files: TMPDIR=/tmp jupyter gpushare try"
        )


def _lay_out(notebooks: Path) -> None:
    """The examples, beside what is there already: a notebook that somebody has changed stays."""
    try:
        notebooks.mkdir(parents=True, exist_ok=True)
        for source in sorted(FILES.iterdir()):
            if source.suffix in (".py", ".ipynb") and not (notebooks / source.name).exists():
                shutil.copyfile(source, notebooks / source.name)
    except OSError as error:
        raise UsageError(
            f"The notebooks cannot be written to {notebooks}: {error.strerror}. Name another "
            "folder with --directory."
        ) from error


def _lay_out_lab(folder: Path) -> None:
    """The layout: both notebooks side by side, the panel open. And the settings."""
    try:
        shutil.copytree(FILES / "lab", folder)
    except OSError as error:
        raise UsageError(
            f"JupyterLab's layout cannot be written to {folder}: {error}. Name another folder for "
            "temporary files: TMPDIR=/tmp jupyter gpushare try"
        ) from error
