"""A scheduler, notebooks that share one device and one host, and the time, in steps of 10 ms."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Command, MeasureDevice, ReportFailure, WakeAt
from jupyter_gpushare.core.ids import ClientId, TenantId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from jupyter_gpushare.core.snapshot import TenantSnapshot
from tests.core.host.model_host import A, Host, HostClient

STEP_S = 0.01
LOOK_STEPS = 10
ROUNDS_OF_WORDS_MAX = 200


class HostWorld:
    """Words arrive at once; pieces move one at a step. After each event all invariants hold, and no
    more is ever on the device or the host than there is."""

    def __init__(self, device_bytes: int, **changes: object) -> None:
        settings = SchedulerSettings(memory_mode=MemoryMode.SWAP, device_reserve_bytes=0)
        self.scheduler = Scheduler(settings.replace(**changes))
        self.now_s, self.wake_at_s = 1000.0, 1e9
        self.steps = self.foreign = 0
        self.host, self.device_bytes = Host(1 << 50), device_bytes
        self.clients: dict[ClientId, HostClient] = {}
        self.looks = False
        self.handle(ev.DeviceFound(device=A, name="GPU", bytes_total=device_bytes))

    @property
    def alive(self) -> list[HostClient]:
        return [each for each in self.clients.values() if not each.closed]

    def handle(self, event: ev.Event) -> None:
        for step in self.scheduler.steps(event, now_s=self.now_s):
            self.scheduler.check_invariants()
            for command in step:
                self._perform(command)

    def _perform(self, command: Command) -> None:
        assert not isinstance(command, ReportFailure), command
        if isinstance(command, WakeAt):
            self.wake_at_s = command.at_s
        elif isinstance(command, MeasureDevice):
            self.looks = True
        else:
            client: ClientId = command.client  # type: ignore[attr-defined]
            self.clients[client].inbox.append(command)

    def join(self, name: str) -> HostClient:
        """A notebook whose process has opened the device."""
        tenant, client = TenantId(name), ClientId(len(self.clients) + 1)
        process = self.clients[client] = HostClient(client, tenant, host=self.host)
        self.handle(ev.TenantRegistered(tenant=tenant, name=name, owner="me", kind="kernel"))
        self.handle(
            ev.ClientJoined(client=client, tenant=tenant, pid=client, process_name="python")
        )
        process.open_device(A)
        self.words()
        return process

    def words(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(ROUNDS_OF_WORDS_MAX):
            talking = [each for each in self.clients.values() if each.outbox or each.inbox]
            if not talking:
                return
            for client in talking:
                while client.outbox:
                    self.handle(client.outbox.popleft())
                while client.inbox:
                    command = client.inbox.popleft()
                    if not client.closed:
                        client.take_in(command)
        raise AssertionError("the words never end")

    def used(self) -> int:
        return self.foreign + sum(each.resident for each in self.alive)

    def step(self) -> None:
        self.now_s, self.steps = self.now_s + STEP_S, self.steps + 1
        for client in self.alive:
            client.step(self.now_s)
            client.finish_drain()
        assert self.host.taken <= self.host.bytes_total
        assert self.used() - self.foreign <= self.device_bytes
        self.words()
        if self.looks or self.steps % LOOK_STEPS == 0:
            self.looks = False
            self.handle(ev.DeviceMemoryMeasured(device=A, bytes_used=self.used()))
            self.words()
        if self.wake_at_s <= self.now_s:
            self.wake_at_s = 1e9
            self.handle(ev.ClockTicked())
            self.words()

    def goes_on(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Cells end as soon as they can, but for those that are asked about. Whether it is over."""
        until_s = self.now_s + seconds
        while self.now_s < until_s and not is_over():
            self.step()
        return is_over()

    def cells_end(self, kept: HostClient | None = None) -> None:
        for client in self.alive:
            if client is not kept and client.is_served:
                client.end_cell()
        self.words()

    def status(self, client: HostClient) -> TenantSnapshot:
        tenants = self.scheduler.snapshot(self.now_s).tenants
        return next(each for each in tenants if each.id == client.tenant)
