"""Names of people and of their notebooks, made unreadable in the journal.

The same name has the same pseudonym for as long as the scheduler keeps its key, so that a journal
of a week still tells who is who among them. Nobody without the key can tell which name it was.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any

from jupyter_gpushare.core.settings import ENTRIES
from jupyter_gpushare.core.shares.entries import (
    GROUP_SIGN,
    TENANT_SIGN,
    is_tenant,
    name_of_tenant,
    parse_entries,
)

from .identity.tokens import key_of

_DIGITS = 8
_KNOWN_MAX = 10_000
"""So many pseudonyms are kept, because a name stands in many lines."""
_KINDS = {
    "owner": "owner",
    "name": "notebook",
    "holder": "notebook",
    "tenant_name": "notebook",
    "process_name": "process",
}
_TENANT_FIELDS = ("tenant", "holder_tenant")
_DEVICE_EVENT = "DeviceFound"
_WHO = re.compile(r"^(\w+ by|hello of) .*", re.DOTALL)
_TEXTS_LEFT_OUT = ("message",)
"""A report of a failure tells the events before it, with their names; the log has it."""


class Pseudonyms:
    """`key` is the scheduler's own; pseudonyms use another one that is made from it."""

    def __init__(self, key: bytes) -> None:
        self._key = hmac.digest(key, b"names in the journal", hashlib.sha256)
        self._known: dict[tuple[str, str], str] = {}

    def of(self, kind: str, name: str) -> str:
        """Empty for no name."""
        if not name:
            return ""
        if (kind, name) not in self._known:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            digest = hmac.digest(self._key, f"{kind}:{name}".encode(), hashlib.sha256)
            self._known[kind, name] = f"{kind}-{digest.hex()[:_DIGITS]}"
        return self._known[kind, name]

    def in_place_of_names(self, said: dict[str, Any]) -> dict[str, Any]:
        """An event or a command, as JSON, without the names of people."""
        if said["type"] == _DEVICE_EVENT:
            return said
        changed = dict(said)
        for field, value in said.items():
            if field in _KINDS:
                changed[field] = self.of(_KINDS[field], value)
            elif field in _TENANT_FIELDS and value is not None:
                changed[field] = self._tenant(value)
            elif field == "groups" and value is not None:
                changed[field] = [self.of("group", group) for group in value]
            elif field == "settings":
                hidden = {name: self._entries(value[name]) for name in ENTRIES if name in value}
                changed[field] = {**value, **hidden}
            elif field in _TEXTS_LEFT_OUT:
                changed[field] = "left out"
            elif field == "cause":
                changed[field] = _WHO.sub(r"\1 somebody", value)
        return changed

    def _entries(self, text: str) -> str:
        """Of users and groups."""
        hidden = []
        entries = parse_entries(text, what="entry", example="", read=lambda name, value: value)
        for name, value in entries.items():
            group, (owner, _, notebook) = name.removeprefix(GROUP_SIGN), name.partition(TENANT_SIGN)
            if group != name:
                who = GROUP_SIGN + self.of("group", group)
            elif is_tenant(name):
                who = name_of_tenant(self.of("owner", owner), self.of("notebook", notebook))
            else:
                who = self.of("owner", name)
            hidden.append(f"{who}={value}")
        return ", ".join(hidden)

    def _tenant(self, tenant: str) -> str:
        """A tenant's id begins with its owner."""
        owner = key_of(tenant)
        if owner is None:
            return self.of("tenant", tenant)
        return self.of("owner", owner).removeprefix("owner-") + tenant.removeprefix(owner)
