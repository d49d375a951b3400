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
"""What the notebooks' folder holds at the start."""
DEVICE_BYTES = "2G"
_DESCRIPTION = """Start a JupyterLab whose GPU is simulated, with two example notebooks that share
it. It needs no GPU and leaves nothing behind: its folder is temporary unless you name one.
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
        print(
            "jupyter gpushare try: this GPU is simulated. Run the cells of train.ipynb, then those "
            f"of explore.ipynb. The notebooks lie in {notebooks}. Ctrl-C ends it.",
            file=sys.stderr,
            flush=True,
        )
        command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={notebooks}"]
        # Language servers are looked for in a thread, for seconds, which the server's end awaits.
        extensions = {"jupyter_gpushare": True, "jupyter_lsp": False}
        command += [f"--ServerApp.jpserver_extensions={extensions!r}"]
        command += ["--LabApp.default_url=/lab/tree/train.ipynb", *rest[1:]]
        try:
            return Child(command, env).wait()
        finally:
            _end_scheduler(env)


def trial_environment(base_env: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """A copy of `base_env` in which the driver is the simulated one, with a device and a scheduler
    of its own below `scratch`."""
    env = without_gpushare(base_env)
    for name in ("GPUSHARE_DISABLE", "GPUSHARE_DISABLED_BY", "CUDA_VISIBLE_DEVICES"):
        env.pop(name, None)
    libraries = [str(SIMULATED), *filter(None, [env.get("LD_LIBRARY_PATH")])]
    return {
        **env,
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "GPUSHARE_SIM_DIR": str(scratch / "machine"),
        "GPUSHARE_SIM_DEVICE_BYTES": DEVICE_BYTES,
        "GPUSHARE_RUNTIME_DIR": str(scratch / "run"),
        "GPUSHARE_TRY_PTX": str(SIMULATED / "builtins.ptx"),
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
