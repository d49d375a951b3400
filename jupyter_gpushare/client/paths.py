"""Where the scheduler's sockets and the hook lie, and as whom to speak to it. The scheduler itself
asks here too, so that both agree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

HOOK_SOCKET = "hook.sock"
HTTP_SOCKET = "http.sock"
TENANTS_DIR = "tenants"
"""In the runtime directory of a hub's scheduler: sockets alone, which may be mounted anywhere."""
PLUGIN_PROBLEMS = "plugin-problems.json"
"""In the runtime directory of a Kubernetes node: what its device plugin has found."""
SOCKET_PATH_BYTES_MAX = 107
"""Nobody can connect to a longer one (unix(7))."""
RUNTIME_DIR = "GPUSHARE_RUNTIME_DIR"
SCHEDULER_UID = "GPUSHARE_SCHEDULER_UID"
LIBRARY = "GPUSHARE_LIBRARY"
"""Another library of the hook than the one that this package has."""
LIBRARY_NAME = "libgpushare.so"
PACKAGED_LIBRARY = Path(__file__).parent.parent / "lib" / LIBRARY_NAME
TENANTS_INSIDE = "/run/jupyter-gpushare"
LIBRARY_INSIDE = "/usr/lib/jupyter-gpushare"
"""Where the tenants' directory and that of the node's hook are within a container."""
ENVIRONMENT_INSIDE: Mapping[str, str] = MappingProxyType(
    {RUNTIME_DIR: TENANTS_INSIDE, LIBRARY: f"{LIBRARY_INSIDE}/{LIBRARY_NAME}"}
)
HUB_TOKEN = "JUPYTERHUB_API_TOKEN"
HUB_VERSION = "GPUSHARE_HUB_VERSION"
"""Of this package where the hub runs, for the doctor of a server."""
WITHOUT_HUB = "GPUSHARE_WITHOUT_HUB"
"""What becomes of a kernel that starts while its JupyterHub cannot be reached: with `wait` it waits
for the hub, else it starts and does not share the GPU. The administrator sets it."""


def runtime_dir(environ: Mapping[str, str] | None = None) -> Path:
    """The runtime directory that the environment leads to; it need not exist."""
    env = os.environ if environ is None else environ
    if named := env.get(RUNTIME_DIR):
        return Path(named)
    if session := env.get("XDG_RUNTIME_DIR"):
        return Path(session) / "jupyter-gpushare"
    return Path("/tmp") / f"jupyter-gpushare-{os.getuid()}"


def hook_socket_path(environ: Mapping[str, str] | None = None) -> Path:
    """The socket that hooks connect to."""
    return runtime_dir(environ) / HOOK_SOCKET


def http_socket_path(environ: Mapping[str, str] | None = None) -> Path:
    """The socket that answers HTTP."""
    return runtime_dir(environ) / HTTP_SOCKET


def own_hub_token(environ: Mapping[str, str] | None = None) -> str:
    """The token that a JupyterHub has given this server, and all that runs in it; empty elsewhere.
    Only a scheduler whose account is trusted ever sees it."""
    return (os.environ if environ is None else environ).get(HUB_TOKEN, "")


def hub_provides(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a JupyterHub has said where the scheduler is, and so sees to it that there is one."""
    env = os.environ if environ is None else environ
    return bool(own_hub_token(env) and env.get(RUNTIME_DIR))


def is_anothers(directory: Path) -> bool:
    """Whether it belongs to another account, such as root's on a node of a cluster, which sees to
    its scheduler: one of ours could not serve there."""
    try:
        return directory.stat().st_uid != os.getuid()
    except OSError:
        return False


def trusted_uids(environ: Mapping[str, str] | None = None) -> frozenset[int]:
    """The accounts whose scheduler we trust: root, our own, and a named service account."""
    service = (os.environ if environ is None else environ).get(SCHEDULER_UID, "")
    named = {int(service)} if service.isascii() and service.isdigit() else set()
    return frozenset({0, os.getuid()} | named)
