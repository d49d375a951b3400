"""One node in virtual time: the production scheduler, and simulated hooks that answer it.

The scheduler is `core.Scheduler` itself. What decides here therefore decides in production.
"""

from __future__ import annotations

from collections import Counter, deque

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    CloseClient,
    Command,
    GrantTurn,
    MeasureDevice,
    ReportFailure,
    WakeAt,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, Seconds, TenantId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.core.shown.waits import Estimate

from ..base.errors import SimulationError
from ..base.hardware import Hardware
from ..base.kernel import Kernel
from ..base.loop import Loop, Planned
from ..base.record import Foretold
from .foresight import Foresight
from .hook import SimulatedHook


class SimulatedNode:
    """Kernels' calls become events of the core; its commands reach the hooks at once."""

    def __init__(
        self,
        devices: range,
        *,
        loop: Loop,
        settings: SchedulerSettings,
        hardware: Hardware,
        device_bytes: int,
    ) -> None:
        self.core = Scheduler(settings)
        self.events = 0
        """Handled so far."""
        self._loop = loop
        self._hardware = hardware
        self._hooks: dict[ClientId, SimulatedHook] = {}
        self._hook_of: dict[int, SimulatedHook] = {}
        self._inbox: deque[ev.Event] = deque()
        self._is_handling = False
        self._alarm: Planned | None = None
        self._foresight = Foresight(loop, self._estimate)
        for device in devices:
            self.submit(
                ev.DeviceFound(
                    device=_device_id(device),
                    name=f"GPU {device}",
                    bytes_total=device_bytes,
                    cause="start",
                )
            )

    # ---- what kernels do ---------------------------------------------------------------------

    def opened(self, kernel: Kernel) -> None:
        client, device = ClientId(kernel.number + 1), _device_id(kernel.device)
        hook = SimulatedHook(
            client,
            device,
            kernel,
            loop=self._loop,
            hardware=self._hardware,
            submit=self.submit,
            idle_s=self._idle_s,
        )
        self._hooks[client] = self._hook_of[kernel.number] = hook
        tenant, notebook = _tenant_id(kernel), kernel.notebook
        self.submit(
            ev.TenantRegistered(
                tenant=tenant,
                name=notebook.name,
                owner=notebook.owner,
                groups=notebook.groups or None,
                kind="run" if notebook.is_program else "kernel",
                cause="open",
            )
        )
        self.submit(
            ev.ClientJoined(
                client=client, tenant=tenant, pid=client, process_name="python", cause="open"
            )
        )
        self.submit(ev.DeviceOpened(client=client, device=device, cause="open"))

    def wants(self, kernel: Kernel) -> None:
        self._hook_of[kernel.number].wants()

    def ended(self, kernel: Kernel) -> None:
        self._hook_of[kernel.number].ended()

    def closed(self, kernel: Kernel) -> None:
        self._hook_of[kernel.number].closed()
        self.submit(ev.TenantRemoved(tenant=_tenant_id(kernel), cause="close"))

    def _idle_s(self) -> Seconds:
        return self.core.settings.idle_ms / 1000

    # ---- the loop around the core ------------------------------------------------------------

    def submit(self, event: ev.Event) -> None:
        """Handle the event now, or after the one that is being handled."""
        self._inbox.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._inbox:
                self._handle(self._inbox.popleft())
        finally:
            self._is_handling = False

    def _handle(self, event: ev.Event) -> None:
        self.events += 1
        commands = self.core.handle(event, now_s=self._loop.now_s)
        self._foresee(event, commands)
        for command in commands:
            self._perform(command)

    @property
    def foretold(self) -> list[Foretold]:
        """What was told to those who waited, and what came of it."""
        return self._foresight.foretold

    def _foresee(self, event: ev.Event, commands: list[Command]) -> None:
        """Who waits from this event on, and who does no longer."""
        foresight = self._foresight
        if isinstance(event, ev.TurnRequested):
            foresight.waits(event.client)
        elif isinstance(event, ev.RequestWithdrawn | ev.ClientLost):
            foresight.gives_up(event.client)
        for command in commands:
            if isinstance(command, GrantTurn):
                foresight.begins(command.client)

    def _estimate(self, client: ClientId) -> Estimate | None:
        tenant = _tenant_id(self._hooks[client].kernel)
        return self.core.estimates([tenant], self._loop.now_s).get(tenant)

    def _perform(self, command: Command) -> None:
        match command:
            case WakeAt(at_s=at_s):
                if self._alarm is not None:
                    self._alarm.cancel()
                self._alarm = self._loop.at(at_s, self._tick)
            case MeasureDevice(device=device):
                self._loop.after(self._hardware.look_s, lambda: self._look(device))
            case CloseClient(client=client):
                hook = self._hooks.pop(client)
                del self._hook_of[hook.kernel.number]
                self.submit(ev.ClientLost(client=client, cause="close"))
            case ReportFailure(message=message):
                raise SimulationError(
                    f"The scheduler failed, which is a bug. Report this: {message}"
                )
            case _:
                client_id: ClientId | None = getattr(command, "client", None)
                if client_id in self._hooks:
                    self._hooks[client_id].hear(command)

    def _tick(self) -> None:
        self._alarm = None
        self.submit(ev.ClockTicked(cause="time came"))

    def _look(self, device: DeviceId) -> None:
        used: Counter[DeviceId] = Counter()
        for hook in self._hooks.values():
            used[_device_id(hook.kernel.device)] += hook.memory.resident
        self.submit(ev.DeviceMemoryMeasured(device=device, bytes_used=used[device], cause="look"))


def _device_id(device: int) -> DeviceId:
    return DeviceId(f"{device:032x}")


def _tenant_id(kernel: Kernel) -> TenantId:
    return TenantId(f"{kernel.number:08d}")
