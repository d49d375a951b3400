"""Functions of a driver that is newer than the headers, and ways around the exports."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compiled import library_named
from tests.support.waits import WAIT_S_MAX

Unknown = Callable[..., subprocess.CompletedProcess[str]]

# It says so when an argument does not arrive: in registers of both kinds, on the stack, or through
# an ellipsis.
NEWER_DRIVER = """
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int cuBrandNew(int a, int b, int c, int d, int e, int f, double g, double h, double i, double j,
               double k, double l, double m, double n, int o, double p, const char *format, ...) {
    char text[64];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    const int whole = a == 1 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && o == 7;
    const int real = g == 1.5 && h == 2.5 && i == 3.5 && j == 4.5 && k == 5.5 && l == 6.5 &&
                     m == 7.5 && n == 8.5 && p == 9.5;
    return whole && real && strcmp(text, "8 10.500000") == 0 ? 77 : 1;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags,
                        int *status) {
    *function = (void *)cuBrandNew;
    return *status = 0;
}
"""


@pytest.fixture
def unknown(program: Callable[..., Path], environment: dict[str, str], tmp_path: Path) -> Unknown:
    """Runs programs/unknown.c with a driver that is newer than the headers."""
    folder = tmp_path / "newer"
    folder.mkdir()
    more = "".join(f"int cuBrandNew{i}(void) {{ return {i}; }}\n" for i in range(300))
    flags = ("-w", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1")
    library_named(folder / "libcuda.so.1", NEWER_DRIVER + more, *flags)

    def run(what: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program("unknown", "-ldl"), what],
            capture_output=True,
            text=True,
            check=True,
            timeout=WAIT_S_MAX,
            env={**environment, "LD_LIBRARY_PATH": str(folder), **more},
        )

    return run


def test_asking_for_an_unknown_function_is_nothing(unknown: Unknown) -> None:
    """The CUDA runtime asks for hundreds of functions that it never calls: no word about them."""
    done = unknown("ask")
    assert done.stdout == "1 1\n"
    assert done.stderr == ""


@pytest.mark.promise(
    "hook-50",
    "A driver's function that no header has stops parking at its first call, and says so once",
)
def test_the_first_call_of_an_unknown_function_stops_parking(
    unknown: Unknown, tmp_path: Path
) -> None:
    """Its arguments arrive whichever way they travel, what is parked comes back before, and the
    user is told once."""
    done = unknown("call")
    assert done.stdout == "1 1\n77\n77\n"
    assert done.stderr.count("cuBrandNew") == 1
    assert "stays on the device" in done.stderr
    assert "Install a newer jupyter-gpushare" in done.stderr
    assert (tmp_path / "trace").read_text().count("gate ") == 1


def test_a_cancelled_wait_for_an_unknown_function(unknown: Unknown) -> None:
    """The function is not called, and answers as any cancelled call."""
    assert unknown("call", FAKE_CANCEL="1").stdout == "1 1\n800\n800\n"


def test_more_unknown_functions_than_there_are_stubs(unknown: Unknown) -> None:
    """The last of them cannot be watched: memory stays on the device at once, and all work."""
    done = unknown("many")
    assert done.stdout == "1 1\n"
    assert done.stderr.count("stays on the device") == 1


def test_without_the_hook_a_newer_driver_is_itself(unknown: Unknown) -> None:
    """Where the hook takes no part, nothing stands before the driver's functions."""
    done = unknown("call", GPUSHARE_DISABLE="1")
    assert done.stdout == "1 1\n77\n77\n"
    assert done.stderr == ""


@pytest.fixture
def deep(program: Callable[..., Path], environment: dict[str, str]) -> Callable[..., list[str]]:
    """Runs programs/opens_deep.c: which object has what each way finds."""
    library = program("deep", "-shared", "-fPIC", "-ldl", suffix=".so")

    def run(way: str, **more: str) -> list[str]:
        done = subprocess.run(
            [program("opens_deep", "-ldl"), way, library],
            capture_output=True,
            text=True,
            check=True,
            timeout=WAIT_S_MAX,
            env={**environment, **more},
        )
        return done.stdout.split()

    return run


@pytest.mark.promise("hook-51", "Libraries loaded with `RTLD_DEEPBIND` reach the wrappers too")
@pytest.mark.parametrize("way", ["dlopen", "dlmopen"])
def test_a_library_that_binds_deep_reaches_the_wrappers(
    way: str, deep: Callable[..., list[str]]
) -> None:
    """RTLD_DEEPBIND would lead a library's dlsym past ours."""
    assert deep(way) == ["libgpushare.so"]
    assert deep(way, GPUSHARE_DISABLE="1") == ["libcuda.so.1"]


def test_a_library_is_looked_for_as_without_us(
    program: Callable[..., Path], environment: dict[str, str], tmp_path: Path
) -> None:
    """dlopen looks where its caller says: the caller's RUNPATH and $ORIGIN count, not ours."""
    beside, neighbour = tmp_path / "beside", tmp_path / "neighbour.so"
    beside.mkdir()
    library_named(beside / "libbeside.so", "")
    subprocess.run(["cp", beside / "libbeside.so", neighbour], check=True)
    flags = ("-shared", "-fPIC", "-ldl", "-Wl,-rpath,$ORIGIN/beside", "-Wl,--enable-new-dtags")
    library = program("deep", *flags, suffix="-runpath.so")
    copied = tmp_path / "copied.so"
    copied.write_bytes(library.read_bytes())
    done = subprocess.run(
        [program("opens_deep", "-ldl"), "neighbours", copied],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_S_MAX,
        env=environment,
    )
    assert done.stdout.split() == ["1", "1"]
