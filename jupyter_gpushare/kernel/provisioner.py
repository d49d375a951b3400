"""Kernels that share the GPU: each start of a kernel is a tenant with a token of its own.

`GPUShareProvisioner` is for local kernels. `GPUShareMixin` gives the same to other people's
provisioners: `class Ours(GPUShareMixin, TheirProvisioner)`.

Nothing here may keep a kernel from starting or stopping. Whatever is wrong (no scheduler, no
library, a scheduler that does not answer) costs at most `request_timeout_s` and leaves a kernel
that runs as if this package were not there, with one sentence about it in the log and one in the
notebook. The turn of a kernel that ends never depends on what this side manages to say: the
scheduler sees the end of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Float

from jupyter_gpushare.client import (
    ClientError,
    RequestRefused,
    SchedulerClient,
    SchedulerUnavailable,
    TenantRegistration,
    http_socket_path,
)
from jupyter_gpushare.client.daemon_thread import on_daemon_thread
from jupyter_gpushare.client.paths import WITHOUT_HUB, hub_provides

from .console import WaitLine, is_console
from .environment import (
    LEAVE_FILE,
    MAY_LEAVE,
    SHIM_MODULE,
    LibraryMissing,
    python_environment,
    tenant_environment,
    why_left,
    why_switched_off,
    wish_of,
    without_gpushare,
)
from .loadable import loadable_library

if TYPE_CHECKING:
    # The mixin calls the methods of whatever comes after it; those of the base are abstract.
    _Provisioner = LocalProvisioner
else:
    _Provisioner = KernelProvisionerBase

Answer = TypeVar("Answer")

HUB_RETRY_S = 1.0
METADATA = "gpushare"
"""The entry of a kernelspec's metadata in which it says what it needs."""
_IPYKERNEL_NAMES = {"ipykernel", "ipykernel_launcher", "ipykernel_launcher.py"}


class KernelNotStarted(Exception):
    """The administrator wants no kernel to start as things are; the message says why."""


def is_for_want_of_hub(problem: ClientError, env: Mapping[str, str]) -> bool:
    """Whether it ends when the hub is back: the hub itself does not answer, or the scheduler that
    it provides is gone."""
    if isinstance(problem, RequestRefused):
        return problem.may_be_met_later
    return isinstance(problem, SchedulerUnavailable) and hub_provides(env)


class GPUShareMixin(_Provisioner):
    """Put it before a provisioner whose `pre_launch` answers with `env` and `cmd`."""

    request_timeout_s = Float(
        3.0, min=0.05, help="How long a kernel's start, interrupt or end waits for the scheduler."
    ).tag(config=True)

    hub_wait_s = Float(
        300.0, min=0.0, help="How long a kernel's start waits for the hub where the hub says so."
    ).tag(config=True)

    scheduler_decided: ClassVar[Callable[[], Awaitable[None]] | None] = None
    """Awaited before a kernel registers. A server that may be starting a scheduler at this moment
    sets it, so that its first kernel need not do without one."""
    tells_cells: bool = False
    """The kernel itself tells where its cells begin and end."""
    why_switched_off: str = ""
    """A sentence, where its environment says that it does not share the GPU."""

    _scheduler: SchedulerClient | None = None
    _tenant_id: str | None = None
    _wait_line: WaitLine | None = None

    @property
    def tenant_id(self) -> str | None:
        """What the kernel is to the scheduler; None while it does not share the GPU."""
        return self._tenant_id

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Add the tenant's environment and, for ipykernel, the bootstrap to the launch."""
        launch = await super().pre_launch(**kwargs)
        base_env = without_gpushare(launch.get("env") or {})
        self.why_switched_off = why_switched_off(base_env)
        if self.why_switched_off:
            # `%gpushare` is there and says so: a notebook with it runs on.
            return self._with_bootstrap(launch, base_env)
        if left := why_left(base_env, self._leave_file()):
            await self._remove()
            self.why_switched_off = left
            return self._without_sharing(launch, base_env, left)
        try:
            library = loadable_library(base_env)
            if decided := type(self).scheduler_decided:
                await decided()
            tenant = await self._register_in_time(base_env)
        except KernelNotStarted:
            raise
        except (ClientError, LibraryMissing) as problem:
            return self._without_sharing(launch, base_env, str(problem))
        except Exception as error:  # the kernel starts, whatever we did wrong
            self.log.exception("jupyter-gpushare failed while kernel %s started", self.kernel_id)
            reason = f"jupyter-gpushare itself failed ({error!r}). Please report the server's log."
            return self._without_sharing(launch, base_env, reason)
        env = tenant_environment(
            base_env,
            socket=tenant.socket,
            token=tenant.token,
            library=library,
            visible_devices=tenant.visible_devices,
            placement=tenant.placement,
        )
        if tenant.placement:
            self.log.info("Kernel %s: %s", self.kernel_id, tenant.placement)
        if tenant.class_note:
            self.log.warning("Kernel %s: %s", self.kernel_id, tenant.class_note)
        return self._with_bootstrap(launch, env)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """A kernel that cannot be started has no end at which its tenant would be removed."""
        try:
            return await super().launch_kernel(cmd, **kwargs)
        except BaseException:  # a start that is cancelled counts as well
            await self._remove()
            raise

    async def send_signal(self, signum: int) -> None:
        """An interrupt reaches the kernel first and the scheduler second: so the KeyboardInterrupt
        is pending already when the call that waits for the GPU comes back with an error."""
        await super().send_signal(signum)
        if signum == signal.SIGINT:
            await self.tell_interrupt()

    async def tell_interrupt(self) -> None:
        """What waits of this kernel is cancelled. A kernel that is interrupted by a message gets no
        signal from here, so whoever sees that interrupt calls this (the server extension does)."""
        if tenant_id := self._tenant_id:
            await self._tell("interrupt", lambda s: s.interrupt_tenant(tenant_id))

    async def cleanup(self, restart: bool = False) -> None:
        """The kernel has ended; a restarted one becomes a new tenant in pre_launch."""
        await self._remove()
        if not restart and (leave_file := self._leave_file()):
            with contextlib.suppress(OSError):
                os.unlink(leave_file)  # noqa: PTH108 - of a path that is a text
        await super().cleanup(restart=restart)

    async def get_provisioner_info(self) -> dict[str, Any]:
        """What another server process needs to go on with this kernel."""
        info = await super().get_provisioner_info()
        if self._tenant_id and self._scheduler:
            socket_path = str(self._scheduler.socket_path)
            info["gpushare"] = {"tenant_id": self._tenant_id, "http_socket": socket_path}
        return info

    async def load_provisioner_info(self, provisioner_info: dict[str, Any]) -> None:
        """The other end of get_provisioner_info."""
        await super().load_provisioner_info(provisioner_info)
        if ours := provisioner_info.get("gpushare"):
            self._tenant_id = ours["tenant_id"]
            self._scheduler = self._client(Path(ours["http_socket"]))

    async def _register_in_time(self, env: Mapping[str, str]) -> TenantRegistration:
        """Where the administrator wants that, a start waits for a hub that cannot be reached."""
        began_s = time.monotonic()
        while True:
            try:
                return await self._register(env)
            except ClientError as problem:
                if not (env.get(WITHOUT_HUB) == "wait" and is_for_want_of_hub(problem, env)):
                    raise
                if time.monotonic() - began_s >= self.hub_wait_s:
                    raise KernelNotStarted(
                        f"This kernel has waited {self.hub_wait_s:g} s for JupyterHub, and does "
                        f"not start without it. {problem}"
                    ) from problem
                self.log.warning("Kernel %s waits for the hub: %s", self.kernel_id, problem)
            await asyncio.sleep(HUB_RETRY_S)

    async def _register(self, env: Mapping[str, str]) -> TenantRegistration:
        """A new tenant for this start of the kernel; the one of an earlier start is removed."""
        await self._remove()
        scheduler = self._client(http_socket_path(env))
        wish = wish_of(env, getattr(self.kernel_spec, "metadata", {}).get(METADATA))
        tenant = await self._ask(
            lambda: scheduler.register_tenant(
                self._tenant_name(env), "kernel", kernel_id=self.kernel_id, wish=wish
            )
        )
        self._scheduler, self._tenant_id = scheduler, tenant.tenant_id
        if is_console(getattr(self.parent, "parent", None), sys.stderr):
            self._wait_line = WaitLine(scheduler, tenant.tenant_id, sys.stderr)
        return tenant

    def _client(self, socket_path: Path) -> SchedulerClient:
        return SchedulerClient(socket_path, timeout_s=self.request_timeout_s)

    async def _remove(self) -> None:
        line, self._wait_line = self._wait_line, None
        if line is not None:
            line.end()
        tenant_id, self._tenant_id = self._tenant_id, None
        if tenant_id:
            await self._tell("removal", lambda s: s.remove_tenant(tenant_id))

    async def _tell(self, what: str, call: Callable[[SchedulerClient], None]) -> None:
        """A request whose failure changes nothing for the caller."""
        if (scheduler := self._scheduler) is None:
            return
        try:
            await self._ask(functools.partial(call, scheduler))
        except Exception as problem:  # noqa: BLE001 - the kernel ends, whatever we did wrong
            self.log.debug("Kernel %s: %s not told: %r", self.kernel_id, what, problem)

    async def _ask(self, request: Callable[[], Answer]) -> Answer:
        """A blocking request off the event loop. The socket's own timeout starts again with every
        byte, so there is one for the whole request."""
        try:
            return await asyncio.wait_for(
                on_daemon_thread(request, name="gpushare-request"), self.request_timeout_s
            )
        except asyncio.TimeoutError:  # another class than the builtin on Python 3.10
            raise SchedulerUnavailable(
                f"The scheduler did not answer within {self.request_timeout_s:g} s. "
                f"Look into its log, and start it again if it hangs."
            ) from None

    def _leave_file(self) -> str:
        """Beside the kernel's connection file, where the kernel can write; empty for a kernel that
        may be on another machine."""
        file = getattr(self.parent, "connection_file", "")
        return f"{file}.left" if file and isinstance(self, LocalProvisioner) else ""

    def _tenant_name(self, env: Mapping[str, str]) -> str:
        """What people see in the queue: the notebook's file name where the server tells it."""
        if session := env.get("JPY_SESSION_NAME"):
            return Path(session).name
        language = getattr(self.kernel_spec, "display_name", "") or "kernel"
        return f"{language} {(self.kernel_id or '')[:8]}".strip()

    def _without_sharing(
        self, launch: dict[str, Any], env: Mapping[str, str], reason: str
    ) -> dict[str, Any]:
        notice = f"This kernel does not share the GPU. {reason}"
        self.log.warning("Kernel %s: %s", self.kernel_id, notice)
        return self._with_bootstrap(launch, env, notice=notice)

    def _with_bootstrap(
        self, launch: dict[str, Any], env: Mapping[str, str], *, notice: str = ""
    ) -> dict[str, Any]:
        """Only ipykernel knows --ext; another kernel would end with an unknown flag."""
        cmd = list(launch.get("cmd") or [])
        if not any(Path(argument).name in _IPYKERNEL_NAMES for argument in cmd):
            return {**launch, "env": dict(env)}
        self.tells_cells = True
        flag = f"--ext={SHIM_MODULE}"
        cmd = [*cmd, *([] if flag in cmd else [flag])]
        said = python_environment(env, notice=notice)
        if env.get(MAY_LEAVE) == "1" and (leave_file := self._leave_file()):
            said[LEAVE_FILE] = leave_file
        return {**launch, "env": said, "cmd": cmd}


class GPUShareProvisioner(GPUShareMixin, LocalProvisioner):
    """Local kernels that share the GPU: `gpushare-provisioner` among Jupyter's provisioners."""
