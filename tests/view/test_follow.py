"""Those who follow a query of the view."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine
from inspect import signature
from typing import Any

import pytest

from jupyter_gpushare.hub.auth import FRESH_S
from jupyter_gpushare.view import follow
from jupyter_gpushare.view.caller import Viewer
from jupyter_gpushare.view.cut import Sight
from jupyter_gpushare.view.fleet import SILENT_S
from jupyter_gpushare.view.follow import PageFollowers, TooManyFollowers
from jupyter_gpushare.view.query import Query
from tests.view.fleets import device, reports, small_fleet

ADMIN = Viewer("root", True)
ALICE = Viewer("alice", False)
NODES = Query()


class Ends:
    """A fleet with its followers, and the connections of those."""

    def __init__(self) -> None:
        self.fleet = small_fleet()
        self.time_s = 1.0
        self.followers = PageFollowers(self.fleet, lambda: self.time_s)
        self.tasks: list[asyncio.Task[None]] = []

    def follows(self, caller: Viewer, query: Query = NODES, **more: Any) -> Connection:
        connection = Connection()
        serving = self.followers.serve(caller, query, connection.send, gone=connection.gone, **more)
        connection.task = asyncio.ensure_future(serving)
        self.tasks.append(connection.task)
        return connection

    def report(self, name: str) -> None:
        """The node has a device more."""
        self.time_s += 1.0
        node = self.fleet.nodes.get(name)
        devices = dict(node.devices) if node else {}
        devices[f"new-{len(devices)}"] = device()
        reports(self.fleet, name, devices, {}, now_s=self.time_s)
        self.followers.tell(self.fleet.take_changed())


class Connection:
    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.taken: asyncio.Queue[Any] = asyncio.Queue()
        self.comments = 0
        self.task: asyncio.Task[None]

    async def send(self, text: str) -> None:
        assert text.endswith("\n\n") and "\n" not in text[:-2]
        if text.startswith("data: "):
            self.taken.put_nowait(json.loads(text[6:]))
        elif text.startswith(":"):
            self.comments += 1

    async def next(self) -> Any:
        """What it is sent next; where it has ended instead, why."""
        taken = asyncio.ensure_future(self.taken.get())
        await asyncio.wait({taken, self.task}, return_when=asyncio.FIRST_COMPLETED)
        if not taken.done():
            taken.cancel()
            self.task.result()
        return await taken


def run(story: Callable[[Ends], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        ends = Ends()
        await story(ends)
        ends.followers.end()
        await asyncio.gather(*ends.tasks, return_exceptions=True)
        assert len(ends.followers) == 0 and not ends.followers._evaluated

    asyncio.run(told())


@pytest.mark.promise("view-36", "Who follows a query is sent its answer again when it changes")
def test_a_change_is_told() -> None:
    """The whole answer, to the caller as the caller may see it."""

    async def story(ends: Ends) -> None:
        admin = ends.follows(ADMIN, Query(summary=True, open="node-d"))
        alice = ends.follows(ALICE, Query(show="tenants"))
        first = await admin.next()
        assert first["total"] == 3 and first["node"] is None
        assert [each["id"] for each in (await alice.next())["tenants"]] == ["t-alice"]
        ends.report("node-d")
        then = await admin.next()
        assert then["total"] == then["summary"]["nodes"] == 4
        assert list(then["node"]["devices"]) == ["new-0"]
        assert alice.taken.empty()

    run(story)


@pytest.mark.promise("view-36")
def test_a_silent_node_is_told_though_nobody_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query is looked at again and again."""
    monkeypatch.setattr(follow, "LOOK_AGAIN_S", 0.01)

    async def story(ends: Ends) -> None:
        admin = ends.follows(ADMIN)
        assert (await admin.next())["nodes"][0]["state"] == "live"
        ends.time_s += SILENT_S + 1
        assert (await admin.next())["nodes"][0]["state"] == "silent"

    run(story)


@pytest.mark.promise(
    "view-37", "Followers of one query cost one evaluation, and none sees another caller's"
)
def test_followers_of_one_query_share_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten followers, one answer made for each change; another caller's is made apart."""
    made: list[tuple[str, Query]] = []
    answer = follow.answer_of_events

    def counted(sight: Sight, query: Query) -> dict[str, Any]:
        made.append((sight.caller.name, query))
        return answer(sight, query)

    monkeypatch.setattr(follow, "answer_of_events", counted)

    async def story(ends: Ends) -> None:
        admins = [ends.follows(ADMIN) for _ in range(10)]
        alice = ends.follows(ALICE)
        texts = [await each.next() for each in admins]
        assert all(each == texts[0] for each in texts)
        assert (await alice.next()) != texts[0]
        assert sorted(name for name, _ in made) == ["alice", "root"]
        ends.report("node-d")
        for each in [*admins, alice]:
            assert (await each.next())["total"] == 4
        assert sorted(name for name, _ in made) == ["alice", "alice", "root", "root"]

    run(story)


@pytest.mark.promise(
    "view-38", "Followers are bounded, and a follower that takes nothing is given up"
)
def test_there_are_not_too_many_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one caller, and of all; who has gone makes room."""
    monkeypatch.setattr(follow, "FOLLOWERS_PER_CALLER_MAX", 2)
    monkeypatch.setattr(follow, "FOLLOWERS_MAX", 3)

    async def story(ends: Ends) -> None:
        first, second = ends.follows(ALICE), ends.follows(ALICE)
        await first.next()
        await second.next()
        with pytest.raises(TooManyFollowers, match=r"Close some"):
            await ends.follows(ALICE).task
        admin = ends.follows(ADMIN)
        await admin.next()
        with pytest.raises(TooManyFollowers):
            await ends.follows(Viewer("bob", False)).task
        first.gone.set()
        await first.task
        await ends.follows(ALICE).next()

    run(story)


@pytest.mark.promise("view-38")
def test_a_connection_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on."""
    monkeypatch.setattr(follow, "SEND_S_MAX", 0.01)

    async def story(ends: Ends) -> None:
        async def never(text: str) -> None:
            await asyncio.Event().wait()

        stuck = ends.followers.serve(ADMIN, Query(), never, gone=asyncio.Event())
        with pytest.raises(asyncio.TimeoutError):
            await stuck
        await ends.follows(ADMIN).next()

    run(story)


def test_a_follower_ends_when_its_time_is_over() -> None:
    """The browser comes again, and shows who asks."""

    async def story(ends: Ends) -> None:
        await ends.follows(ADMIN, lasts_s=0.01).task

    run(story)


def test_a_follower_ends_though_cancelling_it_is_swallowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `asyncio.wait_for` does where what it awaits ends at the same moment."""

    async def swallows(sending: Awaitable[None], most_s: float) -> None:
        await sending
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    monkeypatch.setattr(follow, "_within", swallows)

    async def story(ends: Ends) -> None:
        await ends.follows(ADMIN, lasts_s=0.01).task

    run(story)


@pytest.mark.promise(
    "view-39", "Whoever is logged out, or no administrator any more, is told nothing after a minute"
)
def test_a_page_that_is_open_is_not_told_for_ever() -> None:
    """By default a stream and the hub's answer together last so long."""
    assert signature(PageFollowers.serve).parameters["lasts_s"].default + FRESH_S <= 60


def test_a_quiet_connection_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a comment."""
    monkeypatch.setattr(follow, "COMMENT_PERIOD_S", 0.0)
    monkeypatch.setattr(follow, "LOOK_AGAIN_S", 0.01)

    async def story(ends: Ends) -> None:
        admin = ends.follows(ADMIN)
        await admin.next()
        while not admin.comments:
            await asyncio.sleep(0.01)
        assert admin.taken.empty()

    run(story)


def test_many_queries_are_looked_at_less_often() -> None:
    """So that all of them together leave the view half of its time."""
    ends = Ends()
    for number in range(10):
        query = Query(find=str(number))
        evaluated = follow._Evaluated(ADMIN, query, cost_s=0.1)
        ends.followers._evaluated[ADMIN, query] = evaluated
    assert ends.followers._period_s() == pytest.approx(2.0)
