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
    """The scheduler answered with an error; `status` is the HTTP status. `may_be_met_later`: it
    says that the same request is worth another try."""

    def __init__(self, status: int, message: str, *, may_be_met_later: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.may_be_met_later = may_be_met_later
