"""C programs and libraries of tests, compiled once for all tests and runs: by what they are made
of. Standard library only."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.paths import BUILD

FOLDER = BUILD / "tests" / "compiled"


def compiled_library(source: str, *flags: str) -> Path:
    """A shared library of this C text. Nobody changes the file."""
    arguments = ["-shared", "-fPIC", "-x", "c", *flags]
    output = FOLDER / f"{_digest(source, *arguments)}.so"
    if not output.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            written = Path(scratch) / "library.c"
            written.write_text(source)
            libraries = [each for each in arguments if each.startswith("-l")]
            others = [each for each in arguments if each not in libraries]
            library = Path(scratch) / "library.so"
            command = ["cc", *others, "-o", str(library), str(written), *libraries]
            subprocess.run(command, check=True)
            library.replace(output)  # others may compile it at this moment
    return output


def library_named(path: Path, source: str, *flags: str) -> Path:
    """A copy of such a library under this name."""
    return Path(shutil.copyfile(compiled_library(source, *flags), path))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
