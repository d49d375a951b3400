"""What can go wrong in the core, by whose fault it is. A raising `handle` has changed nothing,
except for errors of ours, which are bugs."""

from __future__ import annotations

import enum
from typing import ClassVar


class Fault(enum.Enum):
    """Who has to change something."""

    OURS = "ours"
    """A bug here: log it with the story, go on."""
    PEER = "peer"
    """A client: refuse or close that one."""
    REQUEST = "request"
    """Whoever asked over HTTP: answer with the sentence."""


class CoreError(Exception):
    """Base of all errors that `Scheduler.handle` raises."""

    fault: ClassVar[Fault] = Fault.OURS


class UnknownTenant(CoreError):
    """The request names a tenant that does not exist (any more)."""

    fault = Fault.REQUEST


class WrongOwner(CoreError):
    """A tenant id is registered again, but for somebody else."""

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


class InvalidTransition(CoreError):
    """The transition tables have no such row; the text ends with the tenant's story."""
