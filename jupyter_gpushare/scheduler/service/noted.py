"""What a tenant's user should know of its class and of holds that were refused, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_gpushare.core.shares.classes import CLASSES

from ..base.names import printable_line

CLASS_CHARACTERS_MAX = 16
HOLD_REFUSED = (
    "The GPU is not kept by hand for this notebook: its user has had more than their share, and "
    "others wait. Try again when these have had theirs."
)


def class_of(request: Mapping[str, Any]) -> str:
    """The class in a request, by its name. Whatever stands there, the tenant is registered."""
    said = request.get("class")
    text = "" if said is None else str(said)
    return printable_line(text)[:CLASS_CHARACTERS_MAX].strip() or "?" * bool(text)


def class_note(tenant: Mapping[str, Any]) -> str | None:
    """Why it does not run as it has asked to."""
    asked, runs_as = tenant["asked_class"], tenant["runs_as"]
    if asked in ("", runs_as):
        return None
    if asked not in CLASSES:
        names = ", ".join(CLASSES)
        return (
            f"There is no class {asked!r}, so this notebook runs as {runs_as}. Ask for one of: "
            f"{names}."
        )
    return (
        f"This notebook asked for the class {asked}, which {tenant['owner']} may not use, so it "
        f"runs as {runs_as}. Ask an administrator to allow it in the setting `allowed_classes`."
    )


def hold_note(tenant: Mapping[str, Any]) -> str | None:
    """Why its turn is not kept by hand."""
    return HOLD_REFUSED if tenant["hold_refused"] else None
