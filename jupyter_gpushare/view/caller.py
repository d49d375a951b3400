"""Who asks the view. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Viewer:
    """A user of the hub. An administrator has the scope `custom:gpushare:admin`."""

    name: str
    is_admin: bool
