"""Waits at the gate that end without a turn."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from jupyter_gpushare.protocol.messages import RequestWithdrawn, TurnRequested
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import FakeScheduler, HookedClient
from tests.support.waits import WAIT_S_MAX

Opened = Callable[..., tuple[GpuProcess, HookedClient]]
Start = Callable[..., GpuProcess]

CANCELLED = 800
TRIES_MAX = 20


@pytest.mark.promise(
    "hook-11",
    "A wait can be cancelled from outside, with one documented error that is not sticky and never "
    "out-of-memory",
)
def test_the_scheduler_cancels_waits(opened: Opened) -> None:
    """WaitCancelled fails each waiting call with the documented error; the next cell asks anew."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    client.expect(TurnRequested)
    client.cancel()
    shell.expect(f"0 spin {CANCELLED}")
    client.expect(RequestWithdrawn)
    shell.say("7 hook cell_began")  # threads of a library work for cells of another one
    shell.expect("7 hook")
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.say("0 sync")
    shell.expect("0 sync 0")


@pytest.mark.promise("hook-11")
def test_a_library_that_tries_another_way_hears_the_same(opened: Opened) -> None:
    """A call of the same thread that would wait right after fails too, without asking for a turn;
    for a thread that was not cancelled, and some time later, calls wait. On a busy machine the
    second call may come too late for that: then both are made once more."""
    shell, client = opened()
    shell.say("1 current")
    shell.expect("1 current 0")
    for _ in range(TRIES_MAX):
        for _ in range(2):  # the second call comes right after the first one, whoever runs when
            shell.say("0 spin d 1000")
        client.expect(TurnRequested)
        client.cancel()
        shell.expect(f"0 spin {CANCELLED}")
        failed = {f"0 spin {CANCELLED}"}
        if not client.hears(TurnRequested, unless=lambda: shell.has_said(failed)):  # noqa: B023
            break
        client.cancel()
        shell.expect(f"0 spin {CANCELLED}")
    else:
        raise AssertionError("the second call has always waited")
    while client.count(RequestWithdrawn) < client.count(TurnRequested):
        client.read_more(time.monotonic() + WAIT_S_MAX)
    shell.say("1 spin d 1000")
    client.expect(TurnRequested)
    client.grant()
    shell.expect("1 spin 0")


@pytest.mark.promise("hook-11")
def test_a_library_that_never_gives_up_waits_in_the_end(opened: Opened) -> None:
    """It fails for a moment, not for ever: the process may have no cells."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    client.expect(TurnRequested)
    client.cancel()
    shell.expect(f"0 spin {CANCELLED}")
    client.expect(RequestWithdrawn)
    while client.hears_none(TurnRequested, for_s=0.05):
        shell.say("0 spin d 1000")
    client.grant()
    shell.expect("0 spin 0")


@pytest.mark.promise("hook-11")
def test_the_process_cancels_its_own_waits(opened: Opened) -> None:
    """gpushare_cancel_waits says how many calls it cancelled; the count is kept."""
    shell, client = opened()
    for thread in (0, 1, 2):
        shell.say(f"{thread} current")
        shell.expect(f"{thread} current 0")
        shell.say(f"{thread} spin d 1000")
    client.expect(TurnRequested)
    wait_for_calls(shell, 3)
    shell.say("7 hook cancel_waits")
    shell.expect("7 hook 3")
    counted = 0
    while counted < 3:  # each call is counted when it returns
        shell.say("7 hook waits_cancelled")
        counted = int(shell.expect("7 hook ").split()[-1])
    assert counted == 3


def wait_for_calls(shell: GpuProcess, count: int) -> None:
    """Until so many calls wait at the gate."""
    while True:
        shell.say("7 describe")
        if f'"calls_waiting": {count}' in shell.expect("description "):
            return


@pytest.mark.promise("hook-12", "A SIGINT to the process cancels its waits and reaches the program")
def test_an_interrupt_cancels_and_reaches_the_program(
    start: Start, scheduler: FakeScheduler
) -> None:
    """SIGINT to a process whose call waits: the call fails, then the program's own handler runs,
    and afterwards the program's handler is in place again."""
    program = start("interrupted", "handler")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("waits")
    program.signal(signal.SIGINT)
    lines = {program.expect("") for _ in range(3)}
    assert lines == {"handled", f"launch {CANCELLED}", "disposition own"}
    client.expect(RequestWithdrawn)
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
def test_an_interrupt_ends_a_program_without_a_handler(
    start: Start, scheduler: FakeScheduler
) -> None:
    """With the default disposition SIGINT ends the process, as it would without the hook."""
    program = start("interrupted", "default")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("waits")
    program.signal(signal.SIGINT)
    assert program.wait() == -signal.SIGINT


@pytest.mark.promise("hook-12")
def test_an_interrupt_that_a_program_ignores_cancels_nothing(
    start: Start, scheduler: FakeScheduler
) -> None:
    """A program that ignores SIGINT goes on waiting, and gets its turn."""
    program = start("interrupted", "ignore")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("waits")
    program.signal(signal.SIGINT)
    assert client.hears_none(RequestWithdrawn, for_s=0.2)
    client.grant()
    program.expect("launch 0")
    program.expect("disposition own")
    assert program.finish() == 0


def test_the_scheduler_s_word_on_an_interrupt_does_not_hit_the_next_cell(
    start: Start, scheduler: FakeScheduler
) -> None:
    """SIGINT has cancelled the wait; the same interrupt, told by the scheduler when the next call
    waits already, cancels nothing. The one after it does."""
    program = start("interrupted", "handler")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("waits")
    program.signal(signal.SIGINT)
    program.expect(f"launch {CANCELLED}")
    program.expect("disposition own")
    client.expect(RequestWithdrawn)  # else the second wait may go on with the first one's request
    program.say("again")
    client.expect(TurnRequested)
    client.cancel()
    assert client.hears_none(RequestWithdrawn, for_s=0.2)
    client.cancel()
    program.expect(f"launch {CANCELLED}")
    assert program.finish() == 0


def test_a_signal_that_comes_after_the_scheduler_s_word_keeps_no_later_one_back(
    start: Start, scheduler: FakeScheduler
) -> None:
    """The word has cancelled the wait, whose thread has not run since, when the SIGINT of the same
    interrupt comes. No word of it is still to come: the next one cancels the next wait."""
    program = start("interrupted", "handler")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("waits")
    program.say("pause")
    program.expect("paused")
    client.cancel()
    assert client.hears_none(RequestWithdrawn, for_s=0.2)
    program.signal(signal.SIGINT)
    program.expect("handled")
    program.say("go on")
    program.expect(f"launch {CANCELLED}")
    client.expect(RequestWithdrawn)
    program.say("again")
    client.expect(TurnRequested)
    client.cancel()
    program.expect(f"launch {CANCELLED}")
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
def test_a_handler_that_calls_what_it_found_during_a_wait(
    start: Start, scheduler: FakeScheduler
) -> None:
    """It was set when that wait was over. The signal reaches it, then the one before it, each once:
    during the next wait, and when that is over."""
    program = start("interrupted", "handler")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("waits")
    program.say("look")
    program.say("pause")
    program.expect("paused")  # it has looked
    program.say("go on")
    client.grant()
    program.expect("launch 0")
    program.expect("disposition own")
    client.recall_and_drop()
    program.say("chain")
    program.say("again")
    client.expect(TurnRequested)
    program.signal(signal.SIGINT)
    lines = [program.expect("") for _ in range(4)]
    assert [line for line in lines if line in ("chained", "handled")] == ["chained", "handled"]
    assert f"launch {CANCELLED}" in lines
    program.signal(signal.SIGINT)  # nobody waits any more
    assert [program.expect("") for _ in range(2)] == ["chained", "handled"]
    assert program.is_silent(for_s=0.2)
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
def test_a_handler_that_runs_once_is_gone_then(start: Start, scheduler: FakeScheduler) -> None:
    """As without the hook: the second SIGINT ends the process."""
    program = start("interrupted", "once")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("waits")
    program.signal(signal.SIGINT)
    program.expect("disposition own")
    program.signal(signal.SIGINT)
    assert program.wait() == -signal.SIGINT


@pytest.mark.promise("hook-12")
def test_a_handler_that_jumps_out_of_a_wait(start: Start, scheduler: FakeScheduler) -> None:
    """The call that nobody comes back to waits no more, so no turn is asked for on its behalf; the
    next call is as the first."""
    program = start("interrupted", "jump")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("waits")
    program.signal(signal.SIGINT)
    program.expect("jumped")
    client.expect(RequestWithdrawn)
    program.say("again")
    client.expect(TurnRequested)
    client.grant()
    program.expect("launch 0")
    assert program.finish() == 0


def test_handlers_that_hand_a_signal_on_do_so_once(start: Start, scheduler: FakeScheduler) -> None:
    """Each handler that is set during a wait calls the one before it. All of them are called once;
    and the waits are cancelled, of threads that came later too."""
    program = start("chained")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("all wait")
    program.signal(signal.SIGINT)
    # The calls fail before the program's handlers run, so their threads may be the first to speak.
    lines = [program.expect("") for _ in range(6)]
    called = [line for line in lines if line in ("first", "second", "third")]
    assert called == ["third", "second", "first"]
    assert lines.count(f"launch {CANCELLED}") == 3
    assert program.finish() == 0


@pytest.mark.parametrize("way", ["at once", "later"])
def test_a_handler_that_puts_back_what_it_found_passes_a_signal_on_once(
    start: Start, scheduler: FakeScheduler, way: str
) -> None:
    """It was set during a wait, and raises the signal for the one before it: each is called once,
    whether the signal comes at once or when the handler has returned."""
    program = start("restores", way)
    client = scheduler.accept()
    client.welcome()
    program.expect("both wait")
    program.signal(signal.SIGINT)
    assert [program.expect("") for _ in range(3)] == ["second", "first", "over"]
    assert program.finish() == 0


def test_a_handler_that_is_interrupted_by_the_next_signal_hands_each_on_once(
    start: Start, scheduler: FakeScheduler
) -> None:
    """The second signal comes while the handler of the first, set during a wait, still runs."""
    program = start("restores", "hand on")
    client = scheduler.accept()
    client.welcome()
    program.expect("both wait")
    for _ in range(2):
        program.signal(signal.SIGINT)
        assert program.expect("") == "second"
    program.say("1")  # and the end of the line is for the other one
    assert [program.expect("") for _ in range(3)] == ["first", "first", "over"]
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
def test_a_handler_set_while_a_call_waits_jumps_each_time(
    start: Start, scheduler: FakeScheduler
) -> None:
    """It has left by a jump before, and gets the next signal nevertheless. That one comes deeper in
    the stack, as one that the first handler hands back would."""
    program = start("jumps_replaced")
    client = scheduler.accept()
    client.welcome()
    for wait in range(3):
        program.say("wait")
        client.expect(TurnRequested)
        if wait == 0:
            program.expect("both wait")
        program.signal(signal.SIGINT)
        assert program.expect("") == "jumped"
        client.expect(RequestWithdrawn)
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
def test_a_handler_set_while_a_call_waits_stays(start: Start, scheduler: FakeScheduler) -> None:
    """Somebody who replaces the disposition during a wait keeps theirs when it ends."""
    program = start("interrupted", "replace")
    client = scheduler.accept()
    client.welcome()
    client.expect(TurnRequested)
    program.expect("waits")
    program.say("replace")
    program.expect("replaced")
    client.grant()
    program.expect("launch 0")
    program.expect("disposition replaced")
    assert program.finish() == 0


WAIT, OVER, DEEP, THE_END = "wait", "over", "deep", "the end"
BETWEEN = ["first", WAIT, "second", OVER, WAIT, OVER, "third", WAIT, OVER]
PUT_BACK = [WAIT, "second", OVER, WAIT, OVER, "put back"]
CHAINS: dict[str, tuple[list[str], list[str]]] = {
    "one set between waits": (BETWEEN, ["third", "second", "first"]),
    "one that has come and gone": ([*BETWEEN, "again", WAIT, OVER], ["second", "first"]),
    "one that is put back": (["first", *PUT_BACK], ["first"]),
    "one put back over none": (PUT_BACK, [THE_END]),
    "one over none": ([WAIT, "second", OVER, WAIT, OVER], ["second"]),
    "one that goes": (["first", WAIT, "once", OVER, WAIT, OVER], ["once", "first", "it ends"]),
    "one over one that finds itself": (
        ["with care", WAIT, "with care", "third", OVER, WAIT, OVER],
        ["third", "second", "second"],
    ),
    "one that finds itself": (["with care", WAIT, "with care", OVER, WAIT, OVER], ["second"]),
    "one beside many waits": (["first", WAIT, "second", OVER, *[DEEP] * 12], ["second", "first"]),
    "the last of many": (["first", WAIT, OVER] * 12 + BETWEEN, ["third", "second", "first"]),
}
"""What happens, and the handlers that one signal runs then."""


@pytest.mark.promise("hook-12")
@pytest.mark.parametrize("chain", CHAINS)
def test_each_handler_of_a_chain_runs_once(
    start: Start, scheduler: FakeScheduler, chain: str
) -> None:
    """As without the hook, whenever each was set. The signal comes when nobody waits."""
    steps, called = CHAINS[chain]
    program = start("hands_on")
    client = scheduler.accept()
    client.welcome()
    for step in steps:
        if step == OVER:
            client.grant()
            program.expect("launch 0")
            client.recall_and_drop()
            continue
        program.say(step)
        if step == DEEP:
            client.grant_request()
        program.expect(f"ok {step}")
        if step == DEEP:
            client.recall_and_drop()
        if step == WAIT:
            client.expect(TurnRequested)
    program.signal(signal.SIGINT)
    for each in called:
        if each == THE_END:
            assert program.wait() == -signal.SIGINT
            return
        assert program.expect("") == each
    program.say("nothing more")
    assert program.expect("") == "ok nothing more"
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
def test_a_signal_of_the_process_itself_reaches_the_handler_of_now(
    start: Start, scheduler: FakeScheduler
) -> None:
    """That one has left by a jump before, and the wait is deeper in the stack each time."""
    program = start("hands_on")
    client = scheduler.accept()
    client.welcome()
    for step in ("first", WAIT):
        program.say(step)
    client.grant_request()
    program.expect("launch 0")
    client.recall_and_drop()
    program.say("jumps")
    for _ in range(3):
        program.say("send")
        program.say("deep")
        client.expect(TurnRequested)
        program.expect("ok send")
        assert program.expect("") == "jumped"
        client.expect(RequestWithdrawn)
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
def test_a_jump_costs_a_chain_one_signal_at_most(start: Start, scheduler: FakeScheduler) -> None:
    """The handler that has jumped is called by one that was set while another thread waited."""
    program = start("hands_on")
    client = scheduler.accept()
    client.welcome()
    for step in ("jumps", "send", "deep"):
        program.say(step)
    client.expect(TurnRequested)
    program.expect("jumped")
    client.expect(RequestWithdrawn)
    program.say(WAIT)
    client.expect(TurnRequested)
    program.say("second")
    program.expect("ok second")
    client.grant()
    program.expect("launch 0")
    client.recall_and_drop()
    program.signal(signal.SIGINT)
    program.expect("second")
    program.signal(signal.SIGINT)
    program.expect("second")
    assert program.expect("") == "first"
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
@pytest.mark.parametrize("call", [3, 4])
def test_a_handler_that_jumps_as_a_wait_ends_leaves_no_wait(
    start: Start, scheduler: FakeScheduler, call: int
) -> None:
    """The signal comes while the hook puts the program's disposition back: the turn goes back when
    it is asked for, and nobody asks for another one."""
    program = start("hands_on")
    client = scheduler.accept()
    client.welcome()
    for step in ("jumps", f"at {call}", "deep"):
        program.say(step)
    client.grant_request()
    program.expect("jumped")
    client.recall_and_drop()
    program.say(WAIT)
    client.grant_request()
    program.expect("launch 0")
    client.recall_and_drop()
    assert program.finish() == 0
    client.wait_closed()
    assert client.count(TurnRequested) == 2
