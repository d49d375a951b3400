"""A program that copies much between host and device, and what the scheduler hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import BusUsed
from tests.hook.runtime.mapping_program import MappingProgram, start_mapping_program
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import MIB, SimulatedMachine

MUCH = 256 * MIB

COPIES = {
    "to the device": "call('cuMemcpyHtoD_v2', c_uint64(at), host, c_size_t({size}))",
    "in a stream": (
        "call('cuMemcpyHtoDAsync_v2', c_uint64(at), host, c_size_t({size}), c_void_p(0))"
    ),
    "to the host": "call('cuMemcpyDtoH_v2', host, c_uint64(at), c_size_t({size}))",
    "to the host in a stream": (
        "call('cuMemcpyDtoHAsync_v2', host, c_uint64(at), c_size_t({size}), c_void_p(0))"
    ),
    "by addresses": (
        "call('cuMemcpyAsync', c_uint64(at), c_uint64(addressof(host)), c_size_t({size}), "
        "c_void_p(0))"
    ),
    "of rows": (
        "call('cuMemcpy2D_v2', byref((c_uint64 * 16)(0, 0, 1, addressof(host), 0, 0, 4096,"
        " 0, 0, 2, 0, at, 0, 4096, 4096, {size} // 4096)))"
    ),
    "of a box": (
        "call('cuMemcpy3D_v2', byref((c_uint64 * 25)(0, 0, 0, 0, 1, addressof(host), 0, 0, 0, 4096,"
        " 16, 0, 0, 0, 0, 2, 0, at, 0, 0, 4096, 16, 4096, 16, {size} // 65536)))"
    ),
}


@pytest.fixture
def program(
    tmp_path: Path, scheduler: FakeScheduler, sim: SimulatedMachine
) -> Iterator[MappingProgram]:
    """It has the turn, memory `at` a place, and as much at the `host`."""
    process = start_mapping_program(tmp_path, scheduler, sim)
    running = MappingProgram(process, scheduler, Files(sim))
    running.say(f"at = made('cuMemAlloc_v2', c_size_t({MUCH}))")
    running.memory.grant()
    assert running.result() == "None"
    running.run("from ctypes import addressof, byref, create_string_buffer")
    running.run(f"host = create_string_buffer({MUCH})")
    yield running
    process.end()


@pytest.mark.promise(
    "park-22",
    "The scheduler hears of a program that copies much between host and device, as long as it has "
    "the turn",
)
def test_much_is_told(program: MappingProgram) -> None:
    """One large copy is enough, of whichever kind. It takes longer than what is told holds."""
    for kind, copy in COPIES.items():
        told = program.client.count(BusUsed)
        assert program.run(copy.format(size=MUCH)) == "0", kind
        assert program.run("call('cuCtxSynchronize')") == "0", kind
        program.client.expect(BusUsed)
        assert program.client.count(BusUsed) == told + 1, kind


@pytest.mark.promise("park-22")
def test_little_is_not(program: MappingProgram) -> None:
    """Nor copies on the device."""
    for copy in COPIES.values():
        assert program.run(copy.format(size=MIB)) == "0"
    half = MUCH // 2
    on_device = f"call('cuMemcpyDtoD_v2', c_uint64(at), c_uint64(at + {half}), c_size_t({half}))"
    for _ in range(3):
        assert program.run(on_device) == "0"
    assert program.client.hears_none(BusUsed, for_s=0.2)
