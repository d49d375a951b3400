"""Plain allocations in memory that can be moved, on the simulated GPU: what programs see of them is
what they would see without the hook, wherever the memory is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import MIB, Session
from tests.support.sim import SimulatedMachine

INVALID_VALUE, OUT_OF_MEMORY, MAP_FAILED, NOT_FOUND, CANCELLED = 1, 2, 205, 500, 800
NOT_SUPPORTED = 801
NO_ROOM, ROOM_MADE, ROOM_CANCELLED = "1", "2", "3"
"""What others answer when they are asked for room."""


@pytest.fixture
def backed(environment: dict[str, str], sim: SimulatedMachine, tmp_path: Path) -> Session:
    """A process whose memory follows the turn, with a mover that moves when it is told."""
    of_sim = {name: sim.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    swapping = {**environment, **of_sim, "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "backing_session")


@pytest.mark.promise(
    "backing-20",
    "Plain allocations can be moved, in chunks of at most 64 MiB, and not a byte changes",
)
def test_allocations_can_be_moved(backed: Session) -> None:
    """What is allocated counts in blocks of 2 MiB, none of it fixed, and is freed again."""
    backed.run("a, b = alloc(3 * MIB), alloc(20 * MIB)", "print(free(a), free(b))")
    assert backed.memory() == [(4, 0), (24, 0), (20, 0), (0, 0)]


@pytest.mark.promise("backing-20")
def test_chunks_are_as_large_as_can_be(backed: Session) -> None:
    """An allocation is parked in chunks of 64 MiB and one for the rest; all of it comes back."""
    lines = ["for size in (6, 20, 32, 34, 62, 64, 100, 290):", "    a = alloc(size * MIB)"]
    lines += ["    print(park(), sums(), restore(), sums(), free(a))"]
    assert backed.run(*lines) == [
        "1 (0, 3) 1 (3, 0) 0",
        "1 (0, 10) 1 (10, 0) 0",
        "1 (0, 16) 1 (16, 0) 0",
        "1 (0, 17) 1 (17, 0) 0",
        "1 (0, 31) 1 (31, 0) 0",
        "1 (0, 32) 1 (32, 0) 0",
        "2 (0, 50) 2 (50, 0) 0",
        "5 (0, 145) 5 (145, 0) 0",
    ]


@pytest.mark.promise("backing-20")
def test_no_byte_changes(backed: Session) -> None:
    """Large and small allocations hold after a park and a restore what they held before, at the
    addresses that they had."""
    lines = [
        "sizes = [1, 511, 512, 4096, MIB, MIB + 1, 3 * MIB, 9 * MIB, 33 * MIB]",
        "data = {alloc(s): bytes([s % 251 + 1]) * s for s in sizes}",
        "assert [write(a, d) for a, d in data.items()] == [0] * len(sizes)",
        "print(park() > 0, sums()[0], restore() > 0, sums()[1])",
        "print(all(read(a, len(d)) == d for a, d in data.items()))",
    ]
    assert backed.run(*lines) == ["True 0 True 0", "True"]


@pytest.mark.promise(
    "backing-21",
    "10,000 allocations of 4 KiB take at most 41.8 MiB; small ones share blocks, without a claim "
    "for each",
)
def test_small_allocations_share_blocks(backed: Session, sim: SimulatedMachine) -> None:
    """10,000 allocations of 4 KiB take at most 41.8 MiB of the device, lie apart and aligned, and
    one by one freed leave a single block."""
    lines = [
        "all_free = info()[0]",
        "small = sorted(alloc(4096) for _ in range(10_000))",
        "print(all_free - info()[0] <= 41.8, all(a % 512 == 0 for a in small))",
        "print(min(b - a for a, b in zip(small, small[1:])) >= 4096)",
        "print({free(a) for a in small}, all_free - info()[0])",
    ]
    assert backed.run(*lines) == ["True True", "True", "{0} 2"]


@pytest.mark.promise("backing-21")
def test_room_in_a_block_needs_no_claim(backed: Session) -> None:
    """Only the first of many small allocations asks for room and passes the gate."""
    backed.run("a = [alloc(1000) for _ in range(50)]", "b = alloc(2 * MIB)")
    assert backed.told("claim") == [f"claim 0 {2 * MIB} cuMemAlloc_v2"] * 2
    assert backed.told("gate") == ["gate cuMemAlloc_v2 claim legacy (nil)"] * 2


@pytest.mark.promise("backing-22", "Alignment and pitch are kept")
def test_addresses_are_aligned(backed: Session) -> None:
    """Small allocations to 512 bytes, large ones to 2 MiB."""
    lines = [
        "print({alloc(n) % 512 for n in (1, 7, 700, 1 << 20)})",
        "print({alloc(n * MIB + 1) % (2 * MIB) for n in (1, 2, 40)})",
    ]
    assert backed.run(*lines) == ["{0}", "{0}"]


@pytest.mark.promise(
    "backing-23",
    "`cuMemGetAddressRange` and `cuPointerGetAttribute(s)` answer as without the hook, parked or "
    "not",
)
def test_queries_answer_as_without_the_hook(backed: Session) -> None:
    """Each query of each place in an allocation has the answer of the driver's own allocation: same
    sizes, same distances, same errors beside it."""
    lines = [
        "def seen(size):",
        "    a = alloc(size)",
        "    def relative(value):",
        "        if isinstance(value, (list, tuple)): return [relative(v) for v in value]",
        "        if value == CONTEXT: return 'context'",
        "        return ('inside', value - a) if a <= value < a + size else value",
        "    return [relative(queries(a + n)) for n in (0, 1, size // 2, size - 1)]",
        "for size in (1, 700, 4096, MIB, MIB + 1, 3 * MIB + 100, 40 * MIB):",
        "    print(seen(size))",
        "print([queries(n) for n in (0, 4096, 0xDEAD0000)])",
    ]
    assert backed.run(*lines) == backed.run(*lines, FAKE_SWAP="0")


@pytest.mark.promise("backing-23")
def test_queries_do_not_tell_where_memory_is(backed: Session) -> None:
    """Parked or not, an address has the same attributes and the same range."""
    lines = [
        "places = [alloc(700), alloc(3 * MIB + 100) + 2 * MIB, alloc(40 * MIB) + 39 * MIB]",
        "before = [queries(a) for a in places]",
        "print(park() > 0, [queries(a) for a in places] == before)",
        "print(restore() > 0, [queries(a) for a in places] == before)",
    ]
    assert backed.run(*lines) == ["True True", "True True"]


@pytest.mark.promise("backing-23")
def test_behind_an_allocation_is_nothing(backed: Session) -> None:
    """What is mapped behind the bytes that were asked for, or was freed, is no allocation."""
    lines = [
        "a, b = alloc(3 * MIB), alloc(700)",
        "first = alloc(600)",
        "for place in (a + 3 * MIB, b + 700, b + MIB):",
        "    print(address_range(place), attribute(2, place), attributes(place, 1, 2, 9))",
        "free(b)",
        "print(address_range(b), attribute(2, b), park() > 0, attribute(2, b))",
    ]
    nothing = f"-{NOT_FOUND} -{INVALID_VALUE} [0, 0, {2**32 - 2}]"
    gone = f"-{NOT_FOUND} -{INVALID_VALUE} True -{INVALID_VALUE}"
    assert backed.run(*lines) == [nothing] * 3 + [gone]


@pytest.mark.promise("backing-23")
def test_every_allocation_has_a_number_of_its_own(backed: Session) -> None:
    """The buffer's id is unique, also where an address is used again, and never changes."""
    lines = [
        "ids = []",
        "for size in (700, 700, 3 * MIB, 3 * MIB):",
        "    for _ in range(5):",
        "        a = alloc(size); ids.append(attribute(7, a)); free(a)",
        "a, b = alloc(700), alloc(700)",
        "ids += [attribute(7, a), attribute(7, b)]",
        "print(len(ids), len(set(ids)), attribute(7, a + 600) == attribute(7, a))",
    ]
    assert backed.run(*lines) == ["22 22 True"]


@pytest.mark.promise("backing-23")
def test_it_is_not_seen_to_be_mapped(backed: Session) -> None:
    """Calls that are for mapped memory refuse it as they refuse any plain allocation, and leave it
    as it is."""
    lines = [
        "a = alloc(4 * MIB)",
        "where = (ctypes.c_int * 4)(1, 0, 3, 0)",
        "flags = c_uint64(0)",
        "print(made('cuMemRetainAllocationHandle', c_uint64(a)))",
        "print(call('cuMemUnmap', c_uint64(a), c_size_t(4 * MIB)))",
        "print(call('cuMemAddressFree', c_uint64(a), c_size_t(4 * MIB)))",
        "print(call('cuMemSetAccess', c_uint64(a), c_size_t(4 * MIB), where, c_size_t(1)))",
        "print(call('cuMemGetAccess', byref(flags), where, c_uint64(a)))",
        "print(write(a, bytes(4 * MIB)), free(a))",
    ]
    assert backed.run(*lines) == [f"-{INVALID_VALUE}"] + [str(INVALID_VALUE)] * 4 + ["0 0"]


@pytest.mark.promise("backing-22")
def test_pitch(backed: Session) -> None:
    """Rows are 512 bytes or a multiple of that; odd elements and empty sizes are refused."""
    lines = [
        "for w, h in ((1, 1), (512, 3), (513, 3), (1000, 20_000)):",
        "    a, pitch = pitched(w, h)",
        "    print(pitch, address_range(a)[1] == pitch * h, free(a))",
        "print([pitched(w, h, e)[0] for w, h, e in ((100, 10, 3), (0, 10, 4), (10, 0, 4))])",
        "print([pitched(100, 10, e)[0] > 0 for e in (4, 8, 16)])",
        "print(pitched(1 << 60, 1 << 10)[0], pitched(1 << 40, 1 << 40)[0])",
    ]
    answers = backed.run(*lines)
    assert answers[:4] == ["512 True 0", "512 True 0", "1024 True 0", "1024 True 0"]
    assert answers[4] == str([-INVALID_VALUE] * 3)
    assert answers[5:] == [str([True] * 3), f"-{OUT_OF_MEMORY} -{OUT_OF_MEMORY}"]


@pytest.mark.promise(
    "backing-24",
    "0 bytes, more than the cap, than the device, than there are addresses: the documented error, "
    "and nothing is left",
)
def test_sizes_that_cannot_be(backed: Session) -> None:
    """Zero bytes are an invalid value; more than the cap, than the device, than there are addresses
    is out of memory; nothing is left of it."""
    sizes = "(0, 12 * MIB, 64 << 30, 1 << 50, (1 << 64) - 1)"
    lines = [f"print([alloc(n) for n in {sizes}])", "print(sums(), alloc(9 * MIB) > 0)"]
    answers = [-INVALID_VALUE] + [-OUT_OF_MEMORY] * 4
    capped = backed.run(*lines, FAKE_CAP=str(10 * MIB))
    assert capped == [str(answers), "(0, 0) True"]
    assert backed.memory() == [(10, 0)]
    assert backed.run("print([alloc(n) for n in (64 << 30, 1 << 50)])") == [
        str([-OUT_OF_MEMORY] * 2)
    ]
    assert set(backed.memory()) <= {(0, 0)}


@pytest.mark.promise(
    "backing-25",
    "No budget is out of memory, an interrupted wait is 800; neither leaves anything",
)
def test_a_claim_that_is_refused_or_cancelled(backed: Session) -> None:
    """No room is out of memory, a cancelled wait is 800, and neither leaves anything claimed."""
    for answer, result in (("refused", OUT_OF_MEMORY), ("cancelled", CANCELLED)):
        lines = ["print(alloc(3 * MIB), alloc(100), sums())"]
        assert backed.run(*lines, FAKE_CLAIM=answer) == [f"-{result} -{result} (0, 0)"]
        assert set(backed.memory()) == {(0, 0)}


@pytest.mark.promise(
    "backing-26",
    "A driver that fails in the middle of an allocation leaves nothing of it",
)
@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_driver_that_fails_in_the_middle(backed: Session, call: str) -> None:
    """Of an allocation that fails at its third chunk nothing is left, and its error is told."""
    nth = 1 if call == "cuMemSetAccess" else 3
    faults = {"GPUSHARE_SIM_FAULTS": f"fail {call} nth={nth} result=999"}
    lines = [
        "before = info()",
        "print(alloc(400 * MIB), info() == before, sums())",
        "a = alloc(400 * MIB)",
        "print(a > 0, sums(), free(a), info() == before)",
    ]
    assert backed.run(*lines, **faults) == ["-999 True (0, 0)", "True (200, 0) 0 True"]


@pytest.mark.promise(
    "backing-27",
    "Out-of-memory although the budget has room, from allocations, launches, modules and "
    "contexts: others make room, and it is tried again",
)
def test_out_of_memory_is_tried_again_when_others_made_room(backed: Session) -> None:
    """The driver's out-of-memory although the budget has room: others make room, and it is tried
    again; without room it is out of memory."""
    faults = {"GPUSHARE_SIM_FAULTS": "fail cuMemCreate nth=2 result=2"}
    assert backed.run("print(alloc(100 * MIB) > 0)", FAKE_ROOM=ROOM_MADE, **faults) == ["True"]
    assert backed.told("room") == [f"room 0 {100 * MIB} cuMemAlloc_v2"]
    assert backed.memory() == [(100, 0)]
    assert backed.run("print(alloc(100 * MIB))", **faults) == [f"-{OUT_OF_MEMORY}"]


@pytest.mark.promise("backing-27")
def test_more_room_is_asked_for_while_others_make_some(backed: Session) -> None:
    """When what they made does not do, they are asked again, for more each time, and not for
    ever."""
    faults = {"GPUSHARE_SIM_FAULTS": "fail cuMemCreate nth=2 times=5 result=2"}
    assert backed.run("print(alloc(66 * MIB) > 0)", FAKE_ROOM=ROOM_MADE, **faults) == ["True"]
    asked = [int(line.split()[2]) // MIB for line in backed.told("room")]
    assert asked == [66, 66, 66, 66, 128]
    faults = {"GPUSHARE_SIM_FAULTS": "fail cuMemCreate nth=1 times=0 result=2"}
    answers = backed.run("print(alloc(20 * MIB))", FAKE_ROOM=ROOM_MADE, **faults)
    assert answers == [f"-{OUT_OF_MEMORY}"]
    assert len(backed.told("room")) == 5


@pytest.mark.promise("park-47")
def test_an_interrupt_while_room_is_made_cancels_the_call(backed: Session) -> None:
    """An allocation, a launch, a module and a context answer 800, as other calls that wait, and
    nothing stays claimed."""
    calls = {
        "cuMemCreate": "print(alloc(20 * MIB))",
        "cuMemAllocManaged": "print(made('cuMemAllocManaged', c_size_t(MIB), 1))",
        "cuLaunchKernel": "print(-launch('fill', 0, c_uint64(0), c_uint(7), c_uint64(0)))",
        "cuModuleLoadData": "print(made('cuModuleLoadData', BUILTINS_PTX.read_bytes() + b'\\0'))",
        "cuDevicePrimaryCtxRetain": "print(made('cuDevicePrimaryCtxRetain', 0))",
    }
    for call, line in calls.items():
        nth = 2 if call == "cuDevicePrimaryCtxRetain" else 1
        faults = {"GPUSHARE_SIM_FAULTS": f"fail {call} nth={nth} result=2"}
        answers = backed.run(line, "print(info()[1] > 0)", FAKE_ROOM=ROOM_CANCELLED, **faults)
        assert answers == [f"-{CANCELLED}", "True"], call
        assert len(backed.told("room")) == 1
        assert set(backed.memory()) <= {(0, 0)}


def users_lines(session: Session) -> list[str]:
    """What the user of a kernel reads; each line has a sentence on what is wrong and one on what to
    do."""
    lines = [line for line in session.stderr.splitlines() if line.startswith("gpushare: ")]
    for line in lines:
        what_is_wrong, what_to_do = line.split(". ")
        assert " is out of memory, because " in what_is_wrong
        assert what_to_do.endswith(".")
    return lines


@pytest.mark.promise("park-34")
def test_the_user_reads_once_why_memory_was_refused(backed: Session) -> None:
    """No budget, no room on a full device, the cap, and no host memory for our own tables: each in
    two sentences, however often it happens."""
    twice = "print(alloc(20 * MIB), alloc(20 * MIB))"
    full = {"GPUSHARE_SIM_FAULTS": "fail cuMemCreate nth=1 times=0 result=2"}
    for more, reason in (
        ({"FAKE_CLAIM": "refused"}, "the GPU has no room for it beside what cannot be moved"),
        (
            {"FAKE_CLAIM": "refused", "FAKE_USABLE": str(10 * MIB)},
            "this process has 0 bytes there and can have 10.0 MiB at most",
        ),
        ({"FAKE_ROOM": NO_ROOM, **full}, "the GPU is full and nobody else could make room"),
        ({"FAKE_CAP": str(10 * MIB)}, "this kernel has 0 bytes there and its limit is 10.0 MiB"),
    ):
        assert backed.run(twice, **more) == [f"-{OUT_OF_MEMORY} -{OUT_OF_MEMORY}"]
        (line,) = users_lines(backed)
        assert line.startswith("gpushare: cuMemAlloc_v2 of 20.0 MiB on GPU 0 is out of memory, ")
        assert line.split(", because ")[1].startswith(reason), line
        assert ("Ask for less, or " in line) == ("has 0 bytes" in reason)


@pytest.mark.promise("park-34")
def test_the_user_reads_that_host_memory_is_short(backed: Session) -> None:
    """Where the tables of a great allocation find no memory, nobody is asked for room on the
    device."""
    lines = [
        "import resource",
        "resource.setrlimit(resource.RLIMIT_DATA, (0, 0))",
        "print(alloc(1 << 39))",
    ]
    assert backed.run(*lines, FAKE_ROOM=ROOM_MADE) == [f"-{OUT_OF_MEMORY}"]
    (line,) = users_lines(backed)
    assert "no host memory left to keep account of it" in line
    assert backed.told("room") == []


@pytest.mark.promise("backing-27")
def test_calls_that_allocate_nothing_are_tried_again_too(backed: Session) -> None:
    """A launch, a module and a context that find no memory are tried once more when there is
    room."""
    for call in ("cuLaunchKernel", "cuModuleLoadData", "cuDevicePrimaryCtxRetain"):
        # The helpers retain device 0's context first.
        nth = 2 if call == "cuDevicePrimaryCtxRetain" else 1
        faults = {"GPUSHARE_SIM_FAULTS": f"fail {call} nth={nth} result=2"}
        lines = [
            "a, count = c_uint64(alloc(4096)), c_uint64(64)",
            "made('cuDevicePrimaryCtxRetain', 0)",
            "print(launch('fill', 0, a, c_uint(7), count), read(a.value, 4))",
        ]
        done = backed.run(*lines, FAKE_ROOM=ROOM_MADE, **faults)
        assert done == ["0 b'\\x07\\x00\\x00\\x00'"], call
        assert backed.told("room") == [f"room 0 {512 * MIB} {call}"]


@pytest.mark.promise("backing-28")
def test_double_and_foreign_frees_are_refused(backed: Session) -> None:
    """Freed twice, freed inside, freed where nothing is: an invalid value; null is nothing."""
    lines = [
        "a, b = alloc(3 * MIB), alloc(100)",
        "print(free(a + MIB), free(b + 512), free(0xDEAD0000), free(0))",
        "print(free(a), free(a), free(b), free(b))",
    ]
    refused = INVALID_VALUE
    assert backed.run(*lines) == [f"{refused} {refused} {refused} 0", f"0 {refused} 0 {refused}"]


@pytest.mark.promise(
    "backing-28",
    "`cuMemFree` keeps its implicit wait; double and foreign frees are refused",
)
def test_a_free_waits_for_the_work(backed: Session) -> None:
    """cuMemFree returns when the work in flight of the context is done."""
    lines = [
        "a, b, s = alloc(4 * MIB), alloc(100), stream_create()",
        "for address in (a, b):",
        "    work = held(s)",
        "    early = call('cuStreamQuery', c_void_p(s))",
        "    threading.Timer(0.05, setattr, (work, 'value', 1)).start()",
        "    print(early, free(address), call('cuStreamQuery', c_void_p(s)))",
    ]
    assert backed.run(*lines) == ["600 0 0"] * 2


@pytest.mark.promise("backing-29", "A free while parked gives host memory and address back")
def test_a_free_of_what_is_parked(backed: Session) -> None:
    """It gives the host memory back, and nothing comes back to the device for it."""
    lines = [
        "a, b = alloc(140 * MIB), alloc(100)",
        "print(park(), free(a), sums(), free(a), free(b), restore(), sums())",
        "print(alloc(20 * MIB) > 0, sums())",
    ]
    assert backed.run(*lines) == [f"4 0 (0, 1) {INVALID_VALUE} 0 1 (1, 0)", "True (11, 0)"]
    given = [int(line.split()[1]) for line in backed.told("host_given")]
    assert sum(given) == 142 * MIB


@pytest.mark.promise(
    "backing-30",
    "Captures are not disturbed: frees are put off, allocations are the driver's to refuse, and "
    "captured copies find their memory",
)
def test_captures_put_frees_off(backed: Session) -> None:
    """While a capture is active, a free neither disturbs it nor takes the memory away; the address
    is not used again before the capture has ended, and then it is free."""
    lines = [
        "s = stream_create()",
        "a, b = alloc(4 * MIB), alloc(100)",
        "assert call('cuStreamBeginCapture_v2', c_void_p(s), 0) == 0",
        "print(free(a), free(b), sums(), attribute(2, a))",
        "graph = c_uint64(0)",
        "print(call('cuStreamEndCapture', c_void_p(s), byref(graph)), graph.value > 0, sums())",
    ]
    assert backed.run(*lines) == [f"0 0 (3, 0) -{INVALID_VALUE}", "0 True (1, 0)"]
    assert backed.memory()[-1] == (2, 0)


@pytest.mark.promise("backing-30")
def test_captures_decide_about_allocations(backed: Session) -> None:
    """Inside a capture a thread that is not relaxed gets the driver's own answer; a relaxed one
    gets memory that can be moved."""
    lines = [
        "s = stream_create()",
        "begin = lambda mode: call('cuStreamBeginCapture_v2', c_void_p(s), mode)",
        "end = lambda: call('cuStreamEndCapture', c_void_p(s), byref(c_uint64(0)))",
        "print(begin(0), alloc(4 * MIB), end(), sums())",
        "mode = c_int(2)",
        "call('cuThreadExchangeStreamCaptureMode', byref(mode))",
        "print(begin(0), alloc(4 * MIB) > 0, end(), sums())",
    ]
    hooked = backed.run(*lines)
    assert hooked[1] == "0 True 0 (2, 0)"
    assert (
        hooked[0].removesuffix(" (0, 0)") == backed.run(*lines, FAKE_SWAP="0")[0][: -len(" (0, 0)")]
    )


@pytest.mark.promise("backing-30")
def test_what_is_captured_finds_its_memory(backed: Session) -> None:
    """Copies and fills that are captured, or put into a graph by hand, while memory is parked wait
    until it is there: the driver looks up their addresses. Captured functions do not wait."""
    lines = [
        "s, data = stream_create(), (c_uint * 1024)(*range(1024))",
        "a, b = c_uint64(alloc(4 * MIB)), c_uint64(alloc(8192))",
        "assert call('cuStreamBeginCapture_v2', c_void_p(s), 2) == 0",
        "print(park(), launch('fill', s, a, c_uint(5), c_uint64(100)), sums())",
        "print(call('cuMemcpyHtoDAsync_v2', a, data, c_size_t(4096), c_void_p(s)), sums())",
        "print(park(), call('cuMemcpyDtoDAsync_v2', b, a, c_size_t(4096), c_void_p(s)), sums())",
        "print(park(), call('cuMemsetD32Async', a, 7, c_size_t(1024), c_void_p(s)), sums())",
        "graph, ready = c_uint64(0), c_uint64(0)",
        "print(call('cuStreamEndCapture', c_void_p(s), byref(graph)), park())",
        "make = ('cuGraphInstantiateWithFlags', byref(ready), c_void_p(graph.value), c_uint64(0))",
        "print(call(*make), sums())",
        "print(call('cuGraphLaunch', c_void_p(ready.value), c_void_p(s)))",
        "print(call('cuStreamSynchronize', c_void_p(s)))",
        "print(set(read(a.value, 4096)[::4]), read(b.value, 4096) == bytes(data))",
    ]
    moved = "0 (3, 0)"
    answers = backed.run(*lines, FAKE_RESTORE="1")
    assert answers[:1] == ["2 0 (0, 3)"]
    assert answers[1:] == [moved, f"2 {moved}", f"2 {moved}", "0 2", moved, "0", "0", "{7} True"]


@pytest.mark.promise("backing-31", "`cuMemFreeAsync` of a plain allocation frees it")
def test_stream_ordered_frees_of_plain_memory(backed: Session) -> None:
    """cuMemFreeAsync takes a plain allocation too: it is gone for the program, and freed when the
    work before is done."""
    lines = [
        "a, s = alloc(4 * MIB), stream_create()",
        "print(call('cuMemFreeAsync', c_uint64(a), c_void_p(s)), free(a), attribute(2, a))",
        "print(alloc(100) > 0, sums())",
    ]
    assert backed.run(*lines) == [f"0 {INVALID_VALUE} -{INVALID_VALUE}", "True (1, 0)"]


@pytest.mark.promise(
    "backing-32",
    "The end of a context, and a device reset, free what they must, parked or not",
)
@pytest.mark.parametrize("where", ["", "park()"])
@pytest.mark.parametrize("end", ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"])
def test_the_end_of_a_context_frees_its_memory(backed: Session, where: str, end: str) -> None:
    """Reset or released, here or parked: device and host memory are free, the mover and the arena
    have forgotten the context before, and later frees get the driver's answer."""
    lines = [
        "before = info()",
        "a, b = alloc(20 * MIB), alloc(100)",
        where,
        f"print(call('{end}', 0), sums())",
        "opened()",
        "print(free(a), free(b), info() == before)",
    ]
    assert backed.run(*lines) == ["0 (0, 0)", f"{INVALID_VALUE} {INVALID_VALUE} True"]
    assert backed.memory()[-1] == (0, 0)
    order = [
        line.split()[0] for line in backed.told("mover_forgets", "arena_forgets", "device_closed")
    ]
    assert order == ["mover_forgets", "device_closed", "arena_forgets"]


@pytest.mark.promise("backing-32")
def test_a_context_takes_only_its_own(backed: Session) -> None:
    """Destroying a second context leaves the first one's memory, and its bytes."""
    lines = [
        "a = alloc(3 * MIB); write(a, b'x' * 100)",
        "second = c_void_p(0)",
        "assert call('cuCtxCreate_v2', byref(second), 0, 0) == 0",
        "b, c = alloc(3 * MIB), alloc(100)",
        "print(attribute(1, b) == second.value, attribute(1, a) == CONTEXT, sums())",
        "print(call('cuCtxDestroy_v2', second), sums())",
        "call('cuCtxSetCurrent', c_void_p(CONTEXT))",
        "print(read(a, 100) == b'x' * 100, free(b), free(a))",
    ]
    assert backed.run(*lines) == ["True True (5, 0)", "0 (2, 0)", f"True {INVALID_VALUE} 0"]


@pytest.mark.promise("backing-33", "Memory that is registered for other devices is fixed")
def test_registering_for_other_devices_fixes_memory(backed: Session) -> None:
    """Whoever registers memory for RDMA first asks for synchronous operations on it. The driver
    refuses that for mapped memory, and so the program is told: nobody uses it, and it moves on."""
    lines = [
        "a, b, yes = alloc(140 * MIB), alloc(140 * MIB), c_uint(1)",
        "print(call('cuPointerSetAttribute', byref(yes), 6, c_uint64(a + MIB)))",
        "print(park(), sums(), restore(), free(a), free(b))",
    ]
    assert backed.run(*lines) == [f"{NOT_SUPPORTED}", "6 (0, 140) 6 0 0"]
    assert backed.memory() == [(140, 0), (280, 0), (140, 0), (0, 0)]


@pytest.mark.promise(
    "backing-34",
    "Memory that the driver lets other devices use (tokens, DMA-BUF) stays until it is freed, all "
    "that the call names",
)
def test_tokens_for_other_devices_fix_memory(backed: Session) -> None:
    """Asked for one by one, for all of the allocation, which has the driver's mark from then on;
    the driver refuses them among several attributes. It can still be freed."""
    lines = [
        "a, b, tokens = alloc(140 * MIB), alloc(140 * MIB), (c_uint64 * 2)()",
        "print([attribute(6, a), attributes(a, 2, 5)], park(), restore())",
        "print(call('cuPointerGetAttribute', tokens, 5, c_uint64(a + MIB)))",
        "print([attribute(6, p) for p in (a, a + 139 * MIB, b)], attributes(a, 6))",
        "print(park(), sums(), restore(), free(a), free(b))",
    ]
    expected = ["[0, []] 6 6", "0", "[1, 1, 0] [1]", "3 (70, 70) 3 0 0"]
    assert backed.run(*lines) == expected
    assert backed.memory() == [(140, 0), (280, 0), (280, 140), (140, 0), (0, 0)]


@pytest.mark.promise("backing-34")
def test_a_dma_buf_fixes_all_that_it_names(backed: Session) -> None:
    """Over the border of a block, where the driver has one for that; of what it refuses nothing."""
    lines = [
        "first, second = sorted(alloc(140 * MIB) for _ in range(2))",
        "fd, beside = c_int(-1), second == first + 140 * MIB",
        "place, size = (first, 280 * MIB) if beside else (second, 140 * MIB)",
        "ask = lambda at, n: call('cuMemGetHandleForAddressRange', byref(fd), c_uint64(at), "
        "c_size_t(n), 1, c_uint64(0))",
        "print(ask(place + 1, MIB), park(), restore(), ask(place, size))",
        "print(park() == (0 if beside else 3))",
    ]
    assert backed.run(*lines) == [f"{INVALID_VALUE} 6 6 0", "True"]


@pytest.mark.promise(
    "backing-35",
    "Memory that another process is given (`cuIpcGetMemHandle`) stays, is counted as fixed, and "
    "is the same memory on both sides, whatever else is parked",
)
def test_a_handle_for_other_processes_fixes_memory(backed: Session) -> None:
    """Memory that another process may map (cuIpcGetMemHandle) is made to be there, by passing the
    gate as an allocation does, stays where it is, the whole of its block, for the second in which
    nobody has to open it, and counts as fixed; it can still be freed."""
    lines = [
        "a, b = alloc(140 * MIB), alloc(140 * MIB)",
        "print(attribute(10, a), len(share(a + MIB)), share(a) == share(a + MIB))",
        "shared_at, length = time.monotonic(), len(share(a))",
        "stays = (park(), sums(), restore()) == (3, (70, 70), 3)",
        "print(length, stays or time.monotonic() - shared_at >= 1, free(a), free(b))",
    ]
    assert backed.run(*lines) == ["1 128 True", "128 True 0 0"]
    told = backed.memory()
    assert told[:3] == [(140, 0), (280, 0), (280, 140)]
    assert told[-2:] == [(140, 0), (0, 0)]
    assert backed.told("gate").count("gate cuIpcGetMemHandle alloc legacy (nil)") == 4


@pytest.mark.promise("backing-45")
def test_a_handle_that_cannot_be_had(backed: Session) -> None:
    """A wait for the turn that is cancelled is 800, memory that is not on the device cannot be
    mapped, and a driver that exports nothing is told of once, with what to do; memory that was not
    shared still moves."""
    lines = ["a = alloc(4 * MIB)", "print(share(a), share(a))"]
    refused = "fail cuMemExportToShareableHandle nth=1 result=304 times=0"
    assert backed.run(*lines, GPUSHARE_SIM_FAULTS=refused) == [f"-{MAP_FAILED} -{MAP_FAILED}"]
    assert backed.stderr.count("GPUSHARE_MEMORY=off") == 1
    away = ["a = alloc(4 * MIB)", "print(park(), share(a), restore(), len(share(a)))"]
    assert backed.run(*away) == [f"1 -{MAP_FAILED} 1 128"]
    cancelled = ["import os", "a = alloc(4 * MIB)", "os.environ['FAKE_CANCEL'] = '1'"]
    assert backed.run(*cancelled, "print(share(a), park())") == [f"-{CANCELLED} 1"]


@pytest.mark.promise("backing-28")
def test_threads_without_a_context(backed: Session) -> None:
    """Where no context is current the driver answers: nothing is allocated, queried or freed."""
    lines = [
        "a, answers = alloc(4 * MIB), []",
        "def other():",
        "    answers.extend([alloc(100), free(a), address_range(a), attribute(2, a)])",
        "thread = threading.Thread(target=other); thread.start(); thread.join()",
        "print(answers)",
    ]
    assert backed.run(*lines) == backed.run(*lines, FAKE_SWAP="0")


@pytest.mark.promise("backing-36", "A forked child has none of it")
def test_a_forked_child_has_none_of_it(backed: Session) -> None:
    """In a child the parent's addresses are not allocations; the parent's stay as they were."""
    lines = [
        "import os",
        "a = alloc(4 * MIB); write(a, b'x' * 100); park()",
        "if os.fork() == 0:",
        "    os._exit(int(sums() != (0, 0)) + 2 * int(hook_covers(a)))",
        "print(os.wait()[1], restore(), read(a, 100) == b'x' * 100)",
    ]
    lines.insert(1, "hook_covers = lambda address: address_range(address) == (address, 4 * MIB)")
    assert backed.run(*lines) == ["0 1 True"]


@pytest.mark.promise(
    "backing-37",
    "`cuMemGetInfo` and `cuDeviceTotalMem` tell what the tenant can still have, whatever others "
    "hold, and NVML says the same",
)
def test_memory_info_follows_the_tenant_not_the_device(backed: Session) -> None:
    """What is free is what the tenant could still have, parked memory counted as its own, however
    full the device is; total and NVML agree."""
    lines = [
        "a = alloc(100 * MIB)",
        "print(info(), park() > 0, info())",
        "size = c_size_t(0); call('cuDeviceTotalMem_v2', byref(size), 0); print(size.value // MIB)",
    ]
    usable = {"FAKE_USABLE": str(7000 * MIB), "FAKE_OTHERS": str(50 * MIB)}
    assert backed.run(*lines, **usable) == ["(6850, 8192) True (6850, 8192)", "8192"]
    capped = {**usable, "FAKE_CAP": str(1000 * MIB)}
    assert backed.run(*lines, **capped) == ["(850, 1000) True (850, 1000)", "1000"]


@pytest.mark.promise("backing-37")
def test_nvml_agrees_with_cuda(backed: Session) -> None:
    """Free and total are those of cuMemGetInfo, parked or not; the process is listed with all that
    it has allocated."""
    lines = [
        "nvml = ctypes.CDLL('libnvidia-ml.so.1')",
        "device, memory = c_void_p(0), (c_uint64 * 3)()",
        "assert nvml.nvmlInit_v2() == 0",
        "assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device)) == 0",
        "def seen():",
        "    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0",
        "    total, free_bytes, used = [number // MIB for number in memory]",
        "    return (free_bytes, total) == info() and free_bytes + used == total",
        "a = alloc(100 * MIB)",
        "print(seen(), park() > 0, seen(), restore() > 0, seen())",
    ]
    usable = {"FAKE_USABLE": str(7000 * MIB), "FAKE_OTHERS": str(50 * MIB)}
    assert backed.run(*lines, **usable) == ["True True True True True"]
    assert backed.run(*lines, **usable, FAKE_CAP=str(1000 * MIB)) == ["True True True True True"]


@pytest.mark.promise("backing-20")
def test_threads_allocate_and_free_at_once(backed: Session) -> None:
    """Eight threads that allocate, write, read and free large and small memory never see each
    other's bytes, and leave nothing but a block."""
    lines = [
        "bad = []",
        "def work(number):",
        "    call('cuCtxSetCurrent', c_void_p(CONTEXT))",
        "    for n in range(60):",
        "        size = (700, 5000, MIB // 2, 3 * MIB)[(n + number) % 4]",
        "        a = alloc(size); mark = bytes([number * 16 + n % 16]) * 64",
        "        write(a, mark)",
        "        if read(a, 64) != mark or free(a): bad.append((number, n))",
        "threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]",
        "[t.start() for t in threads]; [t.join() for t in threads]",
        "print(bad, sums()[0] <= 2)",
    ]
    assert backed.run(*lines) == ["[] True"]
