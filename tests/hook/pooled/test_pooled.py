"""Stream-ordered memory moves, on the simulated GPU: what programs see of it and of its pools is
what they would see without the hook, wherever the memory is."""

from __future__ import annotations

import pytest

from tests.hook.pooled.words import same_without_the_hook
from tests.hook.session import MIB, Session
from tests.support.sim import SimulatedMachine

INVALID_VALUE = 1


# ---- it moves ----


@pytest.mark.promise(
    "backing-1",
    "Memory of pools moves, at the addresses that it had, and not a byte changes",
)
def test_it_comes_back_as_it_was(program: Session) -> None:
    """Of several sizes, of two pools and two streams, as often as it leaves."""
    lines = ["s, own = stream_create(), pool_create()"]
    lines += ["sizes = [4, 512, 4096, MIB + 4, 3 * MIB, 9 * MIB, 70 * MIB]"]
    lines += ["places = [take(n, s * (n > MIB), own * (n < MIB)) for n in sizes]"]
    lines += ["data = {a: bytes([n % 251 + 1]) * n for a, n in zip(places, sizes)}"]
    lines += ["print([write(a, d) for a, d in data.items()])"]
    lines += ["for _ in range(3):"]
    lines += ["    print(park() > 0, sums()[0], restore() > 0, sums()[1])"]
    lines += ["    print(all(read(a, len(d)) == d for a, d in data.items()))"]
    assert program.run(*lines) == [str([0] * 7), *["True 0 True 0", "True"] * 3]


@pytest.mark.promise("backing-1")
def test_none_of_it_is_fixed(program: Session) -> None:
    """It counts by the segments of 32 MiB that its pools have of the device, all of it movable."""
    lines = ["a, b = take(4 * MIB), take(100 * MIB)", "other = take(100, 0, pool_create())"]
    lines += ["print(sums(), park() > 0, sums(), restore() > 0, sums())"]
    lines += ["print(give(a), give(b), give(other), wait(), sums())"]
    assert program.run(*lines) == ["(80, 0) True (0, 80) True (80, 0)", "0 0 0 0 (0, 0)"]
    counted = program.memory()
    assert counted[0] == (32, 0) and max(counted) == (160, 0) and counted[-1] == (0, 0)
    assert {fixed for _, fixed in counted} == {0}


@pytest.mark.promise("backing-1")
@pytest.mark.parametrize(("usage", "moves"), [(2, True), (4, False)])
def test_memory_for_a_use_that_is_known(usage: int, moves: bool, program: Session) -> None:
    """Of pools whose memory is made for a use of its own, those for decompression by the hardware
    are ours, as RMM makes them; a use that we do not know is the driver's to make."""
    lines = [f"a = take(40 * MIB, 0, pool_create(usage={usage}))", "print(write(a, b'kept'))"]
    lines += ["print(park() > 0, restore() > 0, read(a, 4))"]
    assert program.run(*lines) == ["0", f"{moves} {moves} {b'kept'}"]


@pytest.mark.promise("backing-1")
def test_work_reads_what_came_back(program: Session) -> None:
    """Work in streams writes to it before a move and reads it after that."""
    lines = ["s = stream_create()", "a, b = take(40 * MIB, s), take(8, s)"]
    lines += ["words = c_uint64(40 * MIB // 4)", "sum_of_all = lambda: (launch('checksum', s, "]
    lines[-1] += "c_uint64(b), c_uint64(a), words), wait(s), read(b, 8))"
    lines += ["print(launch('fill', s, c_uint64(a), c_uint(77), words), wait(s))"]
    lines += ["before = sum_of_all()", "print(before[:2], park() > 0, restore() > 0)"]
    lines += ["print(sum_of_all() == before, any(before[2]))"]
    assert program.run(*lines) == ["0 0", "(0, 0) True True", "True True"]


@pytest.mark.promise("backing-1")
def test_many_small_allocations_share_a_segment(program: Session) -> None:
    """Two thousand of 4 KiB lie apart in 32 MiB, whatever left and came back between them, and
    nothing is kept of them."""
    lines = ["small = sorted(take(4096) for _ in range(2000))", "print(park() > 0, restore() > 0)"]
    lines += ["gaps = [b - a for a, b in zip(small, small[1:])]"]
    lines += ["print(sums(), min(gaps) >= 4096, {a % 512 for a in small})"]
    lines += ["print({give(a) for a in small}, wait(), sums())"]
    assert program.run(*lines) == ["True True", "(16, 0) True {0}", "{0} 0 (0, 0)"]


@pytest.mark.promise("backing-1")
def test_threads_allocate_and_free_at_once(program: Session) -> None:
    """Eight threads in streams of their own never see each other's bytes."""
    lines = ["bad = []", "def work(number):"]
    lines += ["    call('cuCtxSetCurrent', c_void_p(CONTEXT))", "    s = stream_create()"]
    lines += ["    for n in range(60):"]
    lines += ["        a = take((700, 5000, MIB // 2, 3 * MIB)[(n + number) % 4], s)"]
    lines += ["        mark = number * 256 + n", "        fill = (c_uint64(a), c_uint(mark))"]
    lines += ["        done = launch('fill', s, *fill, c_uint64(100)), wait(s)"]
    lines += ["        kept = read(a, 400) == mark.to_bytes(4, 'little') * 100"]
    lines += ["        if any(done) or not kept or give(a, s): bad.append((number, n))"]
    lines += ["threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]"]
    lines += ["[t.start() for t in threads]; [t.join() for t in threads]"]
    lines += ["print(bad, call('cuCtxSynchronize'), sums())"]
    assert program.run(*lines) == ["[] 0 (0, 0)"]


# ---- what is reused ----


@pytest.mark.promise(
    "backing-2",
    "Freed stream-ordered memory is reused in its stream at once, and in others only when the "
    "free is known to be over",
)
def test_a_stream_has_again_what_it_freed(program: Session) -> None:
    """While the work before that is under way; another stream has other memory meanwhile."""
    lines = ["s, other = stream_create(), stream_create()", "keep(default_pool())"]
    lines += ["a, flag = take(20 * MIB, s), held(s)", "print(give(a, s), take(20 * MIB, s) == a)"]
    lines += ["print(give(a, s), take(20 * MIB, other) == a)"]
    lines += ["flag.value = 1", "print(wait(s), take(20 * MIB, other) == a)"]
    assert same_without_the_hook(program, *lines) == ["0 True", "0 False", "0 True"]


@pytest.mark.promise("backing-2")
@pytest.mark.parametrize(
    "known",
    [
        "wait(s)",
        "call('cuEventSynchronize', c_void_p(event))",
        "call('cuCtxSynchronize')",
    ],
)
def test_others_have_memory_when_its_free_is_known_to_be_over(program: Session, known: str) -> None:
    """By a wait for the stream, for an event behind the free, or for the context."""
    lines = ["s, other = stream_create(), stream_create()", "keep(default_pool())"]
    lines += ["a, flag = take(20 * MIB, s), held(s)", "print(give(a, s))"]
    lines += ["event = recorded(s)", "b = take(20 * MIB, other)", "flag.value = 1"]
    lines += [f"print({known}, a == b, take(20 * MIB, other) == a)"]
    lines += ["print(pool_attribute(default_pool(), RESERVED) // MIB)"]
    assert same_without_the_hook(program, *lines) == ["0", "0 False True", "64"]


@pytest.mark.promise("backing-2")
@pytest.mark.parametrize("asks", ["cuStreamQuery', c_void_p(s)", "cuEventQuery', c_void_p(event)"])
def test_a_question_whose_answer_is_yes_is_as_good_as_a_wait(program: Session, asks: str) -> None:
    """About the stream, or about an event behind the free."""
    lines = ["s, other = stream_create(), stream_create()", "keep(default_pool())"]
    lines += ["a, flag = take(20 * MIB, s), held(s)", "print(give(a, s))", "event = recorded(s)"]
    lines += ["flag.value = 1", f"while call('{asks}) == 600: pass"]
    lines += ["print(take(20 * MIB, other) == a)"]
    assert same_without_the_hook(program, *lines) == ["0", "True"]


@pytest.mark.promise("backing-2")
def test_an_event_before_the_free_tells_nothing_of_it(program: Session) -> None:
    """Its stream has work between the two that is under way."""
    lines = ["s, other = stream_create(), stream_create()", "keep(default_pool())"]
    lines += ["a, event, flag = take(20 * MIB, s), recorded(s), held(s)", "print(give(a, s))"]
    lines += ["print(call('cuEventSynchronize', c_void_p(event)), take(20 * MIB, other) == a)"]
    lines += ["flag.value = 1", "print(wait(s))"]
    assert same_without_the_hook(program, *lines) == ["0", "0 False", "0"]


@pytest.mark.promise("backing-2")
def test_work_in_two_streams_never_shares_memory(program: Session, sim: SimulatedMachine) -> None:
    """What a stream has freed behind work that is under way, work of another stream does not
    write to."""
    lines = ["s, other = stream_create(), stream_create()", "keep(default_pool())"]
    lines += ["out = alloc(4096)", "a, flag = take(20 * MIB, s), held(s)"]
    lines += ["print(launch('fill', s, c_uint64(a), c_uint(1), c_uint64(1024)))"]
    lines += ["copied = call('cuMemcpyDtoDAsync_v2', c_uint64(out), c_uint64(a), "]
    lines[-1] += "c_size_t(4096), c_void_p(s))"
    lines += ["print(copied, give(a, s))", "b = take(20 * MIB, other)"]
    lines += ["print(launch('fill', other, c_uint64(b), c_uint(2), c_uint64(1024)), wait(other))"]
    lines += ["flag.value = 1", "print(wait(s), set(read(out, 4096)[::4]), read(b, 1))"]
    assert program.run(*lines) == ["0", "0 0", "0 0", r"0 {1} b'\x02'"]
    assert [record for record in sim.journal() if record.kind.name == "FAULT"] == []


# ---- what pools keep, and tell ----


@pytest.mark.promise(
    "backing-3",
    "A pool keeps what is freed up to its threshold at a synchronise, gives the rest back to the "
    "device, and tells its figures as the driver's pools do",
)
@pytest.mark.parametrize(
    "waits", ["wait(s)", "call('cuEventSynchronize', c_void_p(event))", "call('cuCtxSynchronize')"]
)
def test_what_is_above_the_threshold_goes_back_at_a_wait(program: Session, waits: str) -> None:
    """Not at the free. Segments leave whole."""
    lines = ["s, pool = stream_create(), default_pool()"]
    lines += ["for threshold in (0, 40 * MIB, 96 * MIB):"]
    lines += ["    keep(pool, threshold)", "    several = [take(32 * MIB, s) for _ in range(4)]"]
    lines += ["    print([give(a, s) for a in several], pool_attribute(pool, RESERVED) // MIB)"]
    lines += [f"    event = recorded(s); print({waits}, pool_attribute(pool, RESERVED) // MIB)"]
    answers = same_without_the_hook(program, *lines)
    assert answers[::2] == ["[0, 0, 0, 0] 128"] * 3
    assert answers[1::2] == ["0 0", "0 64", "0 96"]


@pytest.mark.promise("backing-3")
def test_a_segment_in_use_stays(program: Session) -> None:
    """As long as any of its allocations lives, parked or not; the one beside it goes."""
    lines = ["pool = default_pool()", "a, b, c = (take(16 * MIB) for _ in range(3))"]
    lines += ["print(write(a, b'kept'), give(c), give(b), park() > 0, wait(), sums())"]
    lines += ["print(restore() > 0, read(a, 4), pool_attribute(pool, RESERVED) // MIB, sums())"]
    lines += ["print(give(a), wait(), figures(pool)[0], sums())"]
    assert program.run(*lines) == [
        "0 0 0 True 0 (0, 16)",
        "True b'kept' 32 (16, 0)",
        "0 0 0 (0, 0)",
    ]


@pytest.mark.promise("backing-3")
def test_what_is_kept_is_given_back_on_request(program: Session) -> None:
    """Down to so many bytes, parked or not."""
    lines = ["pool = default_pool()", "keep(pool)"]
    lines += ["for _ in range(2):", "    several = [take(32 * MIB) for _ in range(4)]"]
    lines += ["    print({give(a) for a in several}, wait(), figures(pool)[0] // MIB)"]
    lines += ["    park()"]
    lines += ["    print(trim(pool, 64 * MIB), figures(pool)[0] // MIB, sum(sums()))"]
    lines += ["    print(trim(pool), figures(pool)[0] // MIB, sum(sums()))"]
    assert program.run(*lines) == ["{0} 0 128", "0 64 32", "0 0 0"] * 2


@pytest.mark.promise("backing-3")
def test_kept_memory_is_good_after_it_was_away(program: Session) -> None:
    """It is allocated again where it was, and nothing more is claimed for it."""
    lines = ["keep(default_pool())", "a = take(40 * MIB)", "print(give(a), wait(), park() > 0)"]
    lines += ["print(restore() > 0, take(40 * MIB) == a, write(a, numbers(40 * MIB)))"]
    lines += ["print(read(a, 40 * MIB) == numbers(40 * MIB), sums())"]
    assert program.run(*lines) == ["0 0 True", "True True 0", "True (32, 0)"]
    assert program.memory() == [(64, 0)]


@pytest.mark.promise("backing-3")
def test_figures_are_true(program: Session) -> None:
    """Reserved and used memory, now and at most, whatever was allocated, freed, waited for and
    trimmed; the highest are set back to what there is now."""
    lines = ["pool, own = default_pool(), pool_create()", "keep(own, 40 * MIB)"]
    lines += ["def tell(): print(figures(pool), figures(own))", "tell()"]
    lines += ["a, b, c = take(4 * MIB), take(3 * MIB + 5), take(1)", "tell()"]
    lines += ["more = [take(n, 0, own) for n in (100 * MIB, 700, 20 * MIB)]", "tell()"]
    lines += ["print(give(b), give(more[0]))", "tell()", "print(wait())", "tell()"]
    lines += ["print([set_pool_attribute(p, n, 0) for p in (pool, own) for n in (6, 8)])", "tell()"]
    lines += ["print([give(n) for n in (a, c, *more[1:])], wait())", "tell()"]
    lines += ["print(trim(own), figures(own))"]
    lines += ["print([set_pool_attribute(own, n, 1) for n in (5, 6, 7, 8)])"]
    assert same_without_the_hook(program, *lines)[0] == "[0, 0, 0, 0] [0, 0, 0, 0]"


@pytest.mark.promise("backing-3")
def test_figures_do_not_tell_where_memory_is(program: Session) -> None:
    """A move changes none of them."""
    lines = ["pool = default_pool()", "keep(pool)", "a, b = take(40 * MIB), take(5)"]
    lines += ["print(give(b), wait())", "before = figures(pool)"]
    lines += ["print(park() > 0, figures(pool) == before, restore() > 0, figures(pool) == before)"]
    assert program.run(*lines) == ["0 0", "True True True True"]


@pytest.mark.promise("backing-3")
def test_rules_and_threshold_are_told_as_they_were_set(program: Session) -> None:
    """Those of a new pool, those that were set, and the driver's errors."""
    lines = ["pool = pool_create()", "rules = range(1, 5)"]
    lines += ["for value in (None, 0, 1, 5):"]
    lines += ["    print([set_pool_attribute(pool, n, value) for n in rules if value is not None])"]
    lines += ["    print([pool_attribute(pool, n) for n in rules])"]
    lines += ["print([pool_attribute(pool, n) for n in (0, 99)], set_pool_attribute(pool, 99, 1))"]
    lines += ["print([pool_attribute(pool + 8, n) for n in range(1, 9)], trim(pool + 8))"]
    assert same_without_the_hook(program, *lines)[1] == "[1, 1, 1, 0]"


# ---- pools and devices ----


@pytest.mark.promise(
    "backing-4",
    "Each device has its default pool, and access of other devices to a pool holds for memory of "
    "before and after, and after moves",
)
def test_each_device_has_its_pool(program: Session) -> None:
    """Its default one, or the one that was set for it; memory is on the pool's device."""
    lines = ["first, second, own = default_pool(0), default_pool(1), pool_create()"]
    lines += ["now = lambda: made('cuDeviceGetMemPool', 0)"]
    lines += ["set_to = lambda device, pool: call('cuDeviceSetMemPool', device, c_void_p(pool))"]
    lines += ["where = lambda a: (attribute(9, a), attribute(17, a))"]
    lines += ["print(first == second, now() == first, where(take(5)) == (0, first))"]
    lines += ["print(where(take(5, 0, second)) == (1, second), default_pool(2))"]
    lines += ["print(set_to(0, own), now() == own, where(take(5)) == (0, own), set_to(1, own))"]
    lines += ["print(set_to(0, first), now() == first, where(take(5)) == (0, first))"]
    lines += ["opened(1)", "print(where(take(5)) == (1, second), sums(0), sums(1))"]
    answers = program.run(*lines)
    assert answers[:2] == ["False True True", "True -101"]
    assert answers[2:] == [
        f"0 True True {INVALID_VALUE}",
        "0 True True",
        "True (32, 0) (16, 0)",
    ]


@pytest.mark.promise("backing-4")
def test_a_pool_that_is_gone_is_no_device_s(program: Session) -> None:
    """The device has its default pool again."""
    lines = ["own = pool_create()", "print(call('cuDeviceSetMemPool', 0, c_void_p(own)))"]
    lines += ["print(pool_destroy(own), made('cuDeviceGetMemPool', 0) == default_pool())"]
    lines += ["print(attribute(17, take(5)) == default_pool(), pool_destroy(default_pool()))"]
    assert same_without_the_hook(program, *lines) == ["0", "0 True", f"True {INVALID_VALUE}"]


@pytest.mark.promise("backing-4")
def test_other_devices_have_the_access_of_the_pool(program: Session) -> None:
    """To memory that there was and that there will be, also when it has moved."""
    lines = ["opened(1); opened(0)", "pool, s = default_pool(), stream_create()"]
    lines += ["data = numbers(40 * MIB)", "early = take(40 * MIB)", "assert not write(early, data)"]
    lines += ["def there(*several):", "    opened(1)"]
    lines += ["    found = [read(a, len(data)) == data for a in several]"]
    lines += ["    opened(0); return found"]
    lines += ["print(pool_grant(pool, 1), pool_access(pool, 1), there(early))"]
    lines += ["late = take(70 * MIB)", "assert not write(late, data)"]
    lines += ["print(there(late), park() > 0, restore() > 0, there(early, late))"]
    lines += ["later = take(70 * MIB)", "assert not write(later, data)", "print(there(later))"]
    assert program.run(*lines) == ["0 3 [True]", "[True] True True [True, True]", "[True]"]


@pytest.mark.promise("backing-4")
def test_access_that_is_given_while_memory_is_away(program: Session) -> None:
    """It holds when the memory is back; what is taken away is gone then."""
    lines = ["opened(1); opened(0)", "pool, other = default_pool(), pool_create()"]
    lines += ["a, b = take(4 * MIB), take(4 * MIB, 0, other)"]
    lines += ["print(write(a, b'yes'), write(b, b'no'), pool_grant(other, 1))"]
    lines += ["print(park() > 0, pool_grant(pool, 1), pool_grant(other, 1, 0), restore() > 0)"]
    lines += ["print(pool_access(pool, 1), pool_access(other, 1))"]
    lines += ["opened(1)", "data = ctypes.create_string_buffer(4)"]
    lines += ["copy = lambda at: call('cuMemcpyDtoH_v2', data, c_uint64(at), c_size_t(4))"]
    lines += ["print(copy(a), data.raw[:3], copy(b))"]
    assert program.run(*lines) == ["0 0 0", "True 0 0 True", "3 0", f"0 b'yes' {INVALID_VALUE}"]


@pytest.mark.promise("backing-4")
def test_access_that_the_driver_refuses(program: Session) -> None:
    """In its words: no access of the pool's own device, read-only access, no such device."""
    lines = ["pool = pool_create()", "a = take(4 * MIB, 0, pool)"]
    lines += ["print([pool_access(pool, n) for n in (0, 1, 7)])"]
    lines += ["print([pool_grant(pool, 0, flags) for flags in (0, 1, 3, 9)])"]
    lines += ["print([pool_grant(pool, 1, flags) for flags in (1, 9, 3, 0)], pool_grant(pool, 7))"]
    lines += ["print([pool_access(pool, n) for n in (0, 1)], write(a, b'there'), read(a, 5))"]
    same_without_the_hook(program, *lines)


# ---- questions ----


@pytest.mark.promise("backing-23")
def test_queries_answer_as_without_the_hook(program: Session) -> None:
    """The range is the allocation, the mapping its segment, the pool its pool; there is neither a
    context nor older IPC."""
    lines = ["def seen(size):", "    a = take(size); segment = attribute(19, a)"]
    lines += ["    def relative(value):"]
    lines += ["        if isinstance(value, (list, tuple)): return [relative(v) for v in value]"]
    lines += ["        if value == default_pool(): return 'pool'"]
    lines += ["        return ('inside', value - a) if a <= value < a + size else value"]
    lines += ["    told = [relative(queries(a + n)) for n in (0, 1, size // 2, size - 1, size)]"]
    lines += ["    mapping = attribute(18, a) // MIB, (a - segment) % SEGMENT < SEGMENT"]
    lines += ["    same = {attribute(20, a + n) == attribute(20, a) for n in (1, size - 1)}"]
    lines += ["    return told, mapping, segment <= a < segment + SEGMENT, same"]
    lines += ["for size in (4, 700, 4096, MIB, MIB + 1, 3 * MIB + 100): print(seen(size))"]
    lines += ["a = take(4)", "print(attribute(1, a), attribute(10, a), attribute(18, a) // MIB)"]
    assert same_without_the_hook(program, *lines)[-1] == "0 0 32"


@pytest.mark.promise("backing-23")
def test_queries_do_not_tell_where_memory_is(program: Session) -> None:
    """Parked or not, an address has the same attributes and the same range."""
    lines = ["a, b = take(3 * MIB + 100), take(100 * MIB)", "places = a, a + 7, b, b + 99 * MIB"]
    lines += ["seen = lambda: [(queries(p), [attribute(n, p) for n in (7, 18, 19, 20)]) "]
    lines[-1] += "for p in places]"
    lines += ["before = seen()", "print(park() > 0, seen() == before)"]
    lines += ["print(restore() > 0, seen() == before, address_range(b + 5) == (b, 100 * MIB))"]
    assert program.run(*lines) == ["True True", "True True True"]


@pytest.mark.promise("backing-23")
def test_every_allocation_has_a_number_of_its_own(program: Session) -> None:
    """Also where an address is used again at once."""
    lines = ["ids = []", "for size in (700, 700, 3 * MIB, 40 * MIB):", "    for _ in range(5):"]
    lines += ["        a = take(size); ids.append(attribute(7, a)); give(a)"]
    lines += ["a, b = take(700), take(700)", "ids += [attribute(7, a), attribute(7, b)]"]
    lines += ["print(len(ids), len(set(ids)), attribute(7, a + 600) == attribute(7, a))"]
    assert program.run(*lines) == ["22 22 True"]


@pytest.mark.promise("backing-23")
def test_calls_for_other_memory_refuse_it(program: Session) -> None:
    """It cannot be unmapped, released or given to others by an older handle, and stays as it is."""
    lines = ["a = take(4 * MIB)", "print(share(a), retain(a), unmap(attribute(19, a), SEGMENT))"]
    lines += ["print(unmap(a, 4 * MIB), unreserve(attribute(19, a), SEGMENT), grant(a, 4 * MIB))"]
    lines += ["print(write(a, b'there'), read(a, 5), give(a), wait())"]
    assert same_without_the_hook(program, *lines)[-1] == "0 b'there' 0 0"


# ---- what stays ----


@pytest.mark.promise(
    "backing-5",
    "Pools that are made to be exported stay with the driver, and so does what is allocated while "
    "its stream is captured",
)
def test_pools_for_other_processes_are_the_driver_s(program: Session) -> None:
    """All of their memory is fixed; it is exported as ever, and others cannot be."""
    lines = ["pool, descriptor = pool_create(handle_types=1), c_int(-1)"]
    lines += ["export = lambda p: call('cuMemPoolExportToShareableHandle', byref(descriptor), "]
    lines[-1] += "c_void_p(p), 1, c_uint64(0))"
    lines += [
        "a = take(4 * MIB, 0, pool)",
        "print(write(a, b'given'), export(pool), park(), sums())",
    ]
    lines += ["print(read(a, 5), attribute(17, a) == pool, figures(pool), descriptor.value > 0)"]
    lines += ["print(give(a), wait(), figures(pool), pool_destroy(pool), export(default_pool()))"]
    lines += ["b, data = take(100), ctypes.create_string_buffer(64)"]
    lines += ["print(call('cuMemPoolExportPointer', data, c_uint64(b)))"]
    answers = program.run(*lines)
    assert answers[0] == "0 0 0 (0, 0)"
    assert answers[2:] == [
        f"0 0 {[0, 32 * MIB, 0, 4 * MIB]} 0 {INVALID_VALUE}",
        f"{INVALID_VALUE}",
    ]
    assert (32, 32) in program.memory()


@pytest.mark.promise("backing-5")
def test_pools_of_other_kinds_are_the_driver_s_to_make(program: Session) -> None:
    """Of the host, managed, of no device, of none at all. (The simulated GPU has no such pools.)"""
    lines = ["kinds = [dict(location_type=n) for n in (0, 2, 3)] + [dict(type=n) for n in (0, 2)]"]
    lines += ["kinds += [dict(handle_types=8), dict(location_id=9)]"]
    lines += ["print([pool_create(**kind) for kind in kinds])"]
    same_without_the_hook(program, *lines)


@pytest.mark.promise("backing-5")
def test_a_graph_has_memory_of_its_own(program: Session) -> None:
    """What is allocated and freed while the stream is captured comes with each launch, also when
    all else was away in between."""
    lines = ["s, plain, fixed = stream_create(), alloc(4096), lambda: sum(sums())"]
    lines += ["graph, ready = c_uint64(0), c_uint64(0)", "before = fixed()"]
    lines += ["print(call('cuStreamBeginCapture_v2', c_void_p(s), 2))", "a = take(4 * MIB, s)"]
    lines += ["print(launch('fill', s, c_uint64(a), c_uint(7), c_uint64(1024)))"]
    lines += ["copy = (c_uint64(plain), c_uint64(a), c_size_t(4096), c_void_p(s))"]
    lines += ["print(call('cuMemcpyDtoDAsync_v2', *copy), give(a, s))"]
    lines += ["print(call('cuStreamEndCapture', c_void_p(s), byref(graph)), fixed() == before)"]
    lines += ["make = byref(ready), c_void_p(graph.value), c_uint64(0)"]
    lines += ["print(call('cuGraphInstantiateWithFlags', *make), figures(default_pool()))"]
    lines += ["for _ in range(2):"]
    lines += ["    write(plain, bytes(4096)); park(); restore()"]
    lines += ["    print(call('cuGraphLaunch', c_void_p(ready.value), c_void_p(s)), wait(s))"]
    lines += ["    print(set(read(plain, 4096)[::4]))"]
    assert program.run(*lines) == ["0", "0", "0 0", "0 True", "0 [0, 0, 0, 0]", *["0 0", "{7}"] * 2]


@pytest.mark.promise("backing-5")
def test_memory_of_a_pool_beside_a_capture(program: Session) -> None:
    """A capture does not take memory of before for a free, and another stream has memory that
    moves."""
    lines = ["s, other, graph = stream_create(), stream_create(), c_uint64(0)"]
    lines += ["a = take(4 * MIB, s)", "assert not write(a, b'there')"]
    lines += ["print(call('cuStreamBeginCapture_v2', c_void_p(s), 2), give(a, s))"]
    lines += ["b = take(40 * MIB, other)", "print(b > 0, give(b, other))"]
    lines += ["print(call('cuStreamEndCapture', c_void_p(s), byref(graph)), read(a, 5))"]
    lines += ["print(give(a, s), wait(s), wait(other), figures(default_pool())[::2])"]
    assert same_without_the_hook(program, *lines)[-1] == "0 0 0 [0, 0]"


@pytest.mark.promise(
    "backing-6",
    "Memory of pools that is given to others for good is fixed: by tokens for other "
    "devices and by descriptors of address ranges",
)
@pytest.mark.parametrize(
    "given",
    [
        "call('cuPointerGetAttribute', tokens, 5, c_uint64(a))",
        "call('cuMemGetHandleForAddressRange', byref(descriptor), c_uint64(a), "
        "c_size_t(4 * MIB), 1, c_uint64(0))",
    ],
)
def test_what_is_given_away_for_good_stays(program: Session, given: str) -> None:
    """The segments that it touches; the others still move, and it can still be freed."""
    lines = ["tokens, descriptor = (c_uint64 * 2)(), c_int(-1)"]
    lines += ["a, b = take(32 * MIB), take(96 * MIB, 0, pool_create())"]
    lines += ["assert not write(a, b'given') and not write(b, b'other')"]
    lines += [f"answer = {given}", "print(park() > 0, sums(), read(a, 5))"]
    lines += ["print(restore() > 0, read(b, 5), give(a), give(b), wait())"]
    assert program.run(*lines) == ["True (16, 48) b'given'", "True b'other' 0 0 0"]
    assert (128, 32) in program.memory()
