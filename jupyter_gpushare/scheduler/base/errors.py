"""Errors of the scheduler's process, by whose fault they are."""

from __future__ import annotations


class StartError(Exception):
    """The scheduler cannot start here; the message says why and what to do."""

    exit_code = 1


class AlreadyServed(StartError):
    """Another scheduler serves this runtime directory."""

    exit_code = 3


class RequestError(Exception):
    """A request over HTTP that cannot be met, and the HTTP status for it. With `retry_after_s` it
    may be met later: the caller is told when to try again."""

    def __init__(self, status: int, message: str, *, retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
