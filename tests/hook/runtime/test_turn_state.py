"""The client's own state machine: what follows from what, without a process, a clock or a GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.protocol.messages import DropReason, Fallback
from tests.hook.runtime.pure import NEVER, Act, Happens, Phase, Pure, TurnState


@pytest.fixture
def state(pure: Pure) -> TurnState:
    """A connected client without a turn."""
    fresh = TurnState(pure)
    fresh.happens(Happens.CONNECTED)
    return fresh


def hold(state: TurnState, turn: int = 7) -> None:
    """The client asks and is granted; then no call waits any more."""
    assert state.happens(Happens.CALLS_WAIT) & Act.ASK
    assert state.happens(Happens.GRANTED, turn=turn) == Act.OPEN
    assert state.happens(Happens.NO_CALLS_WAIT) == Act.NONE


def test_a_call_that_waits_asks_once_and_opens_when_granted(state: TurnState) -> None:
    """A first gated call asks; the grant opens the gate."""
    assert state.happens(Happens.CALLS_WAIT) == Act.ASK
    assert state.phase is Phase.ASKED
    assert state.happens(Happens.GRANTED, turn=3) == Act.OPEN
    assert (state.phase, state.turn) == (Phase.HELD, 3)


def test_a_cancelled_wait_withdraws_its_request(state: TurnState) -> None:
    """When no call waits any more, the request is taken back."""
    state.happens(Happens.CALLS_WAIT)
    assert state.happens(Happens.NO_CALLS_WAIT) == Act.WITHDRAW
    assert state.phase is Phase.NONE


def test_a_grant_that_crosses_a_withdrawal_goes_straight_back(state: TurnState) -> None:
    """A turn that nobody waits for any more is given back, not kept."""
    state.happens(Happens.CALLS_WAIT)
    state.happens(Happens.NO_CALLS_WAIT)
    assert state.happens(Happens.GRANTED, turn=4) == Act.SHUT
    assert state.happens(Happens.DRAINED) == Act.DROP
    assert state.dropped == (4, DropReason.IDLE)


def test_a_recall_shuts_drains_and_drops(state: TurnState) -> None:
    """A recalled turn is given back when it is drained, with the reason recall."""
    hold(state)
    assert state.happens(Happens.RECALLED, turn=7) == Act.SHUT
    assert state.happens(Happens.DRAINED) == Act.DROP
    assert state.dropped == (7, DropReason.RECALL)
    assert state.phase is Phase.NONE


def test_a_call_that_came_during_the_drain_asks_after_it(state: TurnState) -> None:
    """A call at the shut gate becomes a request with the drop."""
    hold(state)
    state.happens(Happens.RECALLED, turn=7)
    assert state.happens(Happens.CALLS_WAIT) == Act.NONE
    assert state.happens(Happens.DRAINED) == Act.DROP | Act.ASK
    assert state.phase is Phase.ASKED


def test_a_recall_of_another_turn_changes_nothing(state: TurnState) -> None:
    """A recall that crossed a drop is about a turn that is gone."""
    hold(state, turn=8)
    assert state.happens(Happens.RECALLED, turn=7) == Act.NONE
    assert state.phase is Phase.HELD


def test_a_stalled_recall_is_reported_and_can_be_taken_back(state: TurnState) -> None:
    """A drain stall goes to the scheduler, whose answer opens the gate again."""
    hold(state)
    state.happens(Happens.RECALLED, turn=7)
    assert state.happens(Happens.STALLED) == Act.STALL
    assert state.happens(Happens.REOPENED, turn=7) == Act.OPEN
    assert (state.phase, state.turn) == (Phase.HELD, 7)


def test_the_end_of_a_cell_gives_the_turn_back(state: TurnState) -> None:
    """The cell's end drains and drops, also when nobody waits."""
    state.happens(Happens.CELL_BEGAN)
    hold(state)
    assert state.happens(Happens.CELL_ENDED) == Act.SHUT
    state.happens(Happens.DRAINED)
    assert state.dropped == (7, DropReason.CELL_END)


def test_a_new_cell_takes_a_closing_turn_back_when_nobody_waits(state: TurnState) -> None:
    """While the last cell's work drains, a call of the next one reopens the gate by itself."""
    hold(state)
    state.happens(Happens.CELL_ENDED)
    assert state.happens(Happens.CALLS_WAIT) == Act.OPEN
    assert state.phase is Phase.HELD


def test_a_new_cell_waits_its_turn_when_others_wait(state: TurnState) -> None:
    """A closing turn that others wait for is given back first."""
    hold(state)
    state.happens(Happens.CONTENTION, waiters=1)
    state.happens(Happens.CELL_ENDED)
    assert state.happens(Happens.CALLS_WAIT) == Act.NONE
    assert state.happens(Happens.DRAINED) == Act.DROP | Act.ASK


def test_a_release_that_stalls_on_its_own_call_is_given_up(state: TurnState) -> None:
    """Work that waits for a call at our own gate gets it, without asking anybody."""
    hold(state)
    state.happens(Happens.CONTENTION, waiters=1)
    state.happens(Happens.CELL_ENDED)
    state.happens(Happens.CALLS_WAIT)
    assert state.happens(Happens.STALLED) == Act.OPEN
    assert state.phase is Phase.HELD


def test_a_recall_during_a_release_keeps_the_gate_shut(state: TurnState) -> None:
    """Once the scheduler wants the turn, a stall is its business."""
    hold(state)
    state.happens(Happens.CELL_ENDED)
    assert state.happens(Happens.RECALLED, turn=7) == Act.NONE
    assert state.happens(Happens.CALLS_WAIT) == Act.NONE
    assert state.happens(Happens.STALLED) == Act.STALL
    state.happens(Happens.DRAINED)
    assert state.dropped == (7, DropReason.RECALL)


def test_a_sticky_error_drops_the_turn(state: TurnState) -> None:
    """A failed context gives the turn back with its own reason, also in the middle of a recall."""
    hold(state)
    assert state.happens(Happens.CONTEXT_FAILED) == Act.SHUT
    state.happens(Happens.DRAINED)
    assert state.dropped == (7, DropReason.CONTEXT_FAILED)
    hold(state, turn=9)
    state.happens(Happens.RECALLED, turn=9)
    state.happens(Happens.CONTEXT_FAILED)
    state.happens(Happens.DRAINED)
    assert state.dropped == (9, DropReason.CONTEXT_FAILED)


def idle_until_shut(state: TurnState, *, within_ms: int) -> int:
    """Samples as the agent does, always idle; how long it takes until the gate is shut."""
    began_ms = state.now_ms
    while state.now_ms - began_ms < within_ms:
        state.now_ms = max(state.now_ms + 1, min(state.wake_ms, began_ms + within_ms))
        act = state.happens(Happens.SAMPLED, busy=False)
        if act & Act.PROBE and state.happens(Happens.PROBED, busy=False) & Act.SHUT:
            return state.now_ms - began_ms
    raise AssertionError("still held")


def test_idleness_gives_the_turn_back_only_while_others_wait(state: TurnState) -> None:
    """Nobody samples while nobody waits; from the first waiter on, idle_ms later it is dropped."""
    hold(state)
    assert not state.wants_samples
    assert state.wake_ms == NEVER
    state.now_ms += 10_000
    state.happens(Happens.CONTENTION, waiters=1)
    assert 50 <= idle_until_shut(state, within_ms=1000) <= 75
    state.happens(Happens.DRAINED)
    assert state.dropped == (7, DropReason.IDLE)


def test_busy_samples_and_a_busy_device_keep_the_turn(state: TurnState) -> None:
    """Calls under way, and work on the device, start the idle time anew."""
    hold(state)
    state.happens(Happens.CONTENTION, waiters=1)
    for _ in range(20):
        state.now_ms += 13
        assert state.happens(Happens.SAMPLED, busy=True) == Act.NONE
    state.now_ms += 60
    assert state.happens(Happens.SAMPLED, busy=False) == Act.PROBE
    assert state.happens(Happens.PROBED, busy=True) == Act.NONE
    assert idle_until_shut(state, within_ms=1000) >= 50


@pytest.mark.promise("hook-22")
def test_patience_doubles_for_a_program_that_asks_again_at_once_and_fades(state: TurnState) -> None:
    """A training loop with short gaps is not robbed between two steps for ever."""
    took = []
    for turn in range(1, 7):
        hold(state, turn=turn)
        state.happens(Happens.CONTENTION, waiters=1)
        took.append(idle_until_shut(state, within_ms=5000))
        state.happens(Happens.DRAINED)
        state.now_ms += 20
    assert took[0] <= 75
    assert took[1] >= 100
    assert took[2] >= 200
    assert took[3] >= 400
    assert took[5] < 600, "eight idle times at most"
    state.now_ms += 50 * 64 * 4
    hold(state, turn=9)
    state.happens(Happens.CONTENTION, waiters=1)
    assert idle_until_shut(state, within_ms=5000) <= 75


@pytest.mark.promise("hook-22")
def test_nothing_is_learnt_while_siblings_alone_wait(state: TurnState) -> None:
    """The scheduler says how long a gap may be, and what was learnt before holds afterwards."""
    for turn in range(1, 5):
        hold(state, turn=turn)
        state.happens(Happens.CONTENTION, waiters=1, idle_ms=10)
        assert 10 <= idle_until_shut(state, within_ms=5000) <= 25
        state.happens(Happens.DRAINED)
        assert state.dropped == (turn, DropReason.IDLE)
        state.now_ms += 20
    hold(state, turn=5)
    state.happens(Happens.CONTENTION, waiters=1)
    assert 50 <= idle_until_shut(state, within_ms=5000) <= 75


def test_a_holder_goes_on_without_a_scheduler(state: TurnState) -> None:
    """A lost scheduler takes nothing; the turn is given back when it is there again."""
    state.happens(Happens.CELL_BEGAN)
    hold(state)
    assert state.happens(Happens.DISCONNECTED) == Act.NONE
    assert state.happens(Happens.CELL_ENDED) == Act.NONE
    assert (state.phase, state.turn) == (Phase.HELD, 7)
    assert state.happens(Happens.CONNECTED) == Act.SHUT
    state.happens(Happens.DRAINED)
    assert state.dropped == (7, DropReason.CELL_END)


def test_a_turn_that_the_scheduler_freed_is_drained_in_silence(state: TurnState) -> None:
    """Where the connection's end cost us the turn, the gate is shut and nothing is dropped."""
    hold(state)
    assert state.happens(Happens.DISCONNECTED, turn_lost=True) == Act.SHUT
    state.happens(Happens.CONNECTED)
    assert state.happens(Happens.DRAINED) == Act.NONE
    assert state.phase is Phase.NONE


def test_without_a_scheduler_calls_wait_on_and_the_user_hears_it_once(pure: Pure) -> None:
    """The fallback `wait`: one message after reconnect_s, and the request follows later."""
    state = TurnState(pure, reconnect_s=2)
    assert state.happens(Happens.CALLS_WAIT) == Act.NONE
    assert state.wake_ms == state.now_ms + 2000
    state.now_ms += 1999
    assert state.happens(Happens.TICK) == Act.NONE
    state.now_ms += 1
    assert state.happens(Happens.TICK) == Act.SAY_WAITING
    assert state.wake_ms == NEVER
    assert state.happens(Happens.TICK) == Act.NONE
    assert state.happens(Happens.CONNECTED) == Act.ASK


def test_without_a_scheduler_the_fallback_run_opens_the_gate_until_it_is_back(pure: Pure) -> None:
    """The fallback `run`: calls go through; with the scheduler the gate is shut again."""
    state = TurnState(pure, reconnect_s=2, fallback=Fallback.RUN)
    state.happens(Happens.CALLS_WAIT)
    state.now_ms += 2000
    assert state.happens(Happens.TICK) == Act.OPEN | Act.SAY_RUNNING
    assert state.phase is Phase.UNSCHEDULED
    state.happens(Happens.NO_CALLS_WAIT)
    assert state.happens(Happens.CONNECTED) == Act.SHUT
    assert state.happens(Happens.DRAINED) == Act.NONE


@pytest.mark.promise("hook-10")
def test_a_further_device_needs_a_new_turn(state: TurnState) -> None:
    """A turn covers the devices that were open when it was granted."""
    hold(state)
    assert state.happens(Happens.DEVICE_OPENED) == Act.SHUT
    assert state.happens(Happens.CALLS_WAIT) == Act.NONE
    assert state.happens(Happens.DRAINED) == Act.DROP | Act.ASK


def test_the_window_applies_from_the_second_tenant_on(state: TurnState) -> None:
    """Alone on the device the gate is open without a window; unknown counts as not alone."""
    hold(state)
    assert state.windowed
    assert state.happens(Happens.CONTENTION, tenants=1) == Act.OPEN
    assert not state.windowed
    state.happens(Happens.CONTENTION, tenants=2)
    assert state.windowed


EVENTS = st.tuples(
    st.sampled_from(list(Happens)),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3000),
)


@pytest.mark.promise(
    "hook-31",
    "Whatever order events come in, the gate is open exactly while the turn is held",
)
@pytest.mark.promise("park-29")
@given(st.lists(EVENTS, max_size=60), st.sampled_from(list(Fallback)))
def test_any_order_of_events_keeps_the_gate_true(
    pure: Pure,
    events: list[tuple[Happens, int, int, int, bool, bool, bool, int]],
    fallback: Fallback,
) -> None:
    """Whatever happens: the gate is open exactly while held or unscheduled, only granted turns are
    dropped, each at most once, nothing is said to a scheduler that is away, and no gate opens while
    memory is away."""
    state = TurnState(pure, reconnect_s=1, fallback=fallback)
    gate_open = connected = memory_away = False
    granted: list[int] = []
    for kind, turn, waiters, tenants, busy, lost, leaves, pause_ms in events:
        state.now_ms += pause_ms
        # As the mover does: it parks only without a turn, and says truly when all is back.
        if state.phase in (Phase.NONE, Phase.ASKED):
            memory_away = memory_away or leaves
        if kind is Happens.RESTORED:
            if state.phase is not Phase.RESTORING:
                continue
            memory_away = False
        connected = {Happens.CONNECTED: True, Happens.DISCONNECTED: False}.get(kind, connected)
        if kind is Happens.GRANTED:
            turn = len(granted) + 1
            granted.append(turn)
        act = state.happens(
            kind,
            turn=turn,
            waiters=waiters,
            tenants=tenants,
            busy=busy,
            turn_lost=lost,
            memory_away=memory_away,
        )
        assert not (act & Act.OPEN and act & Act.SHUT)
        assert not (act & Act.OPEN and memory_away), (kind, act)
        assert bool(act & Act.RESTORE) <= memory_away or state.phase is Phase.RESTORING
        gate_open = bool(act & Act.OPEN) or (gate_open and not act & Act.SHUT)
        assert gate_open == (state.phase in (Phase.HELD, Phase.UNSCHEDULED)), (kind, act)
        assert state.turn == 0 or state.turn in granted
        if act & Act.DROP:
            dropped = state.dropped[0]
            assert dropped in granted
            granted.remove(dropped)
            granted.insert(dropped - 1, -dropped)
        if not connected:
            assert not act & (Act.ASK | Act.DROP | Act.STALL | Act.WITHDRAW)
        assert state.wake_ms > 0


def test_a_turn_that_is_kept_by_hand_outlasts_its_cell(state: TurnState) -> None:
    """The end of a cell changes nothing during a hold; the end of the hold gives the turn back."""
    state.happens(Happens.CELL_BEGAN)
    hold(state)
    state.happens(Happens.HOLD_BEGAN)
    assert state.happens(Happens.CELL_ENDED) == Act.NONE
    assert state.phase is Phase.HELD
    assert state.happens(Happens.HOLD_ENDED) == Act.SHUT
    state.happens(Happens.DRAINED)
    assert state.dropped == (7, DropReason.CELL_END)


def test_a_hold_that_ends_inside_a_cell_leaves_the_turn_to_the_cell(state: TurnState) -> None:
    """While a cell runs, the end of a hold takes nothing away."""
    hold(state)
    state.happens(Happens.HOLD_BEGAN)
    state.happens(Happens.CELL_ENDED)
    state.happens(Happens.CELL_BEGAN)
    assert state.happens(Happens.HOLD_ENDED) == Act.NONE
    assert state.happens(Happens.CELL_ENDED) == Act.SHUT


def test_a_held_turn_is_not_idle(state: TurnState) -> None:
    """During a hold nobody looks whether the device idles; afterwards idleness counts anew."""
    hold(state)
    state.happens(Happens.CONTENTION, waiters=1)
    state.happens(Happens.HOLD_BEGAN)
    assert not state.wants_samples
    state.now_ms += 10_000
    assert state.happens(Happens.SAMPLED) == Act.NONE
    assert state.happens(Happens.HOLD_ENDED) == Act.NONE
    assert state.wants_samples
    assert state.happens(Happens.SAMPLED) == Act.NONE
    state.now_ms += 10_000
    assert state.happens(Happens.SAMPLED) == Act.PROBE


def test_a_held_turn_is_given_back_when_it_is_recalled(state: TurnState) -> None:
    """The scheduler alone bounds a hold."""
    hold(state)
    state.happens(Happens.HOLD_BEGAN)
    assert state.happens(Happens.RECALLED, turn=7) == Act.SHUT
    assert state.happens(Happens.DRAINED) == Act.DROP


def test_a_hold_does_not_outlast_its_scheduler(state: TurnState) -> None:
    """A turn whose cell ended during a hold goes back to the next scheduler."""
    hold(state)
    state.happens(Happens.HOLD_BEGAN)
    state.happens(Happens.CELL_ENDED)
    state.happens(Happens.DISCONNECTED)
    assert state.happens(Happens.CONNECTED) == Act.SHUT


def test_a_hold_ends_with_the_connection(state: TurnState) -> None:
    """The next scheduler knows nothing of it: idleness and a cell's end give the turn back."""
    hold(state)
    state.happens(Happens.HOLD_BEGAN)
    state.happens(Happens.DISCONNECTED)
    state.happens(Happens.CONNECTED)
    state.happens(Happens.CONTENTION, waiters=1)
    assert state.wants_samples
    state.happens(Happens.CELL_BEGAN)
    assert state.happens(Happens.CELL_ENDED) == Act.SHUT


def restore(state: TurnState, turn: int = 7) -> None:
    """The client asks and is granted while memory is away."""
    assert state.happens(Happens.CALLS_WAIT) & Act.ASK
    assert state.happens(Happens.GRANTED, turn=turn, memory_away=True) == Act.RESTORE
    assert state.phase is Phase.RESTORING


@pytest.mark.promise("park-29")
def test_memory_that_is_away_comes_back_before_the_gate_opens(state: TurnState) -> None:
    """A grant restores first; only what is all back opens the gate."""
    restore(state)
    assert state.happens(Happens.CALLS_WAIT) == Act.NONE
    assert state.happens(Happens.CONTENTION, waiters=1) == Act.NONE
    assert state.happens(Happens.RESTORED) == Act.OPEN
    assert (state.phase, state.turn) == (Phase.HELD, 7)


@pytest.mark.promise("backing-14")
def test_memory_is_made_anew_within_the_turn(state: TurnState) -> None:
    """The work drains first; the turn is kept, whoever else calls meanwhile."""
    hold(state)
    assert state.happens(Happens.REMAKE) == Act.SHUT
    assert state.happens(Happens.CALLS_WAIT) == Act.NONE
    assert state.happens(Happens.DRAINED) == Act.RESTORE
    assert state.happens(Happens.RESTORED) == Act.OPEN
    assert (state.phase, state.turn) == (Phase.HELD, 7)


@pytest.mark.promise("backing-14")
def test_memory_is_made_anew_with_the_next_turn(state: TurnState) -> None:
    """A recall comes first, and the next grant does not open the gate at once."""
    hold(state)
    state.happens(Happens.REMAKE)
    state.happens(Happens.CALLS_WAIT)
    assert state.happens(Happens.RECALLED, turn=7) == Act.NONE
    assert state.happens(Happens.DRAINED) == Act.DROP | Act.ASK
    assert state.happens(Happens.GRANTED, turn=8, remakes=True) == Act.RESTORE
    assert state.happens(Happens.RESTORED) == Act.OPEN


def test_memory_that_nobody_wants_anew_any_more(state: TurnState) -> None:
    """The wait was cancelled: the gate opens again. One that stalls opens it for a moment."""
    hold(state)
    state.happens(Happens.CALLS_WAIT)
    state.happens(Happens.REMAKE)
    assert state.happens(Happens.STALLED) == Act.OPEN
    state.happens(Happens.REMAKE)
    assert state.happens(Happens.NO_CALLS_WAIT) == Act.OPEN
    assert (state.phase, state.turn) == (Phase.HELD, 7)


@pytest.mark.promise("park-44")
def test_a_restore_that_fails_gives_the_turn_back_and_asks_again(state: TurnState) -> None:
    """No room for what is parked: memory_short, and the calls that wait stay in the queue."""
    restore(state)
    assert state.happens(Happens.RESTORE_FAILED) == Act.DROP | Act.ASK
    assert state.phase is Phase.ASKED
    assert state.dropped == (7, DropReason.MEMORY_SHORT)


@pytest.mark.promise("park-30")
@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Happens.RECALLED, DropReason.RECALL),
        (Happens.CELL_ENDED, DropReason.CELL_END),
        (Happens.CONTEXT_FAILED, DropReason.CONTEXT_FAILED),
        (Happens.DEVICE_OPENED, DropReason.IDLE),
        (Happens.LAST_DEVICE_CLOSED, DropReason.CLOSING),
    ],
)
def test_a_turn_ends_at_once_in_the_middle_of_a_restore(
    state: TurnState, event: Happens, reason: DropReason
) -> None:
    """Nothing is in flight before the gate opens, so there is nothing to drain."""
    restore(state)
    assert state.happens(event, turn=7) == Act.DROP | Act.ASK
    assert (state.phase, state.turn) == (Phase.ASKED, 0)
    assert state.dropped == (7, reason)
    assert state.happens(Happens.RESTORED) == Act.NONE


@pytest.mark.promise("park-31")
def test_an_interrupt_in_the_middle_of_a_restore_gives_the_turn_back(state: TurnState) -> None:
    """Where no call waits any more, nobody needs the memory back."""
    restore(state)
    assert state.happens(Happens.NO_CALLS_WAIT) == Act.DROP
    assert state.phase is Phase.NONE


@pytest.mark.promise("park-55")
def test_a_scheduler_that_goes_in_the_middle_of_a_restore_takes_the_turn_along(
    state: TurnState,
) -> None:
    """Nothing comes back without credit, so the calls wait for the next scheduler."""
    restore(state)
    assert state.happens(Happens.DISCONNECTED) == Act.NONE
    assert (state.phase, state.turn) == (Phase.ASKED, 0)
    assert state.happens(Happens.CONNECTED) == Act.ASK


@pytest.mark.promise("park-55")
def test_the_fallback_run_never_runs_without_its_memory(pure: Pure) -> None:
    """With parked memory calls wait for a scheduler whatever the fallback is; the user is told.
    Now and then it is looked whether the memory is all here after all: then they run."""
    state = TurnState(pure, reconnect_s=2, fallback=Fallback.RUN)
    state.happens(Happens.CALLS_WAIT)
    state.now_ms += 2000
    assert state.happens(Happens.TICK, memory_away=True) == Act.SAY_WAITING
    assert state.phase is Phase.ASKED
    assert state.wake_ms == state.now_ms + 1000
    state.now_ms += 1000
    assert state.happens(Happens.TICK, memory_away=True) == Act.NONE
    assert state.wake_ms == state.now_ms + 1000
    state.now_ms += 1000
    assert state.happens(Happens.TICK) == Act.OPEN | Act.SAY_RUNNING
    assert state.phase is Phase.UNSCHEDULED
    assert state.wake_ms == NEVER
    assert state.happens(Happens.CONNECTED) == Act.SHUT


def test_a_turn_that_nobody_wanted_is_not_kept_while_memory_is_away(state: TurnState) -> None:
    """A call that comes while such a turn goes back waits for the next one."""
    state.happens(Happens.CALLS_WAIT)
    state.happens(Happens.NO_CALLS_WAIT)
    assert state.happens(Happens.GRANTED, turn=4, memory_away=True) == Act.SHUT
    assert state.happens(Happens.CALLS_WAIT) == Act.NONE
    assert state.happens(Happens.STALLED) == Act.NONE
    assert state.happens(Happens.DRAINED) == Act.DROP | Act.ASK


@pytest.mark.promise("hook-55")
@pytest.mark.parametrize(
    ("event", "leads_to"),
    [
        (Happens.CELL_ENDED, Act.OPEN),
        (Happens.REMAKE, Act.OPEN),
        (Happens.DEVICE_OPENED, Act.STALL),
        (Happens.LAST_DEVICE_CLOSED, Act.STALL),
        (Happens.CONTEXT_FAILED, Act.STALL),
        (Happens.RECALLED, Act.STALL),
    ],
)
def test_a_stall_leads_on_whatever_has_shut_the_gate(
    state: TurnState, event: Happens, leads_to: Act
) -> None:
    """Work in flight may wait for a call that waits at the gate. Where the turn lacks something, or
    was asked back, the scheduler says whether the gate opens again."""
    hold(state)
    assert state.happens(event, turn=7) == Act.SHUT
    acts = state.happens(Happens.CALLS_WAIT) | state.happens(Happens.STALLED)
    assert acts == leads_to
    if leads_to == Act.STALL:
        state.happens(Happens.RECALLED, turn=7)
        assert state.happens(Happens.REOPENED, turn=7) == Act.OPEN
    assert state.phase is Phase.HELD


@pytest.mark.promise("hook-55")
def test_a_stall_of_a_turn_that_was_lost_asks_for_another_one(state: TurnState) -> None:
    """It went with the connection, and the gate is shut since."""
    hold(state)
    state.happens(Happens.RECALLED, turn=7)
    state.happens(Happens.DISCONNECTED, turn_lost=True)
    state.happens(Happens.CALLS_WAIT)
    assert state.happens(Happens.STALLED) == Act.NONE
    state.happens(Happens.CONNECTED)
    assert state.happens(Happens.STALLED) == Act.ASK
    assert state.happens(Happens.GRANTED, turn=8) == Act.OPEN
    assert (state.phase, state.turn) == (Phase.HELD, 8)


@pytest.mark.promise("hook-55")
def test_a_stall_where_a_scheduler_comes_back_and_goes(pure: Pure) -> None:
    """It runs without one; the gate is shut for the one that comes. Then it asks that one, and runs
    on where that goes again."""
    state = TurnState(pure, reconnect_s=2, fallback=Fallback.RUN)
    state.happens(Happens.CALLS_WAIT)
    state.now_ms += 2000
    assert state.happens(Happens.TICK) == Act.OPEN | Act.SAY_RUNNING
    assert state.happens(Happens.CONNECTED) == Act.SHUT
    assert state.happens(Happens.STALLED) == Act.ASK
    assert state.happens(Happens.DISCONNECTED) == Act.NONE
    assert state.wake_ms == state.now_ms + 2000
    state.now_ms += 2000
    assert state.happens(Happens.TICK) == Act.OPEN | Act.SAY_RUNNING
    assert state.phase is Phase.UNSCHEDULED
