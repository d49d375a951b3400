"""GET /events: each follower hears of every change that it may see, and of nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from jupyter_gpushare.client import RequestRefused
from jupyter_gpushare.client.news import without_times
from jupyter_gpushare.scheduler.http import event_stream
from jupyter_gpushare.scheduler.http.event_stream import Follower, Followers
from jupyter_gpushare.scheduler.service.cut import Cut
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.waits import WAIT_S_MAX


def names(status: dict[str, Any]) -> list[str]:
    return [tenant["name"] for tenant in status["tenants"]]


@pytest.mark.promise(
    "server-2",
    "The event stream tells each follower what it may see, soon, and the last state always",
)
def test_the_stream_tells_who_holds_and_who_waits(scheduler: SchedulerUnderTest) -> None:
    """The status comes at once, and again when a turn is taken and when somebody waits."""
    with scheduler.client.follow() as stream:
        statuses = iter(stream)
        assert names(next(statuses)) == []
        with scheduler.joined("first") as first, scheduler.joined("second") as second:
            first.take_turn()
            second.ask()
            seen = next(s for s in statuses if s["devices"] and s["devices"][0]["queue"])
            (device,) = seen["devices"]
            assert [h["name"] for h in device["holders"]] == ["first"]
            assert [w["name"] for w in device["queue"]] == ["second"]
        next(s for s in statuses if not s["devices"])


def test_a_stream_ends_with_the_scheduler(scheduler: SchedulerUnderTest) -> None:
    """The follower comes to the end of the stream and can look for another scheduler."""
    with scheduler.client.follow() as stream:
        statuses = iter(stream)
        next(statuses)
        assert scheduler.stop() == 0
        assert list(statuses) == []


def test_a_user_has_so_many_streams_and_no_more(
    scheduler: SchedulerUnderTest,
) -> None:
    """The limit is refused with a sentence; a stream that was closed makes room."""
    streams = [scheduler.client.follow() for _ in range(event_stream.FOLLOWERS_PER_USER_MAX)]
    with pytest.raises(RequestRefused, match="Too many programs follow") as refused:
        scheduler.client.follow()
    assert refused.value.status == 503
    for stream in streams:
        with stream:
            next(iter(stream))

    def has_room() -> bool:
        try:
            scheduler.client.follow().close()
        except RequestRefused:
            return False
        return True

    scheduler.eventually(lambda status: has_room())


class Scene:
    """A follower of a status that the test changes; what it sends is kept with its time."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {"number": 0}
        self.sent: list[tuple[float, dict[str, Any] | None]] = []
        self.arrived = asyncio.Event()
        self.followers = Followers()
        self.follower = Follower(self.look, self.send)

    async def look(self) -> Cut:
        return Cut({"scheduler": {"uptime_s": 0.0}, **self.status})

    async def send(self, text: str) -> None:
        data = text.removeprefix("data: ")
        value = None if text.startswith(":") else json.loads(data)
        self.sent.append((asyncio.get_running_loop().time(), value))
        self.arrived.set()

    async def until(self, number: int) -> None:
        while not any(s and s["number"] == number for _, s in self.sent):
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), WAIT_S_MAX)


@pytest.mark.promise("server-2")
def test_changes_are_gathered_and_the_last_one_arrives() -> None:
    """A hundred changes at once make two events, no closer than a tenth of a second."""

    async def story(scene: Scene) -> None:
        task = asyncio.ensure_future(scene.followers.serve(scene.follower, 0))
        await scene.until(0)
        for number in range(1, 101):
            scene.status = {"number": number}
            scene.followers.changed()
        await scene.until(100)
        scene.followers.end()
        await task

    scene = Scene()
    asyncio.run(story(scene))
    assert [status and status["number"] for _, status in scene.sent] == [0, 100]
    assert scene.sent[1][0] - scene.sent[0][0] >= event_stream.PERIOD_S_MIN


def test_a_quiet_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing changes, comments show that the other end is there."""
    monkeypatch.setattr(event_stream, "COMMENT_PERIOD_S", 0.01)

    async def story(scene: Scene) -> None:
        task = asyncio.ensure_future(scene.followers.serve(scene.follower, 0))
        await scene.until(0)
        scene.arrived.clear()
        await asyncio.wait_for(scene.arrived.wait(), WAIT_S_MAX)
        scene.followers.end()
        await task

    scene = Scene()
    asyncio.run(story(scene))
    assert scene.sent[1][1] is None


def test_time_alone_is_no_change() -> None:
    """What only grows as time passes does not make an event."""
    before = {"devices": [{"holders": [{"name": "a", "held_for_s": 1.0}]}], "uptime_s": 1}
    after = {"devices": [{"holders": [{"name": "a", "held_for_s": 2.0}]}], "uptime_s": 2}
    other = {"devices": [{"holders": [{"name": "b", "held_for_s": 2.0}]}], "uptime_s": 2}
    assert without_times(before) == without_times(after) != without_times(other)


@pytest.mark.promise("server-15")
def test_a_hold_is_news_when_it_begins_and_ends_and_is_prolonged() -> None:
    """What is left of it in between is none."""
    none, whole, half = ({"hold_left_s": left} for left in (0.0, 600.0, 300.0))
    begun, later = without_times(whole, 20.0), without_times(half, 320.0)
    assert without_times(none, 20.0) == without_times(none, 320.0) != begun == later
    assert without_times(whole, 320.0) != later
