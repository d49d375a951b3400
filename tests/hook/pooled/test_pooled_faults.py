"""What goes wrong with stream-ordered memory that moves, on the simulated GPU: programs that free
it wrongly, ends of all kinds, and a driver or a budget without room."""

from __future__ import annotations

import pytest

from tests.hook.pooled.words import faults, same_without_the_hook
from tests.hook.session import MIB, Session
from tests.support.sim import SimulatedMachine

INVALID_VALUE, OUT_OF_MEMORY, CANCELLED, UNKNOWN = 1, 2, 800, 999
ROOM_MADE = "2"
"""What others answer when they are asked for room."""


# ---- frees ----


@pytest.mark.promise(
    "backing-7",
    "Frees of stream-ordered memory that are wrong are refused, and those that are early take "
    "nothing from under the work before them",
)
def test_wrong_frees_are_refused(program: Session) -> None:
    """Twice, inside, of what is nothing; the memory stays whole. (In a stream that is none the
    driver itself crashes.)"""
    lines = ["a, b = take(4 * MIB), take(700)", "assert not write(a, b'whole')"]
    lines += ["print([give(n) for n in (a + 1, a + MIB, b + 512, a + 4 * MIB, 0, 0xDEAD0000)])"]
    lines += ["print(read(a, 5), give(a), give(a), free(a), give(b), wait())"]
    lines += ["print(give(b), free(b), figures(default_pool())[::2])"]
    assert same_without_the_hook(program, *lines)[2] == "1 1 [0, 0]"


@pytest.mark.promise("backing-7")
def test_plain_frees_of_it(program: Session) -> None:
    """cuMemFree frees it when the work of the context is over, once, and not inside."""
    lines = ["s = stream_create()", "a, b = take(4 * MIB, s), take(4 * MIB, s)"]
    lines += [
        "import threading",
        "work, busy = held(s), lambda: call('cuStreamQuery', c_void_p(s))",
    ]
    lines += [
        "print(free(a + 1), busy())",
        "threading.Timer(0.05, setattr, (work, 'value', 1)).start()",
    ]
    lines += ["print(free(a), busy(), free(a), give(a))"]
    lines += ["print(address_range(a), figures(default_pool())[2:], give(b), wait(s))"]
    lines += ["print(figures(default_pool())[0])"]
    assert same_without_the_hook(program, *lines)[:2] == ["1 600", "0 0 1 1"]


@pytest.mark.promise("backing-7")
def test_freed_memory_is_gone_for_questions_at_once(program: Session) -> None:
    """Its stream has not come to the free yet."""
    lines = ["s = stream_create()", "a, b, flag = take(40 * MIB, s), take(4, s), held(s)"]
    lines += ["print(give(a, s), address_range(a), attribute(2, a), attributes(a, 2, 9), give(a))"]
    lines += ["print(figures(default_pool()), address_range(b) == (b, 4))"]
    lines += ["print(launch('fill', s, c_uint64(b), c_uint(3), c_uint64(1)))"]
    lines += ["flag.value = 1", "print(wait(s), read(b, 4), give(b, s), wait(s))"]
    same_without_the_hook(program, *lines)


@pytest.mark.promise("backing-7")
@pytest.mark.parametrize("waits", ["wait(other)", "wait()", "trim(default_pool())"])
def test_memory_is_not_taken_from_under_work_before_its_free(
    program: Session,
    sim: SimulatedMachine,
    waits: str,
) -> None:
    """While that is under way a wait for other streams, or a trim, gives nothing of it back."""
    lines = ["s, other = stream_create(), stream_create()", "a, flag = take(40 * MIB, s), held(s)"]
    lines += ["print(launch('fill', s, c_uint64(a), c_uint(3), c_uint64(MIB)), give(a, s))"]
    lines += [f"print({waits}, figures(default_pool())[0] // MIB)"]
    lines += ["flag.value = 1", "print(wait(s), figures(default_pool())[0], sums())"]
    assert program.run(*lines) == ["0 0", "0 64", "0 0 (0, 0)"]
    assert faults(sim) == []


@pytest.mark.promise("backing-7")
def test_a_free_in_another_stream_that_waits(program: Session, sim: SimulatedMachine) -> None:
    """It is the memory's end when the work before the event is over, and not when the first
    stream is waited for."""
    lines = ["s, other = stream_create(), stream_create()", "a, flag = take(40 * MIB, s), held(s)"]
    lines += ["print(launch('fill', s, c_uint64(a), c_uint(3), c_uint64(MIB)))"]
    lines += ["more = held(other)", "print(waits_for(other, recorded(s)), give(a, other))"]
    lines += ["flag.value = 1", "print(wait(s), figures(default_pool())[0] // MIB)"]
    lines += ["more.value = 1", "print(wait(other), figures(default_pool())[0], sums())"]
    assert same_without_the_hook(program, *lines[:-1], "print(wait(other))")
    assert program.run(*lines) == ["0", "0 0", "0 64", "0 0 (0, 0)"]
    assert faults(sim) == []


@pytest.mark.promise("backing-7")
def test_a_free_in_another_stream_before_the_work_has_ended(program: Session) -> None:
    """The other stream has the memory again, and the one that used it has other memory; nothing
    of a third allocation changes."""
    lines = ["s, other = stream_create(), stream_create()", "keep(default_pool())"]
    lines += ["a, kept = take(20 * MIB, s), take(20 * MIB, s)", "data = numbers(20 * MIB)"]
    lines += ["assert not write(kept, data)", "flag = held(s)", "print(give(a, other))"]
    lines += ["print(take(20 * MIB, other) == a, take(20 * MIB, s) == a, give(a, s))"]
    lines += ["flag.value = 1", "print(wait(s), wait(other), park() > 0, restore() > 0)"]
    lines += ["print(read(kept, len(data)) == data)"]
    assert program.run(*lines) == ["0", "True False 0", "0 0 True True", "True"]


@pytest.mark.promise("backing-29")
@pytest.mark.parametrize("frees", ["give(a)", "free(a)"])
def test_frees_of_what_is_parked(program: Session, frees: str) -> None:
    """Nothing comes back to the device for it, and host memory is given back."""
    lines = ["a, b = take(96 * MIB), take(8, 0, pool_create())", "assert not write(b, b'stays')"]
    lines += [f"print(park() > 0, sums(), {frees}, wait(), trim(default_pool()), sums())"]
    lines += ["print(figures(default_pool())[::2], restore() > 0, sums(), read(b, 5), give(a))"]
    assert program.run(*lines) == [
        "True (0, 64) 0 0 0 (0, 16)",
        f"[0, 0] True (16, 0) b'stays' {INVALID_VALUE}",
    ]
    given = [int(line.split()[1]) for line in program.told("host_given")]
    assert sum(given) == 128 * MIB


# ---- ends ----


@pytest.mark.promise(
    "backing-8",
    "Memory of pools outlives its pool, its stream and its context as it does without the "
    "hook, and what was freed is given back all the same",
)
def test_a_pool_that_is_destroyed_with_live_memory(program: Session) -> None:
    """It is none from then on; its memory stays, moves, and is freed."""
    lines = ["pool = pool_create()", "keep(pool)", "a, b = take(40 * MIB, 0, pool), "]
    lines[-1] += "take(4 * MIB, 0, pool)"
    lines += ["assert not write(a, b'whole')", "print(give(b), pool_destroy(pool))"]
    lines += ["print(pool_destroy(pool), take(4, 0, pool), pool_attribute(pool, USED), keep(pool))"]
    lines += ["print(trim(pool), address_range(a + 5) == (a, 40 * MIB))"]
    lines += ["park(); restore()", "print(read(a, 5), give(a), give(a), wait(), sums())"]
    assert same_without_the_hook(program, *lines)[0] == "0 0"
    assert program.memory()[-1] == (0, 0)
    parked = [*lines[:-2], "print(park() > 0, sums()[0], restore() > 0, read(a, 5))"]
    assert program.run(*parked)[-1] == "True 0 True b'whole'"


@pytest.mark.promise("backing-8")
def test_a_pool_that_is_destroyed_while_parked(program: Session) -> None:
    """With what it kept, and with memory that is freed before it comes back."""
    lines = ["pool = pool_create()", "keep(pool)"]
    lines += ["a, b = take(32 * MIB, 0, pool), take(96 * MIB, 0, pool)"]
    lines += ["print(give(b), wait(), park() > 0, sums(), pool_destroy(pool), sums())"]
    lines += ["print(give(a), wait(), sums(), restore(), sums())"]
    assert program.run(*lines) == ["0 0 True (0, 64) 0 (0, 16)", "0 0 (0, 0) 0 (0, 0)"]


@pytest.mark.promise("backing-8")
def test_a_stream_that_is_destroyed_with_pending_frees(
    program: Session,
    sim: SimulatedMachine,
) -> None:
    """Its work goes on with the memory; afterwards others have it, or the device."""
    lines = ["s, other = stream_create(), stream_create()", "a, flag = take(32 * MIB, s), held(s)"]
    lines += ["print(launch('fill', s, c_uint64(a), c_uint(3), c_uint64(MIB)), give(a, s))"]
    lines += ["print(call('cuStreamDestroy_v2', c_void_p(s)), take(32 * MIB, other) == a)"]
    lines += ["flag.value = 1", "print(call('cuCtxSynchronize'))"]
    lines += ["print(trim(default_pool()), figures(default_pool())[0] // MIB)"]
    assert same_without_the_hook(program, *lines) == ["0 0", "0 False", "0", "0 32"]
    assert faults(sim) == []


@pytest.mark.promise("backing-8")
def test_memory_of_a_stream_that_is_gone_is_freed_in_others(program: Session) -> None:
    lines = ["s, a = stream_create(), 0", "a = take(40 * MIB, s)", "assert not write(a, b'whole')"]
    lines += ["print(call('cuStreamDestroy_v2', c_void_p(s)), read(a, 5))"]
    lines += ["print(give(a), wait(), figures(default_pool())[::2])"]
    assert same_without_the_hook(program, *lines) == ["0 b'whole'", "0 0 [0, 0]"]


@pytest.mark.promise("backing-8")
@pytest.mark.parametrize("where", ["", "park()"])
@pytest.mark.parametrize("end", ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"])
def test_a_context_that_ends(program: Session, where: str, end: str) -> None:
    """Memory of pools belongs to the device: it is there again with the next context, with all that
    the pool tells of it, and can be freed then."""
    lines = ["own = pool_create()", "a, b = take(40 * MIB), take(4 * MIB, 0, own)", where]
    lines += [f"print(call('{end}', 0))", "opened()"]
    lines += ["print(address_range(a) == (a, 40 * MIB), figures(default_pool()), figures(own))"]
    lines += ["print(give(a), give(b), wait(), figures(default_pool()), figures(own))"]
    lines += ["print(take(4 * MIB, 0, own) > 0)"]
    same_without_the_hook(program, *lines)
    assert program.run(*lines, "print(sums())")[-1] == "(16, 0)"


@pytest.mark.promise("backing-8")
def test_the_bytes_outlive_their_context(program: Session) -> None:
    """Of memory that was on the device when its context ended; also where it moves later."""
    lines = ["a = take(40 * MIB)", "data = numbers(40 * MIB)", "assert not write(a, data)"]
    lines += ["print(call('cuDevicePrimaryCtxReset_v2', 0))", "opened()"]
    lines += ["print(read(a, len(data)) == data)", "park(); restore()"]
    lines += ["print(read(a, len(data)) == data)"]
    assert same_without_the_hook(program, *lines) == ["0", "True", "True"]


@pytest.mark.promise("backing-8")
def test_a_second_context_that_ends(program: Session) -> None:
    """Its streams end with it, what was freed in them is free, and no pool loses memory."""
    lines = ["second = c_void_p(0)", "assert call('cuCtxCreate_v2', byref(second), 0, 0) == 0"]
    lines += ["s = stream_create()", "a, b = take(4 * MIB, s), take(40 * MIB, s)"]
    lines += ["print(give(b, s), call('cuCtxDestroy_v2', second))"]
    lines += ["call('cuCtxSetCurrent', c_void_p(CONTEXT))", "print(write(a, b'here'), read(a, 4))"]
    lines += ["print(call('cuCtxSynchronize'), give(a), wait(), figures(default_pool())[::2])"]
    assert same_without_the_hook(program, *lines) == ["0 0", "0 b'here'", "0 0 0 [0, 0]"]


@pytest.mark.promise("backing-36")
def test_a_forked_child_has_none_of_it(program: Session) -> None:
    """Nor pools; the parent's memory stays as it was, parked or not."""
    lines = ["import os", "a = take(40 * MIB)", "assert not write(a, b'own')"]
    lines += ["for where in (park, restore):", "    print(where() > 0)", "    child = os.fork()"]
    lines += [
        "    has = lambda: [sums() != (0, 0), take(4) > 0, address_range(a) == (a, 40 * MIB)]"
    ]
    lines += ["    if child == 0: os._exit(sum(has()))", "    print(os.waitpid(child, 0)[1])"]
    lines += ["print(read(a, 3), give(a), wait(), sums())"]
    assert program.run(*lines) == ["True", "0"] * 2 + ["b'own' 0 0 (0, 0)"]


@pytest.mark.parametrize("where", ["", "park()"])
def test_a_process_that_ends(program: Session, where: str) -> None:
    """With live memory, pools, and frees that are not over: it ends well."""
    lines = ["s, own = stream_create(), pool_create()", "keep(own)", "a, b = take(40 * MIB, s), "]
    lines[-1] += "take(40 * MIB, s, own)"
    lines += ["flag = held(s)", "print(give(b, s), take(8, s) > 0)", where]
    assert program.run(*lines) == ["0 True"]
    assert program.stderr == ""


# ---- no room ----


@pytest.mark.promise("backing-24")
def test_sizes_that_cannot_be(program: Session) -> None:
    """The driver's answers; a pool with a size of its own has no more, and nothing is left."""
    lines = ["small = pool_create(max_size=40 * MIB)"]
    lines += ["print([take(n) for n in (0, 64 << 30, 1 << 50, 2**64 - 1)])"]
    lines += ["print([take(32 * MIB, 0, small) > 0 for _ in range(3)])"]
    lines += ["print(figures(small), figures(default_pool()), take(4, 0, 0xDEAD0000))"]
    assert same_without_the_hook(program, *lines)[1] == "[True, True, False]"
    assert program.run("print(take(64 << 30), sums())") == [f"-{OUT_OF_MEMORY} (0, 0)"]
    assert set(program.memory()) <= {(0, 0)}


@pytest.mark.promise(
    "backing-9",
    "What pools keep is given up before memory is refused, whoever asks for it",
)
@pytest.mark.parametrize("asks", ["take(64 * MIB)", "take(64 * MIB, 0, pool_create())"])
def test_a_cap_is_of_what_is_needed(program: Session, asks: str) -> None:
    """What is kept above it is given up for other memory, of each kind; more than it is refused."""
    lines = ["own = pool_create()", "keep(own)", "a = take(64 * MIB, 0, own)"]
    lines += ["print(give(a), wait(), figures(own)[0] // MIB)"]
    lines += [f"print(({asks}) > 0, figures(own)[0], sums(), take(8, 0, own), alloc(2 * MIB))"]
    answers = program.run(*lines, FAKE_CAP=str(64 * MIB))
    assert answers == ["0 0 64", "True 0 (32, 0) -2 -2"]
    assert max(allocated for allocated, _ in program.memory()) == 64


@pytest.mark.promise("backing-9")
def test_kept_memory_is_used_before_more_is_asked_for(program: Session) -> None:
    """Where the cap is reached; its own pool gives it up for a larger allocation."""
    lines = ["pool = default_pool()", "keep(pool)", "a = take(64 * MIB)"]
    lines += ["print(give(a), wait(), take(32 * MIB) == a, figures(pool)[0] // MIB)"]
    lines += ["print(give(a), wait(), take(96 * MIB) > 0, figures(pool)[0] // MIB)"]
    answers = program.run(*lines, FAKE_CAP=str(96 * MIB))
    assert answers == ["0 0 True 64", "0 0 True 96"]


@pytest.mark.promise("backing-9")
def test_a_full_device_has_what_a_pool_keeps(program: Session) -> None:
    """For a larger allocation of the same pool; a refusal takes nothing of it, nor of what is in
    use."""
    lines = ["pool = default_pool()", "keep(pool)", "b = take(32 * MIB, 0, pool_create())"]
    lines += ["a = take(600 * MIB)", "print(write(b, b'whole'), give(a), wait())"]
    lines += ["c = take(700 * MIB)", "print(c > 0, read(b, 5), figures(pool)[0] // MIB)"]
    lines += ["print(take(700 * MIB), give(c), wait(), take(600 * MIB) > 0, read(b, 5))"]
    assert same_without_the_hook(program, *lines) == [
        "0 0 0",
        "True b'whole' 704",
        f"-{OUT_OF_MEMORY} 0 0 True b'whole'",
    ]


@pytest.mark.promise("backing-25")
@pytest.mark.parametrize(
    ("answer", "result"), [("refused", OUT_OF_MEMORY), ("cancelled", CANCELLED)]
)
def test_a_claim_that_is_refused_or_cancelled(program: Session, answer: str, result: int) -> None:
    """Nothing is left of it, in the pool either."""
    lines = ["print(take(4 * MIB), take(100 * MIB), figures(default_pool()), sums())"]
    answers = program.run(*lines, FAKE_CLAIM=answer)
    assert answers == [f"-{result} -{result} [0, 0, 0, 0] (0, 0)"]
    assert set(program.memory()) == {(0, 0)}


@pytest.mark.promise("backing-27")
def test_out_of_memory_is_tried_again_when_others_made_room(program: Session) -> None:
    """It fails where they made none."""
    failing = {"GPUSHARE_SIM_FAULTS": "fail cuMemCreate nth=2 result=2"}
    lines = ["a = take(100 * MIB)", "print(a if a < 0 else write(a + 99 * MIB, b'there'))"]
    assert program.run(*lines, FAKE_ROOM=ROOM_MADE, **failing) == ["0"]
    assert program.told("room") == [f"room 0 {128 * MIB} cuMemAllocAsync"]
    assert program.memory() == [(128, 0)]
    assert program.run(*lines, **failing) == [f"-{OUT_OF_MEMORY}"]


@pytest.mark.promise("backing-26")
@pytest.mark.parametrize(
    ("call", "nth"),
    [
        ("cuMemCreate", 1),
        ("cuMemCreate", 3),
        ("cuMemMap", 1),
        ("cuMemMap", 3),
        ("cuMemSetAccess", 1),
    ],
)
def test_a_driver_that_fails_in_the_middle(program: Session, call: str, nth: int) -> None:
    """Of an allocation that fails at any step nothing is left, neither on the device nor in the
    pool; its error is told, and the next one succeeds."""
    lines = ["pool, before = default_pool(), info()", "keep(pool)"]
    lines += ["print(take(200 * MIB), info() == before, figures(pool), sums(), park())"]
    lines += ["a = take(200 * MIB)", "print(a > 0, [n // MIB for n in figures(pool)], sums())"]
    lines += ["print(write(a, b'there'), park() > 0, restore() > 0, read(a, 5))"]
    lines += ["print(give(a), wait(), trim(pool), sums(), info() == before)"]
    answers = program.run(*lines, GPUSHARE_SIM_FAULTS=f"fail {call} nth={nth} result={UNKNOWN}")
    assert answers == [
        f"-{UNKNOWN} True [0, 0, 0, 0] (0, 0) 0",
        "True [224, 224, 200, 200] (112, 0)",
        "0 True True b'there'",
        "0 0 0 (0, 0) True",
    ]


@pytest.mark.promise("backing-26")
@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_pool_that_fails_to_grow(program: Session, call: str) -> None:
    """It has what it had before, whole, and can grow later."""
    lines = ["pool = default_pool()", "a = take(20 * MIB)", "assert not write(a, b'whole')"]
    lines += ["before, free_before = figures(pool), info()"]
    lines += ["print(take(200 * MIB), figures(pool) == before, info() == free_before, sums())"]
    lines += ["print(park(), restore(), read(a, 5), take(200 * MIB) > 0, give(a), wait())"]
    nth = 2  # the first is that of what there was before
    answers = program.run(*lines, GPUSHARE_SIM_FAULTS=f"fail {call} nth={nth} result={UNKNOWN}")
    assert answers == [f"-{UNKNOWN} True True (16, 0)", "1 1 b'whole' True 0 0"]


@pytest.mark.promise("backing-26")
def test_without_addresses_memory_is_the_driver_s(program: Session) -> None:
    """It is fixed; the pool tells the truth of it, and has its own again later."""
    lines = ["pool = default_pool()", "keep(pool)", "a = take(200 * MIB)"]
    lines += ["print(write(a, b'there'), [n // MIB for n in figures(pool)], sums(), park())"]
    lines += ["b = take(20 * MIB)", "print(b > 0, sums(), [n // MIB for n in figures(pool)])"]
    lines += ["print(read(a, 5), attribute(17, a) == pool, give(a), give(b), wait(), trim(pool))"]
    lines += ["print(figures(pool)[::2], sums())"]
    failing = f"fail cuMemAddressReserve nth=1 result={UNKNOWN}"
    answers = program.run(*lines, GPUSHARE_SIM_FAULTS=failing)
    assert answers == [
        "0 [224, 224, 200, 200] (0, 0) 0",
        "True (16, 0) [256, 256, 220, 220]",
        "b'there' True 0 0 0 0",
        "[0, 0] (0, 0)",
    ]
    assert (224, 224) in program.memory() and program.memory()[-1] == (0, 0)


@pytest.mark.promise("backing-26")
def test_memory_that_the_driver_would_not_take_back(program: Session) -> None:
    """The pool goes on: what it hands out later is whole."""
    lines = ["pool = default_pool()", "a = take(40 * MIB)", "print(give(a), wait(), keep(pool))"]
    lines += ["b = take(40 * MIB)", "data = numbers(40 * MIB)", "print(b > 0, write(b, data))"]
    lines += ["print(park() > 0, restore() > 0, read(b, len(data)) == data, give(b), wait())"]
    failing = f"fail cuMemRelease nth=1 result={UNKNOWN}"
    answers = program.run(*lines, GPUSHARE_SIM_FAULTS=failing)
    assert answers == ["0 0 0", "True 0", "True True True 0 0"]


@pytest.mark.promise("backing-26")
def test_a_driver_that_makes_no_pool(program: Session) -> None:
    """Its error is told."""
    lines = ["print(pool_create() < 0, pool_create() > 0, take(4) > 0)"]
    failing = {"GPUSHARE_SIM_FAULTS": f"fail cuMemPoolCreate nth=1 result={UNKNOWN}"}
    assert program.run(*lines, **failing) == program.run(*lines, FAKE_SWAP="0", **failing)


@pytest.mark.promise("backing-28")
def test_threads_without_a_context(program: Session) -> None:
    """The driver's answers: a stream has its context, the default one has none."""
    lines = ["a, s, answers = take(4 * MIB), stream_create(), []", "def other():"]
    lines += ["    b = take(4 * MIB, s)", "    pool = default_pool()"]
    lines += ["    answers.extend([b > 0, take(100), take(100, 0, pool), give(a)])"]
    lines += ["    answers.extend([address_range(a) == (a, 4 * MIB), attribute(9, a)])"]
    lines += ["    answers.extend([keep(pool), figures(pool)[2:], trim(pool)])"]
    lines += ["thread = threading.Thread(target=other); thread.start(); thread.join()"]
    lines += ["print(answers, give(a))"]
    same_without_the_hook(program, *lines)
