"""Kernels that say what they need, on a simulated machine with two devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec

from jupyter_gpushare.kernel.provisioner import GPUShareProvisioner
from tests.kernel.conftest import SharedGpu
from tests.kernel.stub_scheduler import StubScheduler
from tests.kernel.test_provisioner import launch_of
from tests.support import gpu_cells
from tests.support.kernels import Kernel, kernel_env
from tests.support.machine import Machine
from tests.support.scheduler_process import running_scheduler
from tests.support.sim import GIB, SimulatedMachine

TELLS = pytest.mark.promise(
    "jupyter-33",
    "A kernelspec or the server's environment says what a kernel needs; the kernel sees the "
    "devices on which it was placed, and `%gpushare`, the status and the panel say which",
)
SEES = """
import ctypes, os
cuda = ctypes.CDLL('libcuda.so.1')
cuda.cuInit(0)
count = ctypes.c_int()
cuda.cuDeviceGetCount(ctypes.byref(count))
print(count.value, os.environ.get('CUDA_VISIBLE_DEVICES'))
"""


class TwoDevices(SharedGpu):
    """Devices of 8 GiB."""

    def __init__(self, folder: Path) -> None:
        sim = SimulatedMachine(folder / "machine", devices=2, bytes_per_device=8 * GIB)
        self._machine = Machine(device="simulated GPU", env=sim.env(), sim=sim)
        self._machine.env.pop("CUDA_VISIBLE_DEVICES", None)
        env = {**self._machine.env, "CUDA_VISIBLE_DEVICES": "0,1"}
        self._running = running_scheduler(folder / "run", env=env)

    def __enter__(self) -> TwoDevices:
        super().__init__(self._machine, self._running.__enter__())
        return self

    def __exit__(self, *_: object) -> None:
        for kernel in self.started:
            kernel.stop()
        self._running.__exit__(None, None, None)

    def placed(self, name: str, entry: object = None, **env: str) -> Kernel:
        """A kernel whose kernelspec has this entry."""
        kernel = Kernel(
            {**kernel_env(self._machine.env, self.scheduler.directory), **env}, name=name
        )
        assert kernel.manager.kernel_spec is not None
        kernel.manager.kernel_spec.metadata["gpushare"] = entry
        self.started.append(kernel)
        return kernel.start()

    @contextmanager
    def launched(self, entry: object, **env: str) -> Iterator[dict[str, str]]:
        """The environment of such a kernel; it is a tenant meanwhile, and is not started."""
        env = {**kernel_env(self._machine.env, self.scheduler.directory), **env}
        tenant_id, launch = launched(env, entry)
        yield launch["env"]
        self.scheduler.client.remove_tenant(tenant_id)

    def uuid(self, number: int) -> str:
        """As NVML writes it."""
        digits = self.scheduler.status()["devices"][number]["id"]
        cuts = [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]
        return "GPU-" + "-".join(cuts)

    def says(self, name: str) -> str:
        tenant = self.tenant(name)
        assert tenant is not None
        return str(tenant["placement"])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoDevices]:
    with TwoDevices(tmp_path_factory.mktemp("two")) as devices:
        yield devices


@TELLS
@pytest.mark.promise("scheduler-35")
def test_a_kernelspec_says_what_its_kernels_need(two: TwoDevices) -> None:
    """Two kernels that start before either opens CUDA are on two devices, and each sees its own
    alone; a third finds no space, says why, and would see all of them."""
    names = ["one.ipynb", "two.ipynb"]
    kernels = [two.placed(name, {"need": "4GiB"}) for name in names]
    seen = [kernel.run(SEES).ok().text.split() for kernel in kernels]
    assert seen == [["1", two.uuid(0)], ["1", two.uuid(1)]]
    assert [two.says(name) for name in names] == [
        "Placed on GPU 0: needs 4 GiB.",
        "Placed on GPU 1: needs 4 GiB.",
    ]
    with two.launched({"need": "4GiB"}) as third:
        assert "CUDA_VISIBLE_DEVICES" not in third
        words = "Not placed on a GPU. It needs 4 GiB, and 3 GiB are free at most."
        assert words in third["GPUSHARE_PLACEMENT"]
    assert "Placed on GPU 1: needs 4 GiB." in kernels[1].run("%gpushare").ok().text
    for kernel in kernels:
        kernel.run(gpu_cells.setup()).ok()
        kernel.run(gpu_cells.fill_and_check(7)).ok()
    opened = [
        {each["device"] for client in two.tenant(name)["clients"] for each in client["devices"]}  # type: ignore[index]
        for name in names
    ]
    ids = [device["id"] for device in two.scheduler.status()["devices"]]
    assert opened == [{ids[0]}, {ids[1]}]
    kernels[0].restart()
    assert two.says("one.ipynb") == "Placed on GPU 0: needs 4 GiB."
    for kernel in kernels:
        kernel.stop()


@TELLS
def test_the_servers_environment_says_what_kernels_need(two: TwoDevices) -> None:
    """As a profile of a hub sets it; the kernelspec's own word goes before it."""
    kernel = two.placed("a.ipynb", GPUSHARE_NEED="1GiB", GPUSHARE_NEED_DEVICES="2")
    both = f"{two.uuid(0)},{two.uuid(1)}"
    assert kernel.run(SEES).ok().text.split() == ["2", both]
    assert two.says("a.ipynb") == "Placed on GPUs 0 and 1: needs 1 GiB on each."
    with two.launched({"need": "2GiB", "devices": 1}, GPUSHARE_NEED="1GiB") as other:
        assert "needs 2 GiB" in other["GPUSHARE_PLACEMENT"]
    kernel.stop()


@pytest.mark.promise(
    "jupyter-34", "A kernel's own CUDA_VISIBLE_DEVICES stays, and such a kernel is not placed"
)
def test_the_users_own_choice_stays(two: TwoDevices) -> None:
    """It says a need once it has used a device; before, nobody knows which it will be."""
    kernel = two.placed("a.ipynb", {"need": "1GiB"}, CUDA_VISIBLE_DEVICES="1")
    assert kernel.run(SEES).ok().text.split() == ["1", "1"]
    assert two.tenant("a.ipynb")["placement"] is None  # type: ignore[index]
    assert "has said no need" in kernel.run("%gpushare need").ok().text
    assert "has not used a GPU yet" in kernel.run("%gpushare need 1GiB").ok().text
    kernel.run(gpu_cells.setup()).ok()
    assert "Placed on GPU 1: needs 1 GiB." in kernel.run("%gpushare need 1GiB").ok().text
    kernel.stop()


@pytest.mark.promise("bad-input-32")
@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"need": "-1GiB"}, "'-1GiB' is no amount"),
        ({"need": float("nan")}, "'nan' is no amount"),
        ({"need": 20}, "'20' has no unit"),
        ("16GiB", "It needs 16 GiB, and notebooks can have 7 GiB at most"),
        ({"need": "1GiB", "devices": 3}, "It needs 3 GPUs, and there are 2"),
        ({"devices": 2}, "no `need`"),
        (["20GiB"] * 1000, "is no amount"),
        ({"need": "\x1b[31m\n" * 100}, "is no amount"),
    ],
)
def test_a_need_that_cannot_be_met(two: TwoDevices, entry: object, says: str) -> None:
    """The kernel is a tenant all the same, and nothing is set for it."""
    with two.launched(entry) as env:
        assert "CUDA_VISIBLE_DEVICES" not in env
        sentence = env["GPUSHARE_PLACEMENT"]
        assert says in sentence and sentence.isprintable()


def launched(env: dict[str, str], entry: object) -> tuple[str, dict[str, Any]]:
    """The tenant, and what the kernel would be launched with."""
    made: list[GPUShareProvisioner] = []

    def provisioner(**options: Any) -> GPUShareProvisioner:
        spec = KernelSpec(argv=["prog"], display_name="Test", metadata={"gpushare": entry})
        made.append(GPUShareProvisioner(**{**options, "kernel_spec": spec}))
        return made[0]

    launch = launch_of(["prog"], env, base=provisioner)  # type: ignore[arg-type]
    assert made[0].tenant_id is not None
    return made[0].tenant_id, launch


@pytest.mark.promise(
    "jupyter-35",
    "`%gpushare need 20GiB` changes what a running notebook needs on its GPU, `need` shows it, and "
    "what cannot be is told in a sentence",
)
def test_a_need_is_changed_from_a_cell(two: TwoDevices) -> None:
    """The notebook stays on its device, and one that starts later is put on the other."""
    kernel = two.placed("a.ipynb", {"need": "1GiB"})
    assert kernel.run("%gpushare need").ok().text == "Placed on GPU 0: needs 1 GiB.\n"
    said = kernel.run("%gpushare need 5GiB").ok().text
    assert said.startswith("Placed on GPU 0: needs 5 GiB. That counts where kernels are placed")
    assert "needs 5 GiB" in two.says("a.ipynb")
    assert "needs 5 GiB" in kernel.run("%gpushare").ok().text
    with two.launched({"need": "3GiB"}) as other:
        assert "Placed on GPU 1" in other["GPUSHARE_PLACEMENT"]
    for line, words in {
        "need 6GiB 2": "This notebook has 1 GPU until it is restarted.",
        "need 70 GiB": "It needs 70 GiB, and its GPU has 7 GiB beside what others have and need.",
        "need much": "%gpushare: The need 'much' is no amount of memory.",
        "need 1GiB 0": "%gpushare: The number of devices is '0'.",
        "need 1 GiB 2": "%gpushare: '2' is one word too many.",
    }.items():
        assert kernel.run(f"%gpushare {line}").ok().text.startswith(words), line
    assert "needs 5 GiB" in two.says("a.ipynb")
    assert "has taken back" in kernel.run("%gpushare need none").ok().text
    assert two.says("a.ipynb") == "Placed on GPU 0."
    kernel.stop()


def test_an_older_scheduler_places_nobody(stub: StubScheduler, stub_env: dict[str, str]) -> None:
    """It does not know the wish; the kernel starts as ever."""
    _, launch = launched(stub_env, {"need": "1GiB"})
    assert stub.requests[0][2]["need"] == "1GiB"
    assert "CUDA_VISIBLE_DEVICES" not in launch["env"]
    assert "GPUSHARE_PLACEMENT" not in launch["env"]
