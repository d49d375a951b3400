"""Spawners for a test's hub. The hub imports this file by its path."""

from __future__ import annotations

import ctypes
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyterhub.spawner import SimpleLocalProcessSpawner

_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _AMBIENT_RAISE = 8, 47, 2
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522


class EmptyEnvironmentSpawner(SimpleLocalProcessSpawner):
    """As sudo and systemd do: a server gets what the spawner hands on and nothing of the hub's own
    environment, not even a PATH."""

    def get_env(self) -> dict[str, Any]:
        self.env_keep = []
        env: dict[str, Any] = super().get_env()
        env.pop("PATH", None)
        return env


class AccountsSpawner(EmptyEnvironmentSpawner):
    """Besides, an account for each user, who need not be known to the machine. It may read every
    file, for this Python may lie where only root looks; it is as powerless as any other else."""

    def make_preexec_fn(self, name: str) -> Callable[[], None]:
        uid, home = uid_of(name), Path(self.home_dir)
        home.mkdir(parents=True, exist_ok=True)
        os.chown(home, uid, uid)
        libc = ctypes.CDLL(None)

        def become_the_user() -> None:
            libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            mask = 1 << _CAP_DAC_READ_SEARCH
            header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
            sets = (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)
            failed = libc.capset(header, sets)
            failed |= libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)
            if failed:
                os._exit(os.EX_NOPERM)
            os.umask(0)  # the simulated device is files that all of them share
            os.chdir(home)

        return become_the_user


def uid_of(name: str) -> int:
    """Of a user's account here."""
    return 64_000 + zlib.crc32(name.encode()) % 1000
