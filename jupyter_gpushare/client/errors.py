"""What can go wrong between us and the scheduler. Each message is one sentence on what is wrong
and one on what to do, so that it can be shown to a person as it is."""

from __future__ import annotations


class ClientError(Exception):
    """Base of the three errors below."""


class SchedulerUnavailable(ClientError):
    """Nobody answers on the socket."""


class SchedulerUntrusted(ClientError):
    """Somebody answers who is neither root, nor the service account, nor ourselves."""


class RequestRefused(ClientError):
    """The scheduler answered with an error; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
