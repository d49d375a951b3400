"""A browser: the machine's Chromium, or one from npm in the build folder, without its windows but
the same inside. That one brings the libraries and the font that a bare machine lacks."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.node import FOLDER, MODULES, NoProgram, node_command, npm_install
from tests.support.waits import WAIT_S_MAX

PACKAGE = "@sparticuz/chromium@147"
PACKED = MODULES / "@sparticuz" / "chromium" / "bin"
UNPACKED = FOLDER / "chromium"
PROGRAM = UNPACKED / "chromium"
ARCHITECTURE = "x86_64"
"""Of npm's."""
_UNPACK = (
    "const [packed, plain] = process.argv.slice(1), fs = require('fs');"
    "fs.createReadStream(packed).pipe(require('zlib').createBrotliDecompress())"
    ".pipe(fs.createWriteStream(plain))"
)
_CAREFULLY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>{folder}/fonts</dir>
  <cachedir>{folder}/font-cache</cachedir>
</fontconfig>
"""


@dataclass(frozen=True)
class Chromium:
    program: Path
    env: Mapping[str, str]


def find_chromium() -> Chromium:
    """Raises NoProgram, which says what to do."""
    found = shutil.which("chromium")
    if found is not None:
        return Chromium(Path(found), os.environ)
    if platform.machine() != ARCHITECTURE:
        raise NoProgram("Chromium is not installed. To run this: apt-get install chromium")
    npm_install(PACKAGE, PACKED / "chromium.br")
    _unpack()
    libraries = [str(UNPACKED / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return Chromium(
        PROGRAM,
        {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "FONTCONFIG_FILE": str(UNPACKED / "fonts.conf"),
        },
    )


def _unpack() -> None:
    """The program comes last: where it is, the rest is."""
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with (UNPACKED / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if PROGRAM.exists():
            return
        for name in ("al2023.tar", "fonts.tar"):
            archive = _decompress(name)
            with tarfile.open(archive) as content:
                content.extractall(UNPACKED, **_CAREFULLY)
            archive.unlink()
        (UNPACKED / "fonts.conf").write_text(_FONTS.format(folder=UNPACKED))
        program = _decompress("chromium")
        program.chmod(0o755)
        program.rename(PROGRAM)


def _decompress(name: str) -> Path:
    """By Node, for Python knows no Brotli."""
    plain = UNPACKED / f"{name}.new"
    command = [node_command(), "-e", _UNPACK, str(PACKED / f"{name}.br"), str(plain)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S_MAX)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoProgram(f"Chromium cannot be unpacked into {UNPACKED}: {error}") from error
    return plain
