"""Device memory is counted, capped and reported for the tenant."""

from __future__ import annotations

import pytest

from tests.hook.session import MIB, Session

OUT_OF_MEMORY = 2


@pytest.mark.promise(
    "hook-35",
    "Plain, pitched, managed, stream-ordered, array and created memory is counted",
)
def test_plain_allocations_and_frees_are_counted(session: Session) -> None:
    """The sum follows allocations and frees; an unknown pointer's free changes nothing. What the
    driver made cannot be moved."""
    lines = ("a, b = alloc(3 * MIB), alloc(5 * MIB)", "print(free(12345), free(a), free(b))")
    assert session.run(*lines) == ["0 0 0"]
    assert session.memory() == [(3, 3), (8, 8), (5, 5), (0, 0)]


@pytest.mark.promise("hook-6")
def test_allocations_wait_at_the_gate_and_frees_do_not(session: Session) -> None:
    """An allocation passes the gate as such; a free never does."""
    session.run("free(alloc(MIB))")
    assert session.told("gate") == ["gate cuMemAlloc_v2 alloc legacy (nil)"]


@pytest.mark.promise("hook-11")
def test_a_cancelled_allocation_is_not_counted(session: Session) -> None:
    """A cancelled wait answers 800, never out-of-memory, and leaves nothing claimed."""
    assert session.run(
        "print(alloc(3 * MIB), alloc(3 * MIB))", FAKE_CANCEL="1", FAKE_CAP=str(4 * MIB)
    ) == ["-800 -800"]
    assert set(session.memory()) == {(0, 0)}


@pytest.mark.promise("hook-35")
def test_pitched_memory_counts_with_the_drivers_pitch(session: Session) -> None:
    """What counts is the pitch that the driver chose, times the height."""
    session.run(
        "pitch = c_size_t(0)",
        "made('cuMemAllocPitch_v2', byref(pitch), c_size_t(1), c_size_t(4096), 4)",
    )
    assert session.memory() == [(2, 2)]


@pytest.mark.promise("hook-35")
def test_managed_and_stream_ordered_memory_count(session: Session) -> None:
    """Managed memory, and memory from a device's pool or a pool of its own."""
    session.run(
        "made('cuMemAllocManaged', c_size_t(2 * MIB), 1)",
        "a = made('cuMemAllocAsync', c_size_t(3 * MIB), stream())",
        "pool = made('cuMemPoolCreate', location(0))",
        "made('cuMemAllocFromPoolAsync', c_size_t(4 * MIB), c_uint64(pool), stream())",
        "call('cuMemFreeAsync', c_uint64(a), stream())",
    )
    assert session.memory() == [(2, 2), (5, 5), (9, 9), (6, 6)]


def test_a_pool_of_host_memory_does_not_count(session: Session) -> None:
    """A pool that is located on the host holds no device memory."""
    session.run(
        "pool = made('cuMemPoolCreate', location(0, 2))",
        "made('cuMemAllocFromPoolAsync', c_size_t(4 * MIB), c_uint64(pool), stream())",
    )
    assert session.memory() == []


@pytest.mark.promise(
    "hook-36", "Captured allocations are graph-owned, and count when the graph runs"
)
def test_captured_memory_is_the_graphs(session: Session) -> None:
    """An allocation made in a capture waits for nothing, and is no memory yet."""
    printed = session.run(
        "made('cuMemAllocAsync', c_size_t(MIB), stream())",
        "assert call('cuStreamBeginCapture_v2', stream(), 0) == 0",
        "made('cuMemAllocAsync', c_size_t(2 * MIB), stream())",
        "print(captures(), call('cuStreamEndCapture', stream(), byref(POINTER)), captures())",
    )
    assert printed == ["1 0 0"]
    assert session.memory() == [(1, 1)]


def test_a_capture_that_does_not_begin_is_taken_back(session: Session) -> None:
    """A capture is told before the driver begins it, and taken back where the driver refuses."""
    lines = ["print(call('cuStreamBeginCapture_v2', stream(), 0), captures())"]
    assert session.run(*lines, MEMORY_DRIVER_FAIL="cuStreamBeginCapture_v2") == ["401 0"]


@pytest.mark.promise("hook-35")
@pytest.mark.promise("hook-37")
def test_arrays_count_and_are_fixed(session: Session) -> None:
    """Arrays of two and three dimensions and mipmapped ones, by their elements; sparse ones have no
    memory of their own."""
    session.run(
        "a = made('cuArrayCreate_v2', byref(Array(1024, 1024, FLOAT, 1)))",
        "b = made('cuArray3DCreate_v2', byref(Array3D(1024, 1024, 2, UINT8, 4, 0)))",
        "c = made('cuArray3DCreate_v2', byref(Array3D(1024, 1024, 2, UINT8, 4, SPARSE)))",
        "call('cuArrayDestroy', c_uint64(a))",
        "call('cuArrayDestroy', c_uint64(b))",
    )
    assert session.memory() == [(4, 4), (12, 12), (12, 12), (8, 8), (0, 0)]


@pytest.mark.promise("hook-35")
def test_created_memory_counts_until_its_last_holder_is_gone(session: Session) -> None:
    """Physical memory that is released while it is mapped counts until it is unmapped; a retained
    handle holds it too."""
    session.run(
        "h = create(2 * MIB)",
        "map_at(0x1000000, 2 * MIB, h)",
        "release(h)",
        "kept = made('cuMemRetainAllocationHandle', c_uint64(0x1000000))",
        "unmap(0x1000000, 2 * MIB)",
        "alloc(MIB)",
        "release(kept)",
    )
    assert session.memory() == [(2, 2), (3, 3), (1, 1)]


def test_one_unmap_may_cover_several_pieces(session: Session) -> None:
    """A range of two mappings of one piece is unmapped in one call."""
    session.run(
        "h = create(2 * MIB)",
        "at = 0x1000000",
        "for _ in range(2):",
        "    map_at(at, 2 * MIB, h)",
        "    at += 2 * MIB",
        "release(h)",
        "unmap(0x1000000, 4 * MIB)",
    )
    assert session.memory() == [(2, 2), (0, 0)]


@pytest.mark.promise("hook-35")
def test_an_unmap_of_half_a_piece_frees_nothing(session: Session) -> None:
    """The driver refuses it, so the memory is there until its mapping is unmapped as a whole."""
    session.run(
        "h = create(4 * MIB)",
        "map_at(0x1000000, 4 * MIB, h)",
        "release(h)",
        "unmap(0x1000000, 2 * MIB)",
        "alloc(MIB)",
        "unmap(0x1000000, 4 * MIB)",
    )
    assert session.memory() == [(4, 4), (5, 5), (1, 1)]


@pytest.mark.promise("hook-37", "Memory that cannot be moved is counted as fixed")
def test_exported_memory_becomes_fixed(session: Session) -> None:
    """What another process can map cannot be moved; memory opened from another is not counted."""
    session.run(
        "a = alloc(2 * MIB)",
        "call('cuIpcGetMemHandle', byref(POINTER), c_uint64(a))",
        "h = create(4 * MIB)",
        "call('cuMemExportToShareableHandle', byref(POINTER), c_uint64(h), 1, c_uint64(0))",
        "opened = made('cuIpcOpenMemHandle_v2', c_uint64(0))",
        "call('cuIpcCloseMemHandle', c_uint64(opened))",
        "free(a)",
    )
    assert session.memory() == [(2, 2), (6, 6), (4, 4)]


@pytest.mark.promise("hook-7")
@pytest.mark.promise("park-34")
def test_the_cap_refuses_what_would_pass_it(session: Session) -> None:
    """Above the cap, the tenant's other processes included, an allocation is out-of-memory without
    a call of the driver; what is freed can be had again. A log line says why, each time."""
    limits = {"FAKE_CAP": str(10 * MIB), "FAKE_OTHERS": str(4 * MIB), "GPUSHARE_LOG": "info"}
    lines = (
        "a = alloc(5 * MIB)",
        "print(alloc(2 * MIB), alloc(MIB) > 0, free(a), alloc(5 * MIB) > 0, alloc(1))",
    )
    assert session.run(*lines, **limits) == [f"-{OUT_OF_MEMORY} True 0 True -{OUT_OF_MEMORY}"]
    assert session.stderr.count("refused: cuMemAlloc_v2 of ") == 2
    assert session.stderr.count("this kernel has 9.0 MiB there and its limit is 10.0 MiB.") == 1
    assert len(session.told("gate")) == 3


def test_a_refusal_of_the_driver_is_not_counted(session: Session) -> None:
    """Out-of-memory from the driver leaves the whole cap to others."""
    lines = (
        "print(alloc(8 * MIB), alloc(8 * MIB))",
        "print(made('cuMemAllocManaged', c_size_t(10 * MIB), 1) > 0)",
    )
    answers = session.run(*lines, MEMORY_DRIVER_FAIL="cuMemAlloc_v2", FAKE_CAP=str(10 * MIB))
    assert answers == ["-2 -2", "True"]


@pytest.mark.promise("hook-35")
def test_a_free_that_fails_stays_counted(session: Session) -> None:
    """Memory whose free the driver refuses is still there."""
    session.run("a = alloc(2 * MIB)", "free(a)", MEMORY_DRIVER_FAIL="cuMemFree_v2")
    assert session.memory()[-1] == (2, 2)


@pytest.mark.promise("hook-7")
def test_threads_cannot_pass_the_cap_together(session: Session) -> None:
    """Of sixteen threads that allocate at once, just as many succeed as fit."""
    lines = (
        "from concurrent.futures import ThreadPoolExecutor",
        "with ThreadPoolExecutor(16) as pool:",
        "    results = list(pool.map(lambda _: alloc(2 * MIB), range(64)))",
        "print(sum(result > 0 for result in results), results.count(-2))",
    )
    assert session.run(*lines, FAKE_CAP=str(21 * MIB)) == ["10 54"]


def test_without_a_context_nothing_is_counted(session: Session) -> None:
    """The driver's own answer stands where no context is current."""
    session.run("alloc(MIB)", MEMORY_DRIVER_NO_CONTEXT="1")
    assert session.memory() == []


@pytest.mark.promise("hook-8")
def test_memory_info_answers_for_the_tenant(session: Session) -> None:
    """Total is the cap, free what is left of it; without a cap the driver's numbers stand, and
    what is free on the device is never exceeded."""
    lines = ("alloc(100 * MIB)", "print(info())")
    total = (
        "size = c_size_t(0); call('cuDeviceTotalMem_v2', byref(size), 0); print(size.value // MIB)"
    )
    capped = {"FAKE_CAP": str(1000 * MIB), "FAKE_OTHERS": str(300 * MIB)}
    assert session.run(*lines, total, **capped) == ["(600, 1000)", "1000"]
    assert session.run(*lines, total) == ["(10240, 16384)", "16384"]
    assert session.run(*lines, FAKE_CAP=str(12 << 30)) == ["(10240, 12288)"]
    assert session.run(*lines, FAKE_CAP=str(20 << 30)) == ["(10240, 16384)"]


@pytest.mark.promise("hook-18")
def test_a_forked_child_has_nothing(session: Session) -> None:
    """A child starts with no memory of its own, and its cuInit is told again."""
    lines = (
        "import os",
        "call('cuInit', 0)",
        "alloc(5 * MIB)",
        "if os.fork() == 0:",
        "    call('cuInit', 0), alloc(MIB), os._exit(0)",
        "os.wait()",
        "alloc(MIB)",
    )
    session.run(*lines)
    assert session.memory() == [(5, 5), (1, 1), (6, 6)]
    assert session.told("cuda_opened") == ["cuda_opened"] * 2
