"""Who a node is, by the token that it shows: its name comes from there and from nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from jupyter_gpushare.reports.node_tokens import (
    TOKEN_CHARACTERS_MAX,
    Tokens,
    TokensError,
    read_tokens,
)

log = logging.getLogger(__name__)


class NodeRefused(Exception):
    """The message is a sentence for the node's log."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Credentials(Protocol):
    """Raises NodeRefused for a token that is nobody's (401), may not report (403), or of which
    nobody can say whose it is now (503)."""

    def may_know(self, token: str) -> bool:
        """Whether the token has the form of those that are known here."""

    async def name_of(self, token: str) -> str: ...


class FileTokens:
    """Of a file, which is read anew when it has changed: a removed line counts at once."""

    def __init__(self, path: Path) -> None:
        """Raises TokensError."""
        self._path = path
        self._tokens = Tokens()
        self._seen: tuple[int, int, int] | None = None
        self._look()

    def may_know(self, token: str) -> bool:
        return True

    async def name_of(self, token: str) -> str:
        try:
            self._look()
        except TokensError as error:
            raise NodeRefused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        name = self._tokens.name_of(token)
        if name is None:
            raise NodeRefused(
                HTTPStatus.UNAUTHORIZED,
                "The view does not know this node token. Make a new one with `jupyter gpushare "
                "view token NODE` where the view runs, and give it to the node's scheduler.",
            )
        return name

    def _look(self) -> None:
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        except OSError:
            seen = None  # reading says why
        if seen is not None and seen == self._seen:
            return
        tokens = read_tokens(self._path)
        self._tokens, self._seen = tokens, seen
        if tokens.wrong:
            numbers = ", ".join(map(str, tokens.wrong[:5]))
            log.warning("%s: no node token can be read in line %s", self._path, numbers)


class EitherOf:
    """Several kinds of credentials: the first one counts that may know the token."""

    def __init__(self, kinds: Sequence[Credentials]) -> None:
        self._kinds = kinds

    def may_know(self, token: str) -> bool:
        return any(each.may_know(token) for each in self._kinds)

    async def name_of(self, token: str) -> str:
        if not (token.isascii() and token.isprintable() and len(token) <= TOKEN_CHARACTERS_MAX):
            raise NodeRefused(
                HTTPStatus.UNAUTHORIZED,
                "What the node has sent is not a token. Look at the file that "
                "--report-token-file names.",
            )
        for each in self._kinds:
            if each.may_know(token):
                return await each.name_of(token)
        raise NodeRefused(
            HTTPStatus.UNAUTHORIZED,
            "This view knows no tokens of this kind. Give the node a token of the kind that the "
            "view was started for.",
        )
