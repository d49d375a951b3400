"""The sdist and the wheel, each in a new virtual environment, out of reach of the checkout."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.environments import (
    LIBRARY_IN_WHEEL,
    PANEL_IN_PREFIX,
    PYTHON_OLDEST,
    Distributions,
    Environment,
    build_both,
    paths_of_the_machine,
)
from tests.support.environments import shared_wheel
from tests.support.paths import ROOT

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

GLIBC_MAX = (2, 34)
"""Of Debian 12, Ubuntu 22.04 and RHEL 9: nothing newer may be needed."""
TURN_PROGRAM = Path(__file__).with_name("turn_program.py")
WHAT_A_CELL_USES = "cuda-bindings>=13.0"
A_KERNEL = "ipykernel>=7.0"


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build_both(tmp_path_factory.mktemp("dist"))


def oldest_python() -> str | None:
    """An interpreter of the oldest version that the package allows."""
    found = shutil.which(f"python{PYTHON_OLDEST}")
    works = found is not None and subprocess.run([found, "-c", ""]).returncode == 0
    return found if works else None


# Where there is no such interpreter, syntax and imports are still held to it (test_wheel.py).
PYTHONS = ["this Python", *(["the oldest Python"] if oldest_python() else [])]


@pytest.fixture(scope="module", params=PYTHONS)
def installed(
    request: pytest.FixtureRequest,
    distributions: Distributions,
    tmp_path_factory: pytest.TempPathFactory,
) -> Environment:
    """The wheel in an empty environment. It is the one that pip has made of the sdist, with a C
    compiler, and it needs no tools at all."""
    interpreter = (oldest_python() if "oldest" in request.param else None) or sys.executable
    environment = Environment(tmp_path_factory.mktemp("environment") / "venv", interpreter)
    environment.install(distributions.wheel, A_KERNEL, WHAT_A_CELL_USES, path="")
    return environment


def library_of(environment: Environment) -> Path:
    """Where the installed package says its library lies."""
    asked = "from jupyter_gpushare.kernel.environment import library_path; print(library_path())"
    return Path(environment.run("python", "-c", asked).strip())


@pytest.mark.promise("packaging-7")
@pytest.mark.promise(
    "packaging-5",
    "Wheel and sdist, each in an empty environment: library, entry points, commands and server "
    "extension are there, and a kernel takes a turn",
)
def test_library_is_there_and_loads(installed: Environment) -> None:
    """Any program can be started with the library preloaded; the loader complains of nothing."""
    library = library_of(installed)
    assert library.is_relative_to(installed.folder)
    done = subprocess.run(
        ["/bin/true"], env={"LD_PRELOAD": str(library)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.promise(
    "packaging-6",
    "The library needs the C library alone, of 2.34 at most, and does not tell where it was built",
)
def test_library_needs_glibc_alone(installed: Environment) -> None:
    """The library needs no other library than the C library, and no newer one than promised."""
    library = library_of(installed)
    dynamic = subprocess.run(
        ["readelf", "--wide", "--dynamic", "--version-info", library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    assert {name.split(".")[0] for name in needed} <= {
        "libc",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
    }
    versions = {
        (int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", dynamic)
    }
    assert versions
    assert max(versions) <= GLIBC_MAX


@pytest.mark.promise("packaging-5")
def test_entry_points_load(installed: Environment) -> None:
    """jupyter_client finds the provisioner under its name, and it is ours."""
    asked = (
        "from jupyter_client.provisioning import KernelProvisionerFactory as Factory\n"
        "print(Factory.instance().provisioners['gpushare-provisioner'].load().__module__)\n"
    )
    assert installed.run("python", "-c", asked).strip() == "jupyter_gpushare.kernel.provisioner"


@pytest.mark.promise("packaging-5")
def test_commands_answer(installed: Environment) -> None:
    """Both spellings of the command are there and explain themselves."""
    for command in (["jupyter", "gpushare"], ["jupyter-gpushare"]):
        text = installed.run(*command, "--help")
        assert "scheduler" in text
        assert "status" in text


@pytest.mark.promise("packaging-5")
def test_jupyter_servers_load_the_extension(installed: Environment) -> None:
    """The server extension is enabled by the installation alone, and it can be loaded."""
    done = installed.completed("jupyter", "server", "extension", "list")
    listed = done.stdout + done.stderr
    assert re.search(r"jupyter_gpushare \S*enabled", listed)
    assert re.search(r"jupyter_gpushare [\d.]+ \S*OK", listed)


@pytest.mark.promise("packaging-10")
def test_the_panel_is_where_jupyterlab_looks(installed: Environment) -> None:
    """The panel's bundle lies below the environment's prefix, and tells pip as its origin."""
    panel = installed.folder / PANEL_IN_PREFIX
    bundle = json.loads((panel / "package.json").read_text())
    assert bundle["name"] == "@jupyter-gpushare/labextension"
    assert (panel / bundle["jupyterlab"]["_build"]["load"]).exists()
    assert json.loads((panel / "install.json").read_text())["packageName"] == "jupyter_gpushare"


@pytest.mark.promise("packaging-10")
def test_the_page_of_the_view_is_there(installed: Environment) -> None:
    """Its template, styles and each script that it loads."""
    asked = "from jupyter_gpushare.view import pages; print(pages.TEMPLATE, pages.STATIC)"
    template, static = map(Path, installed.run("python", "-c", asked).split())
    loaded = re.findall(r"static/([a-z_.]+)", template.read_text())
    assert {"page.js", "page.css", "icon.svg"} <= set(loaded)
    assert [name for name in loaded if not (static / name).exists()] == []


@pytest.mark.promise("packaging-10")
def test_requirements_fit_together(installed: Environment) -> None:
    """pip finds nothing missing and nothing in conflict."""
    assert "No broken requirements found" in installed.pip("check")


@pytest.mark.promise("packaging-5")
def test_an_installed_kernel_takes_a_turn(installed: Environment, tmp_path: Path) -> None:
    """Scheduler, provisioner, bootstrap and library of that environment: a cell gets the simulated
    device's turn, by the installed library."""
    within = tmp_path / "importable"
    within.mkdir()
    # The tests alone, so that the package can only come from the environment.
    (within / "tests").symlink_to(ROOT / "tests")
    said = installed.run(
        "python", TURN_PROGRAM, tmp_path / "machine", env={"PYTHONPATH": str(within)}
    )
    told = json.loads(said.splitlines()[-1])
    assert Path(told["package"]).is_relative_to(installed.folder)
    assert Path(told["library"]) == library_of(installed)
    assert told["turns"] >= 1


@pytest.mark.promise(
    "packaging-7",
    "An sdist has all that a wheel is made of, and needs a C compiler and no Node",
)
def test_sdist_has_what_a_wheel_is_made_of(distributions: Distributions) -> None:
    """Hook, specification, generated protocol and build hook are in it; nothing that was built."""
    with tarfile.open(distributions.sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "LICENSE",
        "README.md",
        "hatch_build.py",
        "hook/Makefile",
        "hook/spec/cuda_api.toml",
        "hook/spec/generate.py",
        "jupyter_gpushare/protocol/generate.py",
        "jupyter_gpushare/protocol/messages.py",
        "jupyter_gpushare/protocol/messages.toml",
        "jupyter_gpushare/labextension/package.json",
        "labextension/build.py",
        "labextension/package.json",
        "labextension/yarn.lock",
    } <= names
    assert not {name for name in names if name.endswith((".so", ".o", ".pyc", ".whl"))}
    assert not {name for name in names if name.startswith((".venv", "build/", ".git/"))}
    assert not {name for name in names if name.startswith(("labextension/lib", ".whl"))}
    assert not {name for name in names if "node_modules" in name}


@pytest.mark.promise("packaging-6")
def test_sdist_names_no_path_of_this_machine(distributions: Distributions) -> None:
    """No source file names a place of the machine that it was packed on."""
    forbidden = paths_of_the_machine(distributions.sdist.parent)
    with tarfile.open(distributions.sdist) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None:
                text = content.read()
                assert not [path for path in forbidden if path in text], member.name


@pytest.mark.promise("packaging-6")
def test_library_does_not_tell_where_it_was_built(distributions: Distributions) -> None:
    """Built from the sdist or from the checkout, in other folders: the same bytes."""
    libraries = []
    for wheel in (distributions.wheel, shared_wheel()):
        with zipfile.ZipFile(wheel) as archive:
            libraries.append(archive.read(LIBRARY_IN_WHEEL))
    assert libraries[0] == libraries[1]
