from __future__ import annotations
from pathlib import Path
import pytest
from tests.hook.session import Session
from tests.support.sim import GIB, SimulatedMachine


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim", devices=2, bytes_per_device=GIB)


@pytest.fixture
def program(environment, sim, tmp_path) -> Session:
    of_sim = {name: sim.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    return Session({**environment, **of_sim, "FAKE_SWAP": "1"}, tmp_path / "trace", "mapping_session")


def test_access_beyond_an_imported_mapping(program: Session) -> None:
    lines = ["shared = create(2*MIB, handle_types=1)", "fd = export(shared)"]
    lines += ["imp = made('cuMemImportFromShareableHandle', c_void_p(fd), 1)", "print(imp > 0, imp >> 56)"]
    lines += ["at = reserve(6*MIB)", "a, c = create(2*MIB), create(2*MIB)"]
    lines += ["print(map_at(at, 2*MIB, a), map_at(at+2*MIB, 2*MIB, imp), map_at(at+4*MIB, 2*MIB, c))"]
    lines += ["print(grant(at, 6*MIB))"]
    lines += ["print('writes', write(at, b'a'), write(at+2*MIB, b'b'), write(at+4*MIB, b'c'))"]
    lines += ["print('access', [access_at(at + i*2*MIB) for i in range(3)])"]
    lines += ["print(park(), restore())"]
    lines += ["print('writes', write(at, b'a'), write(at+2*MIB, b'b'), write(at+4*MIB, b'c'))"]
    out = program.run(*lines)
    print("\n".join(out))
    assert out[-1] == "writes 0 0 0"


def test_foreign_map_over_parked(program: Session) -> None:
    lines = ["shared = create(2*MIB, handle_types=1)", "fd = export(shared)"]
    lines += ["imp = made('cuMemImportFromShareableHandle', c_void_p(fd), 1)"]
    lines += ["h, at = mapped(2*MIB)"]
    lines += ["print('here', map_at(at, 2*MIB, imp))", "print(park())"]
    lines += ["print('parked', map_at(at, 2*MIB, imp), restore(), sums())"]
    out = program.run(*lines)
    print("\n".join(out))
    assert "parked 1" in out[-1]


def test_huge_unmap(program: Session) -> None:
    import time
    t = time.monotonic()
    out = program.run("h, at = mapped(2*MIB)", "print(unmap(at + 2*MIB, 1 << 52))")
    print(out, time.monotonic() - t)
    assert time.monotonic() - t < 10


def test_released_handle_then_map_of_lost(program: Session) -> None:
    lines = ["h, at = mapped(2*MIB)", "print(park())", "b = reserve(2*MIB)"]
    # a gate that passes although memory is parked
    lines += ["print(map_at(b, 2*MIB, h))", "print(restore(), read(at, 1))"]
    out = program.run(*lines)
    print(out)


def test_odd_calls(program: Session) -> None:
    lines = ["h, at = mapped(4*MIB)"]
    lines += ["print('unreserve 0', unreserve(at, 0))"]
    lines += ["print('unmap half', unmap(at, 2*MIB), unmap(at + 2*MIB, 2*MIB), unmap(at - 2*MIB, 4*MIB))"]
    lines += ["print('grant odd', grant(at, 1), grant(at, 0), grant(at+MIB, MIB), grant(at, 6*MIB), grant(at - 2*MIB, 6*MIB))"]
    lines += ["print('access', access_at(at, 0), access_at(at, 1), access_at(at, 5))"]
    lines += ["a = c_int(0)"]
    lines += ["print('null', call('cuMemSetAccess', c_uint64(at), c_size_t(4*MIB), None, c_size_t(1)))"]
    lines += ["print('count 0', call('cuMemSetAccess', c_uint64(at), c_size_t(4*MIB), byref(Access(1,0,3)), c_size_t(0)))"]
    lines += ["print('flags 7', grant(at, 4*MIB, 7), grant(at, 4*MIB, 2))"]
    lines += ["print('retain null', call('cuMemRetainAllocationHandle', None, c_void_p(at)))"]
    lines += ["print('create bad device', create(2*MIB, 7), create(2*MIB, 31), create(2*MIB, -1))"]
    lines += ["print('map off', call('cuMemMap', c_uint64(at), c_size_t(2*MIB), c_size_t(2*MIB), c_uint64(h), c_uint64(0)))"]
    lines += ["print('map misaligned', map_at(at + 4096, 4*MIB, h), map_at(at, 4*MIB+1, h))"]
    lines += ["print('release', release(h), release(h), unmap(at, 4*MIB), map_at(at, 4*MIB, h))"]
    out = program.run(*lines)
    print("\n".join(out))
    import subprocess
    out2 = program.run(*lines, LD_PRELOAD="")
    print("\n".join(out2))
    for a, b in zip(out, out2):
        if a != b: print("DIFF", a, "| driver:", b)
    assert out == out2
