"""The copy of the hook's library that is mounted where programs run away from this installation: in
containers of a hub's machine, and in pods of a node. Hook and scheduler so are of one version,
whatever an image has.

It has a directory of its own, which outlives an upgrade: pip makes the package's directories anew,
and a container would keep the old ones, emptied. A new copy takes the old one's place in one step,
so running kernels keep theirs and new ones get the new one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from .paths import LIBRARY_NAME, PACKAGED_LIBRARY

_OTHERS_WRITE = 0o022


class CannotKeep(Exception):
    """The message says why, and what to do."""


def keep_library(directory: Path, *, named_in: str) -> None:
    """Put this installation's library there. `named_in` is where people name the directory. Raises
    CannotKeep."""
    try:
        wanted = PACKAGED_LIBRARY.read_bytes()
    except OSError as error:
        raise CannotKeep(
            f"The hook's library {PACKAGED_LIBRARY} cannot be read: {error.strerror}. Reinstall "
            f"jupyter-gpushare from a wheel for this platform, or run `make build`."
        ) from error
    copy = directory / LIBRARY_NAME
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        _check(directory, named_in)
        if not copy.is_file() or copy.read_bytes() != wanted:
            _replace(copy, wanted)
    except OSError as error:
        raise CannotKeep(
            f"The hook's library cannot be copied to {directory}: {error.strerror}. Let "
            f"{_account()} write there, or name another directory in {named_in}."
        ) from error


def _account() -> str:
    return "root" if os.getuid() == 0 else f"the account {os.getuid()}"


def _check(directory: Path, named_in: str) -> None:
    """Every kernel loads what lies here."""
    found = directory.stat()
    if found.st_uid not in (0, os.getuid()) or found.st_mode & _OTHERS_WRITE:
        raise CannotKeep(
            f"Others may write to {directory}, from which all kernels load a library. Run `chmod "
            f"go-w` on it as its owner, or name another directory in {named_in}."
        )
    if os.statvfs(directory).f_flag & os.ST_NOEXEC:
        raise CannotKeep(
            f"{directory} lies on a file system that is mounted with `noexec`, so nothing can be "
            f"loaded from there. Name another directory in {named_in}."
        )


def _replace(copy: Path, content: bytes) -> None:
    """Whoever opens it meets the old one or the new one."""
    with tempfile.NamedTemporaryFile(dir=copy.parent, prefix=".new-", delete=False) as new:
        try:
            new.write(content)
            new.flush()
            os.fchmod(new.fileno(), 0o755)
            Path(new.name).replace(copy)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(new.name).unlink()
            raise
