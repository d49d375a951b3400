"""Caches of frameworks that are given back at the end of a cell: the rules alone, then in kernels
whose framework holds memory of the simulated GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpushare.kernel.magics import caches, gpushare
from jupyter_gpushare.kernel.magics.caches import LEAST_BYTES, Caches, short_devices
from tests.kernel.conftest import Recording, SharedGpu
from tests.kernel.test_magics_memory import bytes_of, crowded
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.sim import GIB, MIB
from tests.support.waits import wait_until

__all__ = ["crowded"]

FULL = {"device": 0, "allocated": 10 * GIB, "budget": 10 * GIB, "usable": 20 * GIB}
ROOMY = {**FULL, "budget": 12 * GIB}
UNLIMITED = {**FULL, "budget": None}


class FakeHook:
    """Tells of a kernel with a turn beside another tenant, on a device that is full."""

    def __init__(self, **changes: Any) -> None:
        self.kernel = {"phase": "held", "connected": True, "tenants": 2, "memory": [FULL]}
        self.kernel.update(changes)
        self.asked = 0

    def describe(self) -> dict[str, Any]:
        self.asked += 1
        return self.kernel


class FakeTorch:
    """`torch.cuda`, with counts of calls."""

    def __init__(self, unused: int) -> None:
        self.unused, self.emptied = unused, 0
        self.parts = 0  # of segments that are in use
        self.initialised, self.capturing = True, False
        self.fails: Exception | None = None

    def is_initialized(self) -> bool:
        return self.initialised

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def memory_stats(self, ordinal: int) -> dict[str, int]:
        assert ordinal == 0
        return {
            "reserved_bytes.all.current": GIB + self.unused + self.parts,
            "allocated_bytes.all.current": GIB,
            "inactive_split_bytes.all.current": self.parts,
        }

    def empty_cache(self) -> None:
        self.emptied += 1
        if self.fails:
            raise self.fails
        self.unused = 0


class FakeStream:
    def __init__(self) -> None:
        self.answer: bool | Exception = False

    def is_capturing(self) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class FakeCuPy:
    """`cupy`: it cannot give back what lies in chunks that are in use, and does not tell."""

    def __init__(self, free: int, in_parts: int = 0) -> None:
        self.free, self.in_parts, self.emptied = free, in_parts, 0
        self.current, self.null = FakeStream(), FakeStream()
        self.entered: list[int] = []
        self.cuda = SimpleNamespace(
            Device=self._device,
            get_current_stream=lambda: self.current,
            Stream=SimpleNamespace(null=self.null),
        )

    def _device(self, ordinal: int) -> Any:
        fake = self

        class Entered:
            def __enter__(self) -> None:
                fake.entered.append(ordinal)

            def __exit__(self, *_: object) -> None:
                pass

        return Entered()

    def get_default_memory_pool(self) -> FakeCuPy:
        return self

    def free_bytes(self) -> int:
        return self.free + self.in_parts

    def free_all_blocks(self) -> None:
        self.emptied += 1
        self.free = 0


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch(2 * GIB)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=fake))  # type: ignore[arg-type]
    return fake


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCuPy:
    fake = FakeCuPy(GIB)
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    return fake


@pytest.mark.promise(
    "jupyter-6",
    "At the end of a cell, while GPU memory is short, the caches of PyTorch and CuPy give back "
    "what they keep unused, and the bytes are counted",
)
def test_both_give_back_and_are_counted(torch: FakeTorch, cupy: FakeCuPy) -> None:
    """Each is asked once, and the hook once for both."""
    hook = FakeHook()
    kernel = Caches(hook)
    kernel.cell_ends()
    assert (torch.emptied, cupy.emptied, hook.asked) == (1, 1, 1)
    assert kernel.given == {"PyTorch": 2 * GIB, "CuPy": GIB}
    assert "3.0 GiB of caches were given back so far (CuPy 1.0 GiB, PyTorch 2.0 GiB)." in (
        kernel.story()
    )
    kernel.cell_ends()
    assert (torch.emptied, cupy.emptied) == (1, 1)  # there is nothing more


@pytest.mark.parametrize(
    ("changes", "is_short"),
    [
        pytest.param({}, True, id="full"),
        pytest.param({"phase": "idle"}, False, id="no-turn"),
        pytest.param({"phase": "asked"}, False, id="waits"),
        pytest.param({"phase": "closing"}, False, id="recalled"),
        pytest.param({"connected": False}, False, id="no-scheduler"),
        pytest.param({"tenants": 1}, False, id="alone"),
        pytest.param({"memory": [ROOMY]}, False, id="room"),
        pytest.param({"memory": [UNLIMITED]}, False, id="unlimited"),
        pytest.param({"memory": []}, False, id="no-device"),
    ],
)
def test_what_counts_as_short(torch: FakeTorch, changes: dict[str, Any], is_short: bool) -> None:
    """With the turn, beside others, and with next to nothing left to grow into."""
    Caches(FakeHook(**changes)).cell_ends()
    assert torch.emptied == is_short


def test_only_devices_that_are_short_count(cupy: FakeCuPy) -> None:
    """CuPy's pool of another device is left alone."""
    hook = FakeHook(memory=[ROOMY, {**FULL, "device": 3}])
    assert short_devices(hook.kernel) == [3]
    Caches(hook).cell_ends()
    assert set(cupy.entered) == {3}


def test_nothing_is_asked_in_vain(torch: FakeTorch, cupy: FakeCuPy) -> None:
    """A framework that is not initialised is not asked. Little is not worth a call, nor are parts
    of what is in use."""
    torch.unused, torch.parts, cupy.free = LEAST_BYTES - 1, 8 * GIB, 0
    cupy.in_parts = 3 * GIB
    kernel = Caches(FakeHook())
    kernel.cell_ends()
    assert (torch.emptied, cupy.emptied) == (0, 1)
    kernel.cell_ends()
    assert cupy.emptied == 1  # it has shown that it cannot give these back
    cupy.free = LEAST_BYTES
    kernel.cell_ends()
    assert (cupy.emptied, kernel.given["CuPy"]) == (2, LEAST_BYTES)
    torch.initialised, torch.unused = False, GIB
    kernel.cell_ends()
    assert torch.emptied == 0


def test_without_a_framework_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the hook."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    hook = FakeHook()
    Caches(hook).cell_ends()
    assert hook.asked == 0


@pytest.mark.parametrize("error", [None, RuntimeError("cudaErrorStreamCaptureImplicit")])
def test_a_capture_is_left_alone(torch: FakeTorch, cupy: FakeCuPy, error: Exception | None) -> None:
    """In the current stream, or in another one that the default stream answers for."""
    torch.capturing = True
    if error is None:
        cupy.current.answer = True
    else:
        cupy.null.answer = cupy.current.answer = error
    kernel = Caches(FakeHook())
    kernel.cell_ends()
    assert (torch.emptied, cupy.emptied, kernel.problem) == (0, 0, "")


def test_a_failure_is_told_and_stops_nobody_else(torch: FakeTorch, cupy: FakeCuPy) -> None:
    """An interrupt goes on to the cell; any other error is told when somebody asks."""
    torch.fails = RuntimeError("no")
    kernel = Caches(FakeHook())
    kernel.cell_ends()
    assert cupy.emptied == 1
    torch.fails = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        kernel.cell_ends()


def test_the_last_failure_is_told(torch: FakeTorch) -> None:
    """And no more once it has worked."""
    kernel = Caches(FakeHook())
    torch.fails = RuntimeError("no")
    kernel.cell_ends()
    assert "The last attempt failed: RuntimeError: no." in kernel.story()
    torch.fails = None
    kernel.cell_ends()
    assert "failed" not in kernel.story()


def test_half_loaded_modules_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework whose import failed or goes on, or a module of the user by that name."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())  # type: ignore[arg-type]
    kernel = Caches(FakeHook())
    kernel.cell_ends()
    assert kernel.problem == ""


FRAMEWORK = """
import sys, types
class Cuda:
    cached, used = [], []
    def is_initialized(self): return True
    def is_current_stream_capturing(self): return False
    def memory_stats(self, ordinal):
        count = 64 << 20
        return {
            "reserved_bytes.all.current": count * len(self.cached + self.used),
            "allocated_bytes.all.current": count * len(self.used),
        }
    def empty_cache(self):
        emptied.append(gpushare_phase())
        while self.cached:
            gpu.free(self.cached.pop())
def gpushare_phase():
    import ctypes, json
    text = ctypes.create_string_buffer(1 << 16)
    ctypes.CDLL(None).gpushare_describe(text, ctypes.c_size_t(len(text)))
    return json.loads(text.value)["phase"]
emptied = []
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.cuda = Cuda()
"""
"""A framework with blocks of 64 MiB."""
WORKS = f"""
torch.cuda.used += [gpu.allocate({64 * MIB // 4}) for _ in range(2 - len(torch.cuda.used))]
torch.cuda.cached += [gpu.allocate({64 * MIB // 4}) for _ in range(4)]
for number, block in enumerate(torch.cuda.used):
    gpu.fill(block, number + 7, 4096)
{gpu_cells.spin(1)}
"""
"""Two blocks stay in use, four in the cache."""
CHECKS = """
totals = [gpu.checksum(block, 4096) for block in torch.cuda.used]
assert totals == [(number + 7) * 4096**2 for number in range(2)], totals
"""


def has_given_back(kernel: Kernel) -> bool:
    """While the turn was held. What the hook says of itself may be a moment old where a cell ends
    soon after its turn began, so the next cell counts as well."""
    emptied = kernel.run("emptied").ok().text
    if emptied == "[]":
        kernel.run(gpu_cells.spin(1)).ok()
    return emptied == "['held']"


@pytest.mark.promise("jupyter-6")
@pytest.mark.promise(
    "jupyter-7", "`%gpushare trim off` lets this kernel keep its caches, `trim on` ends that"
)
def test_what_is_given_back_makes_room_for_others(crowded: SharedGpu) -> None:
    """While trim is off, her cache moves for a kernel that needs room. Once it is on, her cache is
    given back while the turn is held. The other's memory comes back then, and nothing of this
    kernel has to move. A mistake gets a line and the usage."""
    bob, alice = crowded.kernel("bob.ipynb"), crowded.kernel("alice.ipynb")
    bob.run(f"memory = gpu.allocate({256 * MIB // 4})\n{gpu_cells.spin(1)}").ok()
    alice.run(FRAMEWORK).ok()
    assert "trim is off" in alice.run("%gpushare trim off").ok().text
    alice.run(WORKS).ok()
    wait_until(lambda: bytes_of(crowded, "bob.ipynb", "parked") > 0, "his memory is parked")
    assert alice.run("len(emptied)").ok().text == "0"
    bob.run(gpu_cells.spin(1)).ok()
    wait_until(lambda: bytes_of(crowded, "alice.ipynb", "parked") > 0, "her cache moved instead")
    assert "trim is on" in alice.run("%gpushare trim on").ok().text
    wait_until(lambda: has_given_back(alice), "her cache is given back")
    told = alice.run("%gpushare trim").ok().text
    assert "256 MiB of caches were given back so far (PyTorch 256 MiB)." in told
    assert "256 MiB of caches were given back" in alice.run("%gpushare").ok().text
    bob.run(gpu_cells.spin(1)).ok()
    wait_until(lambda: bytes_of(crowded, "bob.ipynb", "parked") == 0, "his memory is back")
    alice.run(CHECKS).ok()
    wait_until(lambda: bytes_of(crowded, "alice.ipynb", "parked") == 0, "hers is too")
    mistake = alice.run("%gpushare trim now").ok().text
    assert mistake.startswith("%gpushare: 'now' is neither `on` nor `off`.\nusage:")


def test_a_kernel_without_sharing_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """As the other sub-commands do."""
    gpushare("trim off", notice="This kernel does not share the GPU.")
    assert capsys.readouterr().out == "This kernel does not share the GPU.\n"
    assert caches.CACHES.is_on


COUNTS = """
import sys, types
sys.modules["cupy"] = types.ModuleType("cupy")
import gpushare_bootstrap
asked = []
caches = gpushare_bootstrap._magics().CACHES
caches.cell_ends = lambda: asked.append(1)
"""


@pytest.mark.promise(
    "jupyter-8",
    "No cache is asked for in a nested cell, beside another cell or turn of the kernel, in a "
    "forked child, or after an interrupt; an interrupt meanwhile does not keep the cell's end from "
    "the hook",
)
def test_when_the_caches_are_asked(kernel: Kernel, heard: Recording) -> None:
    """Once at the end of each cell that ends alone, however it ends but by an interrupt."""
    kernel.run(COUNTS).ok()
    assert kernel.run("len(asked)").ok().text == "1"
    kernel.run("get_ipython().run_cell('1 + 1'); asked.clear()").ok()
    kernel.run("get_ipython().run_cell('1 + 1'); seen = len(asked)").ok()
    assert kernel.run("seen, len(asked)").ok().text == "(1, 2)"
    kernel.run("asked.clear()\n1 / 0")
    assert kernel.run("len(asked)").ok().text == "1"
    kernel.run("asked.clear()\nraise KeyboardInterrupt")
    assert kernel.run("len(asked)").ok().text == "0"
    kernel.run("import gpushare\nturn = gpushare.turn()\nasked.clear(); turn.__enter__()").ok()
    assert kernel.run("seen = len(asked); turn.__exit__(); seen").ok().text == "0"
    kernel.run(
        "def interrupted():\n    raise KeyboardInterrupt\ncaches.cell_ends = interrupted",
        silent=True,
    )
    kernel.run("1 + 1")
    told = heard.of(kernel.pid)
    assert told.count("began") == told.count("ended") and told[-1] == "ended"
    kernel.run("caches.cell_ends = lambda: asked.append(1)", silent=True)
    kernel.run(
        "import os\nchild = os.fork()\n"
        "if child == 0:\n"
        "    asked.clear(); get_ipython().run_cell('1'); os._exit(len(asked))\n"
        "status = os.waitpid(child, 0)[1]"
    ).ok()
    assert kernel.run("status").ok().text == "0"
