"""What the conformance cases share: which driver they ask, how they check, what they launch.

Nothing here is a fixture, so that a case in a process of its own can use all of it."""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R
from numpy.typing import ArrayLike, NDArray

from tests.support.nursery import Nursery, Order
from tests.support.paths import BUILTINS_PTX, SIM_DRIVER, SIM_NVML
from tests.support.sim import GIB, SimulatedMachine
from tests.support.waits import WAIT_S_MAX

MIB = 1 << 20
LEGACY = cuda.CUstream(1)
PER_THREAD = cuda.CUstream(2)

_PROBE = """
import ctypes, sys
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
sys.exit(1 if failed or count.value == 0 else 0)
"""

# Parameter types of the built-in launches (hook/sim/builtins.cu).
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fill": (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64),
    "axpy": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_uint64),
    "matmul": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32),
    "checksum": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64),
    "spin": (ctypes.c_uint64,),
    "assert_fail": (),
    "poll_flag": (ctypes.c_void_p,),
}


@functools.cache
def driver_kind() -> str:
    """`real` or `sim`: what GPUSHARE_DRIVER says, else real where a real device answers.

    `named` is for processes that a case starts: they find the driver by its name, as the
    environment that they were given leads them to it."""
    asked = os.environ.get("GPUSHARE_DRIVER")
    if asked not in (None, "real", "sim", "named"):
        raise ValueError(f"GPUSHARE_DRIVER is {asked!r}. Set it to `real` or `sim`.")
    if asked:
        return asked
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=False)
    return "real" if probe.returncode == 0 else "sim"


@contextmanager
def driver_under_test() -> Iterator[None]:
    """Leads this process and those that it starts to the chosen driver, all to one machine.

    The simulated one is loaded by its path first: whoever asks for `libcuda.so.1` later, as
    cuda.bindings does with its first call, gets the library of that name that is there already."""
    # Loading a function waits for the device: a case that launches one while another polls a flag
    # would wait for ever.
    os.environ["CUDA_MODULE_LOADING"] = "EAGER"
    if driver_kind() != "sim":
        yield
        return
    with tempfile.TemporaryDirectory(prefix="gpushare-driver-") as directory:
        machine = SimulatedMachine(Path(directory), devices=2, bytes_per_device=4 * GIB)
        changed = {
            name: value
            for name, value in machine.env({"GPUSHARE_DRIVER": "named"}).items()
            if os.environ.get(name) != value
        }
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        ctypes.CDLL(str(SIM_DRIVER), mode=ctypes.RTLD_GLOBAL)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


# The CUDA runtime asks the driver for tables of functions that no header declares. The simulated
# driver has none of them: test_runtime_library.py states what the runtime makes of that.
needs_private_tables = pytest.mark.skipif(
    driver_kind() == "sim", reason="the simulated driver has no private tables for the CUDA runtime"
)


def raw() -> ctypes.CDLL:
    """The driver's exported functions, for what cuda.bindings does not let through."""
    return ctypes.CDLL("libcuda.so.1")


def attribute_number(which: int, pointer: int) -> int | R:
    """An attribute of an address that is a number, also one that older bindings do not know; the
    result code where the driver does not answer."""
    value = ctypes.c_uint64()
    answer = R(
        raw().cuPointerGetAttribute(ctypes.byref(value), int(which), ctypes.c_uint64(pointer))
    )
    return value.value if answer is R.CUDA_SUCCESS else answer


def code(answer: tuple[Any, ...]) -> R:
    """The result code of a call through cuda.bindings."""
    result = answer[0]
    assert isinstance(result, R)
    return result


def ok(answer: tuple[Any, ...]) -> Any:
    """What a call answered besides success."""
    assert code(answer) is R.CUDA_SUCCESS, code(answer)
    values = answer[1:]
    return values[0] if len(values) == 1 else values or None


def arguments(name: str, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Launch parameters of a built-in, in the form that cuda.bindings wants."""
    return tuple(values), SIGNATURES[name]


class PinnedWord:
    """Four bytes of pinned host memory that launches and the host both see."""

    def __init__(self, value: int = 0) -> None:
        flags = cuda.CU_MEMHOSTALLOC_DEVICEMAP | cuda.CU_MEMHOSTALLOC_PORTABLE
        self.host = int(ok(cuda.cuMemHostAlloc(64, flags)))
        self.device = int(ok(cuda.cuMemHostGetDevicePointer(self.host, 0)))
        self._word = ctypes.c_uint32.from_address(self.host)
        self.value = value

    @property
    def value(self) -> int:
        return self._word.value

    @value.setter
    def value(self, value: int) -> None:
        self._word.value = value


class Gpu:
    """Device 0, its primary context current, the built-ins loaded, and what a case allocated."""

    def __init__(self, ordinal: int = 0) -> None:
        ok(cuda.cuInit(0))
        self.device = ok(cuda.cuDeviceGet(ordinal))
        self.context = ok(cuda.cuDevicePrimaryCtxRetain(self.device))
        ok(cuda.cuCtxSetCurrent(self.context))
        self.module = ok(cuda.cuModuleLoadData(BUILTINS_PTX.read_bytes() + b"\0"))
        self._allocated: list[int] = []

    def function(self, name: str) -> Any:
        return ok(cuda.cuModuleGetFunction(self.module, name.encode()))

    def allocate(self, size: int) -> int:
        pointer = int(ok(cuda.cuMemAlloc(size)))
        self._allocated.append(pointer)
        return pointer

    def upload(self, values: ArrayLike, dtype: Any = np.uint32) -> int:
        array = np.ascontiguousarray(values, dtype=dtype)
        pointer = self.allocate(array.nbytes)
        ok(cuda.cuMemcpyHtoD(pointer, array, array.nbytes))
        return pointer

    def download(self, pointer: int, count: int, dtype: Any = np.uint32) -> NDArray[Any]:
        array = np.empty(count, dtype=dtype)
        ok(cuda.cuMemcpyDtoH(array, pointer, array.nbytes))
        return array

    def launch(
        self,
        name: str,
        *values: Any,
        stream: Any = 0,
        grid: tuple[int, int, int] = (4, 1, 1),
        block: tuple[int, int, int] = (64, 1, 1),
    ) -> None:
        ok(self.try_launch(name, *values, stream=stream, grid=grid, block=block))

    def try_launch(
        self,
        name: str,
        *values: Any,
        stream: Any = 0,
        grid: tuple[int, int, int] = (4, 1, 1),
        block: tuple[int, int, int] = (64, 1, 1),
        shared_bytes: int = 0,
    ) -> tuple[Any, ...]:
        parameters = arguments(name, *values) if values else 0
        return cuda.cuLaunchKernel(
            self.function(name), *grid, *block, shared_bytes, stream, parameters, 0
        )

    def clean_up(self) -> None:
        """Frees what the case allocated; after a sticky error, or where the case did, there is
        nothing to free."""
        with suppress(AssertionError):
            ok(cuda.cuCtxSetCurrent(self.context))
            ok(cuda.cuCtxSynchronize())
        for pointer in self._allocated:
            cuda.cuMemFree(pointer)
        self._allocated.clear()


_nursery = Nursery()


def alone(case: Callable[..., None]) -> Callable[[], None]:
    """Runs a case in a process of its own: because it breaks its context, because it depends on
    what the process has not done yet, or because a wrong driver would make it wait for ever."""

    def run_case() -> None:
        """Fails with what the case said, unless its process ends well."""
        module, name = case.__module__, case.__name__
        order = Order("tests.driver.harness:run_alone", [module, name], imports=[module])
        try:
            done = _nursery.run(order, env=os.environ, timeout=WAIT_S_MAX)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"not done after {WAIT_S_MAX} s\n{late.output}") from None
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"

    run_case.__name__ = case.__name__
    run_case.__doc__ = case.__doc__
    run_case.__module__ = case.__module__
    run_case.case = case  # type: ignore[attr-defined]
    return run_case


def run_program(
    env: Mapping[str, str], text: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """A text as a program of its own. What it imports of ours is there when it begins, so it takes
    none of the second that a new interpreter needs for that."""
    order = Order("tests.driver.harness:run_text", [text, *arguments], imports=[__name__])
    return _nursery.run(order, env=env, timeout=WAIT_S_MAX)


class Conversation:
    """Such a program, which reads lines and answers with lines."""

    def __init__(self, env: Mapping[str, str], text: str) -> None:
        order = Order("tests.driver.harness:run_text", [text], imports=[__name__])
        theirs, ours = os.pipe()
        heard, said = os.pipe()
        streams = {0: theirs, 1: said, 2: sys.__stderr__.fileno() if sys.__stderr__ else said}
        self.process = _nursery.start(order, env=env, descriptors=streams)
        os.close(theirs)
        os.close(said)
        self._input, self._output = os.fdopen(ours, "w"), os.fdopen(heard)

    def say(self, line: str = "") -> None:
        self._input.write(f"{line}\n")
        self._input.flush()

    def hear(self) -> str:
        return self._output.readline().strip()

    def end(self) -> int:
        """No more lines: it ends by itself. Its exit status."""
        with suppress(BrokenPipeError):
            self._input.close()
        with self._output:
            self._output.read()
        return self.process.wait(WAIT_S_MAX)


def run_text() -> None:
    """What its process does. It was forked, so a path to the simulated driver comes too late to
    lead there: on a machine with a GPU it would find the real one."""
    if "GPUSHARE_SIM_DIR" in os.environ:
        for library in (SIM_DRIVER, SIM_NVML):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    exec(compile(sys.argv[1], "<program>", "exec"), {"__name__": "__main__"})


def run_alone() -> None:
    """What the process of its own does: the case, which gets a Gpu if it asks for one."""
    module, name = sys.argv[1:]
    case = getattr(sys.modules[module], name).case
    with driver_under_test():
        case(*(Gpu() for _ in inspect.signature(case).parameters))
