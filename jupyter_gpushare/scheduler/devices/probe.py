"""NVML's view of the devices as events for the core, gathered in threads.

A driver that hangs (it does, while a GPU falls off the bus) therefore hangs the probe, not the
turns. While there are no clients nothing is asked: an idle machine costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from jupyter_gpushare.client.daemon_thread import on_daemon_thread
from jupyter_gpushare.core.events import DeviceFound, DeviceLost, DeviceMemoryMeasured, Event
from jupyter_gpushare.core.ids import ClientId, DeviceId

from ..base.errors import StartError
from .nvml import DeviceReading, Nvml, NvmlMissing
from .visible import EVERYTHING, NOTHING, DeviceName, Served

log = logging.getLogger(__name__)

START_DEADLINE_S = 10.0
"""Turns need not wait for a driver that takes longer to answer."""
TRY_AGAIN_S = 10.0
"""Where there is no NVML, it is looked for when a client comes, so often at most."""
_WITHOUT_NVML = (
    "Until it is, devices are known by the programs that open them, and memory that is not under "
    "gpushare is not seen. Look at `nvidia-smi` where that is not what you expect."
)
_LISTS_NONE = "The NVIDIA driver lists no GPU. Give this machine or this container access to one."
Choose = Callable[[Sequence[DeviceName]], Served]


class Reader(Protocol):
    """Where readings come from; Nvml is the real one. Called from threads, one at a time."""

    def read(self) -> list[DeviceReading]: ...


class DeviceProbe:
    """`choose` reads the list of devices to serve; `busy` says whether there are clients, and
    `pids` which processes they are, as far as they are seen from here. `looked` is given each
    reading of these devices."""

    def __init__(
        self,
        *,
        submit: Callable[[Event], None],
        choose: Choose,
        busy: Callable[[], bool],
        period_s: float,
        open_reader: Callable[[], Reader] = Nvml,
        pids: Callable[[], Mapping[ClientId, int]] = dict,
        looked: Callable[[DeviceReading], None] = lambda reading: None,
    ) -> None:
        self._submit = submit
        self._looked = looked
        self._choose = choose
        self._busy = busy
        self._pids = pids
        self._bytes_told: dict[DeviceId, dict[ClientId, int]] = {}
        """Of clients' processes, as NVML said last."""
        self._period_s = period_s
        self._open_reader = open_reader
        self._reader: Reader | None = None
        self._served: Served = EVERYTHING
        self._known: set[DeviceId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._look_again = False
        self._opening: asyncio.Task[list[DeviceReading]] | None = None
        self._said_missing = False
        self.no_gpu = ""
        """Why there is none, and what to do; empty where the driver lists some."""
        self._try_again_at_s = 0.0

    async def start(self) -> None:
        """Find the devices; without NVML they are named by the clients that open them. An NVML that
        takes longer than START_DEADLINE_S is not waited for, and counts once it answers.

        Raises StartError when `choose` does.
        """
        opening = self._opening = asyncio.get_running_loop().create_task(self._open())
        await asyncio.wait([opening], timeout=START_DEADLINE_S)
        if opening.done():
            self._opened(opening.result())
            return
        log.warning("NVML does not answer yet. %s", _WITHOUT_NVML)
        self._served = NOTHING
        opening.add_done_callback(self._opened_late)

    def wake(self) -> None:
        """A client is there: begin to measure, unless that is going on."""
        if self._reader is None:
            self._try_again()
        elif self._timer is None and self._reading is None:
            self._begin()

    def measure(self) -> None:
        """Somebody waits for what a device has: look now, or once more after the look that goes
        on, which may have begun before what was to be seen."""
        if self._reader is None:
            return
        if self._reading is not None:
            self._look_again = True
            return
        if self._timer is not None:
            self._timer.cancel()
        self._begin()

    def stop(self) -> None:
        """No reading any more. One that hangs in the driver is left to end with the process."""
        if self._timer:
            self._timer.cancel()
        for task in (self._reading, self._opening):
            if task:
                task.cancel()

    async def _open(self) -> list[DeviceReading]:
        """What NVML lists; nothing where there is none."""
        try:
            reader = await on_daemon_thread(self._open_reader, name="nvml")
            readings = await on_daemon_thread(reader.read, name="nvml")
        except NvmlMissing as error:
            if not self._said_missing:
                log.warning("NVML is not available (%s). %s", error, _WITHOUT_NVML)
            self._said_missing = True
            self.no_gpu = (
                f"The NVIDIA driver does not answer: {error}. Install it, or give this machine or "
                "this container access to the GPU."
            )
            return []
        self._reader = reader
        self.no_gpu = "" if readings else _LISTS_NONE
        return readings

    def _opened(self, readings: Sequence[DeviceReading]) -> None:
        self._opening = None
        self._served = self._choose([reading.listed for reading in readings])
        self._tell(readings)

    def _opened_late(self, opening: asyncio.Task[list[DeviceReading]]) -> None:
        if opening.cancelled():
            return
        try:
            self._opened(opening.result())
        except StartError as error:
            log.error("%s No device is served until this scheduler is started anew.", error)
        except Exception:  # whatever NVML raises, turns go on
            log.exception("NVML fails. %s", _WITHOUT_NVML)
        else:
            if self._reader and self._busy():
                self.wake()

    def _try_again(self) -> None:
        """A driver may be loaded after we have started. It is looked for now and then."""
        loop = asyncio.get_running_loop()
        if self._opening is not None or loop.time() < self._try_again_at_s:
            return
        self._try_again_at_s = loop.time() + TRY_AGAIN_S
        self._opening = loop.create_task(self._open())
        self._opening.add_done_callback(self._opened_late)

    def _begin(self) -> None:
        self._timer = None
        self._reading = asyncio.get_running_loop().create_task(self._read_again())

    async def _read_again(self) -> None:
        assert self._reader
        try:
            self._tell(await on_daemon_thread(self._reader.read, name="nvml"))
        except Exception:  # whatever NVML raises, turns go on
            log.exception("NVML does not answer; what it said last stands")
        self._reading = None
        if self._look_again:
            self._look_again = False
            self._begin()
        elif self._busy():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._period_s, self._begin)

    def _tell(self, readings: Sequence[DeviceReading]) -> None:
        """Tell the core of devices that come and go, and how much of each is used. A number that
        has not changed is news: what somebody waits for is not there yet. An old one is none."""
        now = {DeviceId(r.device): r for r in readings if self._served.includes(r.listed)}
        for device in self._known - now.keys():
            self._known.discard(device)
            self._bytes_told.pop(device, None)
            log.warning("device %s is lost", device)
            self._submit(DeviceLost(device=device, cause="NVML has lost it"))
        for reading in now.values():
            if not reading.is_old:
                self._tell_one(reading)
                self._looked(reading)

    def _tell_one(self, reading: DeviceReading) -> None:
        device = DeviceId(reading.device)
        if device not in self._known:
            self._known.add(device)
            log.info("device %s: %s (%s)", device, reading.name, reading.listed.uuid)
            self._submit(
                DeviceFound(
                    device=device,
                    name=reading.name,
                    bytes_total=reading.bytes_total,
                    uuid=reading.listed.uuid,
                    cause="NVML lists it",
                )
            )
        self._submit(
            DeviceMemoryMeasured(
                device=device,
                bytes_used=reading.bytes_used,
                bytes_of_clients=self._news_of_clients(device, reading),
                cause="NVML measured it",
            )
        )

    def _news_of_clients(
        self, device: DeviceId, reading: DeviceReading
    ) -> tuple[tuple[ClientId, int], ...]:
        """What has changed since it was told. Two clients of one process are an old connection and
        a new one."""
        by_pid = dict(reading.processes)
        now = {client: by_pid[pid] for client, pid in self._pids().items() if pid in by_pid}
        before, self._bytes_told[device] = self._bytes_told.get(device, {}), now
        gone = ((client, 0) for client in before if client not in now)
        changed = ((client, n) for client, n in now.items() if before.get(client) != n)
        return (*changed, *gone)
