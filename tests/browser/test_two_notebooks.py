"""Notebooks, one simulated GPU, the real server extension and scheduler, and a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyter_gpushare.protocol.messages import TurnGranted
from tests.browser.jupyter import JupyterProcess, write_notebook
from tests.browser.panel import Panel, await_idle_kernel, open_lab, run_cell
from tests.support import gpu_cells
from tests.support.hook_client import ScriptedClient
from tests.support.kernels import kernel_env
from tests.support.older_jupyter import older_python
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.sim import MIB, SimulatedMachine

if TYPE_CHECKING:
    from playwright.sync_api import Page, Response, Route

TRAINS = [
    "from simulated import gpu\n\nweights = gpu.allocate(768 * 1024**2)  # 3 GiB",
    "step = 0\nwhile True:  # until it is interrupted\n    gpu.spin(20)\n    step += 1",
]
EXPLORES = [
    "from pathlib import Path\n\nfrom simulated import gpu\n\n"
    "while not Path('enough').exists():\n    gpu.spin(20)\nprint('explored', 'it')",
]
"""A cell that runs until it is told that its turn was seen."""
DEVICE_BYTES = 512 * MIB
TAKES_MOST = [
    f"from simulated import gpu\n\nweights = gpu.allocate({384 * MIB // 4})\ngpu.spin(1)",
]
"""A device has room for one of these, and not for two."""
WAITS = [
    "from simulated import gpu\n\nweights = gpu.allocate(1024**2)",
    "print('next', 'one')",
]
"""The first cell waits for the GPU while somebody has it."""
OVERLAP = [
    "from simulated import cu, gpu\n\ngpu.spin(1)\nprint('ready', 'now')",
    "gpu.spin(1)\nprint('first', 'done')",
    "cu.cuCtxSetCurrent(gpu.context)\ngpu.spin(1)\nprint('second', 'done')",
]
"""The first cell waits for nobody. The third one runs in another thread than the second."""
INTO_A_SUBSHELL = """async path => {
  const widgets = [...jupyterapp.shell.widgets('main')];
  const notebook = widgets.find(each => each.context?.path === path);
  const kernel = notebook.sessionContext.session.kernel;
  const { content } = await kernel.requestCreateSubshell({}).done;
  kernel.subshellId = content.subshell_id;
}"""
"""From now on the page sends the notebook's cells to a subshell of its kernel."""
STARTS = re.compile(r"starts in .*\bmin\b")
"""A wait behind a turn of ten minutes: a shorter one may end while the picture is taken."""
CONTEXTS_MIB = 2 * 32
"""Of two processes on the simulated GPU, which count as nobody's."""
CHANGES = 9
IDLE_SESSION = {
    "kernel": {"name": "python3"},
    "name": "plots.ipynb",
    "path": "plots.ipynb",
    "type": "notebook",
}


@pytest.fixture
def sim(tmp_path: Path, request: pytest.FixtureRequest) -> SimulatedMachine:
    """One device, of 8 GiB where a test does not want it smaller."""
    size = getattr(request, "param", 8192 * MIB)
    return SimulatedMachine(tmp_path / "machine", bytes_per_device=size)


@pytest.fixture
def memory_mode() -> str:
    """Memory stays where it is: what is tested here does not depend on it."""
    return "off"


@pytest.fixture
def scheduler(
    tmp_path: Path, sim: SimulatedMachine, memory_mode: str
) -> Iterator[SchedulerUnderTest]:
    """Turns last until they are given back: whatever moves the queue here was asked for. The
    reserve has room for the contexts: without it, how much else can stay on the device depends on
    whether they were measured before memory had to leave."""
    env = sim.env({"CUDA_VISIBLE_DEVICES": "0"})
    memory = {"memory_mode": memory_mode, "device_reserve_bytes": CONTEXTS_MIB * MIB}
    options = [f"--GPUShareScheduler.{name}={value}" for name, value in memory.items()]
    with running_scheduler(tmp_path / "run", *options, env=env) as scheduler:
        scheduler.client.change_settings({"quantum_s": 600, "idle_ms": 600_000})
        yield scheduler


@pytest.fixture
def versions() -> str:
    """Of JupyterLab and Jupyter Notebook: those of this environment, or the `oldest`."""
    return "these"


@pytest.fixture
def jupyter(
    page: Page,
    tmp_path: Path,
    sim: SimulatedMachine,
    scheduler: SchedulerUnderTest,
    versions: str,
) -> Iterator[JupyterProcess]:
    """JupyterLab with the real extension, two notebooks that have not been run, and the kernel of
    a third, which never uses the GPU."""
    env = kernel_env(sim.env(), scheduler.directory)
    python = older_python() if versions == "oldest" else None
    with JupyterProcess(tmp_path / "jupyter", "jupyter_gpushare", env, python) as jupyter:
        (jupyter.files / "simulated.py").write_text(gpu_cells.setup())
        write_notebook(jupyter.files / "train.ipynb", *TRAINS)
        write_notebook(jupyter.files / "explore.ipynb", *EXPLORES)
        jupyter.request("POST", "api/sessions", IDLE_SESSION)
        yield jupyter


def _run_all_cells(page: Page, notebook: str, cells: int) -> None:
    """As a person does: Shift and Enter, once a cell, when the kernel is there."""
    await_idle_kernel(page, notebook)
    for cell in range(cells):
        run_cell(page, cell, "Shift+Enter")


def _open_training(page: Page, jupyter: JupyterProcess) -> Panel:
    """train.ipynb in JupyterLab, running its endless cell, with the panel beside it."""
    panel = open_lab(page, jupyter, "lab/tree/train.ipynb")
    _run_all_cells(page, "train.ipynb", len(TRAINS))
    panel.holder.filter(has_text="train.ipynb").wait_for()
    return panel


def _open_exploring(page: Page, jupyter: JupyterProcess) -> Page:
    """explore.ipynb in Jupyter Notebook, in a window of its own, where its cell wants the GPU."""
    window = page.context.new_page()
    window.goto(jupyter.page_url("notebooks/explore.ipynb"))
    _run_all_cells(window, "explore.ipynb", len(EXPLORES))
    return window


@pytest.mark.full
@pytest.mark.promise(
    "panel-29",
    "In a real browser, with notebooks, the queue changes and a turn is released from the panel",
)
@pytest.mark.promise("panel-17")
@pytest.mark.parametrize("versions", ["these", "oldest"])
def test_the_queue_changes_and_a_turn_is_released(
    page: Page, jupyter: JupyterProcess, scheduler: SchedulerUnderTest, versions: str
) -> None:
    """The panel shows who has the GPU and who waits; its button lets the next one have it, whose
    cell then ends; and the cell that gave its turn back goes on afterwards."""
    panel = _open_training(page, jupyter)
    panel.await_queue(0)
    window = _open_exploring(page, jupyter)
    panel.queue.filter(has_text="explore.ipynb").wait_for()
    panel.kernel("explore.ipynb").filter(has_text="Number 1 in the queue").wait_for()
    assert window.get_by_text("explored it", exact=True).count() == 0
    panel.kernel("explore.ipynb").filter(has_text=STARTS).wait_for()
    panel.keep_picture("panel-light" if versions == "these" else "panel-older-notebooks")

    panel.release("train.ipynb")
    panel.holder.filter(has_text="explore.ipynb").wait_for()
    panel.queue.filter(has_text="train.ipynb").wait_for()
    (jupyter.files / "enough").touch()
    window.get_by_text("explored it", exact=True).wait_for()
    panel.holder.filter(has_text="train.ipynb").wait_for()
    panel.await_queue(0)


@pytest.mark.full
@pytest.mark.promise("panel-18")
def test_another_holder_is_named_to_a_notebook_that_waits(
    page: Page, jupyter: JupyterProcess, scheduler: SchedulerUnderTest
) -> None:
    """In the dark theme too, a kernel that waits says for whom, and a shut one leaves the panel."""
    jupyter.use_theme("JupyterLab Dark")
    panel = _open_training(page, jupyter)
    _open_exploring(page, jupyter)
    waiting = panel.kernel("explore.ipynb").filter(has_text="Waiting for train.ipynb")
    waiting.wait_for()
    panel.kernel("explore.ipynb").filter(has_text=STARTS).wait_for()
    panel.keep_picture("panel-dark")
    jupyter.shut_kernel("explore.ipynb")
    waiting.wait_for(state="detached")
    panel.await_queue(0)


@pytest.mark.full
@pytest.mark.promise("panel-27")
def test_a_notebook_sees_its_own_turn_in_the_timeline(
    page: Page, jupyter: JupyterProcess, scheduler: SchedulerUnderTest
) -> None:
    """While a notebook trains, the timeline has its turn, the simulated GPU's use and its memory;
    once another one waits, it has that too, and after the hand-over both turns."""
    panel = _open_training(page, jupyter)
    timeline = panel.devices.first.locator("details.jp-gpushare-Timeline")
    timeline.locator("summary").click()
    bar = timeline.locator(".jp-gpushare-TurnBar.jp-mod-mine")
    bar.and_(page.locator("[title*='train.ipynb'][title*='has it since']")).first.wait_for()
    sentence = timeline.locator(".jp-gpushare-TimelineSummary")
    sentence.filter(has_text="% busy on average. At most ").wait_for()
    timeline.locator("canvas").wait_for()
    _open_exploring(page, jupyter)
    timeline.locator(".jp-gpushare-WaitBar[title='1 waited']").wait_for(state="attached")
    sentence.filter(has_text="At most 1 waited at once.").wait_for()
    panel.release("train.ipynb")
    timeline.locator(".jp-gpushare-TurnBar[title*='explore.ipynb']").wait_for(state="attached")
    panel.keep_picture("timeline-of-two-notebooks")


@pytest.mark.full
@pytest.mark.promise("panel-20")
def test_a_change_at_the_scheduler_is_soon_in_the_page(
    page: Page, jupyter: JupyterProcess, scheduler: SchedulerUnderTest
) -> None:
    """A turn is taken and given back many times: each change comes, by way of scheduler, Jupyter
    server and its event, to what a person sees."""
    panel = open_lab(page, jupyter)
    panel.holder.filter(has_text="Free").wait_for()
    with scheduler.joined("somebody", device=served_device(scheduler)) as somebody:
        for _ in range(CHANGES):
            turn = somebody.take_turn()
            panel.holder.filter(has_text="somebody").wait_for()
            somebody.drop(turn.turn_id)
            panel.holder.filter(has_text="Free").wait_for()


@pytest.mark.promise(
    "panel-30", "A cell that waits says so at the cell, and nothing of it is saved"
)
@pytest.mark.parametrize("theme", ["Light", pytest.param("Dark", marks=pytest.mark.full)])
def test_a_cell_that_waits_says_so(
    page: Page, jupyter: JupyterProcess, scheduler: SchedulerUnderTest, theme: str
) -> None:
    """Of all cells that were run, the one that waits has the line. It is not in the file. A page
    that is loaded meanwhile has it above the notebook. It goes with the wait."""
    jupyter.use_theme(f"JupyterLab {theme}")
    write_notebook(jupyter.files / "waits.ipynb", *WAITS)
    with scheduler.joined("somebody", device=served_device(scheduler)) as somebody:
        turn = somebody.take_turn()
        panel = open_lab(page, jupyter, "lab/tree/waits.ipynb")
        _run_all_cells(page, "waits.ipynb", len(WAITS))
        line = page.locator(".jp-CodeCell").first.locator(".jp-gpushare-WaitLine")
        said = line.filter(has_text="Waiting for the GPU: 1st of 1")
        said = said.filter(has_text="\u2068somebody\u2069 is using it")
        said.filter(has_text="Interrupt the kernel to cancel.").wait_for()
        assert page.locator(".jp-gpushare-WaitLine").count() == 1
        panel.keep_picture(f"waiting-cell-{theme.lower()}")
        with page.expect_response(_is_saved("waits.ipynb")):
            page.keyboard.press("Control+s")
        assert "Waiting for" not in (jupyter.files / "waits.ipynb").read_text()
        window = page.context.new_page()
        window.goto(jupyter.page_url("notebooks/waits.ipynb"))
        above = window.locator(".jp-gpushare-WaitLine.jp-mod-notebook")
        above.filter(has_text="Waiting for the GPU").wait_for()
        page.reload()
        page.locator(".jp-gpushare-WaitLine.jp-mod-notebook").wait_for()
        panel.keep_picture(f"waiting-notebook-{theme.lower()}")
        somebody.drop(turn.turn_id)
        for shown in (above, page.locator(".jp-gpushare-WaitLine")):
            shown.wait_for(state="detached")


@pytest.mark.full
@pytest.mark.promise(
    "panel-31",
    "Of several cells of one kernel that run at once while it waits, each says so, and none that "
    "has ended",
)
def test_two_cells_of_one_kernel_wait_at_once(
    page: Page, jupyter: JupyterProcess, scheduler: SchedulerUnderTest
) -> None:
    """While the first cell waits, a second one is run, on a subshell of the same kernel. Each has
    the line, in the file is none, and both lines go when the kernel has the GPU."""
    write_notebook(jupyter.files / "overlap.ipynb", *OVERLAP)
    panel = open_lab(page, jupyter, "lab/tree/overlap.ipynb")
    await_idle_kernel(page, "overlap.ipynb")
    run_cell(page, 0)
    page.get_by_text("ready now", exact=True).wait_for()
    cells, lines = page.locator(".jp-Notebook .jp-CodeCell"), page.locator(".jp-gpushare-WaitLine")
    with scheduler.joined("somebody", device=served_device(scheduler)) as somebody:
        turn = _turn_of(somebody, panel)
        run_cell(page, 1)
        cells.nth(1).locator(lines).filter(has_text="Waiting for the GPU: 1st of 1").wait_for()
        assert lines.count() == 1
        page.evaluate(INTO_A_SUBSHELL, "overlap.ipynb")
        run_cell(page, 2)
        cells.nth(2).locator(lines).filter(has_text="Waiting for the GPU: 1st of 1").wait_for()
        cells.nth(1).locator(lines).filter(has_text="Interrupt the kernel to cancel.").wait_for()
        assert lines.count() == 2
        panel.keep_picture("two-waiting-cells")
        with page.expect_response(_is_saved("overlap.ipynb")):
            page.keyboard.press("Control+s")
        assert "Waiting for" not in (jupyter.files / "overlap.ipynb").read_text()
        somebody.drop(turn.turn_id)
    for done in ("first done", "second done"):
        page.get_by_text(done, exact=True).wait_for()
    lines.first.wait_for(state="detached")


def _turn_of(somebody: ScriptedClient, panel: Panel) -> TurnGranted:
    """The kernel has ended its own, and the panel shows who has it now."""
    turn = somebody.take_turn()
    panel.holder.filter(has_text="somebody").wait_for()
    return turn


@pytest.mark.full
@pytest.mark.promise("panel-30")
def test_a_cell_that_was_paused_says_when_it_goes_on(
    page: Page, jupyter: JupyterProcess, scheduler: SchedulerUnderTest
) -> None:
    """Once another has the GPU, the training's own cell has its line. It keeps its space after the
    pause, so that nothing below moves, and goes with the cell."""
    panel = _open_training(page, jupyter)
    scheduler.client.change_settings({"quantum_s": 2})
    with scheduler.joined("somebody", device=served_device(scheduler)) as somebody:
        turn = somebody.take_turn()
        scheduler.client.change_settings({"quantum_s": 600})  # the line says until when, and long
        cell = page.locator(".jp-CodeCell").nth(len(TRAINS) - 1)
        line = cell.locator(".jp-gpushare-WaitLine").filter(has_text="Paused after")
        line.filter(has_text="goes on in").wait_for()
        panel.keep_picture("paused-cell")
        height = cell.evaluate("cell => cell.offsetHeight")
        somebody.drop(turn.turn_id)
        rests = cell.locator(".jp-gpushare-WaitLine.jp-mod-rests")
        rests.wait_for(state="attached")
        assert not rests.is_visible()
        assert cell.evaluate("cell => cell.offsetHeight") == height
        panel.keep_picture("paused-cell-goes-on")
        page.evaluate("jupyterapp.commands.execute('notebook:interrupt-kernel')")
        rests.wait_for(state="detached")


@pytest.mark.full
@pytest.mark.promise(
    "bad-input-19",
    "A kernel that dies while its row is being acted on: the row goes, and the rest of the panel "
    "works",
)
def test_a_kernel_that_dies_while_it_is_acted_on(page: Page, jupyter: JupyterProcess) -> None:
    """Its user has pressed the button, and the kernel ends before the server hears of it: the row
    goes, the keyboard stays in the list, and the next kernel's turn can be released."""
    panel = _open_training(page, jupyter)
    window = _open_exploring(page, jupyter)
    panel.queue.filter(has_text="explore.ipynb").wait_for()
    asked: list[Route] = []
    page.route("**/gpushare/api/kernels/*/release*", lambda route: asked.append(route))
    with page.expect_request("**/gpushare/api/kernels/*/release*"):
        panel.release_button("train.ipynb").press("Enter")
    panel.release_button("train.ipynb").filter(has_text="Releasing…").wait_for()
    jupyter.shut_kernel("train.ipynb")
    # The row may stand there as idle before it goes, and then has the keyboard itself.
    page.locator(":focus").filter(has_text=re.compile("^my notebooks$", re.IGNORECASE)).wait_for()
    with page.expect_response("**/gpushare/api/kernels/*/release*") as answer:
        asked[0].continue_()
    assert answer.value.status == 404
    page.unroute("**/gpushare/api/kernels/*/release*")
    panel.holder.filter(has_text="explore.ipynb").wait_for()
    panel.release("explore.ipynb")
    assert panel.root.get_by_role("alert").count() == 0
    (jupyter.files / "enough").touch()
    window.get_by_text("explored it", exact=True).wait_for()


@pytest.mark.full
@pytest.mark.promise(
    "bad-input-20",
    "Two JupyterLabs of one user: each sees the other's notebook, and acts on its own",
)
def test_two_jupyterlabs_of_one_user(
    page: Page,
    jupyter: JupyterProcess,
    tmp_path: Path,
    sim: SimulatedMachine,
    scheduler: SchedulerUnderTest,
) -> None:
    """In one browser, with two servers: what holds in the first is named in the second, which has
    no button for it; a release in the first serves the cell that waits in the second."""
    env = kernel_env(sim.env(), scheduler.directory)
    panel = _open_training(page, jupyter)
    with JupyterProcess(tmp_path / "other", "jupyter_gpushare", env) as other:
        (other.files / "simulated.py").write_text(gpu_cells.setup())
        write_notebook(other.files / "explore.ipynb", *EXPLORES)
        window = page.context.new_page()
        others = open_lab(window, other, "lab/tree/explore.ipynb")
        others.holder.filter(has_text="train.ipynb").wait_for()
        _run_all_cells(window, "explore.ipynb", len(EXPLORES))
        others.kernel("explore.ipynb").filter(has_text="Waiting for train.ipynb").wait_for()
        assert others.release_button("train.ipynb").count() == 0
        others.keep_picture("second-lab")
        panel.queue.filter(has_text="explore.ipynb").wait_for()
        assert panel.kernel("explore.ipynb").count() == 0
        panel.release("train.ipynb")
        others.holder.filter(has_text="explore.ipynb").wait_for()
        (other.files / "enough").touch()
        window.get_by_text("explored it", exact=True).wait_for()
        panel.holder.filter(has_text="train.ipynb").wait_for()


def _is_saved(notebook: str) -> Callable[[Response], bool]:
    """The answer to a page that has sent the notebook to be kept."""
    return lambda answer: (
        answer.request.method == "PUT" and f"/api/contents/{notebook}" in answer.url and answer.ok
    )


def served_device(scheduler: SchedulerUnderTest) -> bytes:
    """Its id."""
    (device,) = scheduler.status()["devices"]
    return bytes.fromhex(device["id"])


@pytest.mark.full
@pytest.mark.promise("panel-32", "Memory that had to make room is shown as parked")
@pytest.mark.parametrize("sim", [DEVICE_BYTES], indirect=True)
@pytest.mark.parametrize("memory_mode", ["swap"])
def test_memory_that_had_to_make_room_is_shown_as_parked(
    page: Page, jupyter: JupyterProcess
) -> None:
    """Two notebooks want more than the device has: the first one's memory is parked, which its row
    says, and the bar shows what is on the device."""
    write_notebook(jupyter.files / "first.ipynb", *TAKES_MOST)
    write_notebook(jupyter.files / "second.ipynb", *TAKES_MOST)
    panel = open_lab(page, jupyter, "lab/tree/first.ipynb")
    _run_all_cells(page, "first.ipynb", len(TAKES_MOST))
    first, second = panel.kernel("first.ipynb"), panel.kernel("second.ipynb")
    first.filter(has_text="384 MiB on the GPU").wait_for()
    assert "in host memory" not in first.inner_text()
    window = page.context.new_page()
    window.goto(jupyter.page_url("notebooks/second.ipynb"))
    _run_all_cells(window, "second.ipynb", len(TAKES_MOST))
    second.filter(has_text="384 MiB on the GPU").wait_for()
    first.filter(has_text="384 MiB in host memory").wait_for()
    panel.devices.filter(has_text=f"{384 + CONTEXTS_MIB} MiB of 512 MiB").wait_for()
    details = panel.devices.locator(f'[title*="CUDA contexts {CONTEXTS_MIB} MiB"]')
    details.first.wait_for()
    panel.keep_picture("panel-parked")
