"""What the bootstrap tells the hook, seen with a stand-in for the hook in a real ipykernel."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.environment import SHIM_DIR, SHIM_MODULE
from tests.kernel.conftest import Recording, await_printed
from tests.support.kernels import Kernel
from tests.support.waits import wait_until

Start = Callable[..., Kernel]
SOURCE = SHIM_DIR / f"{SHIM_MODULE}.py"
MAGICS = sorted((SHIM_DIR.parent / "magics").glob("*.py"))
BEGAN_ENDED = ["began", "ended"]


@pytest.mark.promise(
    "jupyter-2",
    "The bootstrap reports begin and end of cells that fail, do not parse, await, nest or overlap",
)
@pytest.mark.parametrize(
    ("code", "status"),
    [
        pytest.param("1 + 1", "ok", id="sync"),
        pytest.param("import asyncio\nawait asyncio.sleep(0)", "ok", id="async"),
        pytest.param("1 / 0", "error", id="failing"),
        pytest.param("def (", "error", id="syntax-error"),
        pytest.param("raise SystemExit", "error", id="system-exit"),
    ],
)
def test_a_cell_begins_and_ends_once(
    kernel: Kernel, heard: Recording, code: str, status: str
) -> None:
    """Whatever kind of cell it is and however it ends, it is reported once."""
    assert kernel.run(code).status == status
    assert heard.of(kernel.pid) == BEGAN_ENDED


@pytest.mark.parametrize("code", ["", "   \n"])
def test_an_empty_cell_is_no_cell(kernel: Kernel, heard: Recording, code: str) -> None:
    """IPython tells of the end of an empty cell without its beginning: nothing is reported."""
    kernel.run(code)
    assert heard.of(kernel.pid) == []


@pytest.mark.promise("jupyter-3")
def test_silent_execution_is_not_reported(kernel: Kernel, heard: Recording) -> None:
    """A frontend's own silent code is no cell of the user."""
    assert kernel.run("1 + 1", silent=True).status == "ok"
    assert heard.of(kernel.pid) == []


@pytest.mark.promise("jupyter-2")
@pytest.mark.promise("jupyter-3")
def test_a_cell_in_a_cell_is_part_of_it(kernel: Kernel, heard: Recording) -> None:
    """run_cell inside a cell, empty or not, does not end the outer one."""
    kernel.run("ip = get_ipython()\nip.run_cell('1 + 1')\nip.run_cell('2')").ok()
    assert heard.of(kernel.pid) == BEGAN_ENDED


@pytest.mark.promise("jupyter-2")
@pytest.mark.promise("jupyter-3")
def test_overlapping_cells_end_with_the_last(kernel: Kernel, heard: Recording) -> None:
    """A cell on a subshell that outlasts the main shell's cell keeps the process in a cell."""
    subshell = kernel.control("create_subshell_request")["subshell_id"]
    kernel.run("import threading\ngo, there = threading.Event(), threading.Event()").ok()
    before = len(heard.of(kernel.pid))
    held = kernel.submit("there.set(); go.wait()", subshell_id=subshell)
    kernel.run("there.wait()").ok()
    assert heard.of(kernel.pid)[before:] == ["began"]
    kernel.run("go.set()").ok()
    kernel.wait(held).ok()
    told = heard.of(kernel.pid)[before:]
    assert told.count("began") == told.count("ended") and told[-1] == "ended"
    kernel.control("delete_subshell_request", {"subshell_id": subshell})


@pytest.mark.promise(
    "jupyter-3",
    "Scripts and notebooks that a cell runs with `%run`, silent executions, subshells and several "
    "cells at once are reported rightly",
)
def test_a_script_run_in_a_cell_is_part_of_it(
    kernel: Kernel, heard: Recording, tmp_path: Path
) -> None:
    """%run of a script, and of a notebook, whose cells are cells in a cell."""
    (tmp_path / "script.py").write_text("print('script')")
    cell = '{"cell_type": "code", "metadata": {}, "outputs": [], "source": ["print(\'cell\')"]}'
    (tmp_path / "inner.ipynb").write_text(
        f'{{"cells": [{cell}, {cell}], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 4}}'
    )
    assert kernel.run(f"%run {tmp_path}/script.py").ok().text == "script\n"
    assert heard.of(kernel.pid) == BEGAN_ENDED
    assert kernel.run(f"%run {tmp_path}/inner.ipynb").ok().text == "cell\ncell\n"
    assert heard.of(kernel.pid) == 2 * BEGAN_ENDED


@pytest.mark.promise("jupyter-2")
def test_an_interrupted_cell_ends(kernel: Kernel, heard: Recording) -> None:
    """KeyboardInterrupt in a cell is reported as its end."""
    # Many short sleeps: the system may hand the signal to another thread than the one that sleeps.
    cell = kernel.submit("import time\nprint('up', flush=True)\nwhile True:\n    time.sleep(0.1)")
    await_printed(kernel, cell)
    kernel.interrupt()
    assert kernel.wait(cell).ename == "KeyboardInterrupt"
    assert heard.of(kernel.pid) == BEGAN_ENDED


WAITS = """
import ctypes
hook = ctypes.CDLL(None)
def gated_call():
    if hook.recording_wait():
        raise RuntimeError("CUDA error: operation not permitted")
raises = ctypes.PyDLL(None).recording_wait_raises
def deep(depth):
    return deep(depth - 1) if depth else raises()
"""
ONE_LINE = ["KeyboardInterrupt: This cell was interrupted while it waited for the GPU."]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("gated_call()", id="sync"),
        pytest.param(
            "try:\n    gated_call()\nexcept RuntimeError:\n    pass\n1",
            id="caught",
            marks=pytest.mark.full,
        ),
        pytest.param("import asyncio\nawait asyncio.sleep(0)\ngated_call()", id="async"),
        pytest.param(
            "await __import__('asyncio').sleep(0)\nhook.recording_wait()\n1",
            id="unasked",
            marks=pytest.mark.full,
        ),
        pytest.param("raises()", id="raised-in-c"),
        pytest.param("deep(20)", id="raised-deep-in-c", marks=pytest.mark.full),
        pytest.param(
            "try:\n    deep(20)\nfinally:\n    str(7)", id="finally", marks=pytest.mark.full
        ),
        pytest.param(
            "await __import__('asyncio').sleep(0)\nraises()",
            id="async-raised-in-c",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_cancelled_wait_ends_the_cell_with_keyboard_interrupt(
    kernel: Kernel, heard: Recording, code: str
) -> None:
    """A SIGINT and then an error from the waiting call: the cell says KeyboardInterrupt, and the
    next cell runs."""
    kernel.run(WAITS).ok()
    cell = kernel.submit(code)
    wait_until(lambda: "waiting" in heard.of(kernel.pid), "the cell waits")
    assert not kernel.done(cell)
    kernel.interrupt()
    heard.cancel()
    reply = kernel.wait(cell)
    assert (reply.ename, reply.printed.errors) == ("KeyboardInterrupt", ONE_LINE)
    assert reply.stderr == ""
    assert kernel.run("import sys; repr(sys.last_value.__context__)").ok().text == "'None'"


def test_a_cell_that_waits_for_its_thread_says_where(kernel: Kernel, heard: Recording) -> None:
    """The signal ends the join, which the cell itself waits in, and the kernel goes on."""
    kernel.run(WAITS).ok()
    cell = kernel.submit(
        "import threading\n"
        "thread = threading.Thread(target=hook.recording_wait)\n"
        "def work():\n"  # the signal may come before the join: IPython compiles line by line
        "    thread.start()\n"
        "    thread.join()\n"
        "work()"
    )
    wait_until(lambda: "waiting" in heard.of(kernel.pid), "the cell waits")
    kernel.interrupt()
    reply = kernel.wait(cell)
    heard.cancel()
    assert reply.ename == "KeyboardInterrupt"
    assert "join" in "".join(reply.printed.errors)
    kernel.run("thread.join()").ok()


@pytest.mark.promise(
    "jupyter-4",
    "A cell whose wait was cancelled without a signal ends with the same KeyboardInterrupt; one "
    "whose code catches the error goes on, and its later errors are its own",
)
@pytest.mark.parametrize(
    ("code", "ename", "told"),
    [
        pytest.param("raises()", "KeyboardInterrupt", ONE_LINE[0], id="sync"),
        pytest.param("deep(20)", "KeyboardInterrupt", ONE_LINE[0], id="deep"),
        pytest.param("gated_call()", "KeyboardInterrupt", ONE_LINE[0], id="raised-in-python"),
        pytest.param(
            "await __import__('asyncio').sleep(0)\nraises()",
            "KeyboardInterrupt",
            ONE_LINE[0],
            id="async",
        ),
        pytest.param(
            "try:\n    raises()\nexcept RuntimeError as error:\n"
            "    raise ValueError('of a framework') from error",
            "KeyboardInterrupt",
            ONE_LINE[0],
            id="wrapped",
        ),
        pytest.param(
            "try:\n    raises()\nexcept RuntimeError:\n    pass\n1 / 0",
            "ZeroDivisionError",
            "ZeroDivisionError",
            id="caught-and-another",
        ),
        pytest.param(
            "get_ipython().run_cell('raises()')\n1 / 0",
            "ZeroDivisionError",
            "ZeroDivisionError",
            id="nested-and-another",
        ),
        pytest.param(
            "hook.recording_wait()\nraise PermissionError(1, 'Operation not permitted')",
            "PermissionError",
            "PermissionError",
            id="of-the-system",
        ),
    ],
)
def test_a_cancellation_without_a_signal(
    kernel: Kernel, heard: Recording, code: str, ename: str, told: str
) -> None:
    """The error of the cancelled call is not what ends the cell; any other is."""
    kernel.run(WAITS).ok()
    cell = kernel.submit(code)
    wait_until(lambda: "waiting" in heard.of(kernel.pid), "the cell waits")
    heard.cancel()
    reply = kernel.wait(cell)
    assert reply.ename == ename
    assert told in reply.printed.errors[-1]
    assert kernel.run("raise RuntimeError('operation not permitted')").ename == "RuntimeError"


def test_code_that_catches_the_error_goes_on(kernel: Kernel, heard: Recording) -> None:
    """Without a signal the exception is the code's own."""
    kernel.run(WAITS).ok()
    cell = kernel.submit("try:\n    raises()\nexcept RuntimeError:\n    caught = 42\ncaught")
    wait_until(lambda: "waiting" in heard.of(kernel.pid), "the cell waits")
    heard.cancel()
    assert kernel.wait(cell).ok().text == "42"


def test_an_interrupt_without_a_wait_is_shown_as_ever(kernel: Kernel) -> None:
    """With its place in the code."""
    reply = kernel.run("def work():\n    raise KeyboardInterrupt\nwork()")
    assert reply.ename == "KeyboardInterrupt"
    assert "work()" in "".join(reply.printed.errors)


@pytest.mark.parametrize(
    ("owner", "name", "when"),
    [
        pytest.param("get_ipython()", "_showtraceback", "signals", id="while-it-is-shown"),
        pytest.param("get_ipython().kernel", "_restore_input", "signals", id="after-the-cell"),
        pytest.param(
            "get_ipython().kernel.session",
            "send",
            "signals and 'execute_reply' in arguments",
            id="with-the-reply",
        ),
    ],
)
@pytest.mark.parametrize(
    "code", ["raises()", "await __import__('asyncio').sleep(0)\nraises()"], ids=["sync", "async"]
)
def test_a_signal_after_the_cancellation_leaves_the_reply_alone(
    kernel: Kernel, heard: Recording, code: str, owner: str, name: str, when: str
) -> None:
    """The scheduler's word may be quicker than the signal of the same interrupt, which then comes
    while the kernel tells how the cell has ended; cells are interrupted as ever afterwards."""
    kernel.run(
        f"{WAITS}\nimport os, signal, sys\nowner = {owner}\nnow = owner.{name}\n"
        "signals = [signal.SIGINT]\n"
        "def late(*arguments, **more):\n"
        f"    if 'last_value' in vars(sys) and {when}:\n"
        "        os.kill(os.getpid(), signals.pop())\n"
        "    return now(*arguments, **more)\n"
        f"owner.{name} = late"
    ).ok()
    cell = kernel.submit(code)
    wait_until(lambda: "waiting" in heard.of(kernel.pid), "the cell waits")
    heard.cancel()
    reply = kernel.wait(cell)
    assert (reply.ename, reply.printed.errors) == ("KeyboardInterrupt", ONE_LINE)
    kernel.run(f"owner.{name} = now")
    own = kernel.run("signal.raise_signal(signal.SIGINT)")
    assert own.ename == "KeyboardInterrupt"
    assert "raise_signal" in "".join(own.printed.errors)


@pytest.mark.parametrize(
    ("code", "silent"),
    [
        pytest.param("get_ipython().run_cell('raises()')", False, id="after-a-cell-within-it"),
        pytest.param("await sleep(0)\nget_ipython().run_cell('raises()')", False, id="async"),
        pytest.param("await sleep(0)", True, id="async-and-silent"),
    ],
)
def test_an_interrupt_after_a_cell_that_succeeds_is_nobody_elses(
    kernel: Kernel, heard: Recording, code: str, silent: bool
) -> None:
    """The expressions of its request can be interrupted, though a cell within it or before it has
    ended with a cancelled wait."""
    kernel.run(f"{WAITS}\nfrom asyncio import sleep").ok()
    expressions = {"own": "__import__('signal').raise_signal(2)"}
    cell = kernel.submit("raises()" if silent else code, user_expressions=expressions)
    wait_until(lambda: "waiting" in heard.of(kernel.pid), "the cell waits")
    heard.cancel()
    reply = kernel.wait(cell)
    if silent:
        reply = kernel.run(code, silent=True, user_expressions=expressions)
    assert reply.ok().expressions["own"]["ename"] == "KeyboardInterrupt"


def test_the_shell_shows_exceptions_itself_after_unloading(
    start_kernel: Start, stub_env: dict[str, str]
) -> None:
    """%unload_ext leaves nothing in the shell, nor in the kernel."""
    kernel = start_kernel(stub_env)
    ours = (
        "shell = get_ipython()\n"
        "['showtraceback' in vars(shell), '_cancel_on_sigint' in vars(shell.kernel)]"
    )
    assert kernel.run(ours).ok().text == "[True, True]"
    kernel.run("%unload_ext gpushare_bootstrap").ok()
    assert kernel.run(ours).ok().text == "[False, False]"


def test_an_async_wait_in_another_task_leaves_the_kernel_alive(
    kernel: Kernel, heard: Recording
) -> None:
    """KeyboardInterrupt raised in a task that is not the cell would end the event loop: there the
    cell is cancelled in ipykernel's own way, and the kernel goes on."""
    kernel.run(WAITS).ok()
    cell = kernel.submit(
        "import asyncio\n"
        "async def inner():\n"
        "    gated_call()\n"
        "await asyncio.ensure_future(inner())\n"
    )
    wait_until(lambda: "waiting" in heard.of(kernel.pid), "the cell waits")
    assert not kernel.done(cell)
    kernel.interrupt()
    heard.cancel()
    assert kernel.wait(cell).printed.errors == ONE_LINE
    assert kernel.run("6 * 7").ok().text == "42"


def test_an_async_cell_without_a_wait_is_interrupted_as_ever(kernel: Kernel) -> None:
    """Our handler gives way to ipykernel's when no wait was cancelled."""
    cell = kernel.submit(
        "import asyncio\nprint('up', flush=True)\nwhile True:\n    await asyncio.sleep(0.1)"
    )
    await_printed(kernel, cell)
    kernel.interrupt()
    assert kernel.wait(cell).ename == "CancelledError"
    assert kernel.run("6 * 7").ok().text == "42"


@pytest.mark.promise("jupyter-5")
def test_a_forked_child_reports_nothing(kernel: Kernel, heard: Recording) -> None:
    """A child of the kernel that runs cells of its own is no notebook."""
    code = """
    import os
    child = os.fork()
    if child == 0:
        try:
            get_ipython().run_cell("1 + 1")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    """
    kernel.run(code).ok()
    assert {line.split()[1] for line in heard.lines()} == {str(kernel.pid)}
    assert heard.of(kernel.pid) == BEGAN_ENDED


@pytest.mark.promise("jupyter-5", "Children of a kernel inherit nothing of the bootstrap")
@pytest.mark.promise("bad-input-48")
def test_children_do_not_see_the_shim(
    start_kernel: Start, stub_env: dict[str, str], recording: Recording, tmp_path: Path
) -> None:
    """Neither the kernel's import path nor its children's environment has the shim folder; the
    user's PYTHONPATH is as it was. --ext of the user and ours accumulate."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine_ext.py").write_text(
        "def load_ipython_extension(ip):\n    ip.user_ns['mine'] = 7\n"
    )
    env = {**stub_env, "PYTHONPATH": str(own)}
    kernel = start_kernel(env, extra_arguments=["--ext=mine_ext"])
    assert kernel.run("import mine_ext; mine").ok().text == "7"
    assert recording.of(kernel.pid) == BEGAN_ENDED
    code = "import os, sys, subprocess\nprint(os.environ.get('PYTHONPATH'))\nprint(sys.path)\n"
    child = f"{code}print(subprocess.check_output([sys.executable, '-c', {code!r}]).decode())"
    text = kernel.run(child).ok().text
    assert str(SHIM_DIR) not in text
    assert text.splitlines()[0] == str(own)
    assert text.count(f"{own}\n") == 2


def test_without_a_pythonpath_of_the_user_none_is_left(kernel: Kernel) -> None:
    """Children see no PYTHONPATH where there was none before."""
    assert kernel.run("import os; 'PYTHONPATH' in os.environ").ok().text == "False"


def test_it_registers_nothing_where_the_hook_is_not(tmp_path: Path) -> None:
    """Without the hook in the process there is no callback: cells cost nothing more."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "before = {k: list(v) for k, v in shell.events.callbacks.items()}\n"
        "shell.run_line_magic('load_ext', sys.argv[2])\n"
        "assert {k: list(v) for k, v in shell.events.callbacks.items()} == before\n"
        "assert sys.argv[1] not in sys.path\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"} | {"IPYTHONDIR": str(tmp_path)}
    arguments = [sys.executable, "-c", script, str(SHIM_DIR), SHIM_MODULE]
    subprocess.run(arguments, check=True, env=env)


@pytest.mark.promise("jupyter-39")
@pytest.mark.parametrize("source", [SOURCE, *MAGICS], ids=lambda p: p.name)
def test_each_file_is_of_old_python_and_the_standard_library(source: Path) -> None:
    """Bootstrap and magics parse as Python 3.6 and import nothing outside the standard library, but
    for the IPython that calls them."""
    tree = ast.parse(source.read_text(), feature_version=(3, 6))
    names = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        (node.module or "").split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level
    }
    assert names <= {*sys.stdlib_module_names, "IPython"}
    assert "__future__" not in names  # annotations of that kind came with Python 3.7
