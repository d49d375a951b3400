"""Looks at the hook's library: is it there, and does a program start with it?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpushare.kernel.elf_versions import NotElf, newest_glibc
from jupyter_gpushare.kernel.environment import (
    LIBRARY,
    PRELOAD,
    LibraryMissing,
    without_gpushare,
)
from jupyter_gpushare.kernel.loadable import glibc_here, library_here

from .facts import LibraryFacts

_TRIAL_S = 20.0
_ASK = "import ctypes; print(ctypes.CDLL(None).gpushare_api_version())"


def library_facts(environ: Mapping[str, str]) -> LibraryFacts:
    """Starts one small program; everything else is read."""
    try:
        path = library_here(environ)
    except LibraryMissing as problem:
        return LibraryFacts(path=environ.get(LIBRARY, ""), missing=str(problem))
    try:
        needs, unreadable = newest_glibc(path.read_bytes()), ""
    except (OSError, NotElf) as error:
        needs, unreadable = "", str(error)
    loader_says, api_version = _try_it(path, environ)
    return LibraryFacts(
        path=str(path),
        unreadable=unreadable,
        needs_glibc=needs,
        has_glibc=glibc_here(),
        loader_says=loader_says,
        api_version=api_version,
    )


def _try_it(path: Path, environ: Mapping[str, str]) -> tuple[str, int | None]:
    """What the loader complains about, and the version that the library answers with."""
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
        return str(error), None
    complaints = [line for line in done.stderr.splitlines() if "ld.so" in line]
    answer = done.stdout.strip()
    return (complaints or [""])[0], int(answer) if answer.isdigit() else None
