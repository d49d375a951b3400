"""Builds the C library and the panel with the package: hatchling's hook.

- A wheel gets the hook and the simulated GPU, built for it, from nothing, outside the tree. An
  editable install shares `build/` and `jupyter_gpushare/lib/` with `make build`, so that neither
  builds them again.
- The panel and the script of the view's page are built in the tree, where they are out of date
  (labextension/build.py). An sdist carries them, so that a wheel from an sdist needs a C compiler
  and no Node.
- `GPUSHARE_BUILD_PANEL=no` leaves both out, and what they need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY_NAME = "libgpushare.so"
LIBRARY_IN_PACKAGE = f"jupyter_gpushare/lib/{LIBRARY_NAME}"
SIMULATED_IN_PACKAGE = "jupyter_gpushare/lib/simulated"
"""What `jupyter gpushare try` runs on."""
PANEL = "jupyter_gpushare/labextension"
VIEW_SCRIPT = "jupyter_gpushare/view/static/page.js"
PANEL_BUILDER = "labextension/build.py"
PANEL_INSTALLED = "share/jupyter/labextensions/@jupyter-gpushare/labextension"
PANEL_OPTION = "GPUSHARE_BUILD_PANEL"
PACKAGES = {"cc": "gcc libc6-dev", "make": "make"}
"""What the build needs besides Python, and the packages of Debian and Ubuntu that have it."""


class CannotBuild(Exception):
    """One sentence on what is wrong and one on what to do."""


class BuildHook(BuildHookInterface[Any]):
    """Called by hatchling around each sdist and each wheel, real or editable (pyproject.toml)."""

    def dependencies(self) -> list[str]:
        """Node is asked for only where there is something to build with it."""
        return panel_requirements(Path(self.root)) if panel_is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if self.target_name == "wheel":
            check_tools()  # before minutes are spent on the panel
        if panel_is_wanted():
            build_panel(root)
            build_data["artifacts"].append(f"/{VIEW_SCRIPT}")
            if self.target_name == "wheel":
                build_data["shared_data"].update(panel_data_files(root))
            else:
                build_data["artifacts"].append(f"/{PANEL}")
        if self.target_name == "wheel":
            self._add_library(root, version, build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.target_name == "wheel" and version != "editable":
            self._scratch.cleanup()

    def _add_library(self, root: Path, version: str, build_data: dict[str, Any]) -> None:
        # The library uses no CPython ABI: one wheel a platform serves every Python.
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"
        if version == "editable":
            for built, place in build_libraries(root, root / "build").items():
                install(built, root / place)
        else:
            self._scratch = tempfile.TemporaryDirectory(prefix="gpushare-wheel-")
            libraries = build_libraries(root, Path(self._scratch.name), for_release=True)
            for built, place in libraries.items():
                build_data["force_include"][str(built)] = place


def panel_is_wanted() -> bool:
    return os.environ.get(PANEL_OPTION, "yes") != "no"


def panel_requirements(root: Path) -> list[str]:
    asked = [sys.executable, str(root / PANEL_BUILDER), "--requirements"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()


def build_panel(root: Path) -> None:
    if subprocess.run([sys.executable, str(root / PANEL_BUILDER)]).returncode != 0:
        raise CannotBuild(
            "The panel for JupyterLab is missing; the lines above say why. "
            f"Mend that, or set {PANEL_OPTION}=no to go without it."
        )


def panel_data_files(root: Path) -> dict[str, str]:
    """Where the panel's files go below the environment's prefix."""
    sources = {
        "install.json": root / "labextension" / "install.json",
        "package.json": root / PANEL / "package.json",
        "schemas": root / PANEL / "schemas",
        "static": root / PANEL / "static",
    }
    return {str(source): f"{PANEL_INSTALLED}/{name}" for name, source in sources.items()}


def platform_tag() -> str:
    """The platform in a wheel's name: plain Linux. A release renames it to the manylinux that the
    library was checked against."""
    if sys.platform != "linux":
        raise CannotBuild(
            f"jupyter-gpushare shares GPUs on Linux alone, and this is {sys.platform}. "
            "Install it where the kernels run."
        )
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def build_libraries(root: Path, build: Path, *, for_release: bool = False) -> dict[Path, str]:
    """Make the hook's library and the simulated GPU below `build`; where each lies then, and where
    the package has it."""
    include = find_headers(root)
    for folder in ("hook", "hook/sim"):
        make(root, folder, build, include, for_release=for_release)
    simulated = [*sorted((build / "sim").glob("lib*.so.1")), root / "hook/sim/builtins.ptx"]
    return {
        build / "hook" / LIBRARY_NAME: LIBRARY_IN_PACKAGE,
        **{file: f"{SIMULATED_IN_PACKAGE}/{file.name}" for file in simulated},
    }


def make(root: Path, folder: str, build: Path, include: Path, *, for_release: bool) -> None:
    command = [
        "make",
        "--no-print-directory",
        f"--jobs={len(os.sched_getaffinity(0))}",
        f"--directory={root / folder}",
        f"PYTHON={sys.executable}",
        f"BUILD={build}",
        f"INCLUDE={include}",
    ]
    if for_release:
        command.append(f"EXTRA_CFLAGS={' '.join(release_flags(root, build, include))}")
    # An outer make's flags name descriptors that are not open here.
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    made = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        sys.stderr.buffer.write(made.stdout)
        raise CannotBuild(
            f"The C library could not be built (make ended with {made.returncode}). "
            "The compiler's lines above say where; report them with the compiler's version."
        )


def release_flags(root: Path, build: Path, include: Path) -> list[str]:
    """No path of the machine it was built on stays in the library, debug information included; and
    a warning that only a later compiler knows keeps nobody from installing."""
    # The compiler takes the last prefix that fits.
    prefixes = {root: ".", build: "build", include: "include"}
    return ["-Wno-error", *(f"-ffile-prefix-map={old}={new}" for old, new in prefixes.items())]


def check_tools() -> None:
    """Say in a sentence what missing programs would say in many, of all at once."""
    compiler = os.environ.get("CC", "cc").split()[0]
    needed = {compiler: PACKAGES["cc"], "make": PACKAGES["make"]}
    missing = [program for program in needed if shutil.which(program) is None]
    if missing:
        packages = " ".join(needed[program] for program in missing)
        raise CannotBuild(
            f"Building the C library needs what is not there: {', '.join(missing)}. "
            f"Run `apt-get install {packages}`, or install a wheel that was built for this "
            "platform."
        )


def find_headers(root: Path) -> Path:
    """The folder of cuda.h and nvml.h, which the build requirements bring."""
    finder = root / "hook" / "spec" / "find_headers.py"
    found = subprocess.run([sys.executable, str(finder)], capture_output=True, text=True)
    if found.returncode != 0:
        raise CannotBuild(found.stderr.strip())
    return Path(found.stdout.strip())


def install(built: Path, target: Path) -> None:
    """Put a library where the package looks for it. Processes that have the old one mapped keep
    it: the file is replaced, never written into."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.new")
    shutil.copy2(built, fresh)
    fresh.replace(target)
