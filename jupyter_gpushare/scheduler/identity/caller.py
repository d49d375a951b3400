"""The caller of an HTTP request, once they are known."""

from __future__ import annotations

import functools
import grp
import os
import pwd
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
    hub_groups: tuple[str, ...] = ()
    """As the hub says. Nothing that the caller sends changes that."""

    @property
    def key(self) -> str:
        """Equal for two callers that are the same owner, and for a tenant's record of theirs."""
        return owner_key(self.uid, self.hub_user)

    @property
    def name(self) -> str:
        return self.hub_user or user_name(self.uid)

    @property
    def groups(self) -> tuple[str, ...]:
        """Those that weights may name."""
        return self.hub_groups if self.hub_user else groups_of_account(self.uid)

    @property
    def is_admin(self) -> bool:
        if self.hub_user:
            return self.hub_admin
        return self.is_local and self.uid in (0, os.getuid())


@functools.lru_cache(maxsize=4096)
def groups_of_account(uid: int) -> tuple[str, ...]:
    """As the system says. Looked up once: where users live in a directory service, each look-up may
    take a while, and the scheduler's loop would stand still for it."""
    try:
        account = pwd.getpwuid(uid)
        gids = os.getgrouplist(account.pw_name, account.pw_gid)
    except (KeyError, OSError):
        return ()
    return tuple(sorted(filter(None, map(_group_name, gids))))


def _group_name(gid: int) -> str:
    """Empty for a group without a name."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
