"""What is in a wheel, and what is said where none can be built. Nothing is downloaded."""

from __future__ import annotations

import ast
import email
import json
import os
import re
import runpy
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import trove_classifiers

import jupyter_gpushare
from tests.packaging.environments import (
    LIBRARY_IN_WHEEL,
    PYTHON_OLDEST,
    SERVER_CONFIG_IN_PREFIX,
    paths_of_the_machine,
)
from tests.support.environments import shared_wheel
from tests.support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture(scope="module")
def wheel() -> Path:
    return shared_wheel()


def tracked(*patterns: str) -> set[str]:
    """What git has of these: a file that somebody just began is no part of the promise."""
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {line for line in listed.stdout.splitlines() if (ROOT / line).exists()}


@pytest.mark.full
@pytest.mark.promise(
    "packaging-10",
    "One wheel for a platform has the package, the library and the panel, for every Python",
)
def test_wheel_holds_the_package_and_the_library(wheel: Path) -> None:
    """The whole package, the hook and the simulated GPU are in the wheel; no sources of C, tests or
    left-overs."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    files = {name for name in names if not name.startswith(f"{info}/")}
    assert tracked("jupyter_gpushare") | {LIBRARY_IN_WHEEL} <= files
    simulated = {name for name in files if name.startswith("jupyter_gpushare/lib/simulated/")}
    names_of_it = {"builtins.ptx", "libcuda.so.1", "libnvidia-ml.so.1"}
    assert {Path(name).name for name in simulated} == names_of_it
    assert {f"{info}/entry_points.txt", f"{info}/licenses/LICENSE"} <= names
    data = f"{info.removesuffix('.dist-info')}.data/data"
    deploy = {
        name.replace("deploy/", f"{data}/share/jupyter-gpushare/") for name in tracked("deploy")
    }
    others = {name for name in files if not name.startswith("jupyter_gpushare/")}
    assert others == {f"{data}/{SERVER_CONFIG_IN_PREFIX}", *deploy}
    assert not {name for name in files if name.endswith((".c", ".h", ".o", ".pyc", ".new"))}
    assert {name for name in files if name.endswith(".so")} == {LIBRARY_IN_WHEEL}
    assert not {name for name in files if name.endswith(".js")}  # of the panel and the page


@pytest.mark.full
@pytest.mark.promise("packaging-10")
def test_one_wheel_serves_every_python(wheel: Path) -> None:
    """The tag names the platform and no CPython: the library uses nothing of it."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/WHEEL"))
        text = archive.read(name).decode()
    assert f"Tag: py3-none-{platform}\n" in text
    assert "Root-Is-Purelib: false\n" in text


@pytest.mark.full
@pytest.mark.promise("packaging-6")
def test_wheel_names_no_path_of_this_machine(wheel: Path) -> None:
    """Neither the checkout nor a folder of the build is named in any file, debug information
    included."""
    forbidden = paths_of_the_machine(wheel.parent)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            assert not [path for path in forbidden if path in content], name


@pytest.mark.promise("packaging-11", "If the package cannot be built, a sentence says what to do")
def test_build_without_a_compiler_says_what_to_do(tmp_path: Path) -> None:
    """One sentence names all programs that are missing, and one says what to do; the panel, which
    takes minutes, is not begun before."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
    env = {**os.environ, "CC": "no-such-compiler", "PATH": str(tmp_path)}
    env.pop("GPUSHARE_BUILD_PANEL", None)
    done = subprocess.run(
        [*build, "--outdir", tmp_path, ROOT], env=env, capture_output=True, text=True
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "Building the C library needs what is not there: no-such-compiler, make." in said
    assert "Run `apt-get install gcc libc6-dev make`, or install a wheel" in said
    assert "The panel" not in said


@pytest.mark.full
def test_the_metadata_says_what_it_is(wheel: Path) -> None:
    """Who finds the wheel reads what it is for and under which terms; every classifier exists."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    told = set(metadata.get_all("Classifier", []))
    assert {"Framework :: Jupyter", "Framework :: Jupyter :: JupyterLab :: 4"} <= told
    assert told <= trove_classifiers.classifiers
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["Author"] == "The jupyter-gpushare developers"
    assert metadata["Keywords"] and metadata["Summary"]


def test_jupyterlab_finds_the_panel_for_development() -> None:
    """`jupyter-builder develop` links the folder that the panel's own build writes."""
    (paths,) = jupyter_gpushare._jupyter_labextension_paths()
    panel = json.loads((ROOT / "labextension" / "package.json").read_text())
    built = (ROOT / "labextension" / panel["jupyterlab"]["outputDir"]).resolve()
    assert built == ROOT / "jupyter_gpushare" / paths["src"]
    assert paths["dest"] == panel["name"]


def test_the_headers_are_named_alike() -> None:
    """A checkout and an isolated build compile against the same headers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    isolated = {r for r in project["build-system"]["requires"] if not r.startswith("hatchling")}
    assert isolated == set(project["project"]["optional-dependencies"]["build"])


def test_the_panels_tools_are_named_alike() -> None:
    """A checkout's environment has what building and checking the panel needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked_for = runpy.run_path(str(ROOT / "labextension" / "build.py"))["REQUIREMENTS"]
    assert set(asked_for) <= set(project["optional-dependencies"]["test"])


def third_party_imports(path: Path) -> set[str]:
    """The distributions' modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"jupyter_gpushare"}


def test_what_is_imported_is_required() -> None:
    """Every module of another distribution that the package imports is among its requirements, or
    is only imported where it is the host (IPython in kernels, JupyterHub in a hub), or where its
    extra is named after what needs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def modules_of(requirements: list[str]) -> set[str]:
        return {re.split(r"[^\w-]", each)[0].replace("-", "_") for each in requirements}

    modules = modules_of(project["dependencies"]) - {"nvidia_ml_py"} | {"pynvml"}
    hosts = {
        "kernel": {"IPython", "ipykernel"},
        "hub": {"jupyterhub"},
        "view": {"jupyterhub", "prometheus_client"},  # which JupyterHub brings
        "kubelet": modules_of(project["optional-dependencies"]["kubernetes"])
        - {"grpcio", "protobuf"}
        | {"grpc", "google"},
        "simulator": modules_of(project["optional-dependencies"]["simulate"]),
    }
    for path in sorted((ROOT / "jupyter_gpushare").rglob("*.py")):
        room = path.relative_to(ROOT / "jupyter_gpushare").parts[0]
        assert third_party_imports(path) <= modules | hosts.get(room, set()), path


@pytest.mark.parametrize("folder", ["jupyter_gpushare", "hook", "tests", "docs"])
def test_the_oldest_python_can_read_the_code(folder: str) -> None:
    """No file uses syntax that is newer than the oldest Python that the package allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={PYTHON_OLDEST}"
    version = tuple(int(part) for part in re.findall(r"\d+", PYTHON_OLDEST))
    for path in sorted((ROOT / folder).rglob("*.py")):
        ast.parse(path.read_text(), str(path), feature_version=(version[0], version[1]))
