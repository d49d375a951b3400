"""Devices as NVML shows them: found, measured, lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from jupyter_gpushare.core.events import DeviceFound, DeviceLost, DeviceMemoryMeasured, Event
from jupyter_gpushare.core.ids import DeviceId
from jupyter_gpushare.scheduler.devices import probe as device_probe
from jupyter_gpushare.scheduler.devices.nvml import DeviceReading, NvmlMissing
from jupyter_gpushare.scheduler.devices.probe import DeviceProbe
from jupyter_gpushare.scheduler.devices.visible import EVERYTHING, DeviceName, asked_for, visible
from tests.support.waits import WAIT_S_MAX


def reading(number: int, used: int = 0) -> DeviceReading:
    uuid = f"GPU-0000000{number}-0000-0000-0000-000000000000"
    device = uuid.removeprefix("GPU-").replace("-", "")
    return DeviceReading(device, DeviceName(number, uuid, uuid), f"Card {number}", 100, used)


class ScriptedNvml:
    """Gives one list of readings after another; the last one stays."""

    def __init__(self, *readings: list[DeviceReading] | Exception) -> None:
        self.readings = list(readings)
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def read(self) -> list[DeviceReading]:
        self.asked += 1
        self.may_answer.wait(WAIT_S_MAX)
        now = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(now, Exception):
            raise now
        return now


class Inbox:
    """What the probe submits, and a way to wait for it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Event()

    def submit(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def wait_for(self, kind: type[Event]) -> Event:
        return await self.wait_until(lambda event: isinstance(event, kind))

    async def wait_until(self, wanted: Callable[[Event], bool]) -> Event:
        while True:
            for event in self.events:
                if wanted(event):
                    return event
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), WAIT_S_MAX)


def probe_of(
    nvml: ScriptedNvml | Callable[[], ScriptedNvml],
    inbox: Inbox,
    *,
    busy: bool = True,
    choose: device_probe.Choose = lambda listed: EVERYTHING,
) -> DeviceProbe:
    return DeviceProbe(
        submit=inbox.submit,
        choose=choose,
        busy=lambda: busy,
        period_s=0.01,
        open_reader=nvml if callable(nvml) else lambda: nvml,
    )


def test_devices_are_found_at_the_start() -> None:
    """Each device that NVML lists and that is served is announced, with its memory."""

    async def scenario() -> list[Event]:
        inbox = Inbox()
        nvml = ScriptedNvml([reading(0, 7), reading(1)])
        await probe_of(nvml, inbox, choose=lambda listed: visible(listed, "0")).start()
        return inbox.events

    found, measured = asyncio.run(scenario())
    assert isinstance(found, DeviceFound) and found.name == "Card 0"
    assert isinstance(measured, DeviceMemoryMeasured) and measured.bytes_used == 7


def told_until_it_is_8(*looks: list[DeviceReading]) -> list[Event]:
    """What the probe tells of these looks, and of one more at which 8 bytes are used."""

    async def scenario() -> list[Event]:
        inbox = Inbox()
        probe = probe_of(ScriptedNvml(*looks, [reading(0, 8)]), inbox)
        await probe.start()
        probe.wake()
        await inbox.wait_until(lambda event: getattr(event, "bytes_used", 0) == 8)
        probe.stop()
        return inbox.events

    return asyncio.run(scenario())


@pytest.mark.promise("accounts-37")
def test_each_look_is_told() -> None:
    """A device is found once; how much of it is used is told after each look, also when that has
    not changed: who waits for memory learns that it is not back yet."""

    same = [reading(0, 7)]
    found, *measured = told_until_it_is_8(same, same, same)
    assert isinstance(found, DeviceFound)
    used = [event.bytes_used for event in measured if isinstance(event, DeviceMemoryMeasured)]
    assert used == [7, 7, 7, 8]


@pytest.mark.promise("accounts-37")
def test_what_nvml_said_before_it_failed_is_no_look() -> None:
    """Clients may have freed memory since, which would be taken for that of strangers."""

    old = [replace(reading(0, 7), is_old=True)]
    found, *measured = told_until_it_is_8([reading(0, 7)], old, old)
    assert isinstance(found, DeviceFound)
    assert [getattr(event, "bytes_used", None) for event in measured] == [7, 8]


def test_each_reading_is_passed_on() -> None:
    """Of the devices that are served: the timeline hears how busy they are."""

    async def scenario() -> list[DeviceReading]:
        heard: list[DeviceReading] = []
        nvml = ScriptedNvml([reading(0, 7), reading(1)])
        probe = DeviceProbe(
            submit=Inbox().submit,
            choose=lambda listed: visible(listed, "0"),
            busy=lambda: False,
            period_s=0.01,
            open_reader=lambda: nvml,
            looked=heard.append,
        )
        await probe.start()
        return heard

    assert asyncio.run(scenario()) == [reading(0, 7)]


@pytest.mark.promise("accounts-37")
def test_a_look_can_be_asked_for() -> None:
    """A look begins at once; one that is asked for while another goes on follows that one."""

    async def scenario() -> int:
        nvml, inbox = ScriptedNvml([reading(0, 1)], [reading(0, 2)], [reading(0, 3)]), Inbox()
        probe = probe_of(nvml, inbox, busy=False)
        await probe.start()
        nvml.may_answer.clear()
        probe.measure()
        await asyncio.sleep(0)
        probe.measure()
        nvml.may_answer.set()
        await inbox.wait_until(lambda event: getattr(event, "bytes_used", 0) == 3)
        probe.stop()
        return nvml.asked

    assert asyncio.run(scenario()) == 3


def test_a_lost_device_is_told_and_may_come_back() -> None:
    """A device that NVML lists no more is lost; when it is listed again it is found again."""

    async def scenario() -> list[Event]:
        inbox = Inbox()
        probe = probe_of(ScriptedNvml([reading(0)], [], [reading(0)]), inbox)
        await probe.start()
        inbox.events.clear()
        probe.wake()
        await inbox.wait_for(DeviceLost)
        await inbox.wait_for(DeviceFound)
        probe.stop()
        return inbox.events

    lost, found, *_ = asyncio.run(scenario())
    assert lost == DeviceLost(device=DeviceId(reading(0).device), cause="NVML has lost it")
    assert isinstance(found, DeviceFound)


def test_without_clients_nothing_is_asked() -> None:
    """The probe sleeps until a client wakes it, and falls asleep again without one."""

    async def scenario() -> int:
        nvml = ScriptedNvml([reading(0)])
        probe = probe_of(nvml, Inbox(), busy=False)
        await probe.start()
        probe.wake()
        while probe._reading is not None:
            await asyncio.sleep(0)
        assert probe._timer is None
        return nvml.asked

    assert asyncio.run(scenario()) == 2


@pytest.mark.promise("scheduler-74")
def test_an_nvml_that_fails_once_is_asked_again() -> None:
    """An error of NVML changes nothing that is known, and ends nothing."""

    async def scenario() -> list[Event]:
        inbox = Inbox()
        probe = probe_of(ScriptedNvml([reading(0)], RuntimeError("fell over"), []), inbox)
        await probe.start()
        probe.wake()
        await inbox.wait_for(DeviceLost)
        probe.stop()
        return inbox.events

    assert asyncio.run(scenario())


@pytest.mark.promise("scheduler-74")
def test_an_nvml_that_hangs_does_not_hang_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not answer at the start is left aside after a while."""
    monkeypatch.setattr(device_probe, "START_DEADLINE_S", 0.05)
    nvml = ScriptedNvml([reading(0)])
    nvml.may_answer.clear()

    async def scenario() -> list[Event]:
        inbox = Inbox()
        await probe_of(nvml, inbox).start()
        return inbox.events

    assert asyncio.run(scenario()) == []
    nvml.may_answer.set()


@pytest.mark.promise(
    "bad-input-65", "An NVML that answers late, or comes late, is used from then on"
)
@pytest.mark.parametrize("listed", ["0", "7"])
def test_an_nvml_that_answers_late(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, listed: str
) -> None:
    """The start does not wait for it, whatever is to be served; once it answers its devices are
    there. Where none of them is the one that was asked for, the log says so and nothing ends."""
    monkeypatch.setattr(device_probe, "START_DEADLINE_S", 0.01)
    nvml = ScriptedNvml([reading(0, 7), reading(1)])
    nvml.may_answer.clear()

    async def scenario() -> list[Event]:
        inbox = Inbox()
        probe = probe_of(nvml, inbox, choose=lambda names: asked_for(names, listed))
        await probe.start()
        assert inbox.events == []
        nvml.may_answer.set()
        if listed == "0":
            await inbox.wait_for(DeviceMemoryMeasured)
        else:
            while "No device is called '7'" not in caplog.text:
                await asyncio.sleep(0.01)
        probe.stop()
        return inbox.events

    found = [event for event in asyncio.run(scenario()) if isinstance(event, DeviceFound)]
    assert [event.name for event in found] == (["Card 0"] if listed == "0" else [])


@pytest.mark.promise("bad-input-65")
def test_an_nvml_that_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a driver is loaded after the scheduler, the next client finds it; it is not looked for
    at each client."""
    nvml, asked = ScriptedNvml([reading(0)]), 0
    monkeypatch.setattr(device_probe, "TRY_AGAIN_S", 3600.0)

    def opened() -> ScriptedNvml:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise NvmlMissing("no driver")
        return nvml

    async def scenario() -> None:
        inbox = Inbox()
        probe = probe_of(opened, inbox)
        await probe.start()
        for _ in range(10):
            probe.wake()
            while probe._opening is not None:
                await asyncio.sleep(0)
        assert asked == 2
        assert probe.no_gpu.startswith("The NVIDIA driver does not answer: no driver. Install it")
        monkeypatch.setattr(device_probe, "TRY_AGAIN_S", 0.0)
        probe._try_again_at_s = 0.0
        probe.wake()
        await inbox.wait_for(DeviceMemoryMeasured)
        assert probe.no_gpu == ""
        probe.stop()

    asyncio.run(scenario())


def test_a_driver_without_gpus_is_told() -> None:
    """It answers, and lists none."""

    async def scenario() -> str:
        probe = probe_of(lambda: ScriptedNvml([]), Inbox())
        await probe.start()
        probe.stop()
        return probe.no_gpu

    assert asyncio.run(scenario()).startswith("The NVIDIA driver lists no GPU. Give this machine")


def test_without_nvml_clients_name_the_devices() -> None:
    """A machine without NVML starts all the same, with no device yet."""

    def missing() -> ScriptedNvml:
        raise NvmlMissing("no library")

    async def scenario() -> list[Event]:
        inbox = Inbox()
        await probe_of(missing, inbox).start()
        return inbox.events

    assert asyncio.run(scenario()) == []
