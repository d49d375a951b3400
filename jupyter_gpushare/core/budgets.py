"""The budgets of one device, as they follow from who has a turn there and who has what.

residency.py gathers the figures of the device, `decide` makes changes of them, and residency.py
applies these. Nothing here changes the state, or reads it past the figures.

A client with a turn may have all that it has allocated and needs. What is short comes from budgets
that nobody uses, then from clients without a turn (space/victims.py), and no more than is short.
Nothing is given out before it has been reported as released (ledger.py). What nobody can give is
lent from the reserve, as far as state.py allows.

What nobody with a turn uses goes to the one who is next: its parked memory comes back ahead of its
turn (decision 0017). Clients with a turn come first: for them this memory leaves again before all
other.

Each step of `decide` takes the budgets that the step before it made, and answers with new ones.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .commands import Ahead
from .ids import ClientId, Seconds, TenantId
from .ledger import Share
from .space.ahead import STEP_BYTES, free_goes_ahead, less_goes_ahead, slack_goes_ahead
from .space.copiers import NO_COPIES, who_copies
from .space.figures import SLACK_BYTES_MAX, Budgets, Figures
from .space.victims import bytes_for_one_other, victims_are_asked

SPACE_KEPT_S = 1.0
"""How long space that was made is kept for the client that asked for it."""
MEASURE_PERIOD_S = 0.05
"""How often the device is looked at while a client lacks space that no report will bring."""
REFRESH_S = 1.0
"""A client is not told more often of changes that concern the memory of others alone."""
_REFRESH_SHARE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChange:
    """What one client is told."""

    client: ClientId
    budget_bytes: int
    usable_bytes: int
    """The most that its tenant could have."""
    park_hint_bytes: int
    """How much of its memory would have to leave if one other came back."""
    ahead: Ahead = Ahead.NOTHING
    """While it has no turn."""
    refused: bool = False


class Measuring(enum.Enum):
    """Whether the device is looked at, because somebody is short."""

    NO = "no"
    LATER = "later"
    NOW = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """All that follows from one look."""

    changes: list[BudgetChange]
    space: dict[ClientId, bool]
    """Answers to requests: whether there is space now."""
    needs_again: frozenset[ClientId]
    """Clients that had not used yet what they were given; it is taken back."""
    needs_met: frozenset[ClientId]
    lacks_memory: frozenset[TenantId]
    """Tenants with a turn whose parked memory cannot come back yet."""
    measuring: Measuring
    due_s: tuple[Seconds, ...]
    """When the device has to be looked at again, if nothing happens before."""
    drift_bytes: int
    """By how much memory may change before the look has to be repeated."""


def noticed_bytes(bytes_total: int) -> int:
    """A client is not told of smaller changes that concern the memory of others alone."""
    return bytes_total // _REFRESH_SHARE


# ---- decide ---------------------------------------------------------------------------------


def decide(figures: Figures) -> Decision:
    """Budgets for all clients of the device, and all that follows from them."""
    trimmed = _unused_leaves_turns(figures)
    lacking = _missing_bytes(figures, trimmed)
    taken, missing = _unused_is_taken(figures, trimmed, lacking)
    corrected = _what_is_gone_is_taken_back(figures, taken)
    ahead = 0
    if figures.ahead:
        less = less_goes_ahead(figures, corrected, lacking)
        corrected, ahead = slack_goes_ahead(figures, less)
    asked, unmet = corrected, 0
    if missing > 0 or ahead or figures.pending or figures.to_evict or figures.owing:
        asked, unmet = victims_are_asked(figures, corrected, missing, ahead)
    raised, hungry, free = _budgets_are_raised(figures, asked, unmet)
    answers, answers_due_s = _answers(figures, raised, unmet)
    pending = len(figures.pending) > len(answers)
    enough = not (hungry or pending or missing > 0)
    if enough and figures.ahead:
        raised, free = free_goes_ahead(figures, raised, free)
    final = _free_is_shared(figures, raised, free) if enough else raised
    retold, retold_due_s = _retold(figures, final, hungry)
    measuring, measure_due_s = _measuring(figures, final, hungry, pending)
    copies = NO_COPIES
    if figures.attention.to_copy:
        may_copy = enough and figures.may_copy and not _awaited(figures, final)
        copies = who_copies(figures, final, may_copy=may_copy)
    due_s = (*answers_due_s, *retold_due_s, *measure_due_s, *copies.due_s)
    told = final.told.keys() | retold | copies.changed
    moves = {share.client: Ahead.RESTORE for share in figures.ahead}
    if copies.client is not None:
        moves[copies.client] = Ahead.COPIES
    return Decision(
        changes=[
            _change(figures, share, final.of(share), moves.get(share.client, Ahead.NOTHING))
            for share in sorted((figures.shares[client] for client in told), key=_number)
        ],
        space=answers,
        needs_again=final.again,
        needs_met=frozenset(
            share.client for share in figures.holding if raised.of(share) >= raised.wanted(share)
        ),
        lacks_memory=frozenset(
            share.tenant
            for share in figures.holding
            if share.bytes_parked and raised.of(share) < share.bytes_allocated
        ),
        measuring=measuring,
        due_s=due_s,
        drift_bytes=_drift_bytes(figures, final) if enough and not due_s else 0,
    )


def _unused_leaves_turns(figures: Figures) -> Budgets:
    """A client without a turn may have what it has, unless it is the next one. Refused needs are
    told as well."""
    told = {client: figures.shares[client].budget_bytes for client in figures.refused}
    keeping = {share.client for share in (*figures.holding, *figures.ahead)}
    trimmed = {
        share.client: share.bytes_resident
        for share in figures.attention.unused.values()
        if share.client not in keeping
    }
    return Budgets({**told, **trimmed})


def _missing_bytes(figures: Figures, budgets: Budgets) -> int:
    """How many bytes clients with a turn, and requests for space, lack before anybody parks."""
    holding = sum(max(budgets.taken_up(share), budgets.wanted(share)) for share in figures.holding)
    asked = sum(request.bytes_wanted for request in figures.pending)
    there_is = figures.bytes_usable + figures.bytes_ghost
    return holding + figures.bytes_without_turn + asked - there_is


def _unused_is_taken(figures: Figures, budgets: Budgets, missing: int) -> tuple[Budgets, int]:
    """From those with a turn, what they may have and do not use; and what is missing then.

    If one of them grows, at least half of the unused is taken: what is not needed at once is
    shared, so that the next small step need not ask."""
    grows = any(share.needed_bytes for share in figures.holding)
    told: dict[ClientId, int] = {}
    an_earlier_one_grows = False
    for share in figures.holding:
        if missing <= 0:
            break
        # A part of what it needs is of no use to it, and may be what an earlier one lacks.
        asked = share.granted_bytes if an_earlier_one_grows else share.asked_bytes
        an_earlier_one_grows |= share.needed_bytes > 0
        has = budgets.taken_up(share)
        unused = has - max(share.bytes_resident, share.bytes_allocated + asked)
        if unused <= 0 or share.silent:
            continue
        taken = min(unused, max(missing, unused // 2 if grows else 0))
        told[share.client] = has - taken
        missing -= taken
    return budgets.with_told(told), missing


def _what_is_gone_is_taken_back(figures: Figures, budgets: Budgets) -> Budgets:
    """Others have taken what was given out and not been used yet. The later holders wait for it
    again, even if their needs were met in part or their calls are about to go on. Nobody else has
    more than it uses (`_unused_leaves_turns`)."""
    free = figures.bytes_usable + figures.bytes_ghost - figures.bytes_resident
    answering = [share for share in figures.holding if not share.silent]
    new = sum(budgets.beyond(share, share.bytes_allocated) for share in answering) - max(0, free)
    given = sum(budgets.beyond(share, share.bytes_resident) for share in answering)
    given -= max(0, free + figures.bytes_to_lend)
    told: dict[ClientId, int] = {}
    for share in reversed(answering):
        beyond_allocated = budgets.beyond(share, share.bytes_allocated)
        taken = min(max(new, given), beyond_allocated)
        taken = max(taken, min(given, budgets.beyond(share, share.bytes_resident)))
        if taken > 0:
            told[share.client] = budgets.of(share) - taken
            new -= min(taken, beyond_allocated)
            given -= taken
    return Budgets({**budgets.told, **told}, frozenset(told))


def _budgets_are_raised(
    figures: Figures, budgets: Budgets, unmet: int
) -> tuple[Budgets, bool, int]:
    """All that is free goes to those with a turn, first come first served. What they had before
    also gets what is lent. Answers also whether anybody still lacks something, and what is free."""
    lent = min(unmet, figures.bytes_to_lend)
    free = figures.bytes_usable - figures.bytes_charged - budgets.newly_charged_bytes(figures)
    free -= sum(request.bytes_wanted for request in figures.requests)
    hungry = False
    told: dict[ClientId, int] = {}
    for share in figures.holding:
        had, wanted = budgets.of(share), budgets.wanted(share)
        lacking = wanted - had
        if lacking <= 0:
            if budgets.needed(share):
                told[share.client] = had
            continue
        # If the device is over-committed, the client's last known budget cannot be honoured.
        charged = budgets.charged(share)
        can_have = charged + free
        comes_back = min(share.bytes_allocated, can_have + lent)
        if hungry:  # what was taken from it for an earlier one is not its again
            can_have = min(can_have, had + max(0, free))
        budget = max(had, comes_back, min(wanted, can_have))
        free -= max(0, budget - charged)
        hungry |= budget < wanted
        if budget >= wanted or budget - had >= min(STEP_BYTES, (lacking + 3) // 4):
            told[share.client] = budget
    return budgets.with_told(told), hungry, free


def _answers(
    figures: Figures, budgets: Budgets, unmet: int
) -> tuple[dict[ClientId, bool], list[Seconds]]:
    """To those who asked for space; and when the others have waited long enough."""
    now_s, free = figures.now_s, figures.bytes_free_on_device
    owed = bool(_awaited(figures, budgets))
    answers: dict[ClientId, bool] = {}
    due_s: list[Seconds] = []
    for request in figures.pending:
        late_s = request.asked_at_s + figures.park_timeout_s
        shown = request.shown(now_s, free, late_s, unmet=unmet, owed=owed)
        if request.is_released:
            answers[request.client] = True
            due_s.append(now_s + SPACE_KEPT_S)
        elif shown is not None:
            answers[request.client] = shown
            if shown:
                due_s.append(now_s + SPACE_KEPT_S)
        else:
            due_s.append(request.due_s(now_s, late_s))
    return answers, due_s


def _free_is_shared(figures: Figures, budgets: Budgets, free: int) -> Budgets:
    """Beyond what they need now, so that growth need not ask each time."""
    shares = [share for share in figures.holding if not budgets.owes(share)]
    if free <= 0 or not shares or figures.recovering:
        return budgets
    if len({share.tenant for share in figures.holding}) == 1:
        each = _slack_bytes(figures, budgets, shares[0].tenant, free) // len(shares)
        if each < max(1, min(STEP_BYTES, figures.bytes_usable // 32)):
            return budgets
        return budgets.with_told({share.client: budgets.of(share) + each for share in shares})
    told: dict[ClientId, int] = {}
    for share in shares:
        slack = min(free // 2, SLACK_BYTES_MAX)
        unused = budgets.of(share) - share.bytes_allocated
        if unused < slack // 2:
            free -= slack - unused
            told[share.client] = share.bytes_allocated + slack
    return budgets.with_told(told)


def _slack_bytes(figures: Figures, budgets: Budgets, tenant: TenantId, free: int) -> int:
    """What a tenant that is alone may have beyond what it has: all that is free, within its cap.
    What its other processes have parked must find space beside it."""
    holding = {share.client for share in figures.holding}
    own = figures.shares_of(tenant)
    parked = sum(share.bytes_parked for share in own if share.client not in holding)
    slack = free - parked
    cap = figures.tenants[tenant].cap_bytes
    if cap:
        slack = min(slack, cap - parked - sum(budgets.charged(share) for share in own))
    return max(0, slack)


def _retold(
    figures: Figures, budgets: Budgets, hungry: bool
) -> tuple[set[ClientId], list[Seconds]]:
    """Clients that were told other numbers than those of now hear them, but not too often; and when
    the next ones do, or a client that owes something will be found silent.

    A client answers what it is told with what it has. So, while somebody is short and others cannot
    park because the host has no space, these are told again, to learn whether they can now."""
    holding = {share.client for share in figures.holding}
    noticed = noticed_bytes(figures.bytes_total)
    short = hungry or bool(figures.in_doubt) or figures.somebody_is_passed_over
    retold: set[ClientId] = set()
    due_s: list[Seconds] = []
    for share in _awaited(figures, budgets):
        was_awaited = share.is_awaited(holds=share.client in holding)
        just_asked = share.client in budgets.told and not was_awaited
        asked_s = figures.next_progress_s if just_asked else share.progress_at_s
        due_s.append(asked_s + figures.park_timeout_s)
    in_view = {*budgets.told, *holding, *figures.outdated}
    if short:
        in_view.update(figures.attention.cannot_park)
    for client in in_view:
        share = figures.shares[client]
        if share.failed:
            continue
        holds, just_told = client in holding, client in budgets.told
        told = share.told_usable_bytes
        outdated = client in figures.outdated
        if holds and not outdated:
            outdated = abs(_hint_bytes(figures, share) - share.told_hint_bytes) > noticed
        cannot_park = share.bytes_staying > share.bytes_fixed and not share.silent
        asks_again = short and cannot_park and not holds
        if just_told:
            if asks_again:
                due_s.append(figures.now_s + REFRESH_S)
        elif outdated or asks_again:
            again_s = share.told_at_s + REFRESH_S
            if told < 0 or figures.now_s >= again_s:
                retold.add(share.client)
            else:
                due_s.append(again_s)
    return retold, due_s


def _measuring(
    figures: Figures, budgets: Budgets, hungry: bool, pending: bool
) -> tuple[Measuring, list[Seconds]]:
    """While no report can bring what is short, the device is looked at."""
    short = figures.ghosts_are_there or pending or (hungry and not _awaited(figures, budgets))
    if not short and not figures.in_doubt:
        return Measuring.NO, []
    if figures.measure_at_s is None or figures.now_s >= figures.measure_at_s:
        return Measuring.NOW, [figures.now_s + MEASURE_PERIOD_S]
    return Measuring.LATER, [figures.measure_at_s]


def _drift_bytes(figures: Figures, budgets: Budgets) -> int:
    """By how much memory may change before the look has to be repeated, where nobody is short."""
    many = len({share.tenant for share in figures.holding}) > 1
    if many or figures.is_due or figures.requests or figures.bytes_ghost:
        return 0
    if figures.attention.asking:
        return 0
    if any(budgets.owes(share) for share in (*figures.holding, *figures.owing)):
        return 0
    return noticed_bytes(figures.bytes_total)


def _awaited(figures: Figures, budgets: Budgets) -> list[Share]:
    """Those whose reports are awaited."""
    holding = {share.client for share in figures.holding}
    asked = (figures.shares[client] for client in budgets.told)
    shares = {share.client: share for share in (*figures.owing, *asked)}.values()
    return [share for share in shares if budgets.is_awaited(share, share.client in holding)]


def _hint_bytes(figures: Figures, share: Share) -> int:
    """For how much of its memory host memory is worth being ready."""
    if figures.bytes_beyond <= 0:
        return 0
    bytes_allocated, others = figures.bytes_usable + figures.bytes_beyond, len(figures.shares) - 1
    return bytes_for_one_other(share, others, bytes_allocated, figures.bytes_beyond)


def _number(share: Share) -> int:
    return share.number


def _change(figures: Figures, share: Share, budget_bytes: int, ahead: Ahead) -> BudgetChange:
    return BudgetChange(
        client=share.client,
        budget_bytes=budget_bytes,
        usable_bytes=figures.usable_bytes_for(share),
        park_hint_bytes=_hint_bytes(figures, share),
        ahead=ahead,
        refused=share.client in figures.refused,
    )
