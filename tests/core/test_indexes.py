"""Indexes of the core by themselves: what they answer, and that they do not grow."""

from __future__ import annotations

from random import Random

from jupyter_gpushare.core.changes import Alarm
from jupyter_gpushare.core.ids import ClientId, TenantId
from jupyter_gpushare.core.ledger import Attention, News, Share, Totals

OWNERS = [("tenant", str(number)) for number in range(5)]


def test_the_alarm_knows_the_earliest_deadline() -> None:
    """However often deadlines have moved, and however often one came back to where it was."""
    chance = Random(1)
    alarm = Alarm()
    deadlines: dict[tuple[str, str], float] = {}
    for _ in range(3000):
        owner = chance.choice(OWNERS)
        deadlines.pop(owner, None)
        at_s = chance.choice([None, *range(20)])
        alarm.set(owner, at_s)
        if at_s is not None:
            deadlines[owner] = at_s
        assert alarm.next_s() == min(deadlines.values(), default=None)
        if chance.random() < 0.1:
            now_s = chance.randrange(20)
            due = {each for each, each_s in deadlines.items() if each_s <= now_s}
            assert set(alarm.due(now_s)) == due
            for each in due:
                del deadlines[each]
    assert len(alarm._heap) < 200


def test_news_are_looked_at_when_they_are_old() -> None:
    """However the level moves, those are found that a look at everybody would find; and clients
    whose news are good are not asked again."""
    chance = Random(1)
    news, shares = News(noticed_bytes=10), {}
    for number in range(30):
        client = ClientId(number)
        shares[client] = Share(client, TenantId(str(number)), Totals(), Attention(), number)
        shares[client].told_usable_bytes = chance.randrange(100)
    own = {client: chance.randrange(50) for client in shares}
    asked: list[ClientId] = []
    level = 0

    def usable_bytes_for(share: Share) -> int:
        asked.append(share.client)
        return min(80, level + own[share.client])

    changed = dict(shares)
    for _ in range(2000):
        level = max(0, level + chance.choice([-7, -1, 0, 1, 7]))
        news.look(shares, changed, level, usable_bytes_for)
        old = {
            client
            for client, share in shares.items()
            if abs(min(80, level + own[client]) - share.told_usable_bytes) > news.noticed_bytes
        }
        assert news.outdated.keys() == old
        changed = {}
        for client in list(old)[:3]:
            shares[client].told_usable_bytes = min(80, level + own[client])
            changed[client] = shares[client]
        asked.clear()
        news.look(shares, changed, level, usable_bytes_for)
        assert set(asked) == old
    assert len(news._lows) < 200
    assert len(news._highs) < 200
