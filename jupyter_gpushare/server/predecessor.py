"""A scheduler of an older package than this server's, which a newer one may replace. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jupyter_gpushare.version import __version__

_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


class Predecessor:
    """What is known of the scheduler at the other end, from one status to the next."""

    def __init__(self, *, replaceable: bool, version: str = __version__) -> None:
        """`replaceable`: this server starts schedulers. `version` is this server's own."""
        self._replaceable = replaceable
        self._ours = version
        self._theirs = ""
        self._in_use = True
        self._refusal = ""

    def tells(self, status: Mapping[str, Any]) -> None:
        """Of one whose status has a form that we do not know, nothing is known."""
        try:
            self._theirs = str(status["scheduler"]["version"])
            self._in_use = any(tenant["clients"] for tenant in status["tenants"])
        except (KeyError, TypeError):
            self._theirs = ""

    def refuses(self, sentences: str) -> None:
        """It will not end, whatever happens: what is wrong, and what to do."""
        self._refusal = sentences

    @property
    def may_be_asked_to_end(self) -> bool:
        return self._is_older and self._replaceable and not self._in_use and not self._refusal

    @property
    def notice(self) -> str:
        """For people, while it serves; empty where it is none."""
        if not self._is_older:
            return ""
        what = f"The scheduler is still that of an older jupyter-gpushare ({self._theirs})"
        if self._refusal:
            return f"{what}. {self._refusal}"
        if not self._replaceable:
            return f"{what}. Ask whoever looks after it to restart it with {self._ours}."
        return f"{what}; a newer one takes its place once no kernel has the GPU open."

    @property
    def _is_older(self) -> bool:
        return is_older(self._theirs, self._ours)


def is_older(theirs: str, ours: str) -> bool:
    """By release alone: `0.2.0a1` and `0.2.0` are the same. Another text is not older."""
    release_of_theirs, release_of_ours = _release(theirs), _release(ours)
    if release_of_theirs is None or release_of_ours is None:
        return False
    return release_of_theirs < release_of_ours


def _release(version: str) -> tuple[int, ...] | None:
    found = _RELEASE.match(version)
    return tuple(int(part or 0) for part in found.groups()) if found else None
