"""`c.GPUShare` in jupyterhub_config.py: what an administrator may choose, checked once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

ROOTS_RUNTIME_DIR = Path("/run/jupyter-gpushare")


class OptionError(ValueError):
    """An entry of `c.GPUShare` cannot be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """All of them have defaults that suit a hub of one machine."""

    enabled: bool = True
    """False: out again at once. The names of our scopes stay, for the tokens that have them."""
    runtime_dir: str = ""
    """Where the scheduler's sockets are; empty: /run/jupyter-gpushare for a hub that is root's."""
    scheduler_args: list[str] = field(default_factory=list)
    """More flags of `jupyter gpushare scheduler`, such as `--quantum=5`."""
    scheduler_environment: dict[str, str] = field(default_factory=dict)
    """More variables for the scheduler, such as CUDA_VISIBLE_DEVICES."""
    admin_users: list[str] | None = None
    """Who may act on everybody's kernels; by default the hub's admin_users."""
    admin_groups: list[str] = field(default_factory=list)
    """Groups of the hub whose members may do so too."""

    @property
    def directory(self) -> Path:
        if self.runtime_dir:
            return Path(self.runtime_dir)
        uid = os.getuid()
        return ROOTS_RUNTIME_DIR if uid == 0 else Path("/tmp") / f"jupyter-gpushare-{uid}"


_KINDS: dict[str, type | tuple[type, ...]] = {
    "enabled": bool,
    "runtime_dir": (str, Path),
    "scheduler_args": (list, tuple),
    "scheduler_environment": dict,
    "admin_users": (list, tuple, set),
    "admin_groups": (list, tuple, set),
}


def options_from(section: Mapping[str, Any]) -> HubOptions:
    """The section as a value; raises OptionError."""
    names = [f.name for f in fields(HubOptions)]
    given: dict[str, Any] = {}
    for name, value in section.items():
        if name not in names:
            raise OptionError(
                f"c.GPUShare has no {name!r}. Use one of: {', '.join(sorted(names))}."
            )
        if not isinstance(value, _KINDS[name]):
            raise OptionError(
                f"c.GPUShare.{name} cannot be {value!r}. See the page docs/hub.md for what it "
                f"means."
            )
        given[name] = _plain(value)
    options = HubOptions(**given)
    if not options.directory.is_absolute():
        raise OptionError(
            f"c.GPUShare.runtime_dir is {options.runtime_dir!r}, which is no absolute path. Give "
            f"one that starts with a slash."
        )
    return options


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {str(k): str(v) for k, v in value.items()}
    return value if isinstance(value, str | bool) else [str(entry) for entry in value]
