"""`%%gpushare --class batch --need 40GiB --hold` in real kernels."""

from __future__ import annotations

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.waits import wait_until

RUNS_AS = "print(shim._magics().verbs.class_now())"
PUT_BACK = pytest.mark.promise(
    "jupyter-9",
    "`%%gpushare --class batch` holds for its cell alone, also when the cell fails, awaits or "
    "nests",
)


@pytest.fixture(scope="module")
def kernel(lasting: SharedGpu) -> Kernel:
    kernel = lasting.kernel("cell.ipynb", set_up=False)
    kernel.run("import gpushare_bootstrap as shim, asyncio\nverbs = shim._magics().verbs").ok()
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


ALL = pytest.mark.promise(
    "jupyter-10",
    "`%%gpushare --class batch --need 40GiB --hold` holds for its cell alone, and what the kernel "
    "had before comes back, also when the cell fails, is interrupted, awaits or nests",
)
STATE = "print(verbs.class_now(), verbs.need_now(), round(verbs.hold_now(verbs.hook_of(''))[0]))"
OPTIONS = "%%gpushare --need 1GiB --class batch --hold 20s"
IN_IT = "batch 1048576.0KiB 20"


def state_of(kernel: Kernel) -> str:
    return kernel.run(STATE).ok().text.strip()


@pytest.fixture(scope="module")
def user(lasting: SharedGpu) -> Kernel:
    """It has opened the GPU; a cell of it that computes holds a turn."""
    user = lasting.kernel("user.ipynb")
    user.run("import asyncio, gpushare_bootstrap as shim\nverbs = shim._magics().verbs").ok()
    return user


@ALL
@pytest.mark.parametrize(
    ("body", "ename", "text"),
    [
        pytest.param(f"{STATE}\n6 * 7", None, f"{IN_IT}\n42", id="result"),
        pytest.param(f"await asyncio.sleep(0)\n{STATE}", None, f"{IN_IT}\n", id="async"),
        pytest.param("1 / 0", "ZeroDivisionError", "", id="fails"),
        pytest.param("1 +", "SyntaxError", "", id="syntax"),
        pytest.param("raise KeyboardInterrupt", "KeyboardInterrupt", "", id="interrupted"),
        pytest.param(
            "inner = '%%gpushare --class interactive --need 2GiB --hold 30s\\n' + STATE\n"
            f"get_ipython().run_cell(inner)\n{STATE}",
            None,
            f"interactive 2097152.0KiB 30\n{IN_IT}\n",
            id="nested",
        ),
    ],
)
def test_all_options_are_the_cells_alone(
    user: Kernel, body: str, ename: str | None, text: str
) -> None:
    """What the kernel had before is back afterwards."""
    user.run(f"STATE = {STATE!r}").ok()
    reply = user.run(f"{OPTIONS}\n{body}")
    assert (reply.ename, reply.text) == (ename, text)
    assert state_of(user) == "interactive none 0"


@ALL
def test_a_hold_keeps_the_gpu_while_the_cell_runs(lasting: SharedGpu, user: Kernel) -> None:
    """The cell has the turn by hand, for as long as is allowed; its end gives it back."""
    text = user.run(f"%%gpushare --hold\n{gpu_cells.spin(1)}\n%gpushare").ok().text
    assert "reserved until" in text
    wait_until(lambda: lasting.holders() == [], "the turn is given back")
    assert state_of(user) == "interactive none 0"


@ALL
def test_what_was_said_before_goes_on(lasting: SharedGpu, user: Kernel) -> None:
    """A need, and a hold with and without a turn: that waits for its turn for as long as before."""
    user.run("%gpushare need 3GiB\n%gpushare hold 5m").ok()
    assert user.run(f"{OPTIONS}\n{STATE}").ok().text == f"{IN_IT}\n"
    assert state_of(user) == "interactive 3145728.0KiB 300"
    user.run(f"{OPTIONS}\n{gpu_cells.spin(1)}").ok()
    kind, need, left_s = state_of(user).split()
    assert (kind, need) == ("interactive", "3145728.0KiB") and 200 < int(left_s) <= 300
    assert lasting.holders() == ["user.ipynb"]
    user.run("%gpushare release\n%gpushare need none").ok()
    assert state_of(user) == "interactive none 0"


@ALL
def test_a_hold_before_the_first_use(lasting: SharedGpu) -> None:
    """The cell that opens the GPU has it by hand, and the next one has not; a hold that was asked
    for before it still comes."""
    for name, said in (("first.ipynb", ""), ("second.ipynb", "%gpushare hold 5m")):
        kernel = lasting.kernel(name, set_up=False)
        kernel.run("import gpushare_bootstrap as shim\nverbs = shim._magics().verbs").ok()
        kernel.run(said).ok()
        cell = f"%%gpushare --hold 10m\n{gpu_cells.setup()}{gpu_cells.spin(1)}\n{STATE}"
        assert 400 < int(kernel.run(cell).ok().text.split()[-1]) <= 600
        left_s = int(state_of(kernel).split()[-1])
        assert (200 < left_s <= 300) if said else left_s == 0
        kernel.stop()


@pytest.mark.promise("jupyter-24")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "%%gpushare: it needs an option."),
        ("--fast", "%%gpushare: '--fast' is not an option."),
        ("--class", "%%gpushare: --class needs one name."),
        ("--need", "%%gpushare: --need needs an amount."),
        ("--need much", "%%gpushare: The need 'much' is no amount of memory."),
        ("--need 4000GiB --hold", "It needs 3.906 TiB, and its GPU has"),
        ("--hold soon", "%%gpushare: 'soon' is not a time."),
        ("--class batch batch", "%%gpushare: 'batch' is not an option."),
        ("--hold --hold", "%%gpushare: --hold stands there twice."),
        ("--class --hold", "%%gpushare: --class needs one name."),
        ("class batch", "%%gpushare: 'class' is not an option."),
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
    assert state_of(kernel) == "interactive none 0"
