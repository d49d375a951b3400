"""Doing something as another user, in a forked child of the test."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

OTHER_UID = 65534
as_root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def as_other_user(action: Callable[[], str], *, uid: int = OTHER_UID) -> str:
    """What `action` returns when it runs as `uid`. A fork without exec, because another user may
    not be allowed to read this machine's Python."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(writable, action().encode())
        except BaseException:  # noqa: BLE001 - the child must not go on as a second pytest
            os.write(writable, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def let_others_in(folder: Path) -> None:
    """Let other users pass through pytest's own folders; the test is about what lies below."""
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o111)
