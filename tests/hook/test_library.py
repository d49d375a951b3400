"""What the finished library asks of a process that only loads it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import HOOK_LIBRARY

# glibc 2.34 has threads and dlsym in libc.so.6. A build on an older system needs less.
HIGHEST_GLIBC = (2, 34)


@pytest.fixture
def hook() -> Path:
    assert HOOK_LIBRARY.exists(), f"{HOOK_LIBRARY} is missing. Run `make build` first."
    return HOOK_LIBRARY


def output(*command: str | Path, **more: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **more},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.promise(
    "hook-34",
    "Nothing happens in a process that never opens CUDA: no thread, no socket, no file",
)
def test_a_process_without_cuda_is_left_alone(
    hook: Path, program: Callable[..., Path], tmp_path: Path
) -> None:
    """No thread, no descriptor and no file in a process that never opens CUDA, also with a socket
    and a token in its environment."""
    plain = program("plain", "-ldl")
    socket, log = tmp_path / "hook.sock", tmp_path / "log"
    with_hook = output(
        plain,
        LD_PRELOAD=str(hook),
        GPUSHARE_SOCKET=str(socket),
        GPUSHARE_TOKEN="token",
        GPUSHARE_LOG="debug",
        GPUSHARE_LOG_FILE=str(log),
    )
    assert with_hook == output(plain)
    assert with_hook.split()[1] == "1"
    assert list(tmp_path.iterdir()) == []


def test_the_library_comes_last_in_a_preload_list(hook: Path, program: Callable[..., Path]) -> None:
    """Appended to another preloaded library, both work."""
    other = program("counts_calls", "-shared", "-fPIC", "-ldl", suffix=".so")
    plain = program("plain", "-ldl")
    assert output(plain, LD_PRELOAD=f"{other}:{hook}") == output(plain)


@pytest.mark.promise("hook-53")
def test_it_needs_the_c_library_and_nothing_else(hook: Path) -> None:
    """Never linked to libcuda, nor to any other library."""
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", hook))
    assert set(needed) <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


@pytest.mark.promise(
    "bad-input-34", "An older glibc: the highest symbol version needed is asserted"
)
def test_the_highest_glibc_version_that_it_needs(hook: Path) -> None:
    """No symbol newer than glibc 2.34."""
    needs = output("readelf", "-W", "--dyn-syms", hook)
    undefined = [line for line in needs.splitlines() if " UND " in line]
    versions = {
        tuple(int(part) for part in match[1].split("."))
        for line in undefined
        if (match := re.search(r"@GLIBC_([0-9.]+)", line))
    }
    assert versions
    assert max(versions) <= HIGHEST_GLIBC


def test_it_relocates_no_symbol_of_others_in_its_data(hook: Path) -> None:
    """Tables are relocated relative to the library: no symbol look-ups at the start of a process
    but those of the C library's data."""
    relocations = output("readelf", "-W", "-r", hook)
    assert "R_X86_64_64 " not in relocations
    assert "R_AARCH64_ABS64 " not in relocations
