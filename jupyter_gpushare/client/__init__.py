"""Speaking to the scheduler over its HTTP socket: for the command line and the kernel provisioner.

Standard library only, and nothing of the scheduler's insides.
"""

from .api import AsyncSchedulerClient, SchedulerClient, TenantRegistration
from .errors import ClientError, RequestRefused, SchedulerUnavailable, SchedulerUntrusted
from .paths import HOOK_SOCKET, HTTP_SOCKET, hook_socket_path, http_socket_path, runtime_dir
from .stream import StatusStream

__all__ = [
    "HOOK_SOCKET",
    "HTTP_SOCKET",
    "AsyncSchedulerClient",
    "ClientError",
    "RequestRefused",
    "SchedulerClient",
    "SchedulerUnavailable",
    "SchedulerUntrusted",
    "StatusStream",
    "TenantRegistration",
    "hook_socket_path",
    "http_socket_path",
    "runtime_dir",
]
