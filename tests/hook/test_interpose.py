"""The dlsym that applications see: theirs, for everything that is not ours."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.fake_driver import FakeDriver

Program = Callable[..., Path]
SHARED = ("-shared", "-fPIC", "-ldl")


@pytest.fixture
def finds(program: Program, environment: dict[str, str]) -> Callable[..., str]:
    """Runs programs/finder.c; what it prints is the object that has what it found."""
    finder = program("finder", "-ldl")

    def found(way: str, name: str, **more: str) -> str:
        done = subprocess.run(
            [finder, way, name],
            capture_output=True,
            text=True,
            check=False,
            env={**environment, **more},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return found


@pytest.mark.parametrize("way", ["default", "main", "local"])
@pytest.mark.parametrize("disabled", ["0", "1"])
def test_no_function_of_ours_is_seen_without_the_driver(
    way: str, disabled: str, finds: Callable[..., str]
) -> None:
    """In a process whose global scope has no libcuda, cuInit is not there, and dlerror says so."""
    assert finds(way, "cuInit", GPUSHARE_DISABLE=disabled) == "none with-error"


def test_the_global_scope_leads_to_the_wrapper(finds: Callable[..., str]) -> None:
    """With libcuda in the global scope, RTLD_DEFAULT finds the wrapper of what is wrapped, and
    the driver's own of what is not."""
    assert finds("global", "cuInit") == "libgpushare.so"
    assert finds("global", "cuInit", GPUSHARE_DISABLE="1") == "libcuda.so.1"
    assert finds("global", "cuCtxGetCurrent") == "libcuda.so.1"


@pytest.mark.promise("hook-41")
def test_the_oldest_dlsym_is_ours_too(finds: Callable[..., str]) -> None:
    """A program linked against an old C library asks for dlsym under its first version."""
    assert finds("oldest", "cuLaunchKernel") == "libgpushare.so"
    assert finds("oldest", "cuCtxGetCurrent") == "libcuda.so.1"


@pytest.mark.promise("hook-33")
@pytest.mark.parametrize("way", ["default", "next", "main"])
def test_other_functions_are_found_as_ever(way: str, finds: Callable[..., str]) -> None:
    """A function of the C library is found in the C library; an unknown one is not found."""
    assert finds(way, "getppid") == "libc.so.6"
    assert finds(way, "no_such_function") == "none with-error"


def test_a_library_finds_the_driver_that_it_needs(
    finds: Callable[..., str], program: Program, fake_driver: FakeDriver
) -> None:
    """A library that is opened for itself finds what it is linked to by RTLD_DEFAULT, and libcuda
    is in no global scope: extension modules of Python are opened so."""
    needs = ("-Wl,--no-as-needed", f"-L{fake_driver.directory}", "-l:libcuda.so.1")
    linked = program("deep", *SHARED, *needs, suffix="-linked.so")
    assert finds(str(linked), "cuInit") == "libgpushare.so"
    assert finds(str(linked), "cuInit", GPUSHARE_DISABLE="1") == "libcuda.so.1"
    assert finds(str(linked), "cuCtxGetCurrent") == "libcuda.so.1"
    alone = program("deep", *SHARED, suffix=".so")
    assert finds(str(alone), "cuInit") == "none with-error"


def test_a_function_that_is_found_leaves_no_error(
    finds: Callable[..., str], program: Program
) -> None:
    """Another library's function may have a name like the driver's, which the driver lacks: dlerror
    has nothing to tell then."""
    library = program("like_the_driver", *SHARED, suffix=".so")
    assert finds(str(library), "cuFileOpen") == library.name


@pytest.mark.parametrize("ours_first", [True, False])
def test_the_next_function_is_the_one_after_the_caller(
    ours_first: bool, program: Program, environment: dict[str, str]
) -> None:
    """A preloaded library that uses RTLD_NEXT finds the C library, before us and behind us."""
    other = program("counts_calls", *SHARED, suffix=".so")
    both = [environment["LD_PRELOAD"], str(other)]
    preload = ":".join(both if ours_first else reversed(both))
    done = subprocess.run(
        [program("plain", "-ldl")],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "LD_PRELOAD": preload},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "1"


@pytest.mark.promise("hook-33", "Other interposers of `dlsym` do no harm")
@pytest.mark.parametrize("ours_first", [True, False])
def test_another_interposer_of_dlsym_does_no_harm(
    ours_first: bool, program: Program, environment: dict[str, str], finds: Callable[..., str]
) -> None:
    """With a second library that interposes dlsym, in either order, nothing recurses and launches
    are still wrapped."""
    other = program("takes_dlsym", *SHARED, suffix=".so")
    both = [environment["LD_PRELOAD"], str(other)]
    preload = ":".join(both if ours_first else reversed(both))
    assert finds("oldest", "cuLaunchKernel", LD_PRELOAD=preload) == "libgpushare.so"
    assert finds("default", "getppid", LD_PRELOAD=preload) == "libc.so.6"


@pytest.mark.promise("hook-33")
def test_a_stub_of_the_driver_is_not_mistaken_for_it(
    program: Program, environment: dict[str, str], fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """A library with functions of the driver's names is called as it is, and the driver's function
    that it looks up is wrapped once."""
    stub = program("stub_driver", *SHARED, "-Wl,-Bsymbolic", suffix=".so")
    done = subprocess.run(
        [program("calls_stub", "-ldl"), stub],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(fake_driver.results["cuCtxSynchronize"])] * 2
    assert (tmp_path / "trace").read_text().count("synchronise_began") == 2


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_valgrind_finds_no_error(program: Program, environment: dict[str, str]) -> None:
    """Under valgrind, loading the library and looking functions up make no memory error."""
    done = subprocess.run(
        [
            "valgrind",
            "--error-exitcode=99",
            "--quiet",
            program("finder", "-ldl"),
            "oldest",
            "cuInit",
        ],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "libgpushare.so"
