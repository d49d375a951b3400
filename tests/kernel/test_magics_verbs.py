"""The smaller sub-commands of `%gpushare`, and the Tab key, in real kernels."""

from __future__ import annotations

import pytest

from jupyter_gpushare.kernel.magics import USAGE, completions, gpushare, verbs
from jupyter_gpushare.kernel.magics.scheduler import SchedulerRefused
from jupyter_gpushare.kernel.magics.words import Unable
from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.kernels import ANSWER_S_MAX, Kernel
from tests.support.waits import wait_until


@pytest.fixture(scope="module")
def alice(lasting: SharedGpu) -> Kernel:
    return lasting.kernel("alice.ipynb")


@pytest.mark.promise(
    "jupyter-28",
    "`%gpushare queue` shows who has each GPU and who waits, and not this kernel's story",
)
def test_queue_shows_the_devices_alone(alice: Kernel) -> None:
    """The holder's row is there; the sentence on this kernel is not."""
    text = alice.run(f"{gpu_cells.spin(1)}\n%gpushare queue\n").ok().text
    assert "has it  alice.ipynb (this kernel)" in text
    assert "This kernel has the GPU." not in text


@pytest.mark.promise(
    "jupyter-29", "`%gpushare evict` makes this kernel's turn and movable memory leave the GPU"
)
def test_evict_gives_the_turn_back(lasting: SharedGpu, alice: Kernel) -> None:
    """A kernel that keeps its turn between cells has it no more after `evict`, and works on."""
    alice.run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m\n").ok()
    assert lasting.holders() == ["alice.ipynb"]
    assert "leaves the GPU" in alice.run("%gpushare evict").ok().text
    wait_until(lambda: lasting.holders() == [], "the turn is given back")
    alice.run("%gpushare release").ok()
    alice.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise("jupyter-29")
def test_evict_before_cuda_has_nothing_to_do(lasting: SharedGpu) -> None:
    """A kernel that has not used the GPU reads that nothing of it is there."""
    text = lasting.kernel("fresh.ipynb", set_up=False).run("%gpushare evict").ok().text
    assert text == "This kernel has not used the GPU yet, so nothing of it is there.\n"


@pytest.mark.promise(
    "jupyter-30",
    "`%gpushare class` changes the class of this notebook, also before it has used the GPU, and "
    "says why it may not",
)
def test_class_is_changed_from_a_cell(lasting: SharedGpu) -> None:
    """The scheduler's own sentence is the answer to a class that may not be."""
    kernel = lasting.kernel("classy.ipynb", set_up=False)
    assert "runs as batch" in kernel.run("%gpushare class batch").ok().text
    tenant = lasting.tenant("classy.ipynb")
    assert tenant is not None and tenant["runs_as"] == "batch"
    assert "may not use the class realtime" in kernel.run("%gpushare class realtime").ok().text
    assert "There is no class 'fast'." in kernel.run("%gpushare class fast").ok().text
    assert "class needs a name." in kernel.run("%gpushare class").ok().text


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(405, "no"), (501, "no"), (400, "There is no class ''. Send one of: batch, interactive.")],
)
def test_an_older_scheduler_knows_no_need(
    status: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no such request, or looks for a class in it."""

    def refuse(*_: object) -> None:
        raise SchedulerRefused(status, sentence)

    monkeypatch.setattr(verbs, "ask", refuse)
    monkeypatch.setattr(verbs, "own_tenant", lambda: "t")
    with pytest.raises(Unable, match="Start a newer one, or set GPUSHARE_NEED"):
        verbs.set_need("1GiB")


def offered(kernel: Kernel, code: str) -> list[str]:
    """What a real kernel answers to the Tab key at the end of the code."""
    reply = kernel.client.complete(code, len(code), reply=True, timeout=ANSWER_S_MAX)
    return [str(match) for match in reply["content"]["matches"]]


@pytest.mark.promise(
    "jupyter-31",
    "The Tab key completes the sub-commands of `%gpushare` and times, with and without jedi",
)
@pytest.mark.parametrize("jedi", [True, False], ids=["jedi", "plain"])
def test_the_tab_key_completes(alice: Kernel, jedi: bool) -> None:
    """On any line of a cell, a kernel offers what fits to the letters before the cursor."""
    alice.run(f"get_ipython().Completer.use_jedi = {jedi}").ok()
    verbs = offered(alice, "%gpushare ")
    assert set(completions("%gpushare ")) <= set(verbs)  # jedi adds keywords of Python
    assert offered(alice, "x = 1\n%gpushare re")[:1] == ["release"]
    assert "10m" in offered(alice, "%gpushare hold 1")


def test_nothing_is_offered_after_a_complete_command() -> None:
    """Sub-commands without an argument, unknown ones and a third word have no completions."""
    for line in ("%gpushare release ", "%gpushare nonsense ", "%gpushare hold 1h "):
        assert completions(line) == []


def test_help_is_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a word about a mistake, also where the GPU is not shared."""
    gpushare("help", notice="This kernel does not share the GPU.")
    assert capsys.readouterr().out == USAGE + "\n"


def test_the_usage_names_each_sub_command() -> None:
    """What the Tab key offers stands in the usage, and so in the reference page."""
    for verb in completions("%gpushare "):
        assert f"%gpushare {verb}" in USAGE
