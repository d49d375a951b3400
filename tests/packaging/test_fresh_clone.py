"""What a newcomer does: clone, and call make. Nothing but the clone may be written to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.packaging.environments import (
    clean_env,
    run,
)

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

SHORT_TESTS = "tests/test_architecture.py tests/kernel/test_turns.py"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home that cannot be written to, even by root: it is a file."""
    home = tmp_path_factory.mktemp("home") / "home"
    home.touch()
    extra = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    return {k: v for k, v in clean_env(extra).items() if not k.startswith("XDG_RUNTIME")}


def test_tests_and_lint_set_themselves_up(clone: Path, env: dict[str, str]) -> None:
    """`make test` and `make lint` work in a fresh clone without write access to HOME, and leave
    nothing behind that git would see."""
    run(["make", "test", f"PYTEST_ARGS={SHORT_TESTS}"], cwd=clone, env=env)
    run(["make", "lint"], cwd=clone, env=env)
    assert not run(["git", "status", "--porcelain"], cwd=clone)


def test_a_second_build_has_nothing_to_do(clone: Path, env: dict[str, str]) -> None:
    """Once set up, `make build` neither installs nor compiles anything."""
    run(["make", "build"], cwd=clone, env=env)
    library = clone / "jupyter_gpushare" / "lib" / "libgpushare.so"
    before = (library.stat().st_mtime_ns, library.stat().st_ino)
    said = run(["make", "build"], cwd=clone, env=env)
    assert "pip" not in said
    assert "CC " not in said
    assert (library.stat().st_mtime_ns, library.stat().st_ino) == before


def test_the_library_is_replaced_and_not_written_into(clone: Path, env: dict[str, str]) -> None:
    """A kernel that runs while the library is built again keeps the one that it has mapped."""
    run(["make", "build"], cwd=clone, env=env)
    library = clone / "jupyter_gpushare" / "lib" / "libgpushare.so"
    before = library.stat().st_ino
    with library.open("rb") as mapped:
        content = mapped.read()
        (clone / "hook" / "src" / "log.c").touch()
        (clone / "build" / "hook" / "libgpushare.so").unlink()
        run(["make", "build"], cwd=clone, env=env)
        mapped.seek(0)
        assert mapped.read() == content
    assert library.stat().st_ino != before


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
