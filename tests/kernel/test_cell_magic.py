"""`%%gpushare --class batch` in real kernels."""

from __future__ import annotations

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support.kernels import Kernel

RUNS_AS = "print(shim._magics().verbs.class_now())"
PUT_BACK = pytest.mark.promise(
    "jupyter",
    "`%%gpushare --class batch` holds for its cell alone, also when the cell fails, awaits or "
    "nests",
)


@pytest.fixture(scope="module")
def kernel(lasting: SharedGpu) -> Kernel:
    kernel = lasting.kernel("cell.ipynb", set_up=False)
    kernel.run("import gpushare_bootstrap as shim, asyncio").ok()
    return kernel


def class_of(kernel: Kernel) -> str:
    return kernel.run(RUNS_AS).ok().text.strip()


@PUT_BACK
@pytest.mark.parametrize(
    ("body", "ename", "text"),
    [
        pytest.param(f"{RUNS_AS}\n6 * 7", None, "batch\n42", id="result"),
        pytest.param(f"await asyncio.sleep(0)\n{RUNS_AS}\n6 * 7", None, "batch\n42", id="async"),
        pytest.param("1 / 0", "ZeroDivisionError", "", id="fails"),
        pytest.param("raise KeyboardInterrupt", "KeyboardInterrupt", "", id="interrupted"),
        pytest.param(
            f"get_ipython().run_cell('1')\nget_ipython().run_cell('')\n{RUNS_AS}",
            None,
            "1batch\n",
            id="cells-in-it",
        ),
        pytest.param(
            f"get_ipython().run_cell('%%gpushare --class interactive\\n{RUNS_AS}')\n{RUNS_AS}",
            None,
            "interactive\nbatch\n",
            id="nested",
        ),
    ],
)
def test_the_class_is_the_cells_alone(
    kernel: Kernel, body: str, ename: str | None, text: str
) -> None:
    """The body runs as a plain cell, and the class of before is back afterwards."""
    reply = kernel.run(f"%%gpushare --class batch\n{body}")
    assert (reply.ename, reply.text) == (ename, text)
    assert class_of(kernel) == "interactive"


@PUT_BACK
@pytest.mark.parametrize("before", ["%%time\n", ">>> "])
def test_the_class_is_put_back_whatever_stands_before_the_line(kernel: Kernel, before: str) -> None:
    """Another cell magic, or a prompt that was copied with the line."""
    assert "batch" in kernel.run(f"{before}%%gpushare --class batch\n{RUNS_AS}").ok().text
    assert class_of(kernel) == "interactive"


@PUT_BACK
def test_a_silent_run_in_a_cell_holds_until_that_ends(kernel: Kernel) -> None:
    """IPython tells nobody when the silent run ends."""
    silent = f"%%gpushare --class batch\\n{RUNS_AS}"
    assert "batch" in kernel.run(f"get_ipython().run_cell('{silent}', silent=True)").ok().text
    assert class_of(kernel) == "interactive"


@PUT_BACK
def test_history_and_line_numbers_are_those_of_the_cell(kernel: Kernel) -> None:
    """The history has the cell as it was written, and a traceback counts its lines."""
    errors = kernel.run("%%gpushare --class batch\n\n1 / 0").printed.errors
    assert "line 3" in "".join(errors)
    written = kernel.run("get_ipython().history_manager.input_hist_raw[-2]").ok().text
    assert "%%gpushare --class batch" in written


@pytest.mark.promise("Bad arguments of the magic get one...")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "%%gpushare: it needs an option."),
        ("--fast", "%%gpushare: '--fast' is not an option."),
        ("--class", "%%gpushare: --class needs one name."),
        ("--need 4GiB", "%%gpushare: a kernel is placed before it starts"),
        ("--class realtime", "may not use the class realtime"),
        ("--class fast", "There is no class 'fast'."),
    ],
)
def test_bad_options_are_told_and_the_cell_runs(kernel: Kernel, options: str, said: str) -> None:
    """One line, and the usage where the options make no sense; the cell runs as ever."""
    text = kernel.run(f"%%gpushare {options}\nprint('ran')").ok().text
    assert said in text.splitlines()[0]
    assert text.splitlines()[-1] == "ran"
    assert class_of(kernel) == "interactive"
