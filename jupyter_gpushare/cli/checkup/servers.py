"""Looks at how Jupyter is set up here: provisioners, server extension, kernelspecs, the hub."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_core.application import JupyterApp
from jupyter_core.paths import jupyter_config_path

from jupyter_gpushare.client.paths import HUB_VERSION
from jupyter_gpushare.kernel.environment import DEFAULT_PROVISIONER, why_switched_off

from .facts import HubFacts, JupyterFacts
from .findings import PROVISIONER
from .hub_address import ask_hub

EXTENSION = "jupyter_gpushare"
_EXTENSION_OFF = "GPU sharing is switched off here: its server extension is disabled."


class _ServerConfig(JupyterApp):
    """Reads the configuration files that a Jupyter server reads, and starts nothing."""

    name = "jupyter-server"


def jupyter_facts(environ: Mapping[str, str]) -> JupyterFacts:
    unreadable = ""
    config: Mapping[str, Any] = {}
    try:
        # A configuration file is a program: it may print, raise, or end itself.
        with contextlib.redirect_stdout(sys.stderr):
            config = _server_config()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - reported as it is
        unreadable = f"{error!r}"
    factory = config.get("KernelProvisionerFactory", {})
    extensions = config.get("ServerApp", {}).get("jpserver_extensions")
    named = extensions.get(EXTENSION) if isinstance(extensions, dict) else None
    gateway = environ.get("JUPYTER_GATEWAY_URL") or config.get("GatewayClient", {}).get("url")
    enabled = _extension_enabled(jupyter_config_path()) if named is None else named
    return JupyterFacts(
        has_server=find_spec("jupyter_server") is not None,
        provisioners=frozenset(
            each.name for each in entry_points(group="jupyter_client.kernel_provisioners")
        ),
        extension_enabled=enabled,
        default_provisioner=str(factory.get("default_provisioner_name") or ""),
        default_by_environment=environ.get(DEFAULT_PROVISIONER, ""),
        own_provisioner_kernels=tuple(sorted(_foreign_provisioners())),
        gateway_url=str(gateway or ""),
        unreadable=unreadable,
        switched_off=why_switched_off(environ) or (_EXTENSION_OFF if enabled is False else ""),
    )


def hub_facts(environ: Mapping[str, str], *, root: Path = Path("/")) -> HubFacts:
    """Other users are known by their servers' environments, which our own uid may read. Who has no
    user (a node's scheduler) may have a hub all the same."""
    user = environ.get("JUPYTERHUB_USER", "")
    answer = ask_hub(environ)
    others = {name for name in _hub_users(root) if name != user} if user else set()
    return HubFacts(
        user=user,
        uid=os.getuid(),
        other_users=frozenset(others),
        address=answer.address,
        unreachable=answer.why_unreachable,
        clock_ahead_s=answer.clock_ahead_s,
        version=environ.get(HUB_VERSION, ""),
    )


def _server_config() -> Mapping[str, Any]:
    app = _ServerConfig()
    app.raise_config_file_errors = True
    app.load_config_file()
    config: Mapping[str, Any] = app.config
    return config


def _extension_enabled(folders: list[str]) -> bool | None:
    """What the files say, the weightiest last; None where no file names the extension."""
    said: bool | None = None
    for folder in reversed(folders):
        base = Path(folder)
        files = sorted((base / "jupyter_server_config.d").glob("*.json"))
        for path in [*files, base / "jupyter_server_config.json"]:
            try:
                extensions = json.loads(path.read_text())["ServerApp"]["jpserver_extensions"]
                said = bool(extensions[EXTENSION]) if EXTENSION in extensions else said
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return said


def _foreign_provisioners() -> Iterator[tuple[str, str]]:
    """Kernelspecs whose own word beats any default."""
    try:
        specs = KernelSpecManager().get_all_specs()
    except Exception:  # noqa: BLE001 - a broken kernelspec is not ours to report
        return
    for name, entry in specs.items():
        chosen = entry["spec"].get("metadata", {}).get("kernel_provisioner") or {}
        provisioner = chosen.get("provisioner_name", "")
        if provisioner and provisioner != PROVISIONER:
            yield name, str(provisioner)


def _hub_users(root: Path) -> Iterator[str]:
    for process in (root / "proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            name, _, value = variable.partition(b"=")
            if name == b"JUPYTERHUB_USER" and value:
                yield value.decode(errors="replace")
