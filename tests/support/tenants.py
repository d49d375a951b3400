"""Programs that are tenants of a scheduler on the machine under test."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_gpushare.client import HOOK_SOCKET
from jupyter_gpushare.kernel.environment import tenant_environment
from jupyter_gpushare.scheduler.identity.tokens import (
    KEY_FILE,
    TenantRecord,
    TokenSigner,
    new_tenant_id,
    owner_key,
)
from tests.support.paths import HOOK_LIBRARY
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler


class Tenants:
    """A running scheduler and the environments of the tenants that it is given."""

    def __init__(self, scheduler: SchedulerUnderTest) -> None:
        self._scheduler = scheduler

    def env(self, name: str, base_env: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process that is to be a new tenant of this name."""
        registration = self._scheduler.tenant(name, "run")
        return tenant_environment(
            base_env,
            socket=registration.socket,
            token=registration.token,
            library=HOOK_LIBRARY,
        )

    def env_of(self, owner: str, name: str, base_env: Mapping[str, str]) -> dict[str, str]:
        """The same for a tenant of this user."""
        return self.of(owner, name, base_env)[1]

    def of(self, owner: str, name: str, base_env: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """The tenant's id too. The scheduler's own key signs the token, as a hub's scheduler signed
        it before a restart, so no further account is needed. The tenant goes when its last process
        ends."""
        directory = self._scheduler.directory
        signer = TokenSigner((directory / KEY_FILE).read_bytes())
        tenant_id = new_tenant_id(owner_key(os.getuid(), owner))
        record = TenantRecord(tenant_id, os.getuid(), name, "run", hub_user=owner)
        return tenant_id, tenant_environment(
            base_env,
            socket=str(directory / HOOK_SOCKET),
            token=signer.issue(record),
            library=HOOK_LIBRARY,
        )

    @contextmanager
    def passing(self, name: str, base_env: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """A tenant that is removed at the end, as `run` does."""
        env = self.env(name, base_env)
        try:
            yield env
        finally:
            tenant_ids = [t["id"] for t in self.status()["tenants"] if t["name"] == name]
            for tenant_id in tenant_ids:
                self._scheduler.client.remove_tenant(tenant_id)

    def status(self) -> dict[str, Any]:
        return self._scheduler.status()


@contextmanager
def tenants(
    directory: Path,
    machine_env: Mapping[str, str],
    *,
    quantum_s: float | None = None,
    journal: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Tenants]:
    """A scheduler for the machine's devices, as it runs in production (no checks)."""
    options = [f"--GPUShareScheduler.{name}={value}" for name, value in (settings or {}).items()]
    if quantum_s is not None:
        options.append(f"--quantum={quantum_s}")
    if journal is not None:
        options.append(f"--journal={journal}")
    env = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", **machine_env}  # those that are there
    with running_scheduler(directory, *options, env=env, check=False) as scheduler:
        yield Tenants(scheduler)
