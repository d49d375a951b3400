"""`setup(c)`: everything that a hub needs, added to what the administrator has configured.

It may be called twice, and from a file that is loaded by another one. Call it last, so that it sees
what is there: it appends and updates, and takes nothing away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from jupyter_gpushare.client.paths import HUB_VERSION, WITHOUT_HUB
from jupyter_gpushare.version import __version__

from .options import SECTION, GPUShare, ReadSection, check_flags, options_from
from .platforms import PLATFORMS
from .roles import OWN_USE, with_our_roles
from .scopes import CUSTOM_SCOPES
from .spawners import SWITCHED_OFF, add_environment, add_scopes, server_environment
from .view import ACCESS, report_flags, runs_here, with_our_view

SERVICE = "gpushare"
_COMMAND = [sys.executable, "-m", "jupyter_gpushare.cli.main", "scheduler"]
_PASSED_ON = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")
"""What the scheduler must see as the hub does; a hub gives its services little of its own."""


def setup(c: Config) -> None:
    """Add the scheduler, its scopes and roles, and the servers' environment to a hub's `c`.

    Raises OptionError for an entry of `c.GPUShare` that cannot be used, now or later.
    """
    options = options_from(c)
    if options.scheduler_args:
        check_flags(_COMMAND, options.scheduler_args)
    _add_all(c, options)
    c[SECTION] = ReadSection.of(c[SECTION])


def _add_all(c: Config, options: GPUShare) -> None:
    hub = c.JupyterHub
    # A hub fails at each token with a scope that it does not know: backing out keeps the names.
    hub.custom_scopes = {**CUSTOM_SCOPES, **_value(hub, "custom_scopes", {})}
    if not options.enabled:
        add_environment(c, SWITCHED_OFF)
        return
    _configure_roles(c, options)
    _add_services(c, options)
    if options.names_directory:
        add_environment(c, server_environment(options.directory, options.without_hub))
    else:
        add_environment(c, {WITHOUT_HUB: options.without_hub})
    add_environment(c, {HUB_VERSION: __version__})
    add_scopes(c)
    PLATFORMS[options.platform](c, options)


def _add_services(c: Config, options: GPUShare) -> None:
    hub = c.JupyterHub
    services, reports = _value(hub, "services", []), []
    if options.view:
        services = with_our_view(services, options)
        reports = report_flags(options) if runs_here(services) else []
    if options.starts_scheduler:
        services = _with_our_service(services, service_spec(options, reports))
    if options.view or options.starts_scheduler:
        hub.services = services


def service_spec(
    options: GPUShare, reports: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The scheduler as a service that the hub starts, and starts again when it ends. `reports` are
    its flags for the view."""
    env = os.environ if environ is None else environ
    passed_on = {name: env[name] for name in _PASSED_ON if name in env}
    return {
        "name": SERVICE,
        "command": [
            *_COMMAND,
            "--serve-all-users",
            "--hub",
            f"--hub-pid={os.getpid()}",
            f"--runtime-dir={options.directory}",
            *reports,
            *options.flags,
        ],
        "environment": {**passed_on, **_texts(options.scheduler_environment)},
    }


def _configure_roles(c: Config, options: GPUShare) -> None:
    hub = c.JupyterHub
    extra_user_scopes = _hub_has_extra_user_scopes()
    admin_users = options.admin_users
    if admin_users is None:
        admin_users = set() if _authenticator_manages_roles(c) else _hubs_admins(c)
    user_scopes = [OWN_USE, ACCESS] if options.view else [OWN_USE]
    hub.load_roles = with_our_roles(
        _value(hub, "load_roles", []),
        user_role_too=not extra_user_scopes,
        user_scopes=user_scopes,
        admin_users=admin_users,
        admin_groups=options.admin_groups,
    )
    if extra_user_scopes and not _redefines_user_role(hub.load_roles):
        hub.extra_user_scopes = {*_value(hub, "extra_user_scopes", set()), *user_scopes}


def _texts(variables: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in variables.items()}


def _redefines_user_role(roles: list[dict[str, Any]]) -> bool:
    """Then the hub ignores extra_user_scopes, and our scope is in that role."""
    return any(role.get("name") == "user" and "scopes" in role for role in roles)


def _hub_has_extra_user_scopes() -> bool:
    """JupyterHub 6.0 and later; before it, adding to the role `user` meant to define it anew."""
    return int(version("jupyterhub").partition(".")[0]) >= 6


def _hubs_admins(c: Config) -> set[str]:
    """`c.Authenticator.admin_users` and those of the authenticator's own class."""
    sections = [c[name] for name in c if name.endswith("Authenticator")]
    return {name for s in sections for name in _value(s, "admin_users", set())}


def _authenticator_manages_roles(c: Config) -> bool:
    """Then the hub takes no role from its configuration that names users."""
    return any(c[n].get("manage_roles") is True for n in c if n.endswith("Authenticator"))


def _with_our_service(services: list[Any], spec: dict[str, Any]) -> list[Any]:
    """Ours in the place that it has, else behind the others. One of that name that somebody else
    has defined stays: they start the scheduler themselves."""
    found = [dict(s) if isinstance(s, Mapping) else s for s in services]
    for number, service in enumerate(found):
        if isinstance(service, dict) and service.get("name") == SERVICE:
            if list(service.get("command") or [])[: len(_COMMAND)] == _COMMAND:
                found[number] = spec
            return found
    return [*found, spec]


def _value(section: Any, name: str, empty: Any) -> Any:
    """What an entry has been set to; what has been added to it, where it has only been added to."""
    if name not in section:
        return empty
    value = section[name]
    return value.get_value(empty) if isinstance(value, LazyConfigValue) else value
