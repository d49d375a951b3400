"""Kernels that a gateway runs for this server, on another machine."""

from __future__ import annotations

from urllib.parse import urlsplit

from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.gateway.managers import GatewayKernelManager, GatewayMappingKernelManager


def why_elsewhere(manager: object) -> str:
    """For a manager of one kernel or of all: a sentence where a gateway runs them and one on what
    to do; else empty."""
    if not isinstance(manager, GatewayKernelManager | GatewayMappingKernelManager):
        return ""
    what = "This kernel runs" if isinstance(manager, GatewayKernelManager) else "Kernels run"
    return (
        f"{what} behind the gateway {_place(GatewayClient.instance().url or '')}, and its GPUs are "
        f"out of this server's sight. Install jupyter-gpushare on the gateway's machine to share "
        f"them there."
    )


def _place(url: str) -> str:
    """Where it is, and no password that may stand before it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else url
