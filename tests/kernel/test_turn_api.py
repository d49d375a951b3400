"""`gpushare.turn()`: code outside of cells that counts as one, in real kernels."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.conftest import Recording, SharedGpu, await_that
from tests.support import gpu_cells
from tests.support.kernels import Kernel

Start = Callable[..., Kernel]
Env = dict[str, str]

THREAD = """
import threading, gpushare
there, go = threading.Event(), threading.Event()
def work():
    with gpushare.turn():
        there.set()
        go.wait(600)
thread = threading.Thread(target=work)
thread.start()
there.wait(600)
"""


@pytest.fixture
def kernel(start_kernel: Start, stub_env: Env) -> Kernel:
    return start_kernel(stub_env)


def balanced(told: list[str]) -> bool:
    """As many ends as beginnings, and the last word is an end."""
    return told.count("began") == told.count("ended") and told[-1] == "ended"


@pytest.mark.promise(
    "jupyter",
    "`gpushare.turn()` makes code of a thread or a callback count as a cell: the GPU is given back "
    "when the last of them ends",
)
def test_a_thread_in_a_turn_outlasts_its_cell(kernel: Kernel, recording: Recording) -> None:
    """The end of the cell that started the thread is not told; the end of the thread's turn is."""
    kernel.run(THREAD).ok()
    assert recording.of(kernel.pid) == ["began"]
    kernel.run("1 + 1").ok()
    assert recording.of(kernel.pid) == ["began"]
    kernel.run("go.set(); thread.join(); del thread").ok()
    assert recording.of(kernel.pid) == ["began", "ended"]


def test_a_thread_alone_begins_and_ends(kernel: Kernel, recording: Recording) -> None:
    """A turn that begins after the cell has ended is told, and so is its end."""
    kernel.run(
        "import threading, gpushare\ngo = threading.Event()\n"
        "def late():\n    go.wait(600)\n    with gpushare.turn():\n        pass\n"
        "thread = threading.Thread(target=late)\nthread.start()\n"
        "threading.Timer(0, lambda: None)"
    ).ok()
    assert recording.of(kernel.pid) == ["began", "ended"]
    kernel.run("go.set()", silent=True)
    await_that(lambda: len(recording.of(kernel.pid)) == 4, "the thread's turn was told")
    assert recording.of(kernel.pid) == ["began", "ended"] * 2


@pytest.mark.promise("`gpushare.turn()` makes code of a thread...")
def test_the_gpu_stays_until_the_threads_turn_ends(shared: SharedGpu) -> None:
    """Where nobody is idle for long, the GPU stays with the thread's kernel after the cell, and is
    given back when the turn of the thread ends."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    alice = shared.kernel("alice.ipynb")
    alice.run(f"{THREAD}\n{gpu_cells.spin(1)}").ok()
    assert shared.holders() == ["alice.ipynb"]
    alice.run("go.set(); thread.join()", silent=True).ok()
    await_that(lambda: shared.holders() == [], "the turn is given back")


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("@gpushare.turn\ndef f(x):\n    return seen(x)\nanswer = f(2)", id="bare"),
        pytest.param("@gpushare.turn()\ndef f(x):\n    return seen(x)\nanswer = f(2)", id="called"),
        pytest.param(
            "@gpushare.turn\nasync def f(x):\n    return seen(x)\nanswer = await f(2)", id="async"
        ),
        pytest.param(
            "async def f(x):\n    async with gpushare.turn():\n        return seen(x)\n"
            "answer = await f(2)",
            id="async-with",
        ),
        pytest.param(
            "again = gpushare.turn()\nwith again:\n    with again:\n        answer = seen(2)",
            id="nested",
        ),
    ],
)
def test_each_way_to_write_it(kernel: Kernel, code: str) -> None:
    """The body runs in a turn, its answer comes back, and the turn is over afterwards."""
    kernel.run(
        "import gpushare, gpushare_bootstrap as shim\n"
        "def marks():\n    return len(shim._reporter._running)\n"
        "def seen(x):\n    return x, marks()"
    ).ok()
    reply = kernel.run(f"before = marks()\n{code}\nanswer[0], answer[1] > before, marks() - before")
    assert reply.ok().text == "(2, True, 0)"


def test_a_turn_that_fails_or_is_interrupted_ends(kernel: Kernel, recording: Recording) -> None:
    """Whatever exception ends the body, the end is told and the exception goes on."""
    for error in ("ValueError", "KeyboardInterrupt"):
        assert (
            kernel.run(f"import gpushare\nwith gpushare.turn():\n    raise {error}").ename == error
        )
    assert balanced(recording.of(kernel.pid))


def test_a_fork_in_a_turn_tells_nothing_of_the_child(kernel: Kernel, recording: Recording) -> None:
    """A child leaves the turn that it was born in, and enters its own, in silence."""
    kernel.run(
        "import os, gpushare\n"
        "with gpushare.turn():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        with gpushare.turn():\n"
        "            pass\n"
        "        gpushare_turn = None\n"
        "if child == 0:\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)"
    ).ok()
    assert {line.split()[1] for line in recording.lines()} == {str(kernel.pid)}
    assert balanced(recording.of(kernel.pid))


@pytest.mark.promise(
    "jupyter",
    "`import gpushare` works in kernels of every environment, never hides another module of that "
    "name, and does nothing where the GPU is not shared",
)
def test_it_is_there_without_our_package(
    start_kernel: Start, stub_env: Env, recording: Recording, tmp_path: Path
) -> None:
    """A kernel whose Python cannot import jupyter_gpushare has `gpushare.turn`."""
    argv = [sys.executable, "-S", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    env = {**stub_env, "PYTHONPATH": sysconfig.get_path("purelib")}
    kernel = start_kernel(env, argv=argv, cwd=str(tmp_path))
    assert kernel.run("import jupyter_gpushare").ename == "ModuleNotFoundError"
    kernel.run("from gpushare import turn\nwith turn():\n    pass").ok()
    assert balanced(recording.of(kernel.pid))


@pytest.mark.promise("`import gpushare` works in kernels of...")
def test_another_module_of_that_name_goes_first(
    start_kernel: Start, stub_env: Env, tmp_path: Path
) -> None:
    """A user's own gpushare.py is the one that is imported."""
    (tmp_path / "gpushare.py").write_text("mine = 42")
    kernel = start_kernel(stub_env, cwd=str(tmp_path))
    assert kernel.run("import gpushare; gpushare.mine").ok().text == "42"


@pytest.mark.promise("`import gpushare` works in kernels of...")
def test_where_the_gpu_is_not_shared_it_does_nothing(start_kernel: Start, stub_env: Env) -> None:
    """With the sharing switched off, a turn is the code in it and nothing else."""
    kernel = start_kernel({**stub_env, "GPUSHARE_DISABLE": "1"})
    code = "import gpushare\nwith gpushare.turn():\n    answer = 42\nanswer"
    assert kernel.run(code).ok().text == "42"


def test_what_cannot_be_marked_is_told_so(kernel: Kernel) -> None:
    """A generator and a number get one sentence each."""
    kernel.run("import gpushare").ok()
    generator = kernel.run("@gpushare.turn\ndef f():\n    yield 1")
    number = kernel.run("gpushare.turn(3)")
    assert generator.evalue == (
        "turn() does not mark a generator. Use `with turn():` inside of it."
    )
    assert number.evalue == "turn() marks a function. Write `with turn():` for a block of code."
