"""Whom the scheduler knows: users and groups of notebooks, and accounts of the system."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterable

from jupyter_gpushare.core.configuration.checks import unseen
from jupyter_gpushare.core.settings import SchedulerSettings

_MAX = 100_000


class Names:
    """`accounts`: users are accounts of the system, and not those of a hub."""

    def __init__(self, *, accounts: bool = True) -> None:
        self._accounts = accounts
        self._users: set[str] = set()
        self._groups: set[str] = set()

    def note(self, user: str, groups: Iterable[str] | None) -> None:
        """A notebook of a user has come, who is in these groups."""
        if len(self._users) < _MAX and len(self._groups) < _MAX:
            self._users.add(user)
            self._groups.update(groups or ())

    def is_user(self, name: str) -> bool:
        return name in self._users or (self._accounts and _has_account(name))

    def is_group(self, name: str) -> bool:
        return name in self._groups or (self._accounts and _has_group(name))

    def unseen(self, settings: SchedulerSettings) -> dict[str, list[str]]:
        """By setting, the names in it of nobody."""
        return unseen(settings, is_user=self.is_user, is_group=self.is_group)


def _has_account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except (KeyError, ValueError, OSError):
        return False
    return True
