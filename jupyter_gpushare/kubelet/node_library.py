"""The node's hook: a copy of this installation's library in a directory of the node, from which
containers get it. Hook and scheduler of a node so are of one version, whatever an image has.

A new copy takes the old one's place in one step: running kernels keep theirs, new ones get the new
one. A container has the directory and not the file, so it sees the new copy as well.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from jupyter_gpushare.kernel.environment import LIBRARY_NAME, LibraryMissing, library_path


class CannotKeep(Exception):
    """The message says why, and what to do."""


def keep_library(directory: Path) -> None:
    """Put this installation's library there. Raises CannotKeep."""
    try:
        wanted = library_path({}).read_bytes()
    except LibraryMissing as error:
        raise CannotKeep(str(error)) from error
    except OSError as error:
        raise CannotKeep(
            f"The hook's library cannot be read: {error.strerror}. Reinstall jupyter-gpushare."
        ) from error
    copy = directory / LIBRARY_NAME
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not copy.is_file() or copy.read_bytes() != wanted:
            _replace(copy, wanted)
    except OSError as error:
        raise CannotKeep(
            f"The hook's library cannot be copied to {directory}: {error.strerror}. Let the plugin "
            f"write there, or name another directory in --library-dir."
        ) from error


def _replace(copy: Path, content: bytes) -> None:
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
