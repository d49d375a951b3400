"""`gpushare.turn()`: code outside of cells that counts as one, in real kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.conftest import Recording
from tests.support.kernels import Kernel
from tests.support.waits import wait_until

THREAD = """
import threading, gpushare
there, go = threading.Event(), threading.Event()
def work():
    with gpushare.turn():
        there.set()
        go.wait()
thread = threading.Thread(target=work)
thread.start()
there.wait()
"""


def balanced(told: list[str]) -> bool:
    """As many ends as beginnings, and the last word is an end."""
    return told.count("began") == told.count("ended") and told[-1] == "ended"


@pytest.mark.promise(
    "jupyter-44",
    "`gpushare.turn()` makes code of a thread or a callback count as a cell: the GPU is given back "
    "when the last of them ends",
)
def test_a_thread_in_a_turn_outlasts_its_cell(kernel: Kernel, heard: Recording) -> None:
    """The end of the cell that started the thread is not told; the end of the thread's turn is."""
    kernel.run(THREAD).ok()
    assert heard.of(kernel.pid) == ["began"]
    kernel.run("1 + 1").ok()
    assert heard.of(kernel.pid) == ["began"]
    kernel.run("go.set(); thread.join(); del thread").ok()
    assert heard.of(kernel.pid) == ["began", "ended"]


def test_a_thread_alone_begins_and_ends(kernel: Kernel, heard: Recording) -> None:
    """A turn that begins after the cell has ended is told, and so is its end."""
    kernel.run(
        "import threading, gpushare\ngo = threading.Event()\n"
        "def late():\n    go.wait()\n    with gpushare.turn():\n        pass\n"
        "thread = threading.Thread(target=late)\nthread.start()\n"
        "threading.Timer(0, lambda: None)"
    ).ok()
    assert heard.of(kernel.pid) == ["began", "ended"]
    kernel.run("go.set()", silent=True)
    wait_until(lambda: len(heard.of(kernel.pid)) == 4, "the thread's turn was told")
    assert heard.of(kernel.pid) == ["began", "ended"] * 2


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


def test_a_turn_that_fails_or_is_interrupted_ends(kernel: Kernel, heard: Recording) -> None:
    """Whatever exception ends the body, the end is told and the exception goes on."""
    for error in ("ValueError", "KeyboardInterrupt"):
        assert (
            kernel.run(f"import gpushare\nwith gpushare.turn():\n    raise {error}").ename == error
        )
    assert balanced(heard.of(kernel.pid))


def test_a_fork_in_a_turn_tells_nothing_of_the_child(kernel: Kernel, heard: Recording) -> None:
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
    assert {line.split()[1] for line in heard.lines()} == {str(kernel.pid)}
    assert balanced(heard.of(kernel.pid))


@pytest.mark.promise("jupyter-41")
def test_another_module_of_that_name_goes_first(kernel: Kernel, tmp_path: Path) -> None:
    """A user's own gpushare.py is the one that is imported."""
    (tmp_path / "gpushare.py").write_text("mine = 42")
    kernel.run(
        f"import sys\nours = sys.modules.pop('gpushare', None)\nsys.path.append({str(tmp_path)!r})"
    ).ok()
    assert kernel.run("import gpushare; gpushare.mine").ok().text == "42"
    kernel.run("del sys.path[-1], sys.modules['gpushare']").ok()


def test_what_cannot_be_marked_is_told_so(kernel: Kernel) -> None:
    """A generator and a number get one sentence each."""
    kernel.run("import gpushare").ok()
    generator = kernel.run("@gpushare.turn\ndef f():\n    yield 1")
    number = kernel.run("gpushare.turn(3)")
    assert generator.evalue == (
        "turn() does not mark a generator. Use `with turn():` inside of it."
    )
    assert number.evalue == "turn() marks a function. Write `with turn():` for a block of code."
