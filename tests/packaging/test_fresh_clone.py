"""What a newcomer does: clone, and call make. Nothing but the clone may be written to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import (
    clean_env,
    run,
)

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

# One test of each half of `make test`, and a hub: what needs Node, npm and a browser.
SHORT_TESTS = (
    "test_core_is_pure or test_two_lines_are_enough or test_users_take_turns "
    "or test_a_cell_that_waits_says_so"
)
NOT_ON_A_BARE_MACHINE = ("chromium", "node", "nodejs", "npm", "npx", "jlpm", "yarn")


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """No Node and no browser, and a home that cannot be written to, even by root: it is a file."""
    home = tmp_path_factory.mktemp("home") / "home"
    home.touch()
    programs = tmp_path_factory.mktemp("programs")
    for folder in reversed(clean_env()["PATH"].split(os.pathsep)):
        for program in Path(folder).glob("*"):
            if program.name not in NOT_ON_A_BARE_MACHINE:
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
    extra = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PATH": str(programs)}
    return {k: v for k, v in clean_env(extra).items() if not k.startswith("XDG_RUNTIME")}


@pytest.mark.promise(
    "packaging-4",
    "In a fresh clone `make test` and `make lint` set themselves up, without Node, a browser or a "
    "home",
)
@pytest.mark.long
def test_tests_and_lint_set_themselves_up(clone: Path, env: dict[str, str]) -> None:
    """`make test` and `make lint` work in a fresh clone without write access to HOME, Node and a
    browser, and leave nothing behind that git would see."""
    run(["make", "test", f"PYTEST_ARGS=-k '{SHORT_TESTS}'"], cwd=clone, env=env)
    assert (clone / "build" / "artefacts" / "waiting-cell-light.png").exists()
    run(["make", "lint"], cwd=clone, env=env)
    assert "pip" not in run(["make", "build"], cwd=clone, env=env)
    assert not run(["git", "status", "--porcelain"], cwd=clone)


def build_here(clone: Path, env: dict[str, str]) -> str:
    """What `make build` says. It takes this environment, where make has set it up, for one that is
    up to date: that it sets one up is another test's story."""
    ours = Path(sys.prefix)
    os.utime(clone / "pyproject.toml", (0, 0))
    given = [f"VENV={ours}"] if (ours / ".ready").exists() else []
    return run(["make", "build", *given], cwd=clone, env=env)


@pytest.mark.promise("packaging-4")
def test_a_second_build_has_nothing_to_do(clone: Path, env: dict[str, str]) -> None:
    """Once set up, `make build` neither installs nor compiles anything."""
    build_here(clone, env)
    library = clone / "jupyter_gpushare" / "lib" / "libgpushare.so"
    before = (library.stat().st_mtime_ns, library.stat().st_ino)
    said = build_here(clone, env)
    assert "pip" not in said
    assert "CC " not in said
    assert (library.stat().st_mtime_ns, library.stat().st_ino) == before


def test_the_library_is_replaced_and_not_written_into(clone: Path, env: dict[str, str]) -> None:
    """A kernel that runs while the library is built again keeps the one that it has mapped."""
    build_here(clone, env)
    library = clone / "jupyter_gpushare" / "lib" / "libgpushare.so"
    before = library.stat().st_ino
    with library.open("rb") as mapped:
        content = mapped.read()
        (clone / "hook" / "src" / "base" / "log.c").touch()
        (clone / "build" / "hook" / "libgpushare.so").unlink()
        build_here(clone, env)
        mapped.seek(0)
        assert mapped.read() == content
    assert library.stat().st_ino != before


@pytest.mark.promise("packaging-11")
def test_an_old_python_is_refused(clone: Path, env: dict[str, str], tmp_path: Path) -> None:
    """With a Python that is too old, make says so and what to do instead."""
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["make", "build", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"],
        cwd=clone,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "older than 3.10. Name a newer one" in done.stderr
