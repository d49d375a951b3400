"""What hostile readers of stream-ordered memory have found, on the simulated GPU: whose frees a
stream waits for, what nobody can ask about any more, and captures that begin meanwhile."""

from __future__ import annotations

import pytest

from tests.hook.pooled.words import (
    FILES,
    SECOND,
    UNKNOWN,
    faults,
    same_without_the_hook,
)
from tests.hook.session import Session
from tests.support.sim import SimulatedMachine

QUERY = ["busy = lambda stream: call('cuStreamQuery', c_void_p(stream)) == 600"]
ENDS = [
    "import time",
    "def ends(stream):",
    '    """Whether it comes to its end while nobody lets go what is held."""',
    "    until_s = time.monotonic() + 600",
    "    while busy(stream) and time.monotonic() < until_s: time.sleep(0.01)",
    "    return not busy(stream)",
]
CAPTURES = [
    "graph = c_uint64(0)",
    "begin = lambda stream, mode=2: call('cuStreamBeginCapture_v2', c_void_p(stream), mode)",
    "end = lambda stream: call('cuStreamEndCapture', c_void_p(stream), byref(graph))",
]


def of_pool(size: str, *streams: str) -> list[str]:
    """A pool of that size that keeps what it has, and streams."""
    made = [f"pool = pool_create(max_size={size})", "keep(pool)"]
    return [*QUERY, *made, *(f"{name} = stream_create()" for name in streams)]


# ---- whom a stream waits for ----


@pytest.mark.promise("backing-11")
@pytest.mark.parametrize("frees", ["give(x, s); give(y, third)", "give(y, third); give(x, s)"])
def test_a_stream_waits_for_nobody_in_vain(program: Session, frees: str) -> None:
    """What it lacks was freed by one of two streams. The other one's work is for ever."""
    lines = [*of_pool("128 * MIB", "s", "other", "third"), *ENDS]
    lines += ["y, kept = take(16 * MIB, third, pool), take(16 * MIB, other, pool)"]
    lines += ["x = take(96 * MIB, s, pool)", "flag, never = held(s), held(third)", frees]
    lines += ["print(take(64 * MIB, other, pool) == x, busy(other))", "flag.value = 1"]
    lines += ["print(ends(other), busy(third))", "never.value = 1"]
    assert same_without_the_hook(program, *lines) == ["True True", "True True"]


@pytest.mark.promise("backing-11")
def test_a_stream_waits_for_no_later_work(program: Session) -> None:
    """Of the stream that freed what it lacks, which has freed something else behind it."""
    lines = [*of_pool("128 * MIB", "s", "other", "third"), *ENDS]
    lines += ["y, kept = take(8 * MIB, s, pool), take(8 * MIB, third, pool)"]
    lines += ["x, flag = take(96 * MIB, s, pool), held(s)", "give(x, s); never = held(s)"]
    lines += ["give(y, s)", "print(take(64 * MIB, other, pool) == x, busy(other))"]
    lines += ["flag.value = 1", "print(ends(other), busy(s))", "never.value = 1"]
    assert same_without_the_hook(program, *lines) == ["True True", "True True"]


@pytest.mark.promise("backing-11")
def test_each_of_several_frees_is_waited_for_by_itself(program: Session) -> None:
    """As many as a stream has events for; the memory of later ones comes later."""
    lines = [*of_pool("256 * MIB", "s", "other", "third"), *ENDS, "places, flags = [], []"]
    lines += ["for _ in range(4):", "    places.append(take(40 * MIB, s, pool))"]
    lines += ["    take(4 * MIB, third, pool)", "take(64 * MIB, third, pool)"]
    lines += ["for a in places: flags.append(held(s)); give(a, s)"]
    lines += ["for a, flag in zip(places, flags):"]
    lines += ["    print(take(40 * MIB, other, pool) in places, busy(other), end=' ')"]
    lines += ["    flag.value = 1; print(ends(other))"]
    assert program.run(*lines) == ["True True True"] * 4


@pytest.mark.promise("backing-11")
def test_a_stream_that_has_work_again_has_freed_what_it_freed_idle(program: Session) -> None:
    """Others have that at once, and wait for nothing."""
    lines = [*of_pool("64 * MIB", "s", "other"), "x = take(64 * MIB, s, pool)"]
    lines += ["print(wait(s), give(x, s))", "flag = held(s)"]
    lines += ["print(take(64 * MIB, other, pool) == x, busy(other), busy(s))", "flag.value = 1"]
    assert program.run(*lines) == ["0 0", "True False True"]


@pytest.mark.promise("backing-11")
@pytest.mark.parametrize("opportunistic", [0, 1])
def test_what_is_over_does_not_stand_in_the_way(program: Session, opportunistic: int) -> None:
    """Of one stream that is not enough, so another one is waited for all the same."""
    lines = of_pool("128 * MIB", "s", "other", "third")
    lines += [f"set_pool_attribute(pool, OPPORTUNISTIC, {opportunistic})"]
    lines += ["y, kept = take(16 * MIB, s, pool), take(16 * MIB, other, pool)"]
    lines += ["x, flag = take(96 * MIB, third, pool), held(third)", "give(x, third); give(y, s)"]
    lines += ["print(take(64 * MIB, other, pool) == x, busy(other))", "flag.value = 1"]
    assert same_without_the_hook(program, *lines) == ["True True"]


@pytest.mark.promise("backing-11")
def test_the_oldest_of_many_streams_is_found(program: Session) -> None:
    """Seventy others have freed a little after it."""
    lines = [*of_pool("96 * MIB", "s", "other"), "x = take(64 * MIB, s, pool)"]
    lines += ["many = [stream_create() for _ in range(70)]"]
    lines += ["parts = [take(65536, n, pool) for n in many]", "flag = held(s)", "e = recorded(s)"]
    lines += ["for n in many: waits_for(n, e)", "give(x, s)"]
    lines += ["for a, n in zip(parts, many): give(a, n)"]
    lines += ["print(take(64 * MIB, other, pool) == x, busy(other))", "flag.value = 1"]
    assert program.run(*lines) == ["True True"]


@pytest.mark.promise("backing-11")
def test_a_follower_puts_no_order_between_blocking_streams(program: Session) -> None:
    """One of them waits for what the other one does later, beside a free in the legacy stream."""
    lines = [*of_pool("64 * MIB", "other"), *ENDS, "s, setter = (made('cuStreamCreate', 0) "]
    lines[-1] += "for _ in range(2))"
    lines += ["x = take(64 * MIB, 0, pool)", "print(give(x, 0))", "flag = held(s)"]
    lines += ["print(take(64 * MIB, other, pool) == x)"]
    lines += ["word = c_uint64(ctypes.addressof(flag))"]
    lines += ["print(launch('fill', setter, word, c_uint(1), c_uint64(1)), ends(s))"]
    lines += ["flag.value = 1"]
    assert same_without_the_hook(program, *lines) == ["0", "True", "0 True"]


@pytest.mark.promise("backing-11")
def test_nobody_waits_where_another_stream_s_queue_is_full(program: Session) -> None:
    """The thread that lacks memory is the one that would let it go."""
    lines = [
        *of_pool("64 * MIB", "s", "other"),
        *ENDS,
        "x, flag = take(64 * MIB, s, pool), held(s)",
    ]
    lines += ["give(x, s); w, done = alloc(4096), [0]", "def fills():"]
    lines += ["    call('cuCtxSetCurrent', c_void_p(CONTEXT))", "    for done[0] in range(6000):"]
    lines += ["        launch('fill', s, c_uint64(w), c_uint(1), c_uint64(1))"]
    lines += ["thread, seen = threading.Thread(target=fills), -1", "thread.start()"]
    lines += ["while seen != done[0]: seen = done[0]; time.sleep(0.2)"]
    lines += ["late = threading.Timer(600, lambda: setattr(flag, 'value', 1)); late.start()"]
    lines += ["print(take(64 * MIB, other, pool) == x, flag.value)", "late.cancel()"]
    lines += ["flag.value = 1; thread.join()"]
    assert same_without_the_hook(program, *lines) == ["True 0"]


@pytest.mark.promise("backing-2")
def test_an_event_is_not_recorded_elsewhere_while_a_stream_begins_to_wait_for_it(
    program: Session, sim: SimulatedMachine
) -> None:
    """By others that free meanwhile; a third one of a stream, and with another context current."""
    lines = [*SECOND, *FILES, *of_pool("128 * MIB", "s", "other")]
    lines += ["idle = [stream_create() for _ in range(6)]"]
    lines += ["u, v = take(MIB, s, pool), take(MIB, s, pool)"]
    lines += ["parts, kept = [take(65536, n, pool) for n in idle], take(16 * MIB, other, pool)"]
    lines += ["x, flag = take(96 * MIB, s, pool), held(s)", "give(u, s); give(v, s)"]
    lines += ["on(second); give(x, s); on(CONTEXT)", "def frees():", "    on(CONTEXT)"]
    lines += ["    until('go.held')", "    for a, n in zip(parts, idle): give(a, n)"]
    lines += ["    (files / 'go').touch()", "thread = threading.Thread(target=frees)"]
    lines += ["thread.start(); (files / 'start').touch()"]
    lines += ["print(take(64 * MIB, other, pool) == x)", "thread.join(); print(busy(other))"]
    lines += ["flag.value = 1", "print(wait(other))"]
    held = {"GPUSHARE_SIM_FAULTS": "hold cuStreamWaitEvent nth=1 until=go from=start"}
    assert program.run(*lines, **held) == ["True", "True", "0"]
    assert faults(sim) == []


@pytest.mark.promise("backing-8")
def test_a_context_does_not_end_while_its_event_is_waited_for(program: Session) -> None:
    """By a stream of another context. The driver would look at an event that is no more."""
    lines = [*SECOND, *FILES, "import time", *of_pool("64 * MIB", "other"), "on(second)"]
    lines += ["s = stream_create()", "x, flag = take(64 * MIB, s, pool), held(s)"]
    lines += ["give(x, s); on(CONTEXT)", "def destroys():", "    on(CONTEXT); until('go.held')"]
    lines += ["    flag.value = 1; threading.Timer(0.3, (files / 'go').touch).start()"]
    lines += ["    print(call('cuCtxDestroy_v2', c_void_p(second)), (files / 'go').exists())"]
    lines += ["thread = threading.Thread(target=destroys)", "(files / 'start').touch()"]
    lines += ["thread.start()", "print(take(64 * MIB, other, pool) == x and thread.join())"]
    held = {"GPUSHARE_SIM_FAULTS": "hold cuStreamWaitEvent nth=1 until=go from=start"}
    assert sorted(program.run(*lines, **held)) == ["0 True", "None"]


# ---- what nobody can ask about any more ----

LEFT = [
    "pool, last = pool_create(), stream_create()",
    "kept = take(MIB, last, pool)",
    "def left():",
    "    event = recorded(last)",
    "    call('cuEventSynchronize', c_void_p(event)); trim(pool)",
    "    return figures(pool)[0] // MIB",
]


@pytest.mark.promise("backing-8")
def test_all_frees_of_a_stream_that_is_gone(program: Session) -> None:
    """More than it has events for, and one with another context current."""
    lines = [*SECOND, *LEFT, "for _ in range(3):", "    s = stream_create()"]
    lines += ["    several = [take(32 * MIB, s, pool) for _ in range(7)]", "    flag = held(s)"]
    lines += ["    for n in several[1:]: give(n, s)"]
    lines += ["    on(second); give(several[0], s); on(CONTEXT)", "    event = recorded(s)"]
    lines += ["    call('cuStreamDestroy_v2', c_void_p(s)); flag.value = 1"]
    lines += ["    call('cuEventSynchronize', c_void_p(event)); print(left())"]
    assert same_without_the_hook(program, *lines) == ["32"] * 3


@pytest.mark.promise("backing-8")
def test_what_a_stream_that_is_gone_has_by_waiting(program: Session) -> None:
    """For another one, when it had events of its own already."""
    lines = [*of_pool("128 * MIB", "s", "other", "third"), "d = take(65536, third, pool)"]
    lines += ["parts = [take(65536, other, pool) for _ in range(6)]"]
    lines += ["kept, x = take(16 * MIB, third, pool), take(96 * MIB, s, pool)"]
    lines += ["mine, flag = held(other), held(s)", "for a in parts: give(a, other)", "give(x, s)"]
    lines += ["b = take(64 * MIB, other, pool); print(b == x)", "event = recorded(other)"]
    lines += ["call('cuStreamDestroy_v2', c_void_p(other)); flag.value = mine.value = 1"]
    lines += ["call('cuEventSynchronize', c_void_p(event))"]
    lines += ["print(take(32 * MIB, third, pool) > 0)"]
    assert same_without_the_hook(program, *lines) == ["True", "True"]


@pytest.mark.promise("backing-8")
def test_a_stream_whose_work_ends_while_it_goes(program: Session) -> None:
    """It was busy when the hook asked first, and idle then, so nothing says that all is over."""
    lines = [*LEFT, *FILES, "import time", "s = stream_create()", "x = take(128 * MIB, s, pool)"]
    lines += ["wait(s); give(x, s); flag = held(s)", "def lets_go():", "    until('go.held')"]
    lines += ["    flag.value = 1; time.sleep(0.3); (files / 'go').touch()"]
    lines += ["thread = threading.Thread(target=lets_go)", "thread.start()"]
    lines += ["(files / 'start').touch(); call('cuStreamDestroy_v2', c_void_p(s))"]
    lines += ["if not (files / 'go.held').exists(): (files / 'go.held').touch()"]
    lines += ["thread.join(); print(left())"]
    held = {"GPUSHARE_SIM_FAULTS": "hold cuStreamQuery nth=2 until=go from=start"}
    assert program.run(*lines, **held) == ["32"]


@pytest.mark.promise("backing-10")
@pytest.mark.parametrize("kind", ["stream", "thread"])
def test_frees_beside_a_capture_of_what_is_gone_then(program: Session, kind: str) -> None:
    """A stream or a thread ends while another stream captures, with work under way."""
    end = "call('cuStreamDestroy_v2', c_void_p(s))" if kind == "stream" else "None"
    lines = [*LEFT, *CAPTURES, "captured = stream_create()", "def work():", "    global event"]
    lines += ["    call('cuCtxSetCurrent', c_void_p(CONTEXT))"]
    lines += ["    s = stream_create()" if kind == "stream" else "    s = 2"]
    lines += ["    a, flag = take(128 * MIB, s, pool), held(s)"]
    lines += ["    event = recorded(s); begin(captured); give(a, s)"]
    lines += [f"    {end}; print(end(captured)); flag.value = 1"]
    lines += ["for _ in range(2):", "    thread = threading.Thread(target=work)"]
    lines += ["    thread.start(); thread.join()"]
    lines += ["    call('cuEventSynchronize', c_void_p(event)); print(left())"]
    assert program.run(*lines) == ["0", "32"] * 2


# ---- captures, contexts, failures ----


@pytest.mark.promise("backing-10")
@pytest.mark.parametrize(
    ("held", "freed", "captured", "work"),
    [
        ("cuStreamQuery", "0", "made('cuStreamCreate', 0)", "None"),
        ("cuStreamQuery", "stream_create()", "stream_create()", "None"),
        ("cuEventRecord", "0", "made('cuStreamCreate', 0)", "held(s)"),
    ],
)
def test_a_free_ends_no_capture_that_begins_meanwhile(
    program: Session, held: str, freed: str, captured: str, work: str
) -> None:
    """Between the hook's question about captures and what it asks or records in the stream."""
    lines = [*FILES, *CAPTURES, "free_returns = threading.Event()"]
    lines += [f"s, captured = {freed}, {captured}"]
    lines += [f"a, flag = take(MIB, s), {work}", "def captures():"]
    lines += ["    call('cuCtxSetCurrent', c_void_p(CONTEXT)); until('go.held')"]
    lines += ["    threading.Timer(0.3, (files / 'go').touch).start()"]
    lines += [
        "    began = begin(captured, 0); free_returns.wait(); ends.extend((began, end(captured)))"
    ]
    lines += ["thread = threading.Thread(target=captures)", "thread.start()"]
    lines += ["(files / 'start').touch(); ends = [give(a, s)]"]
    lines += ["free_returns.set(); thread.join(); print(ends)"]
    lines += ["if flag: flag.value = 1"]
    faulty = {"GPUSHARE_SIM_FAULTS": f"hold {held} nth=1 until=go from=start"}
    assert program.run(*lines, **faulty) == ["[0, 0, 0]"]


@pytest.mark.promise("backing-28")
def test_a_free_that_was_put_off_makes_no_other_context_wait(program: Session) -> None:
    """Its own context has work under way when the capture ends that it was put off for."""
    lines = [*SECOND, *CAPTURES, "pool = pool_create()", "keep(pool)", "on(second)"]
    lines += ["x, s = take(MIB, stream_create(), pool), stream_create()"]
    lines += ["captured, flag = stream_create(), held(s)", "on(CONTEXT)"]
    lines += ["late = threading.Timer(600, lambda: setattr(flag, 'value', 1)); late.start()"]
    lines += ["print(begin(captured)); on(second); print(free(x)); on(CONTEXT)"]
    lines += ["print(end(captured), call('cuCtxSynchronize'), flag.value)", "late.cancel()"]
    lines += ["flag.value = 1"]
    assert program.run(*lines) == ["0", "0", "0 0 0"]


@pytest.mark.promise("backing-26")
def test_memory_that_was_put_off_goes_after_a_sticky_error(program: Session) -> None:
    """Of its context, which the pool outlives: nobody frees it again."""
    lines = [*SECOND, *CAPTURES, "pool = pool_create()", "captured = stream_create()", "on(second)"]
    lines += ["s = stream_create()", "x = take(40 * MIB, s, pool)", "on(CONTEXT)"]
    lines += ["print(begin(captured)); on(second); print(free(x))"]
    lines += ["print(launch('assert_fail', s))"]
    lines += ["while call('cuStreamQuery', c_void_p(s)) in (0, 600): pass"]
    lines += ["on(CONTEXT); print(end(captured), call('cuCtxSynchronize'))"]
    lines += ["print(figures(pool)[2])"]
    assert program.run(*lines) == ["0", "0", "0", "0 0", "0"]


@pytest.mark.promise("backing-26")
def test_a_pool_of_limited_size_goes_on_after_a_failure(program: Session) -> None:
    """The driver gave no access to new memory, and did not take it back either."""
    lines = [*of_pool("64 * MIB", "s"), "print(take(64 * MIB, s, pool))"]
    lines += ["print(take(64 * MIB, s, pool) > 0, figures(pool)[0] // MIB)"]
    failing = f"fail cuMemSetAccess nth=1 result={UNKNOWN};fail cuMemUnmap nth=1 result={UNKNOWN}"
    assert program.run(*lines, GPUSHARE_SIM_FAULTS=failing) == [f"-{UNKNOWN}", "True 64"]
