"""What can go wrong in the core, by whose fault it is.

`Scheduler.handle` raises errors of peers and requests, and has then changed nothing. Errors of ours
are bugs: it starts anew from its clients, and reports them (`commands.ReportFailure`).
"""

from __future__ import annotations

import enum
from typing import ClassVar


class Fault(enum.Enum):
    """Whose mistake it is."""

    OURS = "ours"
    """A bug here: it is logged with the story of the tenant, and the scheduler starts anew."""
    PEER = "peer"
    """A client: its connection is closed."""
    REQUEST = "request"
    """A caller over HTTP: the sentence is the answer."""


class CoreError(Exception):
    """Base of all errors that the core raises by intention."""

    fault: ClassVar[Fault] = Fault.OURS


class UnknownTenant(CoreError):
    """The request names a tenant that does not exist (any more)."""

    fault = Fault.REQUEST


class NoSuchDevice(CoreError):
    """The request names a device that does not exist (any more)."""

    fault = Fault.REQUEST


class WrongOwner(CoreError):
    """A tenant id is registered again, but for somebody else."""

    fault = Fault.REQUEST


class ClassNotAllowed(CoreError):
    """The request asks for a class that there is not, or that the tenant's owner may not use."""

    fault = Fault.REQUEST


class NeedNotMet(CoreError):
    """A tenant that runs asks for what it cannot have on its devices; its need of before stays."""

    fault = Fault.REQUEST


class TenantGone(CoreError):
    """A process joins a tenant that does not exist (any more)."""

    fault = Fault.PEER


class UnknownDevice(CoreError):
    """A client opened a device that nobody announced with DeviceFound."""

    fault = Fault.PEER


class TooManyClients(CoreError):
    """`clients_max` processes are here already."""

    fault = Fault.PEER


class UnknownClient(CoreError):
    """An event names a client that never joined, or that has been lost."""


class DuplicateClient(CoreError):
    """A client id was used twice."""


class NeverSettles(CoreError):
    """Turns and memory ask for each other again and again."""


class RequestFailed(CoreError):
    """The core failed at a request, and has changed nothing for it; the caller may repeat it."""


class InvalidTransition(CoreError):
    """The transition tables have no such row; the text ends with the tenant's story."""
