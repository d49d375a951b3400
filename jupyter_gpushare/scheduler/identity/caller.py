"""The caller of an HTTP request, once they are known."""

from __future__ import annotations

import os
from dataclasses import dataclass

from jupyter_gpushare.client.connection import user_name

from .tokens import owner_key


@dataclass(frozen=True, slots=True)
class Caller:
    """`hub_user` is empty where the account counts; then root and our own account are admins, but
    not from inside a container (`is_local`)."""

    uid: int
    hub_user: str = ""
    hub_admin: bool = False
    is_local: bool = True

    @property
    def key(self) -> str:
        """Equal for two callers that are the same owner, and for a tenant's record of theirs."""
        return owner_key(self.uid, self.hub_user)

    @property
    def name(self) -> str:
        return self.hub_user or user_name(self.uid)

    @property
    def is_admin(self) -> bool:
        if self.hub_user:
            return self.hub_admin
        return self.is_local and self.uid in (0, os.getuid())
