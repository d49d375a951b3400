"""NVML's view of the devices as events for the core, gathered in threads.

A driver that hangs (it does, while a GPU falls off the bus) therefore hangs the probe, not the
turns. While there are no clients nothing is asked: an idle machine costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from jupyter_gpushare.core.events import DeviceFound, DeviceLost, DeviceMemoryMeasured, Event
from jupyter_gpushare.core.ids import DeviceId

from .nvml import DeviceReading, Nvml, NvmlMissing
from .visible_devices import EVERYTHING, DeviceName, Served

log = logging.getLogger(__name__)

START_DEADLINE_S = 10.0
"""A driver that takes longer to answer is looked at again later; turns need not wait for it."""
Choose = Callable[[Sequence[DeviceName]], Served]
Answer = TypeVar("Answer")


class Reader(Protocol):
    """Where readings come from; Nvml is the real one. Called from threads, one at a time."""

    def read(self) -> list[DeviceReading]: ...


class DeviceProbe:
    """`choose` reads the list of devices to serve; `busy` says whether there are clients."""

    def __init__(
        self,
        *,
        submit: Callable[[Event], None],
        choose: Choose,
        busy: Callable[[], bool],
        period_s: float,
        open_reader: Callable[[], Reader] = Nvml,
    ) -> None:
        self._submit = submit
        self._choose = choose
        self._busy = busy
        self._period_s = period_s
        self._open_reader = open_reader
        self._reader: Reader | None = None
        self._served: Served = EVERYTHING
        self._known: set[DeviceId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._look_again = False

    async def start(self) -> None:
        """Find the devices; without NVML they are named by the clients that open them.

        Raises StartError when `choose` does.
        """
        try:
            self._reader = await asyncio.wait_for(_in_thread(self._open_reader), START_DEADLINE_S)
            readings = await asyncio.wait_for(_in_thread(self._reader.read), START_DEADLINE_S)
        except (NvmlMissing, TimeoutError, asyncio.TimeoutError) as error:
            log.warning(
                "NVML is not available (%s): devices will be known by the programs that open them, "
                "and memory that is not under gpushare will not be seen.",
                error or "it does not answer",
            )
            self._reader = None
            readings = []
        self._served = self._choose([reading.listed for reading in readings])
        self._tell(readings)

    def wake(self) -> None:
        """A client is there: begin to measure, unless that is going on."""
        if self._reader and self._timer is None and self._reading is None:
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
        if self._reading:
            self._reading.cancel()

    def _begin(self) -> None:
        self._timer = None
        self._reading = asyncio.get_running_loop().create_task(self._read_again())

    async def _read_again(self) -> None:
        assert self._reader
        try:
            self._tell(await _in_thread(self._reader.read))
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
        has not changed is news: what somebody waits for is not there yet."""
        now = {DeviceId(r.device): r for r in readings if self._served.includes(r.listed)}
        for device in self._known - now.keys():
            self._known.discard(device)
            log.warning("device %s is lost", device)
            self._submit(DeviceLost(device=device, cause="NVML has lost it"))
        for reading in now.values():
            self._tell_one(reading)

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
                    cause="NVML lists it",
                )
            )
        self._submit(
            DeviceMemoryMeasured(
                device=device, bytes_used=reading.bytes_used, cause="NVML measured it"
            )
        )


async def _in_thread(call: Callable[[], Answer]) -> Answer:
    """On a daemon thread: unlike an executor's it keeps nobody from ending when NVML hangs."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = loop.create_future()

    def run() -> None:
        outcome: Answer | Exception
        try:
            outcome = call()
        except Exception as error:  # noqa: BLE001 - handed on to whoever waits
            outcome = error
        # The loop may have ended while the driver took its time.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, outcome)

    def settle(outcome: Answer | Exception) -> None:
        if answer.done():
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    threading.Thread(target=run, name="nvml", daemon=True).start()
    return await answer
