"""Spawners for a test's hub. The hub imports this file by its path."""

from __future__ import annotations

from typing import Any

from jupyterhub.spawner import SimpleLocalProcessSpawner


class EmptyEnvironmentSpawner(SimpleLocalProcessSpawner):
    """As sudo and systemd do: a server gets what the spawner hands on and nothing of the hub's own
    environment, not even a PATH."""

    def get_env(self) -> dict[str, Any]:
        self.env_keep = []
        env: dict[str, Any] = super().get_env()
        env.pop("PATH", None)
        return env
