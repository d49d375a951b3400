"""Looks at the hook's library: is it there, and does a program start with it?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpushare.client.paths import PACKAGED_LIBRARY
from jupyter_gpushare.kernel.elf_versions import NotElf, newest_glibc
from jupyter_gpushare.kernel.environment import (
    LIBRARY,
    PRELOAD,
    LibraryMissing,
    without_gpushare,
)
from jupyter_gpushare.kernel.loadable import glibc_here, is_for_this_processor, library_here

from .facts import LibraryFacts

_TRIAL_S = 20.0
_ASK = """
import ctypes
functions = ctypes.CDLL(None)
print(functions.gpushare_api_version())
if hasattr(functions, "gpushare_version"):
    functions.gpushare_version.restype = ctypes.c_char_p
    print(functions.gpushare_version().decode())
"""


def library_facts(environ: Mapping[str, str]) -> LibraryFacts:
    """Starts one small program; everything else is read."""
    try:
        path = library_here(environ)
    except LibraryMissing as problem:
        return LibraryFacts(path=environ.get(LIBRARY, ""), missing=str(problem))
    try:
        image = path.read_bytes()
        needs, fits, unreadable = newest_glibc(image), is_for_this_processor(image), ""
    except (OSError, NotElf) as error:
        needs, fits, unreadable = "", True, str(error)
    loader_says, answers = _try_it(path, environ)
    api_version, version = [*answers, "", ""][:2]
    return LibraryFacts(
        path=str(path),
        unreadable=unreadable,
        needs_glibc=needs,
        has_glibc=glibc_here(),
        loader_says=loader_says,
        api_version=int(api_version) if api_version.isdigit() else None,
        version=version,
        is_for_this_processor=fits,
        is_mounted=path != PACKAGED_LIBRARY and _is_named(path, environ),
    )


def _is_named(path: Path, environ: Mapping[str, str]) -> bool:
    named = environ.get(LIBRARY)
    return bool(named) and path == Path(named or "").absolute()


def _try_it(path: Path, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """What the loader complains about, and what the library answers: its interface, its version."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _ASK],
            env={**without_gpushare(environ), PRELOAD: str(path)},
            capture_output=True,
            text=True,
            timeout=_TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error), []
    complaints = [line for line in done.stderr.splitlines() if "ld.so" in line]
    return (complaints or [""])[0], done.stdout.split()
