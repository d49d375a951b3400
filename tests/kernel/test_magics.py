"""`%gpushare` in real kernels that share a simulated GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.environment import without_gpushare
from jupyter_gpushare.kernel.magics import scheduler_status
from tests.kernel.conftest import Recording, SharedGpu, await_that
from tests.kernel.stub_scheduler import StubScheduler
from tests.support import gpu_cells
from tests.support.kernels import Kernel

Start = Callable[..., Kernel]
Env = dict[str, str]


@pytest.fixture(scope="module")
def pair(lasting: SharedGpu) -> tuple[Kernel, Kernel]:
    return lasting.kernel("alice.ipynb"), lasting.kernel("bob.ipynb")


@pytest.fixture
def alice(pair: tuple[Kernel, Kernel], settings_as_new: SharedGpu) -> Iterator[Kernel]:
    """Without a turn before and after the test."""
    await_that(lambda: settings_as_new.holders() == [], "nobody has a turn")
    yield pair[0]
    pair[0].run("%gpushare release").ok()
    await_that(lambda: settings_as_new.holders() == [], "the turns are given back")


@pytest.fixture
def bob(pair: tuple[Kernel, Kernel]) -> Kernel:
    return pair[1]


@pytest.mark.promise(
    "jupyter",
    "`%gpushare` shows this kernel and the queue, as text and as an HTML table in which names are "
    "text",
)
def test_it_shows_this_kernel_and_the_queue(alice: Kernel) -> None:
    """Text and an HTML table name the device, who has it, and this kernel as such."""
    reply = alice.run(f"{gpu_cells.spin(1)}\n%gpushare\n").ok()
    assert "This kernel has the GPU." in reply.text
    assert "has it  alice.ipynb (this kernel)" in reply.text
    assert "<table" in reply.html
    assert "alice.ipynb (this kernel)" in reply.html


@pytest.mark.promise("`%gpushare` shows this kernel and the...")
@pytest.mark.promise(
    "jupyter",
    "Others see that a user keeps a turn by hand, and a waiting user reads until when",
)
def test_it_shows_who_waits(shared: SharedGpu) -> None:
    """A kernel that does not use the GPU sees who has it and who is next."""
    shared.scheduler.client.change_settings({"quantum_s": 600})
    alice, bob, carol = (shared.kernel(f"{name}.ipynb") for name in ("alice", "bob", "carol"))
    alice.run(f"%gpushare hold 5m\n{gpu_cells.spin(1)}").ok()
    waits = bob.submit(gpu_cells.spin(1))
    shared.await_waiter("bob.ipynb")
    reply = carol.run("%gpushare").ok()
    assert "This kernel does not use the GPU now." in reply.text
    assert "has it  alice.ipynb" in reply.text
    assert "reserved until" in reply.text
    assert "1       bob.ipynb" in reply.text
    alice.run("%gpushare release").ok()
    bob.wait(waits).ok()


@pytest.mark.promise("Others see that a user keeps...")
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


@pytest.mark.promise("jupyter", "Under a hub the magic shows whose the request is")
def test_a_hubs_scheduler_is_shown_whose_the_request_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of the user's server goes along, without which such a scheduler says nothing."""
    monkeypatch.setenv("GPUSHARE_SOCKET", str(tmp_path / "hook.sock"))
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "the-users")
    with StubScheduler(tmp_path) as stub:
        assert scheduler_status() is not None
    assert (stub.asked(), stub.authorizations) == (["GET /status"], ["token the-users"])


@pytest.mark.promise("`%gpushare` shows this kernel and the...")
@pytest.mark.promise("A user name with spaces, unicode...")
def test_names_are_shown_as_text(shared: SharedGpu) -> None:
    """A notebook's name with HTML in it does nothing in another's notebook."""
    evil = shared.kernel("<img src=x onerror=alert(1)>.ipynb")
    reply = evil.run(f"{gpu_cells.spin(1)}\n%gpushare\n").ok()
    assert "<img" not in reply.html
    assert "&lt;img" in reply.html


@pytest.mark.promise(
    "jupyter",
    "`%gpushare hold` keeps the turn between cells, beyond the quantum, for `hold_max_s` at most",
)
def test_a_held_gpu_stays_between_cells(lasting: SharedGpu, alice: Kernel) -> None:
    """After `hold`, the end of the cell leaves the turn where it is; `hold 0` gives it back."""
    reply = alice.run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m\n").ok()
    assert "This kernel keeps the GPU until" in reply.text
    alice.run("1 + 1").ok()
    assert lasting.holders() == ["alice.ipynb"]
    assert "no longer keeps the GPU between cells" in alice.run("%gpushare hold 0").ok().text
    await_that(lambda: lasting.holders() == [], "the turn is given back")


def test_a_hold_may_come_before_the_first_use(shared: SharedGpu) -> None:
    """Asked for before CUDA is opened, it counts from when it is."""
    alice = shared.kernel("alice.ipynb", set_up=False)
    assert "has not used the GPU yet" in alice.run("%gpushare hold 5m").ok().text
    alice.run(gpu_cells.setup() + gpu_cells.spin(1)).ok()
    alice.run("1 + 1").ok()
    await_that(lambda: shared.holders() == ["alice.ipynb"], "the turn is kept")


@pytest.mark.promise("jupyter", "A hold without a turn begins with the next, and can be taken back")
def test_a_hold_without_a_turn_begins_with_the_next_one(shared: SharedGpu) -> None:
    """An idle kernel reads that it will keep the GPU, not that it does; nobody is told that it is
    reserved; and the whole time is left when the turn comes."""
    alice = shared.kernel("alice.ipynb")
    await_that(lambda: shared.holders() == [], "the set-up's turn is given back")
    said = alice.run("%gpushare hold 10m").ok().text
    assert "will keep the GPU for 10 min once it has it" in said
    shown = alice.run("%gpushare").ok().text
    assert "It will keep the GPU for 10 min once it has it" in shown
    assert "reserved until" not in shown
    (tenant,) = shared.scheduler.client.status()["tenants"]
    assert (tenant["hold_left_s"], tenant["hold_to_come_s"]) == (0, 600)
    alice.run(gpu_cells.spin(1)).ok()
    (tenant,) = shared.scheduler.client.status()["tenants"]
    assert 300 < tenant["hold_left_s"] <= 600 and tenant["hold_to_come_s"] == 0


@pytest.mark.promise("A hold without a turn begins...")
@pytest.mark.parametrize("used", [True, False])
def test_a_hold_that_has_not_begun_is_taken_back(shared: SharedGpu, used: bool) -> None:
    """By `release`, also before the kernel has opened CUDA: the next turn is one as any other."""
    alice = shared.kernel("alice.ipynb", set_up=used)
    alice.run("%gpushare hold 1m").ok()
    said = alice.run("%gpushare release").ok().text
    assert "This kernel no longer keeps the GPU between cells." in said
    alice.run(("" if used else gpu_cells.setup()) + gpu_cells.spin(1)).ok()
    await_that(lambda: shared.holders() == [], "the turn goes back at the end of the cell")


@pytest.mark.promise("`%gpushare hold` keeps the turn between...")
def test_a_hold_is_cut_to_what_the_scheduler_allows(lasting: SharedGpu, alice: Kernel) -> None:
    """A longer time is cut to hold_max, with a word about it; with hold_max 0 there is none."""
    lasting.scheduler.client.change_settings({"hold_max_s": 60})
    assert "as long as this scheduler allows" in alice.run("%gpushare hold 2h").ok().text
    lasting.scheduler.client.change_settings({"hold_max_s": 0})
    assert "does not let a notebook keep the GPU" in alice.run("%gpushare hold 2h").ok().text


@pytest.mark.promise("`%gpushare hold` keeps the turn between...")
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


@pytest.mark.promise("jupyter", "`%gpushare release` gives the turn away, inside a cell too")
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


@pytest.mark.promise("`%gpushare release` gives the turn away...")
def test_nothing_to_release(alice: Kernel) -> None:
    """Without a turn there is a sentence, and nothing happens."""
    assert "nothing to release" in alice.run("%gpushare release").ok().text


def test_nothing_to_release_before_the_first_use(shared: SharedGpu) -> None:
    """Nor is there any before the kernel has opened CUDA."""
    alice = shared.kernel("alice.ipynb", set_up=False)
    assert "nothing to release" in alice.run("%gpushare release").ok().text
    assert "has not used the GPU yet" in alice.run("%gpushare").ok().text


@pytest.mark.promise("Bad arguments of the magic get...")
def test_without_the_scheduler_it_says_so(shared: SharedGpu) -> None:
    """When the scheduler is gone, each form has a sentence about it, and none fails."""
    alice = shared.kernel("alice.ipynb")
    alice.run(gpu_cells.spin(1)).ok()
    shared.scheduler.kill()
    await_that(
        lambda: "lost the scheduler" in alice.run("%gpushare").ok().text, "the loss is noticed"
    )
    assert "No scheduler is connected" in alice.run("%gpushare release").ok().text
    assert "No scheduler is connected" in alice.run("%gpushare hold 5m").ok().text
    assert "no longer keeps" in alice.run("%gpushare release").ok().text


@pytest.mark.promise(
    "jupyter",
    "Bad arguments of the magic get one line and the usage; a kernel that does not share says why",
)
def test_bad_arguments_get_a_line_and_the_usage(start_kernel: Start, stub_env: Env) -> None:
    """One line on what is wrong, then how it is used; the cell does not fail."""
    kernel = start_kernel(stub_env)
    for arguments, wrong in {
        "status": "there is no sub-command 'status'.",
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


@pytest.mark.promise("Bad arguments of the magic get...")
def test_without_sharing_it_says_why(start_kernel: Start, tmp_path: Path) -> None:
    """A kernel that was started without a scheduler has the magic, and the reason."""
    env = {**without_gpushare(os.environ), "GPUSHARE_RUNTIME_DIR": str(tmp_path / "none")}
    kernel = start_kernel(env)
    for line in ("%gpushare", "%gpushare hold 5m", "%gpushare release"):
        text = kernel.run(line).ok().text
        assert text.startswith("This kernel does not share the GPU.")
        assert "No scheduler serves" in text


@pytest.mark.promise(
    "jupyter",
    "The magics work without our package in the kernel's environment, and by `%load_ext "
    "jupyter_gpushare`",
)
def test_it_works_in_an_environment_without_our_package(shared: SharedGpu, tmp_path: Path) -> None:
    """The bootstrap brings the magics along: the kernel's Python cannot import jupyter_gpushare."""
    argv = [sys.executable, "-S", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    env = {**shared.kernel_env, "PYTHONPATH": sysconfig.get_path("purelib")}
    with Kernel(env, name="foreign.ipynb", argv=argv).start(cwd=str(tmp_path)) as kernel:
        assert kernel.run("import jupyter_gpushare").ename == "ModuleNotFoundError"
        kernel.run(gpu_cells.setup()).ok()
        reply = kernel.run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m\n%gpushare\n").ok()
        assert "This kernel keeps the GPU until" in reply.text
        assert "foreign.ipynb (this kernel)" in reply.text


@pytest.mark.promise("The magics work without our package...")
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


@pytest.mark.promise("The magics work without our package...")
def test_load_ext_in_a_kernel_that_has_it_reports_cells_once(
    start_kernel: Start, stub_env: Env, recording: Recording
) -> None:
    """Loading it again by hand does not report each cell twice."""
    kernel = start_kernel(stub_env)
    kernel.run("%load_ext jupyter_gpushare").ok()
    before = len(recording.of(kernel.pid))
    kernel.run("1 + 1").ok()
    assert recording.of(kernel.pid)[before:] == ["began", "ended"]


@pytest.mark.promise("cli", "The doctor can be asked in a cell, and sees the whole device")
def test_the_doctor_is_asked_in_a_cell(shared: SharedGpu) -> None:
    """Not through the hook, which would show this kernel's part of the device alone."""
    alice, bob = shared.kernel("alice.ipynb"), shared.kernel("bob.ipynb")
    bob.run(f"memory = gpu.allocate({64 << 20})").ok()
    for line in ("%gpushare doctor", f"!{sys.executable} -m jupyter_gpushare.cli.main doctor"):
        said = alice.run(line).ok().text
        assert "can be preloaded" in said
        assert "accounted for" in said or "do not take turns" in said
        assert "LD_PRELOAD" not in said
