"""What the state is, for who asks: never from before the question, never at others' cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.core.snapshot import Snapshot
from jupyter_gpushare.scheduler.service.cut import Plain
from jupyter_gpushare.scheduler.service.looks import WORK_S, Look, Looks
from tests.core.desk import Desk
from tests.support.waits import WAIT_S_MAX


class Scene:
    """A state that the test counts up, and looks at it that cost what the test says."""

    def __init__(self, *, share: float = 0.5, look_cost_s: float = 0.0) -> None:
        self.state = 0.0
        self.looked = 0
        self.spent_s = 0.0
        self.look_cost_s = look_cost_s
        self.looks = Looks(self.snapshot, share=share, spent_s=lambda: self.spent_s)

    def snapshot(self) -> Snapshot:
        self.looked += 1
        self.spent_s += self.look_cost_s
        return Snapshot(
            at_s=self.state, recovering=False, devices=(), tenants=(), settings=SchedulerSettings()
        )

    async def seen(self) -> float:
        return await self.looks.answer(lambda look: look.snapshot.at_s)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), WAIT_S_MAX))  # type: ignore[arg-type]


def test_an_answer_is_never_older_than_its_question() -> None:
    """Also while others have just asked, and while looks pause."""

    async def story() -> None:
        scene = Scene(look_cost_s=0.001)
        for number in range(20):
            scene.state = number
            assert await scene.seen() == number

    play(story)


@pytest.mark.promise("bad-input-62")
def test_who_asks_meanwhile_is_answered_from_one_look() -> None:
    """A thousand questions at once cost two looks: one for the first, one for all the others."""

    async def story() -> None:
        scene = Scene(look_cost_s=0.001)
        await asyncio.gather(*(scene.seen() for _ in range(1000)))
        assert scene.looked == 2

    play(story)


@pytest.mark.promise("server-5", "Turns come first, however many callers read the status")
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_looks_take_a_share_of_the_time(share: float) -> None:
    """Where a look is costly it is taken less often; turns come first, however many look on."""

    async def story() -> None:
        scene = Scene(share=share, look_cost_s=0.01)
        loop = asyncio.get_running_loop()
        await scene.seen()
        began_s = loop.time()
        await scene.seen()
        assert loop.time() - began_s >= 0.9 * 0.01 * (1 / share - 1)

    play(story)


@pytest.mark.promise("server-5")
def test_costly_answers_are_given_one_at_a_time() -> None:
    """What is made of a look counts as well: the loop comes to others between two answers."""

    async def story() -> None:
        scene, answered = Scene(), []

        def costly(look: Look) -> None:
            scene.spent_s += 2 * WORK_S
            answered.append(look.snapshot.at_s)

        for _ in range(5):
            scene.looks.ask(costly)
        assert len(answered) == 1
        while len(answered) < 5:
            before = len(answered)
            await asyncio.sleep(0)
            assert len(answered) - before <= 1
        assert scene.looked == 2

    play(story)


def test_what_fails_is_told_to_who_asked() -> None:
    """And to nobody else."""

    async def story() -> None:
        scene = Scene(look_cost_s=0.001)

        def fails(look: Look) -> float:
            raise KeyError("gone")

        found = await asyncio.gather(
            scene.seen(), scene.looks.answer(fails), scene.seen(), return_exceptions=True
        )
        assert [type(each) for each in found] == [float, KeyError, float]

    play(story)


def test_an_answer_that_fails_delays_nobody() -> None:
    """Questions that were asked before and after it are answered."""

    async def story() -> None:
        scene = Scene(look_cost_s=0.001)

        def fails(look: Look) -> None:
            raise KeyError("a bug")

        before = asyncio.create_task(scene.seen())
        await asyncio.sleep(0)
        scene.looks.ask(fails)
        after = [asyncio.create_task(scene.seen()) for _ in range(3)]
        await asyncio.gather(before, *after)
        await scene.seen()

    play(story)


def test_a_look_that_fails_is_taken_again() -> None:
    """Who asked waits for the next look, and is answered from it."""

    async def story() -> None:
        scene = Scene(look_cost_s=0.001)
        await scene.seen()
        snapshot, failures = scene.snapshot, [KeyError("a bug")]

        def fails_once() -> Snapshot:
            if failures:
                raise failures.pop()
            return snapshot()

        scene.looks._snapshot = fails_once
        assert await scene.seen() == 0.0
        assert not failures

    play(story)


def test_a_tenant_that_looks_the_same_is_not_written_out_again() -> None:
    """One that has changed is, and so is one that came in the place of another."""
    desk = Desk()
    one, two = desk.client("a"), desk.client("b")
    plains: list[Plain] = []

    async def story() -> None:
        looks = Looks(lambda: desk.scheduler.snapshot(desk.now_s), share=0.5)
        for change in (lambda: None, lambda: desk.ask(two), lambda: desk.lose(one)):
            change()
            plains.append(await looks.answer(lambda look: look.plain))

    play(story)
    first, second, third = ({each["id"]: each for each in plain.tenants} for plain in plains)
    assert second["a"] is first["a"]
    assert second["b"] is not first["b"] and second["b"]["state"] == "holding"
    assert third["a"] is not second["a"] and third["a"]["clients"] == ()
