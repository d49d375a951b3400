"""The timeline: what is recorded, within which bound, and what each caller is told of it."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.settings import Visibility
from jupyter_gpushare.scheduler.identity.caller import Caller
from jupyter_gpushare.scheduler.service.looks import Look
from jupyter_gpushare.scheduler.service.timeline import (
    GRAIN_S,
    LANES_MAX,
    SAMPLES_MAX,
    STEPS_MAX,
    TURNS_MAX,
    WINDOW_S,
    Label,
    Lane,
    Timeline,
)
from tests.scheduler.test_other_users import ALICE, BOB, DEVICE, Office
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler

A, B = DeviceId("a" * 32), DeviceId("b" * 32)
ANN, BEN = Label(TenantId("ann"), "a.ipynb", "ann", "1"), Label(TenantId("ben"), "b", "ben", "2")
Told = list[tuple[str, float, float | None]]


def turns(timeline: Timeline, now_s: float, device: DeviceId = A) -> Told:
    lane, _ = timeline.lane(device, now_s)
    return [(str(turn.label.tenant), turn.begin_s, turn.end_s) for turn in lane.turns]


def steps(timeline: Timeline, now_s: float) -> list[tuple[float, int]]:
    return [(step.begin_s, step.waiting) for step in timeline.lane(A, now_s)[0].steps]


def test_turns_are_kept_with_their_times() -> None:
    """Who had a device, from when to when, and who has it now; on each device for itself."""
    timeline = Timeline()
    timeline.begins(A, ANN, 10)
    timeline.begins(A, ANN, 11)  # told again
    timeline.ends(A, ANN.tenant, 20)
    timeline.begins(A, BEN, 20)
    timeline.begins(B, BEN, 20)
    timeline.ends(B, ANN.tenant, 21)  # who never had it
    assert turns(timeline, 30) == [("ann", 10, 20), ("ben", 20, None)]
    assert turns(timeline, 30, B) == [("ben", 20, None)]


def test_turns_may_run_together() -> None:
    """Where turns are switched off, several tenants have a device at once."""
    timeline = Timeline()
    timeline.begins(A, ANN, 10)
    timeline.begins(A, BEN, 12)
    timeline.ends(A, ANN.tenant, 15)
    assert turns(timeline, 20) == [("ann", 10, 15), ("ben", 12, None)]


def test_what_is_older_than_the_window_is_gone() -> None:
    """Also where nothing has happened since; what goes on stays, however long ago it began."""
    timeline = Timeline()
    timeline.begins(A, BEN, 5)
    timeline.begins(A, ANN, 10)
    timeline.ends(A, ANN.tenant, 20)
    timeline.waits(A, 3, 20)
    timeline.measured(A, 50, 100, 20)
    assert len(turns(timeline, 20 + WINDOW_S - 1)) == 2
    later_s = 20 + 2 * WINDOW_S
    assert turns(timeline, later_s) == [("ben", 5, None)]
    assert timeline.lane(A, later_s)[0].samples == []
    assert steps(timeline, later_s) == [(20, 3)]  # they wait still


def test_turns_too_fine_to_show_are_one() -> None:
    """A tenant that has the device again within a grain goes on with its turn, which says what part
    of that time it had it."""
    timeline = Timeline()
    for number in range(10):
        timeline.begins(A, ANN, 100 + number * GRAIN_S / 2)
        timeline.ends(A, ANN.tenant, 100 + (number + 0.5) * GRAIN_S / 2)
    lane, now_s = timeline.lane(A, 200)
    (turn,) = lane.turns
    assert (turn.begin_s, turn.end_s) == (100, 100 + 9.5 * GRAIN_S / 2)
    assert turn.part(now_s) == pytest.approx(5 / 9.5)


def test_waits_are_steps_of_the_most_that_waited() -> None:
    """How many waited, from when on; a wait that is shorter than a grain is seen all the same."""
    timeline = Timeline()
    timeline.waits(A, 1, 10.2)
    timeline.waits(A, 2, 10.4)
    timeline.waits(A, 0, 10.6)
    timeline.waits(A, 4, 20)
    timeline.waits(A, 4, 22)
    timeline.waits(A, 0, 30)
    assert steps(timeline, 40) == [(10, 2), (11, 0), (20, 4), (30, 4), (31, 0)]


def test_samples_have_the_mean_use_and_the_most_memory() -> None:
    """Of each two seconds; a device that does not say how busy it is has memory alone."""
    timeline = Timeline()
    for number, percent in enumerate([0, 100, None, None]):
        timeline.measured(A, percent, 100 - number, 10 + number)
    samples = timeline.lane(A, 20)[0].samples
    assert [(each.begin_s, each.percent, each.bytes_used) for each in samples] == [
        (10, 50, 100),
        (12, None, 98),
    ]


@pytest.mark.promise(
    "scheduler-93",
    "The scheduler keeps the timeline within a bound, and shows each caller only the names that it "
    "may see",
)
@pytest.mark.parametrize("tenants", [1, 3, 40, 3000])
@pytest.mark.parametrize("pace_s", [0.001, 0.3, 2.0])
def test_the_timeline_is_bounded(tenants: int, pace_s: float) -> None:
    """However many have how short turns, wait and are measured, in whatever order; and who has the
    device in the end is known."""
    chance, timeline, now_s = random.Random(1), Timeline(), 0.0
    last: Label | None = None
    for number in range(12_000):
        now_s += chance.uniform(0, 2 * pace_s)
        if last is not None:
            timeline.ends(A, last.tenant, now_s)
        name = str(number % tenants)
        last = Label(TenantId(name), name, "ann")
        timeline.begins(A, last, now_s)
        timeline.waits(A, chance.randrange(3), now_s)
        timeline.measured(A, 1, 1, now_s)
        lane = timeline._lanes[A]
        assert len(lane.turns) <= TURNS_MAX and len(lane.steps) <= STEPS_MAX + 1
        assert len(lane.samples) <= SAMPLES_MAX
        assert len(lane.latest) <= TURNS_MAX and len(lane.open) == 1
    assert last is not None
    assert [name for name, _, end_s in turns(timeline, now_s) if end_s is None] == [last.name]
    covered(timeline.lane(A, now_s)[0], now_s)


def covered(lane: Lane, now_s: float) -> None:
    """Turns that took all the time nearly cover it, in whatever grain, as far back as they go. What
    begins in the window's first grain may have lost what came before."""
    held_s = sum(
        turn.part(now_s) * ((now_s if turn.end_s is None else turn.end_s) - turn.begin_s)
        for turn in lane.turns
    )
    from_s = min(turn.begin_s for turn in lane.turns)
    assert held_s == pytest.approx(now_s - from_s, rel=0.1)


def test_everybody_at_once_is_bounded_too() -> None:
    """Where turns are switched off and very many go on, the newest are kept."""
    timeline = Timeline()
    for number in range(5 * TURNS_MAX):
        timeline.begins(A, Label(TenantId(str(number)), "n", "ann"), number / 1000)
    assert TURNS_MAX // 2 <= len(turns(timeline, 5)) <= TURNS_MAX
    for number in range(2 * LANES_MAX):
        timeline.begins(DeviceId(str(number)), ANN, 6)
    assert len(timeline._lanes) == LANES_MAX


@pytest.mark.parametrize("jump_s", [-1000.0, -0.5, 5000.0])
def test_a_clock_that_jumps(jump_s: float) -> None:
    """No turn ends before it began, and none is longer than what the clock has shown; what comes
    after the jump is in order."""
    timeline = Timeline()
    timeline.begins(A, ANN, 2000)
    timeline.waits(A, 1, 2000)
    timeline.measured(A, 1, 1, 2000)
    after_s = 2010 + jump_s
    timeline.ends(A, ANN.tenant, after_s)
    timeline.begins(A, BEN, after_s)
    timeline.waits(A, 0, after_s)
    timeline.measured(A, 1, 1, after_s)
    timeline.ends(A, BEN.tenant, after_s + 5)
    lane, now_s = timeline.lane(A, after_s + 5)
    lengths = [turn.end_s - turn.begin_s for turn in lane.turns if turn.end_s is not None]
    assert lengths == [max(0, 10 + jump_s), 5]
    begins = [each.begin_s for each in (*lane.samples,)]
    assert begins == sorted(begins) and begins[-1] <= now_s
    step_begins = [each.begin_s for each in lane.steps]
    assert step_begins == sorted(step_begins)


# ---- what callers are told ------------------------------------------------------------------


def told(office: Office, timeline: Timeline, caller: Caller) -> dict[str, Any]:
    """As the caller is answered now: at 0."""
    office.service._timeline = timeline
    return office.service.timeline(caller, Look(office.snapshot()))


def shared_device(office: Office) -> tuple[Timeline, list[str]]:
    """Alice and Bob have had turns; all that could tell who Bob's tenant is."""
    secrets = office.busy_tenants_of(BOB)
    timeline = Timeline()
    bobs = Label(TenantId(secrets[1]), secrets[0], f"uid {BOB}", Caller(BOB).key)
    alices = Label(TenantId("alices id"), "a.ipynb", f"uid {ALICE}", Caller(ALICE).key)
    timeline.begins(DEVICE, bobs, 0)
    timeline.begins(DEVICE, alices, 0)
    return timeline, [*secrets, f"uid {BOB}"]


@pytest.mark.promise("scheduler-93")
@pytest.mark.parametrize("visibility", Visibility)
def test_each_caller_sees_its_own_names(visibility: Visibility) -> None:
    """Of others' names it sees what the setting allows, and never an id. An administrator sees
    all."""
    office = Office()
    timeline, secrets = shared_device(office)
    office.administration.change_settings(Caller(0), {"visibility": visibility.value})
    bobs, alices = told(office, timeline, Caller(ALICE))["tenants"]
    assert alices == {
        "id": "alices id",
        "name": "a.ipynb",
        "owner": f"uid {ALICE}",
        "own": True,
    }
    shown = {
        Visibility.EVERYONE: (secrets[0], f"uid {BOB}"),
        Visibility.USERS: (f"uid {BOB}", f"uid {BOB}"),
        Visibility.ANONYMOUS: ("another user", "another user"),
    }
    assert (bobs["name"], bobs["owner"]) == shown[visibility]
    assert (bobs["id"], bobs["own"]) == ("other-1", False)
    raw = json.dumps(told(office, timeline, Caller(ALICE)))
    hidden = [secret for secret in secrets if secret not in shown[visibility]]
    assert not [secret for secret in hidden if secret in raw]
    for admin in (0, os.getuid()):
        bobs, _ = told(office, timeline, Caller(admin))["tenants"]
        assert (bobs["id"], bobs["name"], bobs["own"]) == (secrets[1], secrets[0], False)


def test_a_tenant_that_is_gone_is_still_its_owners() -> None:
    """Its name is told to its owner alone. A tenant whose owner nobody knows is nobody's."""
    office = Office()
    timeline, (name, tenant_id, *_) = shared_device(office)
    office.service.remove_tenant(Caller(BOB), tenant_id)
    nameless = Label(TenantId("x"), "left behind", "somebody")
    timeline.begins(DEVICE, nameless, 0)
    assert [each["name"] for each in told(office, timeline, Caller(BOB))["tenants"]] == [
        name,
        "another user",
        "another user",
    ]
    assert name not in json.dumps(told(office, timeline, Caller(ALICE)))


def test_times_are_told_from_the_answer_back() -> None:
    """What began before the window begins with it; a device without a turn is there, and empty."""
    office = Office()
    timeline, _ = shared_device(office)
    timeline.measured(DEVICE, 30, 7, 0)
    office.service._now_s = lambda: 2 * WINDOW_S
    timeline.waits(DEVICE, 2, 2 * WINDOW_S - 10)
    (device,) = told(office, timeline, Caller(ALICE))["devices"]
    assert [(turn["tenant"], turn["begin_s"], turn["end_s"]) for turn in device["turns"]] == [
        (0, -WINDOW_S, None),
        (1, -WINDOW_S, None),
    ]
    assert device["waits"] == [{"begin_s": -10.0, "waiting": 2}]
    assert device["samples"] == []
    (empty,) = told(office, Timeline(), Caller(ALICE))["devices"]
    assert empty == {"id": DEVICE, "turns": [], "waits": [], "samples": []}


# ---- the real process -----------------------------------------------------------------------


def test_a_scheduler_keeps_its_turns_in_mind(scheduler: SchedulerUnderTest) -> None:
    """Who had the device, who has it, and who waits, over its sockets; a restart begins with an
    empty timeline."""
    assert scheduler.client.timeline()["devices"] == []
    with scheduler.joined("first") as first, scheduler.joined("second") as second:
        turn = first.take_turn()
        second.ask()
        scheduler.eventually(lambda status: status["devices"][0]["queue"])
        first.drop(turn.turn_id)
        scheduler.eventually(
            lambda s: [h["name"] for h in s["devices"][0]["holders"]] == ["second"]
        )
        timeline = scheduler.client.timeline()
    (device,) = timeline["devices"]
    names = [timeline["tenants"][turn["tenant"]]["name"] for turn in device["turns"]]
    assert names == ["first", "second"]
    assert [turn["end_s"] is None for turn in device["turns"]] == [False, True]
    assert 1 in [step["waiting"] for step in device["waits"]]
    assert all(tenant["own"] for tenant in timeline["tenants"])
    assert scheduler.stop() == 0
    with running_scheduler(scheduler.directory) as another:
        assert another.client.timeline()["tenants"] == []
