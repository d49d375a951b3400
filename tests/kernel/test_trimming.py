"""A kernel that is asked by the panel to give back what its frameworks keep unused."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpushare.kernel.magics import trim_now, trimming
from jupyter_gpushare.kernel.magics.hook import Hook
from jupyter_gpushare.kernel.magics.words import Unable
from jupyter_gpushare.server.trimming import REQUEST, outcome
from tests.kernel.conftest import SharedGpu
from tests.kernel.test_caches import CHECKS, FRAMEWORK, WORKS, FakeHook, FakeTorch, torch
from tests.kernel.test_magics_memory import crowded
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.sim import MIB
from tests.support.waits import wait_until

__all__ = ["crowded", "torch"]

KEPT = 256 * MIB
"""What WORKS leaves in the cache."""
FREES = """
if "Cuda" in globals():
    for block in Cuda.cached + Cuda.used:
        gpu.free(block)
import gpushare_bootstrap
caches = gpushare_bootstrap._magics().CACHES
caches.__init__(caches._hook)
"""
"""What an earlier test has left, and what is counted of it."""
GRAPH = "type(torch.cuda).is_current_stream_capturing = lambda self: {}"

OWN_CONTEXT = """
empties = torch.cuda.empty_cache
def empty_cache():
    cu.cuCtxSetCurrent(gpu.context)
    empties()
torch.cuda.empty_cache = empty_cache
"""
"""PyTorch gives back in the context that it has allocated in."""


def submit(kernel: Kernel) -> str:
    return kernel.submit(**REQUEST)  # type: ignore[arg-type]


def wait(kernel: Kernel, asked: str) -> dict[str, Any]:
    """What the panel is told."""
    reply = kernel.wait(asked)
    return outcome({"user_expressions": reply.expressions, "ename": reply.ename})


def trim(kernel: Kernel) -> dict[str, Any]:
    return wait(kernel, submit(kernel))


@pytest.fixture
def shared(settings_as_new: SharedGpu) -> SharedGpu:
    return settings_as_new


@pytest.fixture(scope="module")
def bob(lasting: SharedGpu) -> Kernel:
    return lasting.kernel("bob.ipynb")


@pytest.fixture(scope="module")
def hers(lasting: SharedGpu) -> Kernel:
    kernel = lasting.kernel("alice.ipynb")
    assert trim(kernel) == {"stage": "done", "bytes": 0}  # there is no framework yet
    return kernel


@pytest.fixture
def alice(shared: SharedGpu, hers: Kernel) -> Kernel:
    """A kernel whose framework keeps memory unused while nobody lacks any."""
    hers.run(f"{FREES}\n{FRAMEWORK}").ok()
    hers.run(WORKS).ok()
    assert hers.run("len(emptied)").ok().text == "0"
    return hers


@pytest.mark.promise(
    "jupyter-42",
    "A kernel that is asked to give back unused GPU memory takes the turn first, also when it is "
    "idle, and tells how much it was",
)
def test_an_idle_kernel_takes_the_turn(shared: SharedGpu, alice: Kernel, bob: Kernel) -> None:
    """It waits for whoever has the GPU. It gives all of its cache back while it has the turn
    itself, and the turn to the next one afterwards; what is in use stays as it is. Asked again, it
    has nothing, and needs no turn for that."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    long = bob.submit(gpu_cells.spin_until_interrupted(5))
    shared.await_holder("bob.ipynb")
    asked = submit(alice)
    shared.await_waiter("alice.ipynb")
    assert not alice.done(asked)
    bob.interrupt()
    bob.wait(long)
    assert wait(alice, asked) == {"stage": "done", "bytes": KEPT}
    assert alice.run("emptied").ok().text == "['held']"
    assert "256 MiB of caches were given back so far" in alice.run("%gpushare trim").ok().text
    wait_until(lambda: not shared.waiters(), "nobody waits")
    bob.run(gpu_cells.spin(1)).ok()
    long = bob.submit(gpu_cells.spin_until_interrupted(5))
    shared.await_holder("bob.ipynb")
    assert trim(alice) == {"stage": "done", "bytes": 0}
    bob.interrupt()
    bob.wait(long)
    alice.run(CHECKS).ok()


def test_it_comes_after_the_cell_that_runs(alice: Kernel) -> None:
    """Also where `trim` is off, for that is about cells. It has no output and no number."""
    alice.run("%gpushare trim off").ok()
    numbered = alice.run("len(Out), get_ipython().execution_count").ok().text
    cell = alice.submit(f"emptied.clear()\n{gpu_cells.spin(20, 5)}\nprint(emptied)")
    asked = submit(alice)
    told = wait(alice, asked)
    assert alice.wait(cell).ok().text == "[]\n"
    assert told == {"stage": "done", "bytes": KEPT}
    out, number = numbered.strip("()").split(", ")
    after = alice.run("len(Out), get_ipython().execution_count").ok().text
    assert after == f"({int(out) + 1}, {int(number) + 2})"


@pytest.mark.full
def test_memory_that_is_parked_is_given_back_too(crowded: SharedGpu) -> None:
    """It comes back with the turn and leaves for good: nobody has to park for it any more."""
    alice, bob = crowded.kernel("alice.ipynb"), crowded.kernel("bob.ipynb")
    alice.run(f"{FRAMEWORK}\nget_ipython().run_line_magic('gpushare', 'trim off')").ok()
    alice.run(WORKS).ok()
    bob.run(f"memory = gpu.allocate({384 * MIB // 4})\n{gpu_cells.spin(1)}").ok()
    assert trim(alice) == {"stage": "done", "bytes": KEPT}
    alice.run(CHECKS).ok()


@pytest.mark.promise(
    "jupyter-43",
    "A kernel that is asked to give back unused GPU memory says why it does not: beside other code "
    "of its own, in a capture, interrupted, without a scheduler, without sharing",
)
def test_why_it_does_not(shared: SharedGpu, alice: Kernel) -> None:
    """Each in a sentence and what to do; afterwards it works."""
    alice.run("import gpushare\nturn = gpushare.turn()\nturn.__enter__()").ok()
    assert trim(alice)["message"].startswith("Other code of this kernel uses the GPU.")
    alice.run("turn.__exit__()").ok()
    alice.run(GRAPH.format(True)).ok()
    assert trim(alice)["message"].startswith("A CUDA graph is being captured.")
    alice.run(GRAPH.format(False)).ok()
    alice.run("empty = torch.cuda.empty_cache\ntorch.cuda.empty_cache = lambda: 1 / 0").ok()
    assert "ZeroDivisionError" in trim(alice)["message"]
    alice.run("torch.cuda.empty_cache = empty").ok()
    assert alice.run("emptied").ok().text == "[]"
    assert trim(alice) == {"stage": "done", "bytes": KEPT}


def test_an_interrupt_ends_the_wait(shared: SharedGpu, alice: Kernel, bob: Kernel) -> None:
    """Nothing is given back, the place in the queue is gone, and the kernel works as before."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    long = bob.submit(gpu_cells.spin_until_interrupted(5))
    shared.await_holder("bob.ipynb")
    asked = submit(alice)
    shared.await_waiter("alice.ipynb")
    alice.interrupt()
    told = wait(alice, asked)
    assert told["stage"] == "failed" and "interrupted" in told["message"], told
    wait_until(lambda: not shared.waiters(), "her place is gone")
    bob.interrupt()
    bob.wait(long)
    assert alice.run("emptied").ok().text == "[]"
    assert trim(alice) == {"stage": "done", "bytes": KEPT}


def test_in_a_thread_the_framework_has_its_own_context(shared: SharedGpu) -> None:
    """The kernel's main thread has none then, and the turn is taken all the same. Before the GPU is
    used there is nothing."""
    kernel = shared.kernel("thread.ipynb", set_up=False)
    assert trim(kernel) == {"stage": "done", "bytes": 0}
    kernel.run(_in_a_thread(gpu_cells.setup() + FRAMEWORK + WORKS + OWN_CONTEXT)).ok()
    assert trim(kernel) == {"stage": "done", "bytes": KEPT}
    assert kernel.run("emptied").ok().text == "['held']"


def _in_a_thread(code: str) -> str:
    """A cell that runs it so, with its own names."""
    return (
        f"import threading\nworker = threading.Thread(target=exec, args=({code!r}, globals()))\n"
        f"worker.start(); worker.join()"
    )


def test_without_sharing_it_says_so() -> None:
    """As the magics do."""
    told = trim_now(None, "This kernel does not share the GPU.").told
    assert told == {"message": "This kernel does not share the GPU."}


@pytest.mark.promise("jupyter-43")
def test_without_a_scheduler_or_its_turn(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is given back where the turn cannot be asked for, or is lost at that moment."""
    with pytest.raises(Unable, match="No scheduler is connected"):
        trimming._trimmed(as_hook(connected=False), lambda: True)
    monkeypatch.setattr(trimming, "_gated_call", lambda ordinal: 0)
    monkeypatch.setattr(trimming, "_TOLD_S", 0.01)
    with pytest.raises(Unable, match="went to others"):
        trimming._trimmed(as_hook(phase="closing"), lambda: True)
    assert torch.emptied == 0


def as_hook(**changes: Any) -> Hook:
    return FakeHook(**changes)  # type: ignore[return-value]
