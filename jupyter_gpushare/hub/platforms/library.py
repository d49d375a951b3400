"""The copy of the hook's library that is mounted where servers run away from this installation.

It has a directory of its own, which outlives an upgrade: pip makes the package's directories anew,
and a container would keep the old ones, emptied. A new copy takes the old one's place in one step,
so running kernels keep theirs and new ones get the new one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from jupyter_gpushare.client.paths import LIBRARY_NAME, PACKAGED_LIBRARY

from ..errors import OptionError

_OTHERS_WRITE = 0o022


def kept_library(directory: Path) -> Path:
    """The directory, with this installation's library in it. Raises OptionError."""
    try:
        wanted = PACKAGED_LIBRARY.read_bytes()
    except OSError as error:
        raise OptionError(
            f"The hook's library {PACKAGED_LIBRARY} cannot be read: {error.strerror}. Reinstall "
            f"jupyter-gpushare from a wheel for this platform, or run `make build`."
        ) from error
    copy = directory / LIBRARY_NAME
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        _check(directory)
        if not copy.is_file() or copy.read_bytes() != wanted:
            _replace(copy, wanted)
    except OSError as error:
        raise OptionError(
            f"The hook's library cannot be copied to {directory}: {error.strerror}. Run this as "
            f"the account that runs the hub, or name another directory in c.GPUShare.library_dir."
        ) from error
    return directory


def _check(directory: Path) -> None:
    """Every kernel loads what lies here."""
    found = directory.stat()
    if found.st_uid not in (0, os.getuid()) or found.st_mode & _OTHERS_WRITE:
        raise OptionError(
            f"Others may write to {directory}, from which all kernels load a library. Run `chmod "
            f"go-w` on it as its owner, or name another directory in c.GPUShare.library_dir."
        )
    if os.statvfs(directory).f_flag & os.ST_NOEXEC:
        raise OptionError(
            f"{directory} lies on a file system that is mounted with `noexec`, so nothing can be "
            f"loaded from there. Name another directory in c.GPUShare.library_dir."
        )


def _replace(copy: Path, content: bytes) -> None:
    """In one step: whoever opens it meets the old one or the new one."""
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
