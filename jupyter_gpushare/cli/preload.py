"""`jupyter gpushare preload`: the hook in every program of an image, by /etc/ld.so.preload.

For kernels that start through a program which drops LD_PRELOAD. What stands in that file counts
for every program of the system. So nothing is written before a trial, and an entry with which
programs do not work is taken back.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from jupyter_gpushare.client.paths import LIBRARY_NAME, PACKAGED_LIBRARY
from jupyter_gpushare.kernel.environment import without_gpushare
from jupyter_gpushare.kernel.loadable import SYSTEM_PRELOADS, system_preloads, why_not_here

from .errors import UsageError

KEPT = Path("/usr/local/lib/jupyter-gpushare") / LIBRARY_NAME
"""The copy that programs load: an upgrade of the package does not touch it."""
_TRIAL_S = 30.0
_TRIALS = (["/bin/sh", "-c", ":"], [sys.executable, "-I", "-S", "-c", "pass"])
_VERBS = {
    "install": "name a copy of the hook there, once a trial has shown that programs work with it",
    "remove": "take that entry away, and then the copy",
    "show": "say whether the hook is named there",
}


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "preload",
        help="for images whose kernels lose LD_PRELOAD: name the hook in /etc/ld.so.preload",
        description="Name the hook in /etc/ld.so.preload of an image whose kernels start through a "
        "program that drops LD_PRELOAD (sudo, file capabilities). In programs that are no kernels "
        "it does nothing.",
    )
    parser.add_argument(
        "action", choices=_VERBS, help="; ".join(f"{verb}: {what}" for verb, what in _VERBS.items())
    )
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    try:
        if arguments.action == "install":
            _install()
        elif arguments.action == "remove":
            _remove()
    except OSError as error:
        raise UsageError(
            f"{error.filename or SYSTEM_PRELOADS} cannot be changed: {error.strerror}. Run this as "
            f"root, while the image is built."
        ) from error
    is_named = KEPT in system_preloads()
    print(f"{SYSTEM_PRELOADS} {'names' if is_named else 'does not name'} {KEPT}.")
    return 0


def _install() -> None:
    image = PACKAGED_LIBRARY.read_bytes()
    if problem := why_not_here(image, str(PACKAGED_LIBRARY)):
        raise UsageError(f"{problem} Nothing was written.")
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    _replace(KEPT, image)
    if complaint := _trial({"LD_PRELOAD": str(KEPT)}):
        raise UsageError(
            f"A program that has {KEPT} does not work here as before: {complaint} Nothing was "
            f"written to {SYSTEM_PRELOADS}. Use an image with a newer glibc."
        )
    if KEPT in system_preloads():
        return
    before = _content()
    _write([*before, str(KEPT)])
    if complaint := _trial({}):
        _write(before)
        raise UsageError(
            f"With {KEPT} in {SYSTEM_PRELOADS}, programs do not work as before: {complaint} The "
            f"entry has been taken back. Use an image with a newer glibc."
        )


def _remove() -> None:
    """The entry first: a program that does not find the library prints a line."""
    before = _content()
    kept = [line for line in before if line.strip() != str(KEPT)]
    if kept != before:
        _write(kept)
    with contextlib.suppress(FileNotFoundError):
        KEPT.unlink()


def _trial(extra: dict[str, str]) -> str:
    """What is wrong with small programs that start so; empty where nothing is."""
    for command in _TRIALS:
        try:
            done = subprocess.run(
                command,
                env={**without_gpushare(os.environ), **extra},
                capture_output=True,
                text=True,
                timeout=_TRIAL_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{error}."
        if done.returncode or "ld.so" in done.stderr:
            said = done.stderr.strip().splitlines() or [f"it ends with {done.returncode}"]
            return f"{said[-1]}."
    return ""


def _content() -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return SYSTEM_PRELOADS.read_text().splitlines()
    return []


def _write(lines: list[str]) -> None:
    """In one step. An empty file would be read by every program for nothing."""
    if lines:
        _replace(SYSTEM_PRELOADS, "".join(f"{line}\n" for line in lines).encode())
    else:
        SYSTEM_PRELOADS.unlink()


def _replace(path: Path, content: bytes) -> None:
    """Programs that start meanwhile read the old one or the new one."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as new:
        try:
            new.write(content)
            new.flush()
            os.fchmod(new.fileno(), 0o644)
            Path(new.name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(new.name).unlink()
            raise
