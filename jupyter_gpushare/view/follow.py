"""Those who follow a query: each is sent its answer now, and again when something in it changes.

Followers of one caller and one query share one evaluation. All evaluations together take at most
`BUSY_SHARE` of the time: where there are many, each is made less often. A follower whose connection
is slow misses states in between and gets the last one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from .caller import Viewer
from .cut import Sight, answer_of_events, news_of
from .fleet import Fleet
from .glance import Glances
from .query import Query

PERIOD_S = 0.25
"""A follower is sent an answer at most so often."""
LOOK_AGAIN_S = 2.0
"""A node turns silent without a word: so often a query is evaluated though nobody has reported."""
COMMENT_PERIOD_S = 15.0
"""A line that says nothing, so that both ends learn of a connection that is dead."""
LASTS_S = 30.0
"""Then the browser comes again, and shows once more who asks: whoever has been logged out, or is no
administrator any more, is told nothing for longer than this and what the hub's answers are kept."""
SEND_S_MAX = 30.0
"""A connection that takes nothing for so long is given up."""
RETRY_MS = 500
FOLLOWERS_MAX = 512
FOLLOWERS_PER_CALLER_MAX = 32
BUSY_SHARE = 0.5

Send = Callable[[str], Awaitable[None]]


class TooManyFollowers(Exception):
    """One sentence on what is wrong and one on what to do."""


@dataclass
class _Evaluated:
    """One query of one caller."""

    caller: Viewer
    query: Query
    followers: int = 0
    number: int = 0
    """Counts the answers that differ from the one before."""
    text: str = ""
    news: object = None
    seen: int = -1
    """Up to which report."""
    at_s: float = float("-inf")
    cost_s: float = 0.0


@dataclass(eq=False)
class _Follower:
    over: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class PageFollowers:
    """`clock` measures what evaluations take of the processor; `now_s` is the fleet's time."""

    def __init__(
        self,
        fleet: Fleet,
        now_s: Callable[[], float],
        *,
        accounts_are_users: bool = False,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._fleet = fleet
        self._now_s = now_s
        self._accounts_are_users = accounts_are_users
        self._clock = clock
        self._glances = Glances()
        self._evaluated: dict[tuple[Viewer, Query], _Evaluated] = {}
        self._followers: dict[_Follower, Viewer] = {}
        self._reports = 0

    def __len__(self) -> int:
        return len(self._followers)

    def sight_of(self, caller: Viewer) -> Sight:
        """All nodes as the caller may see them now."""
        return Sight(
            self._fleet,
            caller,
            self._now_s(),
            glances=self._glances,
            accounts_are_users=self._accounts_are_users,
        )

    def tell(self, changed: Collection[str]) -> None:
        """These nodes have changed."""
        if not changed:
            return
        self._reports += 1
        for follower in self._followers:
            follower.woken.set()

    def end(self) -> None:
        for follower in self._followers:
            follower.over = True
            follower.woken.set()

    async def serve(
        self,
        caller: Viewer,
        query: Query,
        send: Send,
        *,
        gone: asyncio.Event,
        lasts_s: float = LASTS_S,
    ) -> None:
        """Until the connection is `gone`, or its time is over. Raises TooManyFollowers."""
        of_callers = Counter(each.name for each in self._followers.values())
        if len(self) >= FOLLOWERS_MAX or of_callers[caller.name] >= FOLLOWERS_PER_CALLER_MAX:
            raise TooManyFollowers(
                "Too many pages and programs follow the view already. Close some, or ask for the "
                "nodes instead of their events."
            )
        follower = _Follower()
        evaluated = self._evaluated.setdefault((caller, query), _Evaluated(caller, query))
        self._followers[follower] = caller
        evaluated.followers += 1
        run = asyncio.ensure_future(self._run(follower, evaluated, send))
        over = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait({run, over}, timeout=lasts_s, return_when=asyncio.FIRST_COMPLETED)
            if run.done():
                run.result()
        finally:
            # Until Python 3.12, `wait_for` swallows a cancelling while what it awaits ends.
            follower.over = True
            follower.woken.set()
            for task in (run, over):
                task.cancel()
            await asyncio.gather(run, over, return_exceptions=True)
            del self._followers[follower]
            evaluated.followers -= 1
            if not evaluated.followers:
                del self._evaluated[caller, query]

    async def _run(self, follower: _Follower, evaluated: _Evaluated, send: Send) -> None:
        await _within(send(f"retry: {RETRY_MS}\n\n"), SEND_S_MAX)
        sent, quiet_s = -1, 0.0
        while not follower.over:
            follower.woken.clear()
            self._look(evaluated)
            if evaluated.number != sent:
                sent, quiet_s = evaluated.number, 0.0
                await _within(send(f"data: {evaluated.text}\n\n"), SEND_S_MAX)
            elif quiet_s >= COMMENT_PERIOD_S:
                quiet_s = 0.0
                await _within(send(": nothing has changed\n\n"), SEND_S_MAX)
            period_s = self._period_s()
            await asyncio.sleep(period_s)
            quiet_s += period_s
            if evaluated.seen == self._reports and not follower.over:
                quiet_s += await _woken(follower.woken, LOOK_AGAIN_S)

    def _period_s(self) -> float:
        cost_s = sum(each.cost_s for each in self._evaluated.values())
        return max(PERIOD_S, cost_s / BUSY_SHARE)

    def _look(self, evaluated: _Evaluated) -> None:
        """Make the answer anew, unless it is as new as anybody may ask for."""
        now_s = self._now_s()
        age_s = now_s - evaluated.at_s
        if age_s < PERIOD_S / 2 or (evaluated.seen == self._reports and age_s < LOOK_AGAIN_S):
            return
        began_s = self._clock()
        evaluated.at_s, evaluated.seen = now_s, self._reports
        answer = answer_of_events(self.sight_of(evaluated.caller), evaluated.query)
        news = news_of(answer, now_s)
        if news != evaluated.news:
            evaluated.news = news
            evaluated.text = json.dumps(answer, separators=(",", ":"))
            evaluated.number += 1
        evaluated.cost_s = self._clock() - began_s


async def _within(sending: Awaitable[None], most_s: float) -> None:
    await asyncio.wait_for(sending, most_s)


async def _woken(event: asyncio.Event, most_s: float) -> float:
    """Wait for it, and for how long that was, at most."""
    try:
        await asyncio.wait_for(event.wait(), most_s)
    except asyncio.TimeoutError:  # another class than the builtin on Python 3.10
        return most_s
    return 0.0
