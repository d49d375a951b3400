"""What the tests of the hook's surface share: the library with a fake runtime behind it, a driver
that only names its functions, and small C programs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hook.fake_driver import FakeDriver, results_of, source_of
from tests.hook.session import Session
from tests.hook.table import Entry, read_table
from tests.support.paths import BUILD, HOOK_LIBRARY, ROOT, hook_source

HERE = Path(__file__).parent
OUTPUT = BUILD / "tests" / "surface"
SOURCE = ROOT / "hook" / "src"
SPEC = ROOT / "hook" / "spec"
OBJECTS = HOOK_LIBRARY.parent / "objects"
SANITIZERS = {"address": "address,undefined", "thread": "thread"}


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Parallel test workers share the build folder."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with (OUTPUT / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def newer(output: Path, *inputs: Path) -> bool:
    if not output.exists():
        return False
    return all(path.stat().st_mtime <= output.stat().st_mtime for path in inputs)


def is_current(built: Path, folder: Path = OBJECTS) -> bool:
    """Whether an object's source is still there."""
    source = SOURCE / built.relative_to(folder)
    return built.parent.name == "generated" or any(
        source.with_suffix(suffix).exists() for suffix in (".c", ".S")
    )


def sanitized_objects(kind: str) -> list[Path]:
    """The hook's objects, built with the sanitizers of SANITIZERS under that name."""
    with one_at_a_time(f"hook-{kind}"):
        make = ["make", "-s", "-C", ROOT / "hook", f"PYTHON={sys.executable}", f"BUILD={BUILD}"]
        run(*make, f"SANITIZE={kind}")
    folder = BUILD / f"{kind[0]}san" / "hook" / "objects"
    return [path for path in sorted(folder.rglob("*.o")) if is_current(path, folder)]


@pytest.fixture(scope="session")
def headers() -> Path:
    return Path(run(sys.executable, SPEC / "find_headers.py").strip())


@pytest.fixture(scope="session")
def generated(headers: Path) -> Path:
    """The generated files, freshly written."""
    folder = OUTPUT / "generated"
    with one_at_a_time("generated"):
        inputs = [*SPEC.glob("*.py"), SPEC / "cuda_api.toml"]
        if not newer(folder / "table.tsv", *inputs):
            run(sys.executable, SPEC / "generate.py", "--include", headers, "--output", folder)
    return folder


@pytest.fixture(scope="session")
def table(generated: Path) -> list[Entry]:
    return read_table(generated / "table.tsv")


@pytest.fixture(scope="session")
def surface(generated: Path, headers: Path) -> Path:
    """libgpushare.so, in which the functions of fake_runtime.c and fake_memory.c stand for those of
    the same names: the linker takes the first of each."""
    library = OUTPUT / "libgpushare.so"
    fakes = [HERE / "fake_runtime.c", HERE / "fake_memory.c"]
    objects = [path for path in sorted(OBJECTS.rglob("*.o")) if is_current(path)]
    flags = ["-D_GNU_SOURCE", "-std=c11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread"]
    flags += ["-Wno-deprecated-declarations", "-ftls-model=initial-exec"]
    for folder in (HERE, SOURCE, generated):
        flags += ["-iquote", str(folder)]
    link = ["-shared", "-Wl,-Bsymbolic", "-Wl,-z,lazy", "-Wl,-z,muldefs"]
    link += ["-Wl,-soname,libgpushare.so", f"-Wl,--version-script={hook_source('exports.map')}"]
    with one_at_a_time("surface"):
        if not newer(library, *fakes, *objects, *SOURCE.glob("*/*.h")):
            run("cc", *flags, "-isystem", headers, *link, "-o", library, *fakes, *objects)
    return library


@pytest.fixture(scope="session")
def fake_driver(table: list[Entry]) -> FakeDriver:
    """A driver whose functions only say which they are."""
    results = results_of(table)
    folder = OUTPUT / "fake_driver"
    source, library = folder / "libcuda.c", folder / "libcuda.so.1"
    with one_at_a_time("fake_driver"):
        folder.mkdir(exist_ok=True)
        text = source_of(table, results)
        if not library.exists() or source.read_text() != text:
            source.write_text(text)
            flags = ("-shared", "-fPIC", "-w", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1")
            run("cc", *flags, "-o", library, source)
    return FakeDriver(folder, results)


@pytest.fixture(scope="session")
def program() -> Callable[..., Path]:
    """Compiles tests/hook/programs/NAME.c, and returns what came out."""

    def compiled(name: str, *flags: str | Path, suffix: str = "") -> Path:
        source, output = HERE / "programs" / f"{name}.c", OUTPUT / f"{name}{suffix}"
        with one_at_a_time(name + suffix):
            inputs = [flag for flag in flags if isinstance(flag, Path)]
            if not newer(output, source, *inputs, *SOURCE.glob("*/*.h"), Path(__file__)):
                options = [str(flag) for flag in flags]
                run("cc", "-std=gnu11", "-O1", "-g", "-o", output, source, *options)
        return output

    return compiled


@pytest.fixture
def environment(surface: Path, fake_driver: FakeDriver, tmp_path: Path) -> dict[str, str]:
    """The environment of a process under the surface library, with the fake driver."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("GPUSHARE_")},
        "LD_PRELOAD": str(surface),
        "LD_LIBRARY_PATH": str(fake_driver.directory),
        "FAKE_TRACE": str(tmp_path / "trace"),
    }


@pytest.fixture(scope="session")
def memory_driver(program: Callable[..., Path]) -> Path:
    """The folder with programs/memory_driver.c under both libraries' names."""
    folder = OUTPUT / "memory_driver"
    flags = ("-shared", "-fPIC", "-w", "-Wl,-Bsymbolic")
    with one_at_a_time("memory_driver_links"):
        folder.mkdir(exist_ok=True)
        for soname in ("libcuda.so.1", "libnvidia-ml.so.1"):
            built = program("memory_driver", *flags, f"-Wl,-soname,{soname}", suffix=f"-{soname}")
            link = folder / soname
            if not link.is_symlink():
                link.symlink_to(built)
    return folder


@pytest.fixture
def session(environment: dict[str, str], memory_driver: Path, tmp_path: Path) -> Session:
    libraries = {"LD_LIBRARY_PATH": str(memory_driver)}
    return Session({**environment, **libraries}, tmp_path / "trace")
