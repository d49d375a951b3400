"""Stream-ordered memory that moves, among streams, threads, contexts and devices, on the simulated
GPU: whose memory is whose while work is under way, and who has to wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.pooled.words import (
    BUSY,
    FILES,
    OUT_OF_MEMORY,
    OWN,
    SECOND,
    UNKNOWN,
    faults,
    late,
    same_without_the_hook,
)
from tests.hook.session import MIB, Session
from tests.support.sim import SimulatedMachine, driver_with

LATE_POOL = late("cuDeviceGetMemPool", "void **pool, int device", "pool, device")


# ---- nothing is taken from under work ----


@pytest.mark.promise("backing-7")
def test_a_wait_for_another_context_frees_nothing(program: Session, sim: SimulatedMachine) -> None:
    """Whichever is current: it is the context that is waited for whose frees are over."""
    lines = [*SECOND, "s = stream_create()", "a, flag = take(64 * MIB, s), held(s)"]
    lines += ["waits = lambda context: (call('cuCtxSynchronize_v2', c_void_p(context)), "]
    lines[-1] += "figures(default_pool())[0] // MIB)"
    lines += ["print(launch('fill', s, c_uint64(a), c_uint(3), c_uint64(MIB)), give(a, s))"]
    lines += [f"print(waits(second), {BUSY})", "flag.value = 1", "print(on(second))"]
    lines += ["print(waits(CONTEXT))"]
    assert same_without_the_hook(program, *lines) == ["0 0", "(0, 64) True", "0", "(0, 0)"]
    assert faults(sim) == []


@pytest.mark.promise("backing-2")
def test_what_a_stream_has_by_waiting_for_another_is_not_over(
    program: Session, sim: SimulatedMachine
) -> None:
    """Nor when an event is over that was recorded before it began to wait: a third stream writes
    there behind the work of the first one."""
    lines = ["pool = pool_create(max_size=128 * MIB)", "keep(pool)"]
    lines += ["s, other, third = (stream_create() for _ in range(3))"]
    lines += ["kept, a = take(32 * MIB, third, pool), take(64 * MIB, s, pool)"]
    lines += ["b, flag = take(32 * MIB, other, pool), held(other)"]
    lines += ["give(b, other); take(64 * MIB, third, pool)", "flag.value = 1; wait(other)"]
    lines += ["b, flag = take(32 * MIB, other, pool), held(s)"]
    lines += ["fill = lambda at, value, stream: launch('fill', stream, c_uint64(at), "]
    lines[-1] += "c_uint(value), c_uint64(5 * MIB))"
    lines += ["print([fill(a + n * 20 * MIB, 0x11111111, s) for n in range(3)])"]
    lines += ["print(give(a, s), give(b, other))"]
    lines += ["while call('cuStreamQuery', c_void_p(other)) == 600: pass"]
    lines += ["b, c = take(32 * MIB, other, pool), take(40 * MIB, other, pool)"]
    lines += [f"print(b > 0, a <= c < a + 64 * MIB, {BUSY})"]
    lines += ["d = take(20 * MIB, third, pool)", "print(d > 0 and fill(d, 0x33333333, third))"]
    lines += ["flag.value = 1", "print([wait(n) for n in (s, other, third)])"]
    lines += ["print(d < 0 or set(read(d, 20 * MIB)))"]
    answers = program.run(*lines)
    assert answers[:3] == ["[0, 0, 0]", "0 0", "True True True"]
    assert answers[-1] in ("True", "{51}")
    assert faults(sim) == []


@pytest.mark.promise("backing-2")
def test_an_event_that_is_given_up_tells_nothing(program: Session, sim: SimulatedMachine) -> None:
    """Of what was freed in front of it in its first stream, if it is recorded in others while
    somebody looks: that stream is destroyed meanwhile, and its work is under way."""
    lines = [*FILES, OWN, "pool, busy = pool_create(), stream_create()", "keep(pool)"]
    lines += ["s, other, first = (stream_create() for _ in range(3))"]
    lines += ["idle = [stream_create() for _ in range(8)]"]
    lines += ["more = idle + [stream_create() for _ in range(8)]"]
    lines += ["parts = [take(MIB, n, pool) for n in idle]", "early = take(32 * MIB, first, pool)"]
    lines += ["a, b, c = take(32 * MIB, s, pool), take(8 * MIB, busy, pool), take(8 * MIB, OWN, "]
    lines[-1] += "pool)"
    lines += ["flag = held(busy)", "give(b, busy); take(32 * MIB, other, pool)"]
    lines += ["flag.value = 1; wait(busy)", "for n, part in zip(idle, parts): give(part, n)"]
    lines += ["for n in idle: wait(n)"]
    lines += ["take(33 * MIB, other, pool)", "parts = [take(MIB, n, pool) for n in more]"]
    lines += ["flag = held(s)", "launch('fill', s, c_uint64(a), c_uint(3), c_uint64(8 * MIB))"]
    lines += ["give(a, s); give(c, OWN); wait(OWN)", "c, own = take(MIB, OWN, pool), held(OWN)"]
    lines += ["give(c, OWN); own.value = 1"]
    lines += ["def destroys():", "    call('cuCtxSetCurrent', c_void_p(CONTEXT)); until('go.held')"]
    lines += ["    call('cuStreamDestroy_v2', c_void_p(s))"]
    lines += ["    for n, part in zip(more, parts): give(part, n)"]
    lines += ["    for n in more: wait(n)", "    (files / 'go').touch()"]
    lines += ["thread = threading.Thread(target=destroys)", "(files / 'start').touch()"]
    lines += ["thread.start()", "taken = [take(32 * MIB, other, pool)]", "thread.join()"]
    lines += ["taken += [take(32 * MIB, other, pool) for _ in range(4)]"]
    lines += ["print(min(taken) > 0, a in taken)", "flag.value = 1"]
    lines += ["print(call('cuCtxSynchronize'), take(32 * MIB, other, pool) == a)"]
    held = {"GPUSHARE_SIM_FAULTS": "hold cuStreamQuery nth=1 until=go from=start"}
    assert program.run(*lines, **held) == ["True False", "0 True"]
    assert (faults(sim), sim.happened()) == ([], ["hold cuStreamQuery"])


# ---- captures ----


@pytest.mark.promise(
    "backing-10",
    "A capture is not disturbed by what becomes of freed stream-ordered memory meanwhile",
)
@pytest.mark.parametrize(
    "looks",
    [
        "take(64 * MIB, s, pool) > 0",
        "call('cuEventSynchronize', c_void_p(event))",
        "trim(pool)",
    ],
)
def test_a_look_ends_no_capture(program: Session, looks: str) -> None:
    """Of the thread's own default stream, in which there is something to look for."""
    lines = [OWN, "pool, s, graph = pool_create(), stream_create(), c_uint64(0)", "keep(pool)"]
    lines += ["event, a = recorded(s), take(8 * MIB, OWN, pool)", "print(give(a, OWN))"]
    lines += ["print(call('cuStreamBeginCapture_v2', c_void_p(OWN), 2))", f"print({looks})"]
    lines += ["print(call('cuStreamEndCapture', c_void_p(OWN), byref(graph)), graph.value > 0)"]
    assert same_without_the_hook(program, *lines)[-1] == "0 True"


@pytest.mark.promise("backing-10")
def test_memory_that_is_freed_beside_a_capture_is_given_back(program: Session) -> None:
    """By cuMemFree, with two contexts open, when the capture has ended."""
    lines = [*SECOND, "pool, s, captured = pool_create(), stream_create(), stream_create()"]
    lines += ["graph = c_uint64(0)", "a = take(512 * MIB, s, pool)"]
    lines += ["print(call('cuStreamBeginCapture_v2', c_void_p(captured), 2), free(a))"]
    lines += ["print(call('cuStreamEndCapture', c_void_p(captured), byref(graph)))"]
    lines += ["for context in (second, CONTEXT): print(on(context), call('cuCtxSynchronize'))"]
    lines += ["print(trim(pool), figures(pool)[::2])"]
    lines += ["print(take(512 * MIB, s, pool) > 0, figures(pool)[0] // MIB, pool_destroy(pool))"]
    assert same_without_the_hook(program, *lines)[-2:] == ["0 [0, 0]", "True 512 0"]


# ---- streams that nobody can ask ----

WAITS = [
    "call('cuEventSynchronize', c_void_p(event))",
    "(call('cuEventSynchronize', c_void_p(event)), trim(pool))[1]",
]


@pytest.mark.promise("backing-8")
@pytest.mark.parametrize("waits", WAITS)
def test_what_a_thread_that_is_gone_has_freed(program: Session, waits: str) -> None:
    """In its own default stream, all of it, behind work that was under way at its end."""
    lines = [OWN, "pool = pool_create()", "def work():", "    global event, flag"]
    lines += ["    call('cuCtxSetCurrent', c_void_p(CONTEXT))"]
    lines += ["    several = [take(64 * MIB, OWN, pool) for _ in range(3)]", "    flag = held(OWN)"]
    lines += ["    print([give(n, OWN) for n in several])", "    event = recorded(OWN)"]
    lines += ["for _ in range(2):", "    thread = threading.Thread(target=work)"]
    lines += ["    thread.start(); thread.join()", "    print(figures(pool)[0] // MIB)"]
    lines += [f"    flag.value = 1; print({waits}, figures(pool)[::2])"]
    assert program.run(*lines) == ["[0, 0, 0]", "192", "0 [0, 0]"] * 2


@pytest.mark.promise("backing-8")
@pytest.mark.parametrize("waits", WAITS)
def test_what_a_stream_that_is_gone_has_freed(program: Session, waits: str) -> None:
    """All of it, where another context was current when it was destroyed."""
    lines = [*SECOND, "pool = pool_create()", "for _ in range(2):", "    s = stream_create()"]
    lines += ["    several = [take(64 * MIB, s, pool) for _ in range(3)]", "    flag = held(s)"]
    lines += ["    print([give(n, s) for n in several])", "    event = recorded(s)"]
    lines += ["    print(on(second), call('cuStreamDestroy_v2', c_void_p(s)), on(CONTEXT))"]
    lines += ["    print(figures(pool)[0] // MIB)"]
    lines += [f"    flag.value = 1; print({waits}, figures(pool)[::2])"]
    answers = same_without_the_hook(program, *lines)
    assert answers == ["[0, 0, 0]", "0 0 0", "192", "0 [0, 0]"] * 2


@pytest.mark.promise("backing-28")
def test_a_free_without_a_context(program: Session) -> None:
    """In a stream, which has its own."""
    lines = ["s = stream_create()", "a = take(4 * MIB, s)", "call('cuCtxSetCurrent', c_void_p(0))"]
    lines += ["print(take(MIB, s) > 0, give(a, s), wait(s), give(a, s))"]
    lines += ["print(figures(default_pool())[2] // MIB)"]
    assert same_without_the_hook(program, *lines) == ["True 0 0 1", "1"]


# ---- room ----


@pytest.mark.promise("backing-9")
@pytest.mark.parametrize(
    "asks", ["alloc(600 * MIB)", "create(600 * MIB)", "take(600 * MIB, s, pool_create())"]
)
@pytest.mark.parametrize("usable", [str(900 * MIB), ""])
def test_what_nobody_has_looked_at_is_given_up_too(
    program: Session, asks: str, usable: str
) -> None:
    """Where its stream is idle, for memory of each kind: the budget or the device is full."""
    lines = ["s, pool = stream_create(), pool_create()", "keep(pool)", "a = take(600 * MIB, s, "]
    lines[-1] += "pool)"
    lines += [f"print(give(a, s), figures(pool)[0] // MIB, ({asks}) > 0, figures(pool)[0])"]
    budget = {"FAKE_USABLE": usable} if usable else {}
    assert program.run(*lines, **budget) == ["0 608 True 0"]


@pytest.mark.promise("backing-26")
def test_memory_that_stayed_mapped(program: Session) -> None:
    """Because the driver failed once: its addresses are used no more, and the pool goes on."""
    lines = ["pool = default_pool()", "a = take(20 * MIB)", "print(give(a), wait())"]
    lines += ["several = [take(n * MIB) for n in (20, 4, 100)]"]
    lines += ["print([n > 0 for n in several], any(a <= n < a + SEGMENT for n in several))"]
    lines += ["data = numbers(4 * MIB)", "print([write(n, data) for n in several], park() > 0)"]
    lines += ["print(restore() > 0, all(read(n, len(data)) == data for n in several))"]
    lines += ["print([give(n) for n in several], wait(), figures(pool)[2])"]
    answers = program.run(*lines, GPUSHARE_SIM_FAULTS=f"fail cuMemUnmap nth=1 result={UNKNOWN}")
    assert answers == [
        "0 0",
        "[True, True, True] False",
        "[0, 0, 0] True",
        "True True",
        "[0, 0, 0] 0 0",
    ]


@pytest.mark.promise("backing-26")
def test_memory_that_stayed_mapped_when_a_pool_could_not_grow(program: Session) -> None:
    """The driver gave no access to it, and did not take it back: the next one is elsewhere."""
    lines = ["pool = default_pool()", "print(take(20 * MIB))"]
    lines += ["several = [take(n * MIB) for n in (20, 4, 100)]"]
    lines += ["print([n > 0 for n in several], [write(n, b'there') for n in several])"]
    lines += ["print([give(n) for n in several], wait(), figures(pool)[2])"]
    failing = f"fail cuMemSetAccess nth=1 result={UNKNOWN};fail cuMemUnmap nth=1 result={UNKNOWN}"
    assert program.run(*lines, GPUSHARE_SIM_FAULTS=failing) == [
        f"-{UNKNOWN}",
        "[True, True, True] [0, 0, 0]",
        "[0, 0, 0] 0 0",
    ]


@pytest.mark.promise("backing-24")
def test_two_threads_do_not_exceed_the_size_of_a_pool(program: Session) -> None:
    """One is refused while the other one's memory is being made."""
    lines = [*FILES, "pool = pool_create(max_size=64 * MIB)", "answers = []"]
    lines += ["s, other = stream_create(), stream_create()", "def work():"]
    lines += ["    call('cuCtxSetCurrent', c_void_p(CONTEXT))"]
    lines += ["    answers.append(take(64 * MIB, other, pool) > 0)"]
    lines += ["thread = threading.Thread(target=work)", "thread.start(); until('go.held')"]
    lines += ["print(take(64 * MIB, s, pool))", "(files / 'go').touch(); thread.join()"]
    lines += ["print(answers, figures(pool)[0] // MIB, figures(pool)[1] // MIB)"]
    answers = program.run(*lines, GPUSHARE_SIM_FAULTS="hold cuMemCreate nth=1 until=go")
    assert answers == [f"-{OUT_OF_MEMORY}", "[True] 64 64"]


# ---- what others have yet to free ----


@pytest.mark.promise(
    "backing-11",
    "Where a pool or its device is full, a stream has what another one has freed behind work that "
    "is under way, and waits for that in its own order; the caller waits for nothing",
)
@pytest.mark.parametrize("pool", ["pool_create(max_size=64 * MIB)", "default_pool()"])
def test_a_stream_waits_for_what_another_frees(
    program: Session, sim: SimulatedMachine, pool: str
) -> None:
    """The first time that it lacks memory, in a full pool and on a full device."""
    size = "64 * MIB" if "create" in pool else "600 * MIB"
    lines = [f"pool, size = {pool}, {size}", "keep(pool)"]
    lines += [
        "s, other = stream_create(), stream_create()",
        "a, flag = take(size, s, pool), held(s)",
    ]
    lines += ["fill = lambda value, stream: launch('fill', stream, c_uint64(a), c_uint(value), "]
    lines[-1] += "c_uint64(MIB))"
    lines += [f"print(fill(1, s), give(a, s), take(size, other, pool) == a, {BUSY})"]
    lines += ["print(fill(2, other), call('cuStreamQuery', c_void_p(other)))"]
    lines += ["flag.value = 1", "print(wait(other), set(read(a, 4 * MIB)[::4]))"]
    assert same_without_the_hook(program, *lines) == ["0 0 True True", "0 600", "0 {2}"]
    assert faults(sim) == []


@pytest.mark.promise("backing-11")
def test_a_stream_waits_for_a_later_free_too(program: Session) -> None:
    """Of two parts behind the same work it lacks the one that was freed last."""
    lines = ["pool = pool_create(max_size=96 * MIB)", "keep(pool)"]
    lines += ["s, other = stream_create(), stream_create()"]
    lines += ["a, kept = take(8 * MIB, s, pool), take(24 * MIB, other, pool)"]
    lines += ["b, flag = take(64 * MIB, s, pool), held(s)"]
    lines += ["print(give(a, s), take(40 * MIB, other, pool))", "flag.value = 1; wait(s)"]
    lines += ["a, flag = take(8 * MIB, s, pool), held(s)"]
    lines += [f"print(give(a, s), give(b, s), take(64 * MIB, other, pool) == b, {BUSY})"]
    lines += ["flag.value = 1", "print(wait(other))"]
    answers = same_without_the_hook(program, *lines)
    assert answers == [f"0 -{OUT_OF_MEMORY}", "0 0 True True", "0"]


@pytest.mark.promise("backing-11")
def test_frees_that_lie_side_by_side(program: Session) -> None:
    """A stream has the first of them, and another one the second."""
    lines = ["pool = pool_create(max_size=64 * MIB)", "keep(pool)"]
    lines += ["s, other, third = (stream_create() for _ in range(3))"]
    lines += ["a, b = take(32 * MIB, s, pool), take(32 * MIB, s, pool)", "flag = held(s)"]
    lines += ["print(give(a, s), give(b, s))", "places = [take(32 * MIB, n, pool) for n in "]
    lines[-1] += "(other, third)]"
    lines += [f"print(sorted(places) == sorted((a, b)), {BUSY})", "flag.value = 1"]
    lines += ["print(wait(other), wait(third))"]
    assert program.run(*lines) == ["0 0", "True True", "0 0"]


@pytest.mark.promise("backing-11")
@pytest.mark.parametrize(("rules", "has_it"), [((0, 1), True), ((1, 0), False), ((0, 0), False)])
def test_the_rules_of_the_pool_are_kept(
    program: Session, rules: tuple[int, int], has_it: bool
) -> None:
    """Whether it takes what is over does not say whether it waits."""
    lines = ["pool = pool_create(max_size=64 * MIB)", "keep(pool)"]
    lines += [f"rules = zip((OPPORTUNISTIC, INTERNAL), {rules})"]
    lines += ["print([set_pool_attribute(pool, *rule) for rule in rules])"]
    lines += ["s, other = stream_create(), stream_create()"]
    lines += ["a, flag = take(64 * MIB, s, pool), held(s)", "print(give(a, s), "]
    lines[-1] += f"take(64 * MIB, other, pool) == a, {BUSY})"
    lines += ["flag.value = 1", "print(wait(s), wait(other))"]
    assert same_without_the_hook(program, *lines)[1] == f"0 {has_it} True"


@pytest.mark.promise("backing-11")
def test_a_refusal_asks_nothing_again_and_again(program: Session, sim: SimulatedMachine) -> None:
    """What a pool cannot have at all is refused, although another stream has a byte to free."""
    lines = [*FILES, "pool = pool_create(max_size=64 * MIB)", "keep(pool)"]
    lines += ["s, other = stream_create(), stream_create()", "a, flag = take(1, s, pool), held(s)"]
    lines += ["print(give(a, s), (files / 'start').touch())"]
    lines += [f"print([take(n, other, pool) for n in (1 << 30, 1 << 31)], {BUSY})"]
    lines += ["flag.value = 1"]
    counting = {"GPUSHARE_SIM_FAULTS": "stall cuStreamQuery nth=50 ms=0 from=start"}
    assert program.run(*lines, **counting) == ["0 None", "[-2, -2] True"]
    assert sim.happened() == []


# ---- other contexts and devices ----


@pytest.mark.promise("backing-28")
@pytest.mark.parametrize(
    "where", ["made('cuDevicePrimaryCtxRetain', 1)", "made('cuCtxCreate_v2', 0, 0)"]
)
def test_a_free_waits_for_no_other_context(program: Session, where: str) -> None:
    """Nor for another device: work there may wait for the thread that frees."""
    lines = [f"away, answers = {where}, []", "def work():"]
    lines += ["    call('cuCtxSetCurrent', c_void_p(CONTEXT)); answers.append(free(a))"]
    lines += ["call('cuCtxSetCurrent', c_void_p(away)); s = stream_create(); flag = held(s)"]
    lines += ["call('cuCtxSetCurrent', c_void_p(CONTEXT)); a = take(8 * MIB)"]
    lines += ["thread = threading.Thread(target=work)", "thread.start(); thread.join(200)"]
    lines += [f"print(answers, {BUSY})", "flag.value = 1; thread.join()"]
    assert same_without_the_hook(program, *lines) == ["[0] True"]


@pytest.mark.promise("backing-4")
@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("default_pool()", "call('cuDeviceSetMemPool', 0, c_void_p(own))", "own"),
        ("own", "pool_destroy(own)", "default_pool()"),
    ],
)
def test_a_pool_that_is_current_no_more_is_forgotten(
    program: Session, tmp_path: Path, before: str, change: str, after: str
) -> None:
    """Although another thread has asked for it before, and the driver's answer comes later."""
    late = {"LD_LIBRARY_PATH": driver_with(tmp_path / "late", LATE_POOL)}
    lines = [*FILES, "s, own = stream_create(), pool_create()", "def work():"]
    lines += ["    call('cuCtxSetCurrent', c_void_p(CONTEXT)); take(MIB, s)"]
    lines += [f"call('cuDeviceSetMemPool', 0, c_void_p({before}))", "(files / 'late').touch()"]
    lines += ["thread = threading.Thread(target=work)", "thread.start(); until('asked')"]
    lines += [f"print({change})", "(files / 'go').touch(); thread.join()"]
    lines += ["before = sums()", "a = take(40 * MIB, s)"]
    lines += [f"print(attribute(17, a) == {after}, sums() > before)"]
    assert program.run(*lines, **late) == ["0", "True True"]


def test_the_legacy_stream_says_nothing_of_work_that_runs(program: Session) -> None:
    """A wait for it may return while a blocking stream still uses what it will free."""
    lines = ["s = made('cuStreamCreate', 0)", "a, go = take(40 * MIB, s), held(s)"]
    lines += ["fill = launch('fill', s, c_uint64(a), c_uint(7), c_uint64(1000))"]
    lines += ["stop = threading.Timer(1, lambda: setattr(go, 'value', 1))"]
    lines += ["print(fill, give(a, s)); stop.start()"]
    lines += ["print(wait()); stop.join()", "print(call('cuCtxSynchronize'))"]
    assert program.run(*lines) == ["0 0", "0", "0"]
