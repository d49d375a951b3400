"""`%gpushare` in real kernels that share a simulated GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.environment import without_gpushare
from jupyter_gpushare.kernel.magics import scheduler_status
from tests.kernel.conftest import Recording, SharedGpu
from tests.kernel.stub_scheduler import StubScheduler
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.waits import wait_until


@pytest.fixture(scope="module")
def pair(lasting: SharedGpu) -> tuple[Kernel, Kernel]:
    return lasting.kernel("alice.ipynb"), lasting.kernel("bob.ipynb")


@pytest.fixture
def alice(pair: tuple[Kernel, Kernel], settings_as_new: SharedGpu) -> Iterator[Kernel]:
    """Without a turn before and after the test."""
    wait_until(lambda: settings_as_new.holders() == [], "nobody has a turn")
    yield pair[0]
    pair[0].run("%gpushare release").ok()
    wait_until(lambda: settings_as_new.holders() == [], "the turns are given back")


@pytest.fixture
def bob(pair: tuple[Kernel, Kernel]) -> Kernel:
    return pair[1]


@pytest.fixture(scope="module")
def carol(lasting: SharedGpu) -> Kernel:
    """Her notebook has HTML in its name."""
    return lasting.kernel("<img src=x onerror=alert(1)>.ipynb")


@pytest.mark.promise(
    "jupyter-18",
    "`%gpushare` shows this kernel and the queue, as text and as an HTML table in which names are "
    "text",
)
def test_it_shows_this_kernel_and_the_queue(alice: Kernel) -> None:
    """Text and an HTML table name the device, who has it, and this kernel as such."""
    reply = alice.run(f"{gpu_cells.spin(1)}\n%gpushare\n").ok()
    assert "This kernel has the GPU." in reply.text
    assert "has it  alice.ipynb (this kernel)" in reply.text
    assert (
        "has it  alice.ipynb (this kernel)"
        in alice.run(f"{gpu_cells.spin(1)}\n%gpushare status\n").ok().text
    )
    assert "<table" in reply.html
    assert "alice.ipynb (this kernel)" in reply.html


@pytest.mark.promise("jupyter-18")
@pytest.mark.promise(
    "jupyter-19",
    "Others see that a user keeps a turn by hand, and a waiting user reads until when",
)
def test_it_shows_who_waits(lasting: SharedGpu, alice: Kernel, bob: Kernel, carol: Kernel) -> None:
    """A kernel that does not use the GPU sees who has it and who is next."""
    alice.run(f"%gpushare hold 5m\n{gpu_cells.spin(1)}").ok()
    waits = bob.submit(gpu_cells.spin(1))
    lasting.await_waiter("bob.ipynb")
    reply = carol.run("%gpushare").ok()
    assert "This kernel does not use the GPU now." in reply.text
    assert "has it  alice.ipynb" in reply.text
    assert "reserved until" in reply.text
    assert "1       bob.ipynb" in reply.text
    alice.run("%gpushare release").ok()
    bob.wait(waits).ok()


@pytest.mark.promise("jupyter-19")
def test_a_kernel_that_waits_reads_until_when_the_turn_is_kept(
    lasting: SharedGpu, alice: Kernel, bob: Kernel, tmp_path: Path
) -> None:
    """While another keeps the device by hand, who waits for it is told whose it is until when."""
    alice.run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m\n").ok()
    go = tmp_path / "go"
    cell = bob.submit(
        f"import os, threading, time\n"
        f"def on_a_thread():\n"
        f"    checked(cu.cuCtxSetCurrent(gpu.context))\n"
        f"    gpu.spin(1)\n"
        f"waits = threading.Thread(target=on_a_thread)\n"
        f"waits.start()\n"
        f"while not os.path.exists({str(go)!r}):\n"
        f"    time.sleep(0.01)\n"
        f"%gpushare\n"
    )
    lasting.await_waiter("bob.ipynb")
    go.touch()
    text = bob.wait(cell).ok().text
    assert "This kernel is number 1 in the queue for the GPU, after alice.ipynb." in text
    assert re.search(r"alice\.ipynb has reserved it until \d\d:\d\d:\d\d\.", text), text
    alice.run("%gpushare release").ok()
    bob.run("waits.join()").ok()


@pytest.mark.promise("jupyter-20", "Under a hub the magic shows whose the request is")
def test_a_hubs_scheduler_is_shown_whose_the_request_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of the user's server goes along, without which such a scheduler says nothing."""
    monkeypatch.setenv("GPUSHARE_SOCKET", str(tmp_path / "hook.sock"))
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "the-users")
    with StubScheduler(tmp_path) as stub:
        assert scheduler_status() is not None
    assert (stub.asked(), stub.authorizations) == (["GET /status"], ["token the-users"])


@pytest.mark.promise("jupyter-18")
@pytest.mark.promise("bad-input-36")
def test_names_are_shown_as_text(alice: Kernel, carol: Kernel) -> None:
    """A notebook's name with HTML in it does nothing in another's notebook."""
    reply = carol.run(f"{gpu_cells.spin(1)}\n%gpushare\n").ok()
    assert "<img" not in reply.html
    assert "&lt;img" in reply.html


@pytest.mark.promise(
    "jupyter-21",
    "`%gpushare hold` keeps the turn between cells, beyond the quantum, for `hold_max_s` at most",
)
def test_a_held_gpu_stays_between_cells(lasting: SharedGpu, alice: Kernel) -> None:
    """After `hold`, the end of the cell leaves the turn where it is; `hold 0` gives it back."""
    reply = alice.run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m\n").ok()
    assert "This kernel keeps the GPU until" in reply.text
    alice.run("1 + 1").ok()
    assert lasting.holders() == ["alice.ipynb"]
    assert "no longer keeps the GPU between cells" in alice.run("%gpushare hold 0").ok().text
    wait_until(lambda: lasting.holders() == [], "the turn is given back")


@pytest.mark.promise(
    "jupyter-22", "A hold without a turn begins with the next, and can be taken back"
)
def test_a_hold_without_a_turn_begins_with_the_next_one(lasting: SharedGpu, alice: Kernel) -> None:
    """An idle kernel reads that it will keep the GPU, not that it does; nobody is told that it is
    reserved; and the whole time is left when the turn comes."""
    said = alice.run("%gpushare hold 10m").ok().text
    assert "will keep the GPU for 10 min once it has it" in said
    shown = alice.run("%gpushare").ok().text
    assert "It will keep the GPU for 10 min once it has it" in shown
    assert "reserved until" not in shown
    tenant = lasting.tenant("alice.ipynb")
    assert tenant and (tenant["hold_left_s"], tenant["hold_to_come_s"]) == (0, 600)
    alice.run(gpu_cells.spin(1)).ok()
    tenant = lasting.tenant("alice.ipynb")
    assert tenant
    assert 300 < tenant["hold_left_s"] <= 600 and tenant["hold_to_come_s"] == 0


@pytest.mark.promise("jupyter-22")
def test_a_hold_that_has_not_begun_is_taken_back(lasting: SharedGpu, alice: Kernel) -> None:
    """By `release`: the next turn is one as any other."""
    alice.run("%gpushare hold 1m").ok()
    said = alice.run("%gpushare release").ok().text
    assert "This kernel no longer keeps the GPU between cells." in said
    alice.run(gpu_cells.spin(1)).ok()
    wait_until(lambda: lasting.holders() == [], "the turn goes back at the end of the cell")


@pytest.mark.promise("jupyter-22")
def test_what_comes_before_the_first_use(lasting: SharedGpu, alice: Kernel) -> None:
    """Before CUDA is opened there is nothing to release; a hold can be asked for, taken back, and
    asked for again. It counts from when CUDA is opened."""
    new = lasting.kernel("new.ipynb", set_up=False)
    assert "nothing to release" in new.run("%gpushare release").ok().text
    assert "has not used the GPU yet" in new.run("%gpushare").ok().text
    new.run("%gpushare hold 1m").ok()
    said = new.run("%gpushare release").ok().text
    assert "This kernel no longer keeps the GPU between cells." in said
    new.run(gpu_cells.setup() + gpu_cells.spin(1)).ok()
    wait_until(lambda: lasting.holders() == [], "the turn goes back at the end of the cell")
    new.restart()
    said = "This kernel will keep the GPU for 5 min once it has it.\n"
    assert new.run("%gpushare hold 5m").ok().text == said
    new.run(gpu_cells.setup() + gpu_cells.spin(1)).ok()
    new.run("1 + 1").ok()
    assert lasting.holders() == ["new.ipynb"]
    new.run("%gpushare release").ok()


@pytest.mark.promise("jupyter-21")
def test_a_hold_is_cut_to_what_the_scheduler_allows(lasting: SharedGpu, alice: Kernel) -> None:
    """A longer time is cut to hold_max, with a word about it; with hold_max 0 there is none."""
    lasting.scheduler.client.change_settings({"hold_max_s": 60})
    assert "as long as this scheduler allows" in alice.run("%gpushare hold 2h").ok().text
    lasting.scheduler.client.change_settings({"hold_max_s": 0})
    assert "does not let a notebook keep the GPU" in alice.run("%gpushare hold 2h").ok().text


@pytest.mark.promise("jupyter-21")
def test_a_hold_that_is_over_lets_the_next_one_in(
    lasting: SharedGpu, alice: Kernel, bob: Kernel
) -> None:
    """When the time is over, the turn goes to who waits, without anybody's doing."""
    alice.run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m\n").ok()
    cell = bob.submit(gpu_cells.spin(1))
    lasting.await_waiter("bob.ipynb")
    assert lasting.holders() == ["alice.ipynb"]
    alice.run("%gpushare hold 1s").ok()
    bob.wait(cell).ok()


@pytest.mark.promise("jupyter-23", "`%gpushare release` gives the turn away, inside a cell too")
def test_a_release_inside_a_cell(
    lasting: SharedGpu, alice: Kernel, bob: Kernel, tmp_path: Path
) -> None:
    """The cell goes on without the GPU, and its next call gets it again."""
    lasting.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    go = tmp_path / "go"
    alice.run("import os, time").ok()
    cell = alice.submit(
        f"{gpu_cells.spin(1)}\n"
        f"%gpushare release\n"
        f"while not os.path.exists({str(go)!r}):\n"
        f"    time.sleep(0.01)\n"
        f"{gpu_cells.spin(1)}\n"
    )
    bob.run(gpu_cells.spin(1)).ok()
    assert not alice.done(cell)
    go.touch()
    assert "The GPU was given back." in alice.wait(cell).ok().text


@pytest.mark.promise("jupyter-23")
def test_nothing_to_release(alice: Kernel) -> None:
    """Without a turn there is a sentence, and nothing happens."""
    assert "nothing to release" in alice.run("%gpushare release").ok().text


@pytest.mark.promise("jupyter-24")
def test_without_the_scheduler_it_says_so(shared: SharedGpu) -> None:
    """When the scheduler is gone, each form has a sentence about it, and none fails."""
    alice = shared.kernel("alice.ipynb")
    alice.run(gpu_cells.spin(1)).ok()
    shared.scheduler.kill()
    wait_until(
        lambda: "lost the scheduler" in alice.run("%gpushare").ok().text, "the loss is noticed"
    )
    assert "No scheduler is connected" in alice.run("%gpushare release").ok().text
    assert "No scheduler is connected" in alice.run("%gpushare hold 5m").ok().text
    assert "no longer keeps" in alice.run("%gpushare release").ok().text


@pytest.mark.promise(
    "jupyter-24",
    "Bad arguments of the magic get one line and the usage; a kernel that does not share says why",
)
def test_bad_arguments_get_a_line_and_the_usage(kernel: Kernel) -> None:
    """One line on what is wrong, then how it is used; the cell does not fail."""
    for arguments, wrong in {
        "show": "there is no sub-command 'show'.",
        "release now": "'now' is one word too many.",
        "hold": "hold needs a time.",
        "hold 10": "'10' is not a time.",
        "hold ten minutes": "'minutes' is one word too many.",
        "hold -5m": "'-5m' is not a time.",
    }.items():
        lines = kernel.run(f"%gpushare {arguments}").ok().text.splitlines()
        assert lines[0] == f"%gpushare: {wrong}"
        assert lines[1] == "usage:"


@pytest.mark.promise("jupyter-40")
def test_load_ext_by_hand(tmp_path: Path) -> None:
    """In a shell that nobody prepared, `%load_ext jupyter_gpushare` brings the magic, and
    `%unload_ext` takes it away; nothing heavy is imported."""
    script = (
        "import sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "heavy = {'tornado', 'traitlets', 'jupyter_client', 'pynvml'} - set(sys.modules)\n"
        "shell.run_line_magic('load_ext', 'jupyter_gpushare')\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "shell.run_line_magic('load_ext', 'jupyter_gpushare')\n"
        "shell.run_line_magic('gpushare', 'release')\n"
        "shell.run_line_magic('unload_ext', 'jupyter_gpushare')\n"
        "assert shell.find_line_magic('gpushare') is None\n"
    )
    env = {**without_gpushare(os.environ), "IPYTHONDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "This kernel does not share the GPU." in done.stdout


@pytest.mark.promise("jupyter-40")
def test_load_ext_in_a_kernel_that_has_it_reports_cells_once(
    kernel: Kernel, heard: Recording
) -> None:
    """Loading it again by hand does not report each cell twice."""
    kernel.run("%load_ext jupyter_gpushare").ok()
    before = len(heard.of(kernel.pid))
    kernel.run("1 + 1").ok()
    assert heard.of(kernel.pid)[before:] == ["began", "ended"]


@pytest.mark.promise("cli-34", "The doctor can be asked in a cell, and sees the whole device")
def test_the_doctor_is_asked_in_a_cell(alice: Kernel, bob: Kernel) -> None:
    """Not through the hook, which would show this kernel's part of the device alone."""
    bob.run(f"memory = gpu.allocate({64 << 20})").ok()
    for line in ("%gpushare doctor", f"!{sys.executable} -m jupyter_gpushare.cli.main doctor"):
        said = alice.run(line).ok().text
        assert "can be preloaded" in said
        assert "accounted for" in said or "do not take turns" in said
        assert "LD_PRELOAD" not in said
    bob.run("gpu.free(memory)").ok()
