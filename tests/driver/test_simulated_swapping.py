"""What moving memory asks of the simulated machine: that it is strict, that both copy engines work
at once, that what nobody touches costs nothing, and that it can fail at any step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.driver.harness import run_program
from tests.driver.test_simulated_machine import run
from tests.support.paths import SIM_DRIVER
from tests.support.sim import GIB, MIB, SimulatedMachine

pytestmark = pytest.mark.skipif(not SIM_DRIVER.exists(), reason="run `make build` first")

MAPPED = """
import time
from tests.driver.harness import *
from tests.driver.test_mapped_memory import Mapper
gpu = Gpu()
mapper = Mapper(gpu)
def mapped(granules):
    address = mapper.reserve(granules)
    chunks = [mapper.create() for _ in range(granules)]
    for i, chunk in enumerate(chunks):
        mapper.map(address + i * mapper.granule, chunk)
        ok(cuda.cuMemRelease(chunk))
    mapper.grant(address, granules)
    return address
def pinned(size):
    return int(ok(cuda.cuMemHostAlloc(size, cuda.CU_MEMHOSTALLOC_PORTABLE)))
def stream():
    return ok(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
"""

UNMAP_UNDER_A_COPY = """
address, host, side = mapped(4), pinned(8 * MIB), stream()
ok(cuda.cuMemcpyDtoHAsync(host, address, 8 * MIB, side))
mapper.unmap(address + 3 * mapper.granule)
print(code(cuda.cuStreamSynchronize(side)).name)
"""

UNMAP_AND_MAP_AGAIN_UNDER_A_LAUNCH = """
address, flag = mapped(1), PinnedWord()
copy = pinned(2 * MIB)
gpu.launch("fill", address, 7, mapper.words)
ok(cuda.cuCtxSynchronize())
gpu.launch("matmul", address, address, address, 256)
mapper.unmap(address)
chunk = mapper.create()
mapper.map(address, chunk)
mapper.grant(address)
print(code(cuda.cuCtxSynchronize()).name)
"""

UNMAP_AFTER_THE_WORK = """
address, host, side = mapped(4), pinned(8 * MIB), stream()
gpu.launch("fill", address, 7, 4 * mapper.words)
ok(cuda.cuCtxSynchronize())
ok(cuda.cuMemcpyDtoHAsync(host, address, 8 * MIB, side))
done = ok(cuda.cuEventCreate(0))
ok(cuda.cuEventRecord(done, side))
ok(cuda.cuEventSynchronize(done))
mapper.unmap(address, 4)
print(code(cuda.cuCtxSynchronize()).name)
words = np.ctypeslib.as_array((ctypes.c_uint32 * (4 * mapper.words)).from_address(host))
assert (words == 7).all()
"""

BOTH_WAYS = """
size = 32 * MIB
out, back = mapped(16), mapped(16)
host = [pinned(size) for _ in range(2)]
streams = [stream() for _ in range(2)]
# Both begin when the flag is set, however long the calls take.
flag, gate, ready = PinnedWord(), stream(), ok(cuda.cuEventCreate(0))
gpu.launch("poll_flag", flag.device, stream=gate)
ok(cuda.cuEventRecord(ready, gate))
for each in streams:
    ok(cuda.cuStreamWaitEvent(each, ready, 0))
ok(cuda.cuMemcpyDtoHAsync(host[0], out, size, streams[0]))
ok(cuda.cuMemcpyHtoDAsync(back, host[1], size, streams[1]))
flag.value = 1
ok(cuda.cuCtxSynchronize())
"""

POISON = """
address = mapped(1)
gpu.launch("fill", address, 7, mapper.words)
ok(cuda.cuCtxSynchronize())
mapper.unmap(address)
chunk = mapper.create()
mapper.map(address, chunk)
mapper.grant(address)
print(sorted({hex(int(word)) for word in gpu.download(address, mapper.words)}))
"""

SEGMENTS = """
import mmap
segment, count = 64 * MIB, 24
page = mmap.mmap(-1, segment * count)
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
before, _ = ok(cuda.cuMemGetInfo())
for i in range(count):
    ok(cuda.cuMemHostRegister(start + i * segment, segment, cuda.CU_MEMHOSTREGISTER_PORTABLE))
again = cuda.cuMemHostRegister(start + 4096, 4096, 0)
assert code(again) is R.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
address = mapped(2)
gpu.launch("fill", address, 9, 2 * mapper.words)
# From one segment into the next, in one copy, on a stream of its own: pinned, so asynchronous.
ok(cuda.cuMemcpyDtoHAsync(start + segment - 2 * MIB, address, 4 * MIB, 0))
ok(cuda.cuCtxSynchronize())
assert page[segment - 4 : segment + 4] == bytes([9, 0, 0, 0] * 2)
for i in range(count):
    ok(cuda.cuMemHostUnregister(start + i * segment))
gone = cuda.cuMemHostUnregister(start)
assert code(gone) is R.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
assert ok(cuda.cuMemGetInfo())[0] == before - 4 * MIB
print("done")
"""

SPARSE = """
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
chunks = []
for _ in range(64):
    chunks.append(ok(cuda.cuMemCreate(GIB, properties(gpu), 0)))
more = cuda.cuMemCreate(GIB, properties(gpu), 0)
print(code(more).name, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""

PARKS = """
address, host = mapped(2), pinned(4 * MIB)
print(code(cuda.cuMemcpyDtoHAsync(host, address, 4 * MIB, 0)).name)
print(code(cuda.cuMemcpyDtoHAsync(host, address, 4 * MIB, 0)).name)
"""


def faults(machine: SimulatedMachine) -> list[int]:
    return [record.amount for record in machine.journal() if record.kind.name == "FAULT"]


@pytest.mark.promise(
    "simulated-39",
    "Unmapping what running work touches always shows, though other memory comes to the address",
)
def test_unmapping_under_a_copy_shows(tmp_path: Path) -> None:
    """Memory that is unmapped while a copy of it is under way: a sticky error, and a record."""
    machine = SimulatedMachine(tmp_path, copy_bytes_per_s=5_000_000)
    assert run(machine, MAPPED + UNMAP_UNDER_A_COPY).strip() == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert faults(machine) == [2 * MIB]


@pytest.mark.promise("simulated-39")
def test_unmapping_under_a_launch_shows_though_it_is_mapped_again(tmp_path: Path) -> None:
    """Other memory comes to the same address before the launch ends: that does not excuse it."""
    machine = SimulatedMachine(tmp_path, launch_ns=900_000_000)
    output = run(machine, MAPPED + UNMAP_AND_MAP_AGAIN_UNDER_A_LAUNCH)
    assert output.strip() == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert faults(machine) == [2 * MIB]


@pytest.mark.promise("simulated-39")
def test_unmapping_after_the_work_is_no_fault(sim: SimulatedMachine) -> None:
    """Who waits for the copy's event may unmap; the journal tells what came and went."""
    assert run(sim, MAPPED + UNMAP_AFTER_THE_WORK).strip() == "CUDA_SUCCESS"
    assert faults(sim) == []
    for kind in ("MAP", "UNMAP"):
        assert [r.amount for r in sim.journal() if r.kind.name == kind] == 4 * [2 * MIB]


@pytest.mark.promise("simulated-40", "Two copy engines, one for each direction")
def test_one_copy_engine_for_each_direction(tmp_path: Path) -> None:
    """A copy out and a copy in, each over several mappings, run at the same time."""
    machine = SimulatedMachine(tmp_path, copy_bytes_per_s=25_000_000)
    run(machine, MAPPED + BOTH_WAYS)
    copies = [r for r in machine.journal() if r.kind.name.startswith("COPY")]
    assert {(r.kind.name, r.amount) for r in copies} == {
        ("COPY_D2H", 32 * MIB),
        ("COPY_H2D", 32 * MIB),
    }
    taken_ns = max(r.ended_ns for r in copies) - min(r.started_ns for r in copies)
    assert taken_ns < 0.8 * sum(r.ended_ns - r.started_ns for r in copies)


@pytest.mark.promise(
    "simulated-41",
    "Released memory is poisoned, and untouched memory takes none of the machine's",
)
def test_released_chunks_are_poisoned(sim: SimulatedMachine) -> None:
    """What was in a chunk is not to be had again: its memory comes back poisoned."""
    assert run(sim, MAPPED + POISON).strip() == "['0xdbdbdbdb']"


@pytest.mark.promise("simulated-42")
def test_many_segments_of_host_memory_are_registered(sim: SimulatedMachine) -> None:
    """Portable registration, segment by segment; a copy may run over two of them; none of it is
    device memory."""
    assert run(sim, MAPPED + SEGMENTS).strip() == "done"


@pytest.mark.promise("simulated-41")
def test_what_nobody_touches_costs_nothing(tmp_path: Path) -> None:
    """64 GiB of a device of 64 GiB and a context are taken in a process that grows by a few MiB."""
    machine = SimulatedMachine(tmp_path, bytes_per_device=64 * GIB + 32 * MIB)
    program = MAPPED + "from tests.driver.test_mapped_memory import properties\n" + SPARSE
    answer, grown_kib = run(machine, program.replace("GIB", str(GIB))).split()
    assert answer == "CUDA_ERROR_OUT_OF_MEMORY"
    assert int(grown_kib) * 1024 < 64 * MIB


@pytest.mark.promise(
    "simulated-42",
    "Every step of moving memory can fail or stall, in a process of one's choice",
)
@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("fail cuMemCreate nth=2 result=2", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("fail cuMemMap nth=2 result=999", "CUDA_ERROR_UNKNOWN"),
        ("fail cuMemSetAccess nth=1 result=999", "CUDA_ERROR_UNKNOWN"),
        ("fail cuMemHostAlloc nth=1 result=2", "CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)
def test_every_step_can_fail(sim: SimulatedMachine, plan: str, message: str) -> None:
    """The fault plan reaches the calls that move memory."""
    env = sim.env({"GPUSHARE_DRIVER": "named", "GPUSHARE_SIM_FAULTS": plan})
    done = run_program(env, MAPPED + PARKS)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.promise("simulated-42")
def test_a_copy_can_fail_and_stall(sim: SimulatedMachine) -> None:
    """The second copy out fails; one stalls, in the process that is named."""
    plan = "fail cuMemcpyDtoHAsync nth=2 result=999"
    assert run(sim, MAPPED + PARKS, GPUSHARE_SIM_FAULTS=plan).split() == [
        "CUDA_SUCCESS",
        "CUDA_ERROR_UNKNOWN",
    ]
    code = "import os, pathlib\n" + MAPPED.replace(
        "gpu = Gpu()",
        "plan = pathlib.Path(os.environ['GPUSHARE_SIM_DIR'], 'faults')\n"
        "plan.write_text(f'stall cuMemcpyDtoHAsync nth=1 ms=300 pid={os.getpid()}')\n"
        "gpu = Gpu()",
    )
    code += "address, host = mapped(1), pinned(4096)\n"
    code += "ok(cuda.cuMemcpyDtoHAsync(host, address, 4096, 0))\n"
    run(sim, code.replace("pid={os.getpid()}", "pid=1"))
    assert sim.happened() == ["fail cuMemcpyDtoHAsync"]
    run(sim, code)
    assert sim.happened() == ["fail cuMemcpyDtoHAsync", "stall cuMemcpyDtoHAsync"]
