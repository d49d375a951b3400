"""The animated picture at the top of README: two notebooks that take turns, in a real browser.

    python -m tests.browser.animation docs/images/two-notebooks.gif

It needs Pillow (`pip install Pillow`) besides what the browser tests need.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.browser.chromium import find_chromium
from tests.browser.conftest import FLAGS
from tests.browser.jupyter import JupyterProcess, write_notebook
from tests.browser.panel import PATIENCE_MS, await_idle_kernel, open_lab
from tests.support import gpu_cells
from tests.support.kernels import kernel_env
from tests.support.scheduler_process import running_scheduler
from tests.support.sim import MIB, SimulatedMachine

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEW = {"width": 1180, "height": 430}
LASTS_S = 13.0
FRAME_S = 0.3
COLORS = 128
TRAINS = "for epoch in range(1, 10):\n    gpu.spin(20, 60)\n    print('epoch', epoch)"
EXPLORES = "gpu.spin(20, 100)\nprint('2.0 s of GPU work: done')"
SETUP = "from simulated import gpu"
OPEN_BESIDE = """path => jupyterapp.commands.execute(
    'docmanager:open', {path, options: {mode: 'split-right'}})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    picture: Path = parser.parse_args().picture
    with tempfile.TemporaryDirectory() as folder:
        frames = recorded(Path(folder))
    save(frames, picture)
    print(f"{picture}: {len(frames)} frames, {picture.stat().st_size // 1024} KiB")


def recorded(folder: Path) -> list[tuple[float, bytes]]:
    """Screenshots, and when each was taken."""
    from playwright.sync_api import sync_playwright

    sim = SimulatedMachine(folder / "machine", bytes_per_device=8192 * MIB)
    chromium = find_chromium()
    with (
        running_scheduler(folder / "run", env=sim.env({"CUDA_VISIBLE_DEVICES": "0"})) as scheduler,
        JupyterProcess(
            folder / "jupyter", "jupyter_gpushare", kernel_env(sim.env(), scheduler.directory)
        ) as jupyter,
        sync_playwright() as playwright,
    ):
        (jupyter.files / "simulated.py").write_text(gpu_cells.setup())
        for name, work in (("train", TRAINS), ("explore", EXPLORES)):
            write_notebook(jupyter.files / f"{name}.ipynb", SETUP, work)
        browser = playwright.chromium.launch(
            executable_path=chromium.program, args=FLAGS, env=dict(chromium.env)
        )
        page = browser.new_page(viewport=VIEW, locale="en-US")
        page.set_default_timeout(PATIENCE_MS)
        frames = story(page, jupyter)
        browser.close()
    return frames


def story(page: Page, jupyter: JupyterProcess) -> list[tuple[float, bytes]]:
    """One notebook trains; the other wants the GPU for a moment, twice."""
    open_lab(page, jupyter, "lab/tree/train.ipynb")
    page.evaluate(OPEN_BESIDE, "explore.ipynb")
    for name in ("train.ipynb", "explore.ipynb"):
        await_idle_kernel(page, name)
        run(page, name, 0)
    await_idle_kernel(page, "explore.ipynb")
    frames: list[tuple[float, bytes]] = []
    due = [(0.5, "train.ipynb"), (3.5, "explore.ipynb"), (8.0, "explore.ipynb")]
    began_s = time.monotonic()
    while (at_s := time.monotonic() - began_s) < LASTS_S:
        if due and at_s >= due[0][0]:
            run(page, due.pop(0)[1], 1)
        frames.append((at_s, page.screenshot(animations="disabled")))
        time.sleep(max(0.0, began_s + at_s + FRAME_S - time.monotonic()))
    return frames


def run(page: Page, name: str, cell: int) -> None:
    """Ctrl and Enter: the cell stays where it is."""
    notebook = page.locator(".jp-NotebookPanel").filter(
        has_text="epoch" if name == "train.ipynb" else "done"
    )
    notebook.locator(".jp-CodeCell .jp-InputArea-editor").nth(cell).click()
    page.keyboard.press("Control+Enter")


def save(frames: list[tuple[float, bytes]], picture: Path) -> None:
    from PIL import Image

    images: list[Any] = [Image.open(io.BytesIO(data)).convert("RGB") for _, data in frames]
    palette = images[len(images) // 2].quantize(COLORS, method=Image.Quantize.MEDIANCUT)
    small = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    ends = [at_s for at_s, _ in frames[1:]] + [frames[-1][0] + 1.5]
    lasts_ms = [round(1000 * (end - at)) for (at, _), end in zip(frames, ends, strict=True)]
    small[0].save(
        picture, save_all=True, append_images=small[1:], duration=lasts_ms, loop=0, optimize=True
    )


if __name__ == "__main__":
    main()
