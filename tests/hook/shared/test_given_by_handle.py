"""Memory that a program gives to other devices or to sparse arrays by its handle, on a simulated
driver that has such calls: the driver is told its own handle, and the memory stays from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import Session
from tests.support.sim import GIB, SimulatedMachine, driver_with

DRIVER = """
static unsigned long long came;
#define TAKES(name, ...) int name(__VA_ARGS__) { came = handle; return 0; }
#define OFFSET_OF_HANDLE 64
typedef unsigned long long u64;

TAKES(cuMulticastBindMem, u64 to, u64 at, u64 handle)
TAKES(cuMulticastBindMem_v2, u64 to, int device, u64 at, u64 handle)
TAKES(cuLogicalEndpointBindMem, unsigned to, int device, u64 at, u64 handle)
TAKES(cuMulticastBindAddr, u64 to, u64 at, u64 handle)
TAKES(cuMulticastBindAddr_v2, u64 to, int device, u64 at, u64 handle)
TAKES(cuLogicalEndpointBindAddr, unsigned to, int device, u64 at, u64 handle)

int cuMemMapArrayAsync(const char *maps, unsigned count, void *stream) {
    (void)stream;
    came = *(const u64 *)(maps + (count - 1) * MAP_BYTES + OFFSET_OF_HANDLE);
    return 0;
}

u64 what_came(void) { return came; }
""".replace("MAP_BYTES", "96")
BY_HANDLE = {
    "cuMulticastBindMem": "c_uint64(5), c_size_t(0), c_uint64(handle), c_size_t(0), n, c_uint64(0)",
    "cuMulticastBindMem_v2": "c_uint64(5), 0, c_size_t(0), c_uint64(handle), c_size_t(0), n, "
    "c_uint64(0)",
    "cuLogicalEndpointBindMem": "5, 0, c_uint64(0), c_uint64(handle), c_uint64(0), n, c_uint64(0)",
    "cuMemMapArrayAsync": "maps, 2, c_void_p(0)",
}
BY_ADDRESS = {
    "cuMulticastBindAddr": "c_uint64(5), c_size_t(0), c_uint64(at), n, c_uint64(0)",
    "cuMulticastBindAddr_v2": "c_uint64(5), 0, c_size_t(0), c_uint64(at), n, c_uint64(0)",
    "cuLogicalEndpointBindAddr": "5, 0, c_uint64(0), c_uint64(at), n, c_uint64(0)",
}
MAPS = """maps = (c_uint64 * 24)()
maps[12 + 8] = handle  # the second entry's; what the first one has is a handle of nobody"""


@pytest.fixture
def program(environment: dict[str, str], tmp_path: Path) -> Session:
    """A process whose memory follows the turn, with a mover that moves when it is told."""
    sim = SimulatedMachine(tmp_path / "sim", bytes_per_device=GIB)
    libraries = driver_with(tmp_path / "driver", DRIVER)
    of_sim = {"LD_LIBRARY_PATH": libraries, "GPUSHARE_SIM_DIR": sim.env()["GPUSHARE_SIM_DIR"]}
    swapping = {**environment, **of_sim, "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "mapping_session")


@pytest.mark.promise(
    "backing-16",
    "Memory that is given to other devices or to sparse arrays, by its handle or its address, is "
    "given as the driver knows it, and stays from then on; the program's own structures are not "
    "written to",
)
@pytest.mark.parametrize("call", [*BY_HANDLE, *BY_ADDRESS])
def test_it_is_given_as_the_driver_knows_it(program: Session, call: str) -> None:
    """The driver knows the handle that it is told: made anew after a park, with the properties that
    the program asked for."""
    lines = ["handle, at = mapped(4 * MIB, handle_types=1, rdma=1)", "n = c_size_t(4 * MIB)"]
    lines += MAPS.splitlines()
    lines += ["assert not write(at, b'given')", "print(park(), restore())"]
    lines += [f"print(call('{call}', {(BY_HANDLE | BY_ADDRESS)[call]}), maps[20] == handle)"]
    lines += ["came = ctypes.CDLL('libcuda.so.1').what_came", "came.restype = c_uint64"]
    lines += ["print(came() == at, came() == handle, properties(came()) == properties(handle))"]
    lines += ["print(park(), sums(), read(at, 5))"]
    assert program.run(*lines) == [
        "1 1",
        "0 True",
        "True False False" if call in BY_ADDRESS else "False False True",
        "0 (2, 0) b'given'",
    ]
    assert program.memory()[-1] == (4, 4)


@pytest.mark.promise(
    "backing-17",
    "Memory that is made for sparse arrays stays from the start, in one part; compression is a "
    "wish, and is not granted",
)
def test_what_the_program_asked_for(program: Session) -> None:
    """Sparse arrays map parts of their memory, which chunks would cut."""
    lines = ["sparse, at = mapped(66 * MIB, usage=1)", "print(park(), sums())"]
    lines += ["packed, other = mapped(4 * MIB, compression=1)"]
    lines += ["print(properties(packed), park(), restore(), properties(packed))"]
    assert program.run(*lines) == ["0 (33, 0)", "(0, 0, 0, 0) 1 1 (0, 0, 0, 0)"]
    assert program.memory()[-1] == (70, 66)
