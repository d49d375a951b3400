"""The extension: its settings, and how its parts are put together."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Float, Unicode, default

from jupyter_gpushare.client import AsyncSchedulerClient, SchedulerClient, http_socket_path
from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.client.paths import hub_provides, is_anothers
from jupyter_gpushare.kernel.environment import why_switched_off
from jupyter_gpushare.kernel.provisioner import GPUShareMixin

from .gateway import why_elsewhere
from .handlers import HANDLERS, RELAY
from .kernel_activity import KernelActivity
from .kernels import ServerKernels
from .relay import CHANGED_SCHEMA, Relay
from .scheduler_client import LinkState, SchedulerLink
from .starter import IDLE_EXIT_S, start_scheduler

PROVISIONER = "gpushare-provisioner"
JUPYTERS_OWN = "local-provisioner"
KERNEL_ACTIONS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
RENAMES = "https://events.jupyter.org/jupyter_server/contents_service/v1"
_SESSION_NOTED_S = (0.3, 2.0)
"""Jupyter Server emits the kernel event before it updates the session, and the rename event before
it renames the session. Neither update has an event, so we look again after these delays."""
_SCHEMA = Path(__file__).parent / "events" / "changed-v1.yaml"


class GPUShareExtension(ExtensionApp):
    """Kernels of this server share the GPU; the browser sees who has it and who waits."""

    name = "jupyter_gpushare"
    load_other_extensions = True

    start_scheduler = Bool(
        help="Start a scheduler where none answers. Under a hub that names a runtime directory, "
        "the hub sees to it, and where the directory is another account's, that account does; with "
        "GPUSHARE_DISABLE=1 nobody needs one."
    ).tag(config=True)
    idle_exit_s = Float(
        IDLE_EXIT_S, min=0.0, help="When a started scheduler ends that nobody uses, in seconds."
    ).tag(config=True)
    start_timeout_s = Float(
        10.0, min=0.0, help="How long a kernel's start waits for a scheduler that is being started."
    ).tag(config=True)
    hub_token = Unicode(
        help="A hub's token to read the scheduler's status with, instead of the server's own. With "
        "the token of an administrator the panel shows everybody's notebooks, as an administrator "
        "sees them, to whoever may use this server. What is done in the panel is done with the "
        "server's own. Whoever runs code in this server can read it where you have written it."
    ).tag(config=True)
    user = Unicode(help="The name of this server's user, as the panel shows it.").tag(config=True)

    @default("start_scheduler")
    def _start_scheduler_default(self) -> bool:
        if why_switched_off(os.environ) or hub_provides():
            return False
        return not is_anothers(http_socket_path().parent)

    @default("user")
    def _user_default(self) -> str:
        return os.environ.get("JUPYTERHUB_USER") or user_name(os.getuid())

    def _config_file_name_default(self) -> str:
        """The scheduler's settings are in the same file."""
        return "jupyter_gpushare_config"

    def initialize_settings(self) -> None:
        server: Any = self.serverapp
        make_default(KernelProvisionerFactory.instance(parent=server), self.log)
        reader = SchedulerClient(http_socket_path(), hub_token=self.hub_token or None)
        self.kernels = ServerKernels(server.kernel_manager, server.session_manager)
        server.event_logger.register_event_schema(_SCHEMA)
        self.link = SchedulerLink(reader, start=self._starter(), on_change=self._link_changed)
        requests = AsyncSchedulerClient(SchedulerClient(http_socket_path()))
        self.relay = Relay(
            link=self.link,
            client=requests,
            reader=AsyncSchedulerClient(reader),
            kernels=self.kernels,
            user=self.user,
            emit=lambda data: server.event_logger.emit(schema_id=CHANGED_SCHEMA, data=data),
        )
        self.activity = KernelActivity(
            server.kernel_manager, self.kernels, requests.tell_busy, self.relay.cells_changed
        )
        self.kernels.cells_of = self.activity.cells
        self.kernels.changed = self.relay.changed
        server.event_logger.add_listener(schema_id=KERNEL_ACTIONS, listener=self._kernel_action)
        server.event_logger.add_listener(schema_id=RENAMES, listener=self._file_renamed)
        self.settings[RELAY] = self.relay
        if off := why_switched_off(os.environ):
            self.link.state = LinkState(scheduler="off", message=off)
            return
        if elsewhere := why_elsewhere(server.kernel_manager):
            self.link.state = LinkState(scheduler="down", message=elsewhere)
            return
        GPUShareMixin.scheduler_decided = functools.partial(self.link.decided, self.start_timeout_s)
        server.io_loop.add_callback(self.link.begin)

    def initialize_handlers(self) -> None:
        self.handlers.extend(HANDLERS)

    async def stop_extension(self) -> None:
        """The scheduler goes on, for it may serve others."""
        GPUShareMixin.scheduler_decided = None
        self.link.end()
        self.activity.end()
        self.kernels.trimming.end()
        self.relay.end()

    def _starter(self) -> Any:
        if not self.start_scheduler:
            return None
        directory = http_socket_path().parent
        return functools.partial(start_scheduler, directory, idle_exit_s=self.idle_exit_s)

    def _link_changed(self, state: LinkState) -> None:
        self.relay.changed()

    async def _kernel_action(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        """A kernel of this server was started, restarted, interrupted or shut down."""
        kernel_id = data.get("kernel_id")
        if kernel_id and data.get("status") == "success":
            if data["action"] in ("start", "restart"):
                self.activity.kernel_started(kernel_id)
                self.kernels.trimming.kernel_ended(kernel_id)
            elif data["action"] == "shutdown":
                self.activity.kernel_ended(kernel_id)
                self.kernels.trimming.kernel_ended(kernel_id)
            elif data["action"] == "interrupt":
                await self.kernels.tell_interrupt(kernel_id)
        self._names_may_change()

    async def _file_renamed(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        if data.get("action") == "rename":
            self._names_may_change()

    def _names_may_change(self) -> None:
        server: Any = self.serverapp
        self.relay.changed()
        for delay_s in _SESSION_NOTED_S:
            server.io_loop.call_later(delay_s, self.relay.changed)


def make_default(factory: KernelProvisionerFactory, log: Any) -> None:
    """Kernels whose kernelspec names no provisioner get ours, unless somebody has chosen one."""
    if factory.default_provisioner_name == JUPYTERS_OWN:
        factory.default_provisioner_name = PROVISIONER
    elif factory.default_provisioner_name != PROVISIONER:
        log.warning(
            "Kernels are started by %s, as this server is configured, and do not share the GPU. "
            "Remove that setting, or derive that provisioner from GPUShareMixin.",
            factory.default_provisioner_name,
        )
