"""Asks the kubelet of this node, where its socket is to be seen: in the plugin's container."""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_gpushare.kubelet.pods import SOCKET

from .facts import NodeFacts


def node_facts(socket: Path = SOCKET) -> NodeFacts:
    """A few seconds at most."""
    if not os.access(socket, os.W_OK):  # not there, or not for us: this is no node's doctor
        return NodeFacts()
    try:
        from jupyter_gpushare.kubelet.pod_resources import KubeletSilent, node_devices
    except ImportError as error:
        return NodeFacts(
            socket=str(socket),
            problem=f"The kubelet of this node cannot be asked who has a GPU: {error}. Install "
            f"jupyter-gpushare[kubernetes].",
        )
    try:
        return NodeFacts(socket=str(socket), devices=node_devices(socket))
    except KubeletSilent as error:
        return NodeFacts(
            socket=str(socket),
            problem=f"The kubelet does not answer at {socket}: {error}. Look into its log.",
        )
