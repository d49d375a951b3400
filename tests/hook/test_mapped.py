"""Memory that programs make and map themselves moves, on the simulated GPU: what they see of it is
what they would see without the hook, wherever the memory is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import Session
from tests.support.sim import GIB, SimulatedMachine, driver_with

INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED = 1, 500, 801


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim", devices=2, bytes_per_device=GIB)


@pytest.fixture
def program(environment: dict[str, str], sim: SimulatedMachine, tmp_path: Path) -> Session:
    """A process whose memory follows the turn, with a mover that moves when it is told."""
    of_sim = {name: sim.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    swapping = {**environment, **of_sim, "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "mapping_session")


@pytest.mark.promise(
    "backing-48",
    "Memory that a program makes and maps itself moves, at the addresses that it had, and not a "
    "byte changes",
)
def test_it_comes_back_as_it_was(program: Session) -> None:
    """At the address that it had, as often as it leaves; none of it is fixed."""
    lines = [
        "handle, at = mapped(6 * MIB)",
        "data = numbers(6 * MIB)",
        "assert not write(at, data)",
    ]
    lines += ["for _ in range(3):"]
    lines += ["    print(park(), sums(), restore(), sums(), read(at, len(data)) == data)"]
    lines += ["print(unmap(at, 6 * MIB), release(handle), unreserve(at, 6 * MIB), sums())"]
    assert program.run(*lines) == ["1 (0, 3) 1 (3, 0) True"] * 3 + ["0 0 0 (0, 0)"]
    assert program.memory() == [(6, 0), (0, 0)]


@pytest.mark.promise(
    "backing-49",
    "A handle of more than 64 MiB moves in parts, and is one mapping for the program",
)
def test_large_memory_moves_in_parts(program: Session) -> None:
    """Of 64 MiB and a rest. The program sees one mapping."""
    lines = ["handle, at = mapped(150 * MIB)"]
    lines += ["edges = [0, 64 * MIB - 8, 128 * MIB, 150 * MIB - 16]"]
    lines += ["assert not any(write(at + e, numbers(16, e)) for e in edges)"]
    lines += ["print(park(), sums(), restore(), sums())"]
    lines += ["print(all(read(at + e, 16) == numbers(16, e) for e in edges))"]
    lines += ["inside = at + 100 * MIB"]
    lines += ["print(address_range(inside) == (at, 150 * MIB), attribute(18, inside) // MIB)"]
    lines += ["print(attribute(19, inside) == at, attribute(20, inside) == attribute(20, at))"]
    lines += ["print(unmap(at, 64 * MIB), grant(at, 64 * MIB), unmap(at, 150 * MIB))"]
    assert program.run(*lines) == [
        "3 (0, 75) 3 (75, 0)",
        "True",
        "True 150",
        "True True",
        "1 1 0",
    ]


@pytest.mark.promise(
    "backing-50",
    "What is mapped twice, nowhere or without access keeps its contents and its access",
)
def test_both_addresses_of_a_handle_lead_to_it(program: Session) -> None:
    """Mapped twice it is one memory, also when it comes back."""
    lines = ["handle, first = mapped(4 * MIB)", "second = reserve(4 * MIB)"]
    lines += ["print(map_at(second, 4 * MIB, handle), grant(second, 4 * MIB), release(handle))"]
    lines += ["data = numbers(4 * MIB)", "assert not write(first, data)"]
    lines += ["print(park(), sums(), restore(), read(second, len(data)) == data)"]
    lines += ["assert not write(second, b'new')", "print(read(first, 3))"]
    lines += ["print(park(), unmap(first, 4 * MIB), sums(), restore(), read(second, 3))"]
    lines += ["print(unmap(second, 4 * MIB), sums())"]
    assert program.run(*lines) == [
        "0 0 0",
        "1 (0, 2) 1 True",
        "b'new'",
        "1 0 (0, 2) 1 b'new'",
        "0 (0, 0)",
    ]


@pytest.mark.promise("backing-50")
def test_memory_without_an_address_keeps_its_bytes(program: Session) -> None:
    """Unmapped, it leaves and comes back by an address of ours."""
    lines = [
        "handle, at = mapped(4 * MIB)",
        "data = numbers(4 * MIB)",
        "assert not write(at, data)",
    ]
    lines += ["print(unmap(at, 4 * MIB), park(), sums(), restore(), sums())"]
    lines += ["other = reserve(4 * MIB)"]
    lines += ["print(map_at(other, 4 * MIB, handle), grant(other, 4 * MIB))"]
    lines += ["print(read(other, len(data)) == data, park(), restore())"]
    lines += ["print(read(other, len(data)) == data)"]
    assert program.run(*lines) == ["0 1 (0, 2) 1 (2, 0)", "0 0", "True 1 1", "True"]


@pytest.mark.promise("backing-50")
def test_memory_without_access_keeps_its_bytes(program: Session) -> None:
    """And has no more access than before."""
    lines = [
        "handle, at = mapped(4 * MIB)",
        "data = numbers(4 * MIB)",
        "assert not write(at, data)",
    ]
    lines += ["print(grant(at, 4 * MIB, 0), access_at(at), park(), restore(), access_at(at))"]
    lines += ["print(write(at, b'no'), address_range(at), grant(at, 4 * MIB, READ))"]
    lines += ["print(read(at, len(data)) == data, park(), access_at(at), restore(), access_at(at))"]
    lines += ["print(grant(at, 4 * MIB), read(at, len(data)) == data)"]
    assert program.run(*lines) == [
        "0 0 1 1 0",
        f"{INVALID_VALUE} -{NOT_FOUND} 0",
        "True 1 1 1 1",
        "0 True",
    ]


@pytest.mark.promise("backing-50")
def test_accesses_of_other_devices_come_back(program: Session) -> None:
    lines = ["second = opened(1)", "opened(0)", "handle, at = mapped(2 * MIB)"]
    lines += ["print(grant(at, 2 * MIB, READ_WRITE, 1), park(), restore())"]
    lines += ["print(access_at(at, 0), access_at(at, 1), write(at, b'for both'))"]
    lines += ["opened(1)", "print(read(at, 8))"]
    assert program.run(*lines) == ["0 1 1", "3 3 0", "b'for both'"]


def test_what_is_parked_can_be_given_back(program: Session) -> None:
    """Unmapping and releasing wait for nothing, and addresses are as used as they seem."""
    lines = ["handle, at = mapped(4 * MIB)", "assert park() == 1"]
    lines += ["print(unreserve(at, 4 * MIB), unmap(at, 2 * MIB), retain(at + MIB) == handle)"]
    lines += ["print(release(handle), properties(handle), sums())"]
    lines += ["print(unmap(at, 4 * MIB), sums(), unreserve(at, 4 * MIB))"]
    lines += ["print(release(handle), sums(), release(handle), properties(handle))"]
    assert program.run(*lines) == [
        f"{INVALID_VALUE} {INVALID_VALUE} True",
        "0 (0, 0, 0, 0) (0, 2)",
        "0 (0, 2) 0",
        f"0 (0, 0) {INVALID_VALUE} (-{INVALID_VALUE},)",
    ]
    assert program.memory()[-1] == (0, 0)


def test_neighbours_are_unmapped_in_one_call(program: Session) -> None:
    """Some of them parked, or in a range that is only partly mapped."""
    lines = ["at = reserve(12 * MIB)", "handles = [create(2 * MIB) for _ in range(4)]"]
    lines += ["places = [at, at + 2 * MIB, at + 6 * MIB, at + 8 * MIB]"]
    lines += ["print({map_at(p, 2 * MIB, h) for p, h in zip(places, handles)}, park())"]
    lines += ["print({release(h) for h in handles}, sums(), unmap(at, 12 * MIB), sums())"]
    lines += ["print(unreserve(at, 12 * MIB))"]
    assert program.run(*lines) == ["{0} 4", "{0} (0, 4) 0 (0, 0)", "0"]


@pytest.mark.promise(
    "backing-51",
    "An export fixes memory, and asking for exportable or RDMA-capable memory does not",
)
def test_who_only_asks_for_an_export_has_memory_that_moves(program: Session) -> None:
    """The export itself fixes it. (What is larger than a chunk needs the mover: test_wholes.py.)"""
    lines = ["asked, at = mapped(4 * MIB, handle_types=1, rdma=1)", "print(properties(asked))"]
    lines += ["assert not write(at, b'given')", "print(park(), restore(), read(at, 5))"]
    lines += ["print(export(asked) > 0, park(), sums(), read(at, 5))"]
    lines += ["large, other = mapped(66 * MIB, handle_types=1)"]
    lines += ["print(export(large), park(), restore())"]
    assert program.run(*lines) == [
        "(0, 1, 0, 1)",
        "1 1 b'given'",
        "True 0 (2, 0) b'given'",
        f"-{NOT_SUPPORTED} 2 2",
    ]


def test_memory_of_a_context_that_ends_stays(program: Session) -> None:
    """It belongs to the device. Without a context it stays there."""
    lines = ["handle, at = mapped(4 * MIB)", "assert not write(at, b'kept')"]
    lines += ["print(call('cuDevicePrimaryCtxReset_v2', 0), sums())"]
    lines += ["print(call('cuDevicePrimaryCtxRelease_v2', 0))"]
    lines += ["opened(0)", "print(read(at, 4), sums())"]
    assert program.run(*lines) == ["0 (2, 0)", "0", "b'kept' (2, 0)"]


def test_arguments_that_the_driver_refuses(program: Session) -> None:
    """In its words."""
    lines = ["handle, at = mapped(4 * MIB)", "other = reserve(8 * MIB)"]
    lines += [
        "print(create(3 * MIB), create(0), create(2 * MIB, 7), map_at(other, 2 * MIB, handle))"
    ]
    lines += ["print(map_at(at, 4 * MIB, handle), map_at(other, 4 * MIB, handle + 1))"]
    lines += ["print(grant(other, 2 * MIB), access_at(other), retain(other), sums())"]
    assert program.run(*lines) == [
        f"-{INVALID_VALUE} -{INVALID_VALUE} -101 {NOT_SUPPORTED}",
        f"{INVALID_VALUE} {INVALID_VALUE}",
        f"{INVALID_VALUE} -{INVALID_VALUE} -{INVALID_VALUE} (2, 0)",
    ]


def test_questions_answer_the_same_wherever_it_is(program: Session) -> None:
    """About a parked address they wait for the turn, which is there here."""
    lines = ["handle, at = mapped(4 * MIB)", "before = queries(at + 5), attribute(20, at)"]
    lines += ["print(park(), restore(), (queries(at + 5), attribute(20, at)) == before)"]
    assert program.run(*lines) == ["1 1 True"]


def test_a_child_has_nothing_of_it(program: Session) -> None:
    lines = ["import os", "handle, at = mapped(4 * MIB)", "assert not write(at, b'own')"]
    lines += ["child = os.fork()"]
    lines += ["if child == 0: os._exit(sums() != (0, 0))"]
    lines += ["print(os.waitpid(child, 0)[1], park(), restore(), read(at, 3))"]
    assert program.run(*lines) == ["0 1 1 b'own'"]


def imported(*lines: str) -> list[str]:
    """As `foreign` a handle of the driver's, of memory that was given away."""
    given = ["descriptor = export(create(2 * MIB, handle_types=1))"]
    given += ["foreign = made('cuMemImportFromShareableHandle', ctypes.c_void_p(descriptor), 1)"]
    return [*given, *lines]


def test_access_reaches_beyond_memory_of_others(program: Session) -> None:
    """It was given in one call to three mappings, of which one is not ours."""
    lines = ["at = reserve(6 * MIB)", "places = [at, at + 2 * MIB, at + 4 * MIB]"]
    lines += ["handles = [create(2 * MIB), foreign, create(2 * MIB)]"]
    lines += ["print({map_at(p, 2 * MIB, h) for p, h in zip(places, handles)}, grant(at, 6 * MIB))"]
    lines += ["print(park(), restore(), [access_at(p) for p in places])"]
    lines += ["print([write(p, b'well') for p in places], unmap(at, 6 * MIB), release(foreign))"]
    assert program.run(*imported(*lines)) == ["{0} 0", "2 2 [3, 3, 3]", "[0, 0, 0] 0 0"]


def test_nothing_is_mapped_over_what_is_parked(program: Session) -> None:
    """Although the driver has nothing there."""
    lines = ["handle, at = mapped(2 * MIB)"]
    lines += ["print(park(), map_at(at, 2 * MIB, foreign), restore(), sums()[1])"]
    assert program.run(*imported(*lines)) == [f"1 {INVALID_VALUE} 1 0"]


def test_ranges_of_no_size_that_there_is(program: Session) -> None:
    """Unmapping more than all addresses looks at what there is."""
    lines = ["handle, at = mapped(2 * MIB)", "print(unmap(at + 2 * MIB, 1 << 52))"]
    lines += ["print(access_at(at, 5), map_at(at, 2 * MIB + 1, handle), access_at(at))"]
    assert program.run(*lines)[1] == f"-101 {INVALID_VALUE} 3"


def test_access_of_the_host_fixes_all_that_it_covers(program: Session, tmp_path: Path) -> None:
    """It could not be given again after a move. (The simulated GPU has no such access.)"""
    libraries = driver_with(tmp_path / "host", "int cuMemSetAccess(void) { return 0; }\n")
    lines = ["at = reserve(4 * MIB)", "handles = [create(2 * MIB), create(2 * MIB)]"]
    lines += ["print({map_at(at + n * 2 * MIB, 2 * MIB, h) for n, h in enumerate(handles)})"]
    lines += ["host, where = Access(2, 0, 3), (c_uint64(at), c_size_t(4 * MIB))"]
    lines += ["print(call('cuMemSetAccess', *where, byref(host), c_size_t(1)), park(), sums())"]
    answers = program.run(*lines, LD_LIBRARY_PATH=libraries)
    assert answers == ["{0}", "0 0 (2, 0)"]
    assert program.memory()[-1] == (4, 4)


@pytest.mark.parametrize("later", ["fail cuMemUnmap nth=1 result=999", ""])
def test_a_mapping_that_fails_halfway(program: Session, later: str) -> None:
    """Nothing of it stays mapped. What the driver would not unmap again is the same memory for
    good: it does not move any more."""
    lines = ["handle, at = create(66 * MIB), reserve(66 * MIB)"]
    lines += ["print(map_at(at, 66 * MIB, handle), park(), restore(), sums())"]
    lines += ["print(unmap(at, 66 * MIB), release(handle), unreserve(at, 66 * MIB), sums())"]
    answers = program.run(*lines, GPUSHARE_SIM_FAULTS=f"fail cuMemMap nth=2 result=2;{later}")
    assert answers == ["2 0 0 (33, 0)" if later else "2 2 2 (33, 0)", "0 0 0 (0, 0)"]


def test_an_unmap_that_fails_halfway_is_made_again(program: Session) -> None:
    """The parts that are gone stay so, and nothing of it keeps the memory."""
    lines = ["handle, at = mapped(150 * MIB)", "print(unmap(at, 150 * MIB), unmap(at, 150 * MIB))"]
    lines += ["print(release(handle), unreserve(at, 150 * MIB), sums())"]
    answers = program.run(*lines, GPUSHARE_SIM_FAULTS="fail cuMemUnmap nth=2 result=999")
    assert answers == ["999 0", "0 0 (0, 0)"]


def test_neighbours_stay_where_an_unmap_fails(program: Session) -> None:
    """Those after the one that the driver does not unmap are as they were."""
    lines = ["at = reserve(4 * MIB)", "handles = [create(2 * MIB) for _ in range(2)]"]
    lines += ["print({map_at(at + 2 * i * MIB, 2 * MIB, h) for i, h in enumerate(handles)})"]
    lines += ["print({release(h) for h in handles}, unmap(at, 4 * MIB), sums())"]
    lines += ["print(unmap(at + 2 * MIB, 2 * MIB), sums(), unmap(at, 4 * MIB), sums())"]
    answers = program.run(*lines, GPUSHARE_SIM_FAULTS="fail cuMemUnmap nth=1 result=999")
    assert answers == ["{0}", "{0} 999 (2, 0)", "0 (1, 0) 0 (0, 0)"]
