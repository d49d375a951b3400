"""Devices that an admin has paused or drained, and tenants that an admin has evicted."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import errors
from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import DeviceId, TenantId

from .desk import Desk
from .memory_desk import MemoryDesk


def set_mode(desk: Desk, mode: ev.DeviceMode, device: str = "A") -> None:
    desk.do(ev.DeviceModeChanged(device=DeviceId(device), mode=mode, cause="by root"))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.promise(
    "scheduler-34",
    "On a device that an admin has paused or drained no turn begins, and the present one is asked "
    "back at once, also one that is kept by hand; other devices go on",
)
@pytest.mark.parametrize("mode", [ev.DeviceMode.PAUSED, ev.DeviceMode.DRAINED])
def test_a_pause_ends_the_turn_and_begins_none(desk: Desk, mode: ev.DeviceMode) -> None:
    """Those who wait are served when the device is open again, in their order."""
    a, b, c = desk.client("a"), desk.client("b"), desk.client("c", "B")
    desk.ask(a)
    desk.hold(a, 60)
    desk.ask(b)
    set_mode(desk, mode)
    (recall,) = desk.all(RecallTurn)
    assert (recall.client, recall.reason, recall.device_name) == (a, RecallReason.PAUSED, "GPU A")
    desk.ask(a)
    desk.drop(a, ev.DropReason.RECALL)
    assert desk.granted() == []
    assert (desk.holders(), desk.queue(), desk.device().mode) == ([], ["b", "a"], mode.value)
    desk.ask(c)
    assert desk.granted() == [c]
    set_mode(desk, ev.DeviceMode.OPEN)
    assert desk.granted() == [b]


@pytest.mark.promise("scheduler-34")
def test_who_needs_a_paused_device_holds_nobody_up(desk: Desk) -> None:
    """A tenant with two devices waits for the paused one, and is skipped on the other."""
    holder, both, other = desk.client("h", "B"), desk.client("a", "AB"), desk.client("b", "B")
    desk.ask(holder)
    desk.ask(both)
    desk.ask(other)
    desk.drop(holder)
    assert desk.granted() == [both]
    desk.drop(both)
    assert desk.granted() == [other]
    desk.ask(both)
    third = desk.client("c", "B")
    desk.ask(third)
    set_mode(desk, ev.DeviceMode.PAUSED)
    desk.drop(other)
    assert desk.granted() == [third]
    set_mode(desk, ev.DeviceMode.OPEN)
    desk.drop(third)
    assert desk.granted() == [both]


@pytest.mark.promise("scheduler-34")
def test_a_pause_frees_those_behind_at_once(desk: Desk) -> None:
    """B was kept for a tenant that waits for A too; with A paused nobody keeps B."""
    holder, both, behind = desk.client("h", "A"), desk.client("a", "AB"), desk.client("b", "B")
    desk.ask(holder)
    desk.ask(both)
    desk.ask(behind)
    assert desk.granted() == []
    set_mode(desk, ev.DeviceMode.PAUSED)
    assert desk.granted() == [behind]


def test_a_stalled_turn_gets_the_paused_device_that_it_cannot_end_without(desk: Desk) -> None:
    """Its work in flight waits for a call on that device; then it is asked back again."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.do(ev.ClockTicked(), after_s=desk.scheduler.settings.quantum_s)
    second = desk.client("a", "B")
    set_mode(desk, ev.DeviceMode.PAUSED, "B")
    desk.ask(second)
    desk.stall(a, calls_waiting=1)
    assert second in desk.granted()
    desk.do(ev.ClockTicked(), after_s=desk.scheduler.settings.recall_retry_s)
    assert set(desk.recalled()) == {a, second}


def test_a_device_that_does_not_exist_is_not_paused(desk: Desk) -> None:
    """It is the request's fault."""
    with pytest.raises(errors.NoSuchDevice, match="There is no device Z"):
        set_mode(desk, ev.DeviceMode.PAUSED, "Z")


def test_a_pause_outlives_a_failure_of_the_core(desk: Desk) -> None:
    """The machine that takes the place of a broken one knows it."""
    set_mode(desk, ev.DeviceMode.DRAINED)
    machine = desk.scheduler._machine
    after = type(machine).in_place_of(machine, desk.scheduler.settings, (), 5.0)
    assert after._state.devices[DeviceId("A")].mode is ev.DeviceMode.DRAINED


@pytest.mark.promise("scheduler-34")
def test_a_stalled_turn_that_goes_on_is_asked_back_for_a_paused_device(desk: Desk) -> None:
    """Nobody waits for it any more, but it has opened the device meanwhile."""
    set_mode(desk, ev.DeviceMode.PAUSED, "B")
    a, sibling, b = desk.client("a"), desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.sleep_until_woken()
    assert desk.recalled() == [a]
    desk.ask(sibling)
    desk.stall(a)
    assert desk.reopened() == [a]
    desk.client("a", "B")
    desk.lose(b)
    desk.sleep_until_woken()
    assert {recall.reason for recall in desk.all(RecallTurn)} == {RecallReason.PAUSED}
    assert desk.recalled() == [a, sibling]
    desk.drop(a)
    desk.drop(sibling)
    assert (desk.holders("A"), desk.holders("B")) == ([], [])


@pytest.mark.promise(
    "accounts-43",
    "Memory leaves a drained device, and that of an evicted tenant leaves until its next turn, "
    "although nobody needs the space",
)
def test_memory_leaves_a_drained_device() -> None:
    """What is fixed stays; memory comes back with the next turn after the drain."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 1000, fixed=100)
    two = desk.with_memory("b", 2000)
    assert desk.budget(one) >= 1000
    set_mode(desk, ev.DeviceMode.DRAINED)
    assert (desk.budget(one), desk.budget(two)) == (100, 0)
    desk.park(one)
    desk.park(two)
    assert desk.device().bytes_staying == 100
    desk.ask(one)
    assert desk.granted() == []
    set_mode(desk, ev.DeviceMode.OPEN)
    assert desk.granted() == [one]
    assert desk.budget(one) >= 1000


@pytest.mark.promise("accounts-43")
def test_memory_of_an_evicted_tenant_leaves() -> None:
    """Of that tenant alone, after its turn, and until its next one."""
    desk = MemoryDesk()
    other = desk.with_memory("b", 2000)
    one = desk.with_memory("a", 1000, resting=False)
    desk.do(ev.EvictRequested(tenant=TenantId("a"), cause="evicted by root"))
    assert desk.recalled() == [one]
    desk.drop(one, ev.DropReason.RECALL)
    assert (desk.budget(one), desk.budget(other)) == (0, 2000)
    desk.park(one)
    desk.ask(one)
    assert desk.budget(one) >= 1000
    desk.report(one, parked=0)
    desk.drop(one)
    assert desk.budget(one) == 1000
