"""Whether a program that has the hook's library would start here.

The library may come from another place than this package: from the machine, into a container whose
C library is another one. A program that preloads it need not start then, so it is not asked to.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from .elf_versions import NotElf, newest_glibc, numbers, processor
from .environment import LIBRARY_NAME, LibraryMissing, library_path

SYSTEM_PRELOADS = Path("/etc/ld.so.preload")
"""What the dynamic loader puts into every program."""


def loadable_library(environ: Mapping[str, str] | None = None) -> Path:
    """The hook's library. Raises LibraryMissing where a program with it would not start."""
    path = library_here(environ)
    found = path.stat()
    _check(path, found.st_mtime_ns, found.st_size)
    return path


def library_here(environ: Mapping[str, str] | None = None) -> Path:
    """The one that every program here has already, where there is one: a process with two of them
    would wait for itself. Else the one that the environment or this package has."""
    for entry in system_preloads():
        if entry.name == LIBRARY_NAME and os.access(entry, os.R_OK):
            return entry
    return library_path(environ)


def system_preloads(file: Path = SYSTEM_PRELOADS) -> list[Path]:
    """The entries of the dynamic loader's own list."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = [word for line in lines for word in line.partition("#")[0].replace(":", " ").split()]
    return [Path(word) for word in words]


def glibc_here() -> str:
    """The version of the C library, such as 2.36; empty with another one, such as musl."""
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""
    return name.removeprefix("glibc ")


@functools.lru_cache(maxsize=8)
def _check(path: Path, changed_ns: int, size: int) -> None:
    """Once for each file."""
    if problem := why_not_here(path.read_bytes(), str(path)):
        raise LibraryMissing(problem)


def why_not_here(image: bytes, path: str) -> str:
    """One sentence on what is wrong and one on what to do; empty where programs start with it."""
    here = glibc_here()
    if not here:
        return (
            f"The C library here is not glibc, which {path} needs. Use a distribution or an image "
            f"with glibc."
        )
    try:
        needed = newest_glibc(image)
        if not is_for_this_processor(image):
            return (
                f"The library {path} is for another kind of processor than this Python. Install "
                f"the wheel for this platform."
            )
    except (NotElf, OSError) as error:
        return f"The library {path} cannot be used, because {error}. Reinstall jupyter-gpushare."
    if numbers(needed) > numbers(here):
        return (
            f"The library {path} needs glibc {needed}, and this system has {here}. Use a newer "
            f"image, or build jupyter-gpushare on a system as old as this one."
        )
    return ""


def is_for_this_processor(image: bytes) -> bool:
    """Raises NotElf or OSError."""
    return processor(image) == processor(_own_header())


@functools.cache
def _own_header() -> bytes:
    with Path(sys.executable).open("rb") as file:
        return file.read(64)
