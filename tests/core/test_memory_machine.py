"""The core against processes whose memory follows the turn: they grow, park, restore, hang, fail
and die, over lines on which messages cross, on devices that are also used by strangers.

All that `test_machine.py` holds is held here too. Besides, what the *processes* really have never
exceeds what there is. At the end each need for memory ends, whatever stays in the way; and when
everybody answers, everybody who waits is served with all its memory back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Ahead, Command, MeasureDevice
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings, TurnTaking
from jupyter_gpushare.core.space import victims
from jupyter_gpushare.core.space.obstacles import obstacle

from .model_client import ModelClient
from .model_memory import MemoryClient
from .test_machine import (
    DEVICES,
    TENANTS,
    WORLD_TIMEOUT,
    Lines,
    World,
    lines,
    some_device,
    some_index,
)

TOTAL = 8000
RESERVE = 1000
FOREIGN_MAX = 900
"""What strangers take before it is seen goes into the reserve, which may be lent by then."""

PART_BYTES_MIN = 100
"""Some of the notebooks park a third first."""

some_bytes = st.sampled_from([1, 100, 1500, 4000, 7000, 9000])


@pytest.fixture(scope="module", autouse=True)
def _small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victims, "PART_BYTES_MIN", PART_BYTES_MIN)
        yield


class MemoryWorld(World):
    """Four notebooks on three devices, each of which a notebook alone could fill."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = self.new_scheduler(
            SchedulerSettings(quantum_s=5, overdue_s=20, hold_max_s=30, memory_mode=MemoryMode.SWAP)
        )
        self.left: Counter[DeviceId] = Counter()
        """Memory of processes that are gone, which the driver has not freed yet."""
        self.foreign: Counter[DeviceId] = Counter()
        self.looks: dict[DeviceId, ev.DeviceMemoryMeasured] = {}
        """What devices had in use when looks at them began that have not been told yet."""
        self.looks_again: set[DeviceId] = set()
        """Somebody has asked for another look meanwhile: it begins when this one has been told."""
        self.asks_for_memory: ClientId | None = None
        """In the event that is handled now."""

    def new_client(self, client: ClientId, tenant: TenantId) -> ModelClient:
        return MemoryClient(client, tenant, lost=self.lost_devices)

    def processes(self) -> list[MemoryClient]:
        return [client for client in self.clients.values() if isinstance(client, MemoryClient)]

    def pick_one(self, index: int) -> list[MemoryClient]:
        return [client for client in self.pick(index) if isinstance(client, MemoryClient)]

    # ---- the scheduler's side ----------------------------------------------------------------

    def handle(self, event: ev.Event) -> None:
        self.asks_for_memory = event.client if isinstance(event, ev.MemoryNeeded) else None
        super().handle(event)
        self.there_is_no_more_than_fits()
        self.who_was_told_to_copy_knows_it()

    def kept_away(self) -> set[TenantId]:
        """The status names an obstacle only while the devices are free. Who was passed over for it
        waits for the next holder afterwards. A need that nobody can meet is refused in the very
        event that brings it: its tenant was passed over, and nothing is left to be seen of it."""
        state = self.scheduler._machine._state
        return super().kept_away() | {
            tenant.id
            for tenant in state.queue.values()
            if obstacle(state, tenant, self.now_s, holders_stay=False) is not None
            or self.asks_for_memory in tenant.clients
        }

    def perform(self, command: Command) -> None:
        if isinstance(command, MeasureDevice):
            self.look(command.device)
        else:
            super().perform(command)

    def look(self, device: DeviceId) -> None:
        """One look at a time, as the scheduler's: the core counts on it that a second answer tells
        of what was so after the first."""
        if device in self.looks:
            self.looks_again.add(device)
        else:
            self.looks[device] = ev.DeviceMemoryMeasured(
                device=device,
                bytes_used=self.used(device),
                bytes_of_clients=tuple(
                    (client.id, memory.resident + client.id % 3 * 100)
                    for client in self.processes()
                    if not client.closed and (memory := client.memory.get(device)) is not None
                ),
            )

    def tell_looks(self) -> None:
        """Those that were there before; being told may lead to more looks."""
        for device, look in list(self.looks.items()):
            self.handle(look)
            del self.looks[device]
            if device in self.looks_again:
                self.looks_again.remove(device)
                self.look(device)

    def used(self, device: DeviceId) -> int:
        return self.held(device) + self.foreign[device]

    def held(self, device: DeviceId) -> int:
        """By processes, and by those that are gone."""
        memories = (c.memory.get(device) for c in self.processes() if not c.closed)
        return self.left[device] + sum(m.resident for m in memories if m is not None)

    def there_is_no_more_than_fits(self) -> None:
        for device in DEVICES:
            own = self.held(device) - self.left[device]
            assert own <= TOTAL - RESERVE, f"too much on {device}"
            # What strangers take of a reserve that is lent, the driver refuses.
            assert self.used(device) <= TOTAL + FOREIGN_MAX

    def who_was_told_to_copy_knows_it(self) -> None:
        """Whoever has heard the last that it was told, and has not given back its turn since."""
        state = self.scheduler._machine._state
        for client in self.processes():
            drops = any(isinstance(said, ev.TurnDropped) for said in client.outbox)
            if client.closed or drops or client.id not in state.clients:
                continue
            for device, share in state.clients[client.id].devices.items():
                memory = client.memory.get(device)
                if memory is not None and memory.serial == share._believed[-1][0]:
                    assert (memory.ahead is Ahead.COPIES) == share.copies.told, share

    # ---- rules -------------------------------------------------------------------------------

    @rule(index=some_index, device=some_device, count=some_bytes, fixed=st.booleans(), lines=lines)
    def allocate(self, index: int, device: DeviceId, count: int, fixed: bool, lines: Lines) -> None:
        for client in self.pick_one(index):
            client.allocate(device, count, fixed=fixed and count < 2000)
            self.flow(client, lines)

    @rule(index=some_index, count=some_bytes, lines=lines)
    def work_and_grow(self, index: int, count: int, lines: Lines) -> None:
        """The common case: a cell that allocates on what its process has opened."""
        for client in self.pick_one(index):
            client.call()
            self.flow(client, Lines.FAST)
            for device in sorted(client.devices):
                client.allocate(device, count)
            self.flow(client, lines)

    @rule(count=st.sampled_from([1500, 2500, 4000]), lines=lines)
    def take_turns(self, count: int, lines: Lines) -> None:
        """All of them compute in turn and allocate, as far as all goes well, and then they think:
        some may copy ahead of need."""
        for client in self.processes():
            client.call()
            self.flow(client, Lines.FAST)
            for device in sorted(client.devices):
                client.allocate(device, count)
            self.flow(client, Lines.FAST)
            for _ in range(3):
                self.all_move(9000, Lines.FAST)
                self.time_passes(0.4)
            client.end_cell()
            self.flow(client, Lines.FAST)
        for _ in range(3):
            self.time_passes(0.3)
            self.all_move(100, lines)

    @rule(index=some_index, device=some_device, count=some_bytes, lines=lines)
    def free(self, index: int, device: DeviceId, count: int, lines: Lines) -> None:
        for client in self.pick_one(index):
            client.free(device, count)
            self.flow(client, lines)

    @rule(index=some_index, count=some_bytes, lines=lines)
    def move(self, index: int, count: int, lines: Lines) -> None:
        for client in self.pick_one(index):
            client.move(count)
            self.flow(client, lines)

    @rule(count=some_bytes, lines=lines)
    def all_move(self, count: int, lines: Lines) -> None:
        for client in self.processes():
            if not client.closed:
                client.move(count)
                self.flow(client, lines)

    @rule(index=some_index, device=some_device, count=some_bytes, lines=lines)
    def ask_space(self, index: int, device: DeviceId, count: int, lines: Lines) -> None:
        for client in self.pick_one(index):
            client.ask_space(device, count)
            self.flow(client, lines)

    @rule(data=st.data(), device=some_device)
    def memory_trouble(self, data: st.DataObject, device: DeviceId) -> None:
        """What is rare: one of these at a time."""
        for client in self.pick_one(data.draw(some_index)):
            match data.draw(st.integers(0, 5)):
                case 0:
                    client.hangs = not client.hangs
                case 1:
                    client.keeps_need = not client.keeps_need
                case 2:
                    client.finds_memory_short()
                case 3 if device in client.memory:
                    client.memory[device].parkable = data.draw(st.sampled_from([0, 500, 20_000]))
                    client.report(device)
                case 4:
                    self.foreign[device] = data.draw(st.integers(0, FOREIGN_MAX))
                case 5:
                    self.left[device] = 0
                case _:
                    pass

    @rule(device=some_device)
    def a_look_is_taken(self, device: DeviceId) -> None:
        if device not in self.lost_devices:
            self.look(device)

    @rule()
    def looks_are_told(self) -> None:
        self.tell_looks()

    # ---- the ends of processes ---------------------------------------------------------------

    def die(self, index: int) -> None:
        for client in self.pick_one(index):
            self.leave_memory(client)
        super().die(index)

    def disconnect(self, client_id: ClientId) -> None:
        client = self.clients[client_id]
        if isinstance(client, MemoryClient) and not client.closed:
            self.leave_memory(client)
        super().disconnect(client_id)

    def leave_memory(self, client: MemoryClient) -> None:
        for device, memory in client.memory.items():
            self.left[device] += memory.resident

    def report_memory(self, index: int, device: DeviceId, bytes_allocated: int) -> None:
        """Reports are true here."""
        for client in self.pick_one(index):
            if device in client.memory:
                client.report(device)

    # ---- the end -----------------------------------------------------------------------------

    def every_need_ends(self) -> None:
        """Whatever stays in the way: it is met, refused or cancelled. Turns end, looks are taken
        when they are asked for, and who does not hang moves its memory."""
        pending = {
            (client.id, device): memory.calls
            for client in self.processes()
            for device, memory in client.memory.items()
            if memory.need and not client.closed and not client.hangs
        }
        until_s = self.now_s + self.all_ends_within_s
        while self.now_s < until_s:
            for (client_id, device), calls in list(pending.items()):
                client = self.clients[client_id]
                assert isinstance(client, MemoryClient)
                memory = client.memory.get(device)
                waits = memory is not None and memory.need and memory.calls == calls
                if client.closed or not waits or self.is_stranded(client):
                    del pending[client_id, device]
            if not pending:
                return
            for client in self.processes():
                while client.outbox and client.id in self.clients:
                    self.arrive(client)
                while client.inbox and not client.closed:
                    client.take_in(client.inbox.popleft())
                self.tell_looks()
                self.act(client)
            self.time_goes_on()
        raise AssertionError(f"needs that do not end: {pending}")

    def is_stranded(self, client: MemoryClient) -> bool:
        """Memory of it is parked that belongs on a lost device: it goes on only after a restart."""
        return any(client.memory[each].parked for each in client.memory.keys() & self.lost_devices)

    def teardown(self) -> None:
        """Each need ends although much is in the way, with turns as they are and with turns on;
        then everybody answers, and nothing is in the way."""
        if self.clients:
            self.recovery_is_complete()
            self.let_all_go_on()
            self.every_need_ends()
            self.change_settings(turns=TurnTaking.ON)
            self.every_need_ends()
        self.foreign.clear()
        for client in self.processes():
            if (client.failed or self.is_stranded(client)) and not client.closed:
                self.leave_memory(client)
                client.closed = True
                client.outbox.append(ev.ClientLost(client=client.id))
            client.hangs = False
            for device, memory in client.memory.items():
                memory.parkable = 10**6
                memory.fixed = 0
                if not client.closed:
                    client.report(device)
        self.left.clear()
        self.looks_left = 40
        super().teardown()

    def behave(self, client: ModelClient) -> None:
        assert isinstance(client, MemoryClient)
        if self.looks_left and not self.looks:
            self.looks_left -= 1
            for device in DEVICES:
                self.look(device)
        self.tell_looks()
        self.act(client)

    def act(self, client: MemoryClient) -> None:
        """Memory moves, and turns end."""
        if client.closed:
            return
        client.move(2000)
        client.finish_drain()
        if not client.restores and not client.waits_for_memory:
            client.end_cell()

    def is_served(self, client: ModelClient) -> bool:
        assert isinstance(client, MemoryClient)
        waits = client.restores or client.waits_for_memory
        return super().is_served(client) and not waits


class LongMemoryWorld(MemoryWorld):
    """The same, for longer."""


class CopyWorld(MemoryWorld):
    """It begins with notebooks that think, for all of whose memory there is no space."""

    @initialize(count=st.sampled_from([2000, 2500, 3000]))
    def start(self, count: int) -> None:
        for device in DEVICES:
            self.handle(ev.DeviceFound(device=device, name=f"GPU {device}", bytes_total=TOTAL))
        for tenant in TENANTS:
            self.register(tenant)
            self.join(tenant, {DEVICES[0]}, False, Lines.FAST)
        for each in (count, 0):
            self.take_turns(each, Lines.FAST)


MemoryWorld.TestCase.settings = settings(max_examples=6, stateful_step_count=50)
TestMemoryWorld = MemoryWorld.TestCase
TestMemoryWorld.pytestmark = [
    WORLD_TIMEOUT,
    pytest.mark.promise(
        "accounts-33",
        "Whatever crosses on the lines, no more is given out than there is, and whoever waits is "
        "served",
    ),
    pytest.mark.promise(
        "accounts-34",
        "Each need ends: it is met, refused or cancelled, also of several processes and on "
        "several devices, and one that was met in vain is not lost",
    ),
]
TestMemoryWorld.__doc__ = "Whatever happens, memory is never given twice, and everybody is served."

CopyWorld.TestCase.settings = settings(max_examples=6, stateful_step_count=30)
TestCopyWorld = CopyWorld.TestCase
TestCopyWorld.pytestmark = [
    WORLD_TIMEOUT,
    pytest.mark.promise("accounts-8"),
]
TestCopyWorld.__doc__ = "Who copies was told so, and knows when it is not to any more."

LongMemoryWorld.TestCase.settings = settings(max_examples=800, stateful_step_count=70)
TestLongMemoryWorld = LongMemoryWorld.TestCase
TestLongMemoryWorld.pytestmark = [
    WORLD_TIMEOUT,
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.promise("accounts-33"),
]
TestLongMemoryWorld.__doc__ = "The same in many more and longer runs."
