"""Turns and memory together: who is passed over, what the quantum waits for, and what goes back."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn, ReportSilent
from jupyter_gpushare.core.ids import DeviceId
from jupyter_gpushare.core.needs import GRACE_S

from .memory_desk import USABLE, MemoryDesk


def two_that_do_not_fit(desk: MemoryDesk) -> tuple[int, int]:
    """`a` has parked 3000 of 5000 because `b`, which has the turn, has 5000."""
    one = desk.with_memory("a", 5000)
    two = desk.with_memory("b", 2000, resting=False)
    desk.need(two, 3000)
    desk.park(one)
    desk.report(two, allocated=5000)
    return one, two


# ---- who is passed over ----------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-25",
    "A tenant whose memory cannot be on its devices is passed over, is told what is in the way "
    "and what to do, and is served when there is room",
)
def test_who_has_no_room_is_passed_over() -> None:
    """Another's memory cannot be moved: those behind in the queue go first, and the status says
    what is in the way."""
    desk = MemoryDesk()
    one, two = two_that_do_not_fit(desk)
    three = desk.client("c")
    desk.ask(one)
    desk.ask(three)
    desk.report(two, fixed=5000)
    desk.drop(two, after_s=1)
    assert desk.granted() == [three]
    desk.drop(three, after_s=1)
    obstacle = desk.status("a").obstacle
    assert obstacle is not None
    assert (obstacle.kind.value, obstacle.tenant) == ("fixed", "b")
    assert (obstacle.bytes_in_the_way, obstacle.bytes_short) == (5000, 3000)
    assert desk.queue() == ["a"]


@pytest.mark.promise("accounts-25")
def test_who_was_passed_over_is_served_when_there_is_room() -> None:
    """As soon as a report shows it."""
    desk = MemoryDesk()
    one, two = two_that_do_not_fit(desk)
    desk.ask(one)
    desk.report(two, fixed=5000)
    desk.drop(two, after_s=1)
    assert desk.granted() == []
    desk.report(two, allocated=1000, fixed=1000, after_s=1)
    assert desk.granted() == [one]
    assert desk.obstacle("a") is None


@pytest.mark.promise("accounts-25")
def test_each_obstacle_has_its_name() -> None:
    """What is in the way: the host's room, a failed context, strangers, the tenant itself."""
    desk = MemoryDesk()
    desk.measure(0)
    one, two = two_that_do_not_fit(desk)
    desk.ask(one)
    desk.report(two, parkable=0)
    desk.drop(two, after_s=1)
    assert desk.obstacle("a") == "host"
    desk.fail(two)
    assert desk.obstacle("a") == "failed"
    desk.lose(two)
    desk.sleep_until_woken()
    assert desk.obstacle("a") == "ended"
    for _ in range(3):
        desk.measure(7000, after_s=1)
    assert desk.obstacle("a") == "foreign"
    desk.measure(2000, after_s=1)
    assert desk.granted() == [one]


@pytest.mark.promise(
    "accounts-26",
    "A failed context, fixed memory, and what the host has no room for, are never asked for; room "
    "on the host that comes back is noticed",
)
def test_room_on_the_host_that_comes_back_is_noticed() -> None:
    """While somebody is in the way for want of it, it is asked every second."""
    desk = MemoryDesk()
    one, two = two_that_do_not_fit(desk)
    desk.ask(one)
    desk.report(two, parkable=0)
    desk.drop(two, after_s=1)
    assert desk.obstacle("a") == "host"
    for _ in range(3):
        before_s = desk.now_s
        desk.last = []
        while two not in desk.told():
            desk.sleep_until_woken()
        assert desk.now_s <= before_s + 1.01
        assert desk.granted() == []
        desk.report(two)
    desk.report(two, parkable=5000)
    assert desk.granted() == [one]


@pytest.mark.promise("accounts-25")
def test_a_tenant_that_outgrew_the_device_is_told_so() -> None:
    """The device has become smaller: nobody else is in the way."""
    desk = MemoryDesk()
    one, two = two_that_do_not_fit(desk)
    desk.ask(one)
    desk.set(device_bytes_max=4000)
    desk.drop(two, after_s=1)
    assert desk.obstacle("a") == "itself"


@pytest.mark.promise("accounts-25")
def test_what_a_sibling_was_just_given_counts() -> None:
    """A stalled tenant has a need met on one device while it queues for the other: all that it
    needs would still not fit, and what it was given is not forgotten before it is reported."""
    desk = MemoryDesk(devices="AC")
    one, two = desk.client("a"), desk.client("a", "AC")
    holder = desk.with_memory("b", 100, resting=False)
    three = desk.client("a", held_turn=1000)
    desk.ask(two)
    desk.need(two, 1500)
    desk.ask(one)
    desk.need(one, 4000)
    desk.stall(three)
    desk.need(three, 4000)
    desk.drop(holder)
    assert desk.budget(one) == 4000
    assert desk.obstacle("a") == "itself"


@pytest.mark.promise("accounts-25")
def test_who_needs_nothing_more_is_served() -> None:
    """However full the device is."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 3000)
    desk.measure(7900)
    desk.ask(one, after_s=1)
    assert desk.granted() == [one]


@pytest.mark.promise("accounts-27", "Several devices are counted apart, and all must have room")
def test_both_devices_must_have_room() -> None:
    """A turn covers all devices of a tenant, and so does the question."""
    desk = MemoryDesk(devices="AB")
    one = desk.client("a", "AB")
    desk.ask(one)
    desk.grow(one, 5000, "A")
    desk.grow(one, 5000, "B")
    desk.drop(one, after_s=1)
    two = desk.client("b", "B")
    desk.ask(two)
    desk.need(two, 6000, "B")
    desk.park(one, "B")
    desk.report(two, "B", allocated=6000, fixed=6000)
    desk.drop(two, after_s=1)
    desk.ask(one)
    assert desk.granted() == []
    obstacle = desk.status("a").obstacle
    assert obstacle is not None and obstacle.device == "B"


@pytest.mark.promise("accounts-27")
def test_budgets_are_kept_apart_by_device() -> None:
    """Room on one is none on the other."""
    desk = MemoryDesk(devices="AB")
    one = desk.with_memory("a", 6000, "A")
    two = desk.client("b", "AB")
    desk.ask(two)
    assert (desk.budget(two, "A"), desk.budget(two, "B")) == (1000, USABLE)
    desk.need(two, 2000, "A")
    assert desk.budget(one, "A") == 5000


# ---- memory that is short --------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-28",
    "A turn whose memory was short is not granted again at once, and one whose memory cannot come "
    "back is recalled",
)
def test_who_found_no_room_is_not_asked_at_once_again() -> None:
    """It is tried again after a second."""
    desk = MemoryDesk()
    one, two = two_that_do_not_fit(desk)
    desk.drop(two, after_s=1)
    desk.ask(one)
    desk.park(two)
    desk.drop(one, ev.DropReason.MEMORY_SHORT, after_s=0.1)
    short_s = desk.now_s
    desk.ask(one, after_s=0.1)
    assert desk.granted() == []
    assert desk.obstacle("a") == "retry"
    while not desk.granted():
        desk.sleep_until_woken()
    assert short_s + 1 <= desk.now_s < short_s + 1.1


@pytest.mark.promise("accounts-28")
def test_who_found_no_room_is_asked_again_when_some_is_released() -> None:
    """By somebody else."""
    desk = MemoryDesk()
    one, two = two_that_do_not_fit(desk)
    desk.drop(two, after_s=1)
    desk.ask(one)
    desk.park(two)
    desk.drop(one, ev.DropReason.MEMORY_SHORT, after_s=0.1)
    desk.ask(one)
    assert desk.granted() == []
    desk.report(two, allocated=3500, parked=3000, after_s=0.1)
    assert desk.granted() == [one]


# ---- the quantum -----------------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-29",
    "The quantum begins when memory is back, unless it makes no progress",
)
def test_the_quantum_begins_when_memory_is_back() -> None:
    """The time for which memory is still coming back is nobody's."""
    desk = MemoryDesk(quantum_s=5)
    desk.tenant("b", owner="ben")
    one, two = two_that_do_not_fit(desk)
    desk.ask(one)
    desk.drop(two, after_s=1)
    desk.ask(two)
    for parked in (2000, 1000):
        desk.report(two, parked=3000 - parked, after_s=4)
        desk.report(one, parked=parked, after_s=1)
        assert not desk.recalled()
    desk.report(two, parked=3000, after_s=4)
    desk.report(one, parked=0, after_s=1)
    back_s = desk.now_s
    while not desk.recalled():
        desk.sleep_until_woken()
    assert desk.recalled() == [one]
    assert desk.now_s == back_s + 5


@pytest.mark.promise("accounts-29")
def test_the_quantum_does_not_wait_for_one_that_makes_no_progress() -> None:
    """It has its budget, and restores nothing: after `park_timeout_s` its quantum counts."""
    desk = MemoryDesk(quantum_s=5, park_timeout_s=10)
    desk.tenant("b", owner="ben")
    one, two = two_that_do_not_fit(desk)
    desk.ask(one)
    desk.drop(two, after_s=1)
    desk.park(two)
    desk.report(one)
    granted_s = desk.now_s
    desk.ask(two)
    while not desk.recalled():
        desk.sleep_until_woken()
    assert desk.recalled() == [one]
    assert granted_s + 15 <= desk.now_s < granted_s + 17


@pytest.mark.promise("accounts-28")
def test_a_turn_whose_memory_cannot_come_back_is_recalled() -> None:
    """A victim falls silent after the grant: the turn goes to somebody who can use it."""
    desk = MemoryDesk(park_timeout_s=10)
    one, two = two_that_do_not_fit(desk)
    three = desk.client("c")
    desk.ask(one)
    desk.drop(two, after_s=1)
    assert desk.granted() == [one]
    desk.ask(three)
    while not desk.recalled():
        desk.sleep_until_woken()
    (recall,) = desk.all(RecallTurn)
    assert recall.client == one and recall.reason is RecallReason.NO_SPACE
    desk.drop(one, ev.DropReason.RECALL)
    desk.ask(one)
    assert desk.holders() == ["c"]
    desk.drop(three, after_s=1)
    assert desk.obstacle("a") == "silent"


@pytest.mark.promise(
    "accounts-30",
    "A turn whose memory cannot come back, because nobody can make the space, goes back soon, "
    "and the status says why it waits",
)
def test_a_turn_whose_memory_cannot_come_back_goes_back_soon() -> None:
    """A program outside the sharing takes the space in the middle. Nobody else is served meanwhile,
    and the quantum waits for what comes back."""
    desk = MemoryDesk(park_timeout_s=10)
    desk.measure(0)
    one, two = two_that_do_not_fit(desk)
    three = desk.client("c")
    desk.ask(one)
    desk.drop(two, after_s=1)
    desk.park(two)
    desk.report(two, allocated=4500)
    desk.report(one, parked=2000)
    desk.ask(three)
    came_s = desk.now_s
    while not desk.recalled():
        desk.measure(3000 + 1500 + 3500, after_s=0.1)
    assert came_s + GRACE_S < desk.now_s < came_s + GRACE_S + 1
    assert [each.reason for each in desk.all(RecallTurn)] == [RecallReason.NO_SPACE]
    desk.drop(one, ev.DropReason.RECALL)
    desk.ask(one)
    assert desk.holders() == ["c"]
    desk.drop(three, after_s=1)
    assert desk.granted() == [] and desk.obstacle("a") == "foreign"
    desk.measure(3000 + 1500, after_s=1)
    assert desk.granted() == [one]


@pytest.mark.promise("accounts-30")
def test_a_turn_that_others_can_make_space_for_is_kept() -> None:
    """They are slow; and memory of one that has died will be gone soon."""
    desk = MemoryDesk(park_timeout_s=10, reclaim_s=5)
    one, two = two_that_do_not_fit(desk)
    desk.ask(one)
    desk.drop(two, after_s=1)
    desk.report(two, parked=1000, after_s=8)
    desk.report(one, parked=2000, after_s=1)
    desk.lose(two)
    died_s = desk.now_s
    while desk.budget(one) < 5000:
        desk.sleep_until_woken()
        assert not desk.recalled()
    assert desk.now_s >= died_s + 5


# ---- the ends --------------------------------------------------------------------------------


@pytest.mark.promise("accounts-31", "A closed or lost device takes its memory along")
def test_a_closed_device_gives_its_memory_back() -> None:
    """The driver has freed it before the client says so."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 6000)
    two = desk.client("b")
    desk.ask(two)
    desk.close(one, "A")
    assert desk.budget(two) == USABLE


@pytest.mark.promise("accounts-31")
def test_a_lost_device_gives_nothing_more() -> None:
    """A need there is refused, and what was parked is waited for by nobody."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 1000, resting=False)
    desk.do(ev.DeviceLost(device=DeviceId("A")))
    desk.need(one, 10)
    assert desk.refused() == [one]


@pytest.mark.promise(
    "accounts-32",
    "The status tells resident, parked and fixed memory and the cap of each tenant, and of each "
    "device what is foreign, reserved and usable",
)
def test_the_status_tells_what_is_where() -> None:
    """Resident, parked, fixed and cap of a tenant, all its processes together."""
    desk = MemoryDesk()
    desk.tenant("a", cap_bytes=6500)
    one = desk.with_memory("a", 3000, fixed=100)
    two = desk.with_memory("a", 2000)
    three = desk.client("b")
    desk.ask(three)
    desk.need(three, 3000)
    desk.park(one)
    desk.park(two)
    memory = desk.memory("a")
    assert (memory.bytes_resident, memory.bytes_parked) == (4000, 1000)
    assert (memory.bytes_fixed, memory.cap_bytes) == (100, 6500)
    device = desk.device()
    assert (device.bytes_allocated, device.bytes_foreign) == (5000, 0)


@pytest.mark.promise("accounts-25")
def test_who_was_in_the_way_and_is_granted_is_so_no_more() -> None:
    """A silent client that gets a turn has to answer for nothing: the one that was passed over for
    its memory waits for its turn to end."""
    desk = MemoryDesk(park_timeout_s=10, quantum_s=5)
    silent = desk.with_memory("a", 6000)
    holder = desk.client("b")
    desk.ask(holder)
    desk.need(holder, 3000)
    while not desk.all(ReportSilent):
        desk.sleep_until_woken()
    passed_over = desk.client("c")
    desk.ask(passed_over)
    desk.need(passed_over, 3000)
    desk.ask(silent)
    desk.drop(holder)
    assert desk.granted() == [silent]
    assert desk.obstacle("c") is None


@pytest.mark.promise("accounts-25")
def test_no_device_is_kept_for_a_gang_that_is_passed_over() -> None:
    """Also while somebody has another device of it: those behind it go on."""
    desk = MemoryDesk(devices="AB")
    holder, gang, single = desk.client("a", "B"), desk.client("b", "AB"), desk.client("c", "A")
    desk.report(gang, allocated=USABLE + 1, parked=USABLE + 1)
    desk.ask(gang)
    assert desk.obstacle("b") == "itself"
    desk.ask(holder)
    desk.ask(single)
    assert (desk.holders("A"), desk.holders("B")) == (["c"], ["a"])
    assert desk.obstacle("b") == "itself"
