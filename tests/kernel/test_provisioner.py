"""The provisioner beside a stub of the scheduler: what it registers, and that nothing that is wrong
there keeps a kernel from starting, answering and stopping."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.provisioning import LocalProvisioner
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from jupyter_gpushare.kernel.environment import without_gpushare
from jupyter_gpushare.kernel.magics import gpushare
from jupyter_gpushare.kernel.provisioner import GPUShareMixin, GPUShareProvisioner
from tests.kernel.conftest import Recording, await_printed
from tests.kernel.stub_scheduler import StubScheduler
from tests.support.kernels import PROVISIONER, Kernel
from tests.support.other_user import let_others_in
from tests.support.waits import WAIT_S_MAX

Start = Callable[..., Kernel]
ENVIRONMENT = "import os\nprint(os.environ.get('LD_PRELOAD'), os.environ.get('GPUSHARE_TOKEN'))"


def launch_of(
    argv: list[str], env: dict[str, str], *, base: type[Any] = GPUShareProvisioner
) -> dict[str, Any]:
    """What pre_launch makes of a kernelspec's command, without starting anything."""
    provisioner = base(kernel_id="k-1", kernel_spec=KernelSpec(argv=argv, display_name="Test"))
    return asyncio.run(provisioner.pre_launch(env=env))


@pytest.mark.promise("scheduler-94")
def test_each_start_has_a_fresh_token(
    start_kernel: Start, stub: StubScheduler, stub_env: dict[str, str]
) -> None:
    """A restart removes the tenant and registers a new one; LD_PRELOAD does not grow. Interrupting
    the kernel asks the scheduler to cancel that one's waits."""
    kernel = start_kernel(stub_env, name="work/first.ipynb")
    library = stub_env["GPUSHARE_LIBRARY"]
    assert kernel.run(ENVIRONMENT).ok().text == f"{library} token-1\n"
    kernel.restart()
    assert kernel.run(ENVIRONMENT).ok().text == f"{library} token-2\n"
    # Many short sleeps: the system may hand the signal to another thread than the one that sleeps.
    cell = kernel.submit("import time\nprint('up', flush=True)\nwhile True:\n    time.sleep(0.1)")
    await_printed(kernel, cell)
    kernel.interrupt()
    assert kernel.wait(cell).ename == "KeyboardInterrupt"
    assert stub.asked()[-1] == "POST /tenants/tenant-2/interrupt"
    kernel.stop()
    posts = [
        body for verb, path, body in stub.requests if (verb, path[-8:]) == ("POST", "/tenants")
    ]
    assert [(body["name"], body["kind"]) for body in posts] == [("first.ipynb", "kernel")] * 2
    asked = [line for line in stub.asked() if not line.endswith("/interrupt")]
    assert asked == [
        "POST /tenants",
        "DELETE /tenants/tenant-1",
        "POST /tenants",
        "DELETE /tenants/tenant-2",
    ]


@pytest.mark.full
@pytest.mark.promise(
    "bad-input-44",
    "A kernelspec whose program is missing leaves no tenant, however often it is tried",
)
def test_a_missing_program_leaves_no_tenant(stub: StubScheduler, stub_env: dict[str, str]) -> None:
    """A thousand starts that fail, and as many tenants removed; the failure is told as it was."""
    spec = KernelSpec(argv=["/nowhere/python", "-m", "ipykernel"], display_name="Broken")

    async def start() -> None:
        provisioner = GPUShareProvisioner(kernel_id="k-1", kernel_spec=spec)
        launch = await provisioner.pre_launch(env=stub_env)
        with pytest.raises(FileNotFoundError, match="/nowhere/python"):
            await provisioner.launch_kernel(launch.pop("cmd"), **launch)
        assert provisioner.tenant_id is None

    async def scenario() -> None:
        for _ in range(1000):
            await start()

    asyncio.run(scenario())
    verbs = [verb for verb, _, _ in stub.requests]
    assert verbs == ["POST", "DELETE"] * 1000


def test_cleaning_up_twice_is_fine(stub: StubScheduler, stub_env: dict[str, str]) -> None:
    """nbclient cleans up twice; the tenant is removed once."""

    async def scenario() -> None:
        provisioner = GPUShareProvisioner(
            kernel_id="k-1", kernel_spec=KernelSpec(argv=["true"], display_name="Test")
        )
        await provisioner.pre_launch(env=stub_env)
        await provisioner.cleanup(restart=False)
        await provisioner.cleanup(restart=False)

    asyncio.run(scenario())
    assert stub.asked() == ["POST /tenants", "DELETE /tenants/tenant-1"]


def test_a_failure_of_ours_does_not_keep_a_kernel_from_ending(
    stub_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails while the scheduler is told of the end (here: no thread to tell it), the
    kernel is cleaned up."""

    def no_threads(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        provisioner = GPUShareProvisioner(
            kernel_id="k-1", kernel_spec=KernelSpec(argv=["true"], display_name="Test")
        )
        await provisioner.pre_launch(env=stub_env)
        monkeypatch.setattr(threading.Thread, "start", no_threads)
        await provisioner.cleanup()

    asyncio.run(scenario())


def test_another_server_process_can_go_on_with_the_kernel(
    stub: StubScheduler, stub_env: dict[str, str]
) -> None:
    """A provisioner made from the saved info removes the same tenant at the same scheduler."""

    async def scenario() -> None:
        spec = KernelSpec(argv=["true"], display_name="Test")
        first = GPUShareProvisioner(kernel_id="k-1", kernel_spec=spec)
        await first.pre_launch(env=stub_env)
        second = GPUShareProvisioner(kernel_id="k-1", kernel_spec=spec)
        await second.load_provisioner_info(await first.get_provisioner_info())
        await second.cleanup()

    asyncio.run(scenario())
    assert stub.asked() == ["POST /tenants", "DELETE /tenants/tenant-1"]


@pytest.mark.promise("jupyter-36", "Kernels of other languages are tenants too")
@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"], True),
        (["python", "-m", "ipykernel", "-f", "x"], True),
        (["/usr/lib/python3/dist-packages/ipykernel_launcher.py"], True),
        (
            ["R", "--slave", "-e", "IRkernel::main()", "--args", "/home/me/ipykernel-7/c.json"],
            False,
        ),
        (["xpython", "-f", "x"], False),
    ],
)
def test_only_ipykernel_gets_the_bootstrap(
    stub_env: dict[str, str], argv: list[str], expected: bool
) -> None:
    """An unknown flag would end another kernel; it is a tenant all the same."""
    launch = launch_of(argv, stub_env)
    assert ("--ext=gpushare_bootstrap" in launch["cmd"]) == expected
    assert ("PYTHONPATH" in launch["env"]) == expected
    assert launch["env"]["GPUSHARE_TOKEN"] == "token-1"


@pytest.mark.promise("jupyter-37")
def test_the_mixin_serves_other_peoples_provisioners(stub_env: dict[str, str]) -> None:
    """Mixed into another provisioner, it keeps what that one adds to the launch."""

    class Theirs(LocalProvisioner):
        async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
            launch = await super().pre_launch(**kwargs)
            return {**launch, "env": {**launch["env"], "THEIRS": "1"}, "their_option": 2}

    class Ours(GPUShareMixin, Theirs):
        pass

    launch = launch_of(["python", "-m", "ipykernel_launcher"], stub_env, base=Ours)
    assert launch["env"]["THEIRS"] == "1" and launch["their_option"] == 2
    assert launch["env"]["GPUSHARE_TOKEN"] == "token-1"


@pytest.mark.promise("bad-input-5")
def test_a_library_of_the_user_stays_preloaded(
    start_kernel: Start, stub_env: dict[str, str], tmp_path: Path
) -> None:
    """A kernel whose environment preloads something already has both, the user's first."""
    source, own = tmp_path / "own.c", tmp_path / "libown.so"
    source.write_text("int own_answer(void);\nint own_answer(void) { return 42; }\n")
    cc = os.environ.get("CC", "cc")
    subprocess.run([cc, "-shared", "-fPIC", "-o", own, source], check=True)
    kernel = start_kernel({**stub_env, "LD_PRELOAD": str(own)})
    code = (
        "import ctypes\nall_ = ctypes.CDLL(None)\n(all_.own_answer(), all_.gpushare_api_version())"
    )
    assert kernel.run(code).ok().text == "(42, 1)"
    value = kernel.run("import os; os.environ['LD_PRELOAD']").ok().text
    assert value == f"'{own}:{stub_env['GPUSHARE_LIBRARY']}'"


@pytest.mark.promise("hook-45")
def test_disabled_means_not_there(stub: StubScheduler, stub_env: dict[str, str]) -> None:
    """GPUSHARE_DISABLE=1: no tenant, no preload, no word, and nothing for kernels that are not
    Python's; those have a magic that does nothing."""
    env = {**stub_env, "GPUSHARE_DISABLE": "1"}
    argv = ["julia", "kernel.jl"]
    launch = launch_of(argv, env)
    assert launch["cmd"] == argv and "PYTHONPATH" not in launch["env"]
    launch = launch_of(["python", "-m", "ipykernel_launcher"], env)
    assert "LD_PRELOAD" not in launch["env"] and "GPUSHARE_NOTICE" not in launch["env"]
    assert stub.requests == []


@pytest.mark.promise("hub-29", "Once sharing is switched off, notebooks with `%gpushare` run on")
@pytest.mark.parametrize(
    ("switch", "words"),
    [
        ({}, "GPU sharing is switched off here (GPUSHARE_DISABLE=1): %gpushare does nothing."),
        (
            {"GPUSHARE_DISABLED_BY": "administrator"},
            "Your administrator has switched GPU sharing off: %gpushare does nothing, and",
        ),
        (
            {"GPUSHARE_DISABLED_BY": "slurm"},
            "This Slurm job has whole GPUs, which it shares with nobody: %gpushare does nothing.",
        ),
    ],
)
def test_what_the_magic_says_where_it_is_switched_off(
    stub_env: dict[str, str],
    switch: dict[str, str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each form says so in one line, by what the provisioner hands on."""
    env = {**stub_env, "GPUSHARE_DISABLE": "1", **switch}
    launch = launch_of(["python", "-m", "ipykernel_launcher"], env)
    for name in ("GPUSHARE_DISABLE", *switch):
        monkeypatch.setenv(name, launch["env"][name])
    for line in ("", "hold 5m", "release"):
        view = gpushare(line)
        (said,) = (repr(view) if view else capsys.readouterr().out).splitlines()
        assert said.startswith(words)


@pytest.mark.promise("hub-29")
@pytest.mark.promise("jupyter-41")
def test_a_kernel_that_is_switched_off(start_kernel: Start, stub_env: dict[str, str]) -> None:
    """The magics say so in one line and do nothing else, a turn is the code in it, and cells go
    on."""
    kernel = start_kernel({**stub_env, "GPUSHARE_DISABLE": "1"})
    words = "GPU sharing is switched off here (GPUSHARE_DISABLE=1)"
    assert kernel.run("1 + 1").ok().stderr == ""
    for line in ("%gpushare", "%gpushare hold 5m", "%gpushare release"):
        (said,) = kernel.run(f"goes_on = False\n{line}\ngoes_on = True").ok().text.splitlines()
        assert said.startswith(words)
        assert kernel.run("goes_on").ok().text == "True"
    text = kernel.run("%%gpushare --class batch\nprint('ran')").ok().text
    assert text.splitlines()[0].startswith(words)
    assert text.splitlines()[-1] == "ran"
    code = "import gpushare\nwith gpushare.turn():\n    answer = 42\nanswer"
    assert kernel.run(code).ok().text == "42"


def warned_once(caplog: pytest.LogCaptureFixture, reason: str) -> bool:
    warnings = [r.getMessage() for r in caplog.records if "does not share" in r.getMessage()]
    return len(warnings) == 1 and reason in warnings[0]


@pytest.mark.promise("jupyter-24")
@pytest.mark.promise(
    "bad-input-45",
    "Scheduler not there when a kernel starts: it starts without sharing and says so in the "
    "notebook",
)
def test_without_a_scheduler_the_kernel_starts_and_says_so(
    start_kernel: Start, recording: Recording, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody listens: the kernel runs cells without sharing; its first cell and the log say why,
    once, and the magics whenever they are asked."""
    env = without_gpushare(os.environ) | {
        "GPUSHARE_RUNTIME_DIR": str(tmp_path / "nowhere"),
        "GPUSHARE_LIBRARY": str(recording.library),
    }
    reason = "Start one with `jupyter gpushare scheduler`"
    kernel = start_kernel(env)
    first = kernel.run("1 + 1").ok()
    assert first.text == "2"
    assert first.stderr.startswith("This kernel does not share the GPU. ")
    assert reason in first.stderr and first.stderr.count("\n") == 1
    assert kernel.run("1 + 1").ok().stderr == ""
    assert kernel.run("import os; 'GPUSHARE_NOTICE' in os.environ").ok().text == "False"
    assert kernel.run(ENVIRONMENT).ok().text == "None None\n"
    assert warned_once(caplog, reason)
    for line in ("%gpushare", "%gpushare hold 5m", "%gpushare release"):
        text = kernel.run(line).ok().text
        assert text.startswith("This kernel does not share the GPU.")
        assert "No scheduler serves" in text


@pytest.mark.promise(
    "bad-input-46",
    "The library file missing: kernels and commands run without sharing and say so",
)
def test_without_the_library_the_kernel_starts_and_says_so(
    stub: StubScheduler,
    stub_env: dict[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The library file is missing: nothing is preloaded, and no tenant is registered."""
    env = {**stub_env, "GPUSHARE_LIBRARY": str(tmp_path / "gone.so")}
    launch = launch_of(["python", "-m", "ipykernel_launcher"], env)
    assert "Correct GPUSHARE_LIBRARY" in launch["env"]["GPUSHARE_NOTICE"]
    assert {"LD_PRELOAD", "GPUSHARE_TOKEN"}.isdisjoint(launch["env"])
    assert warned_once(caplog, "Correct GPUSHARE_LIBRARY")
    assert stub.requests == []


NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    """As root: what happens inside happens with the rights of nobody."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.promise("bad-input-9")
def test_a_socket_without_permission_is_said(stub: StubScheduler, stub_env: dict[str, str]) -> None:
    """A socket that this user may not open: the kernel starts without sharing."""
    env = {**stub_env, "GPUSHARE_LIBRARY": "/bin/sh"}  # any file that everybody may read
    (stub.directory / "http.sock").chmod(0)
    with as_nobody() if os.geteuid() == 0 else nullcontext():
        launch = launch_of(["python", "-m", "ipykernel_launcher"], env)
    assert "You may not use the scheduler's socket" in launch["env"]["GPUSHARE_NOTICE"]
    assert "LD_PRELOAD" not in launch["env"]
    assert stub.requests == []


@pytest.mark.promise("bad-input-8")
def test_a_socket_of_another_user_is_not_spoken_to(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket squatted by somebody else: nothing is sent to it, and the kernel starts."""
    directory = tmp_path / "squatted"
    directory.mkdir()
    env = without_gpushare(os.environ) | {
        "GPUSHARE_RUNTIME_DIR": str(directory),
        "GPUSHARE_LIBRARY": str(recording.library),
    }
    if os.geteuid() == 0:
        let_others_in(directory.parent)
        directory.chmod(0o777)
        with as_nobody():
            squatter = StubScheduler(directory)
    else:
        squatter = StubScheduler(directory)
        monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    with squatter:
        launch = launch_of(["python", "-m", "ipykernel_launcher"], env)
    assert "who is neither you nor root" in launch["env"]["GPUSHARE_NOTICE"]
    assert "LD_PRELOAD" not in launch["env"]
    assert squatter.requests == []


@pytest.mark.promise(
    "bad-input-47", "A scheduler that hangs or answers nonsense never hangs a kernel"
)
@pytest.mark.parametrize("mode", ["hang", "garbage"])
def test_a_broken_scheduler_never_hangs_a_kernel(
    mode: str,
    recording: Recording,
    tmp_path: Path,
) -> None:
    """One that accepts and never answers, or answers nonsense, is asked once and left alone."""
    env = without_gpushare(os.environ) | {
        "GPUSHARE_RUNTIME_DIR": str(tmp_path / "broken"),
        "GPUSHARE_LIBRARY": str(recording.library),
    }
    with StubScheduler(tmp_path / "broken", mode) as broken:
        launch = launch_of(["python", "-m", "ipykernel_launcher"], env)
        assert broken.connections == 1
        assert "does not share the GPU" in launch["env"]["GPUSHARE_NOTICE"]
        assert "LD_PRELOAD" not in launch["env"]


@pytest.mark.promise("bad-input-47")
def test_a_scheduler_that_hangs_later_stops_nothing(
    stub: StubScheduler, stub_env: dict[str, str]
) -> None:
    """The event loop is free while interrupt and clean-up wait for a scheduler that hangs. Without
    its end they give up by themselves."""
    socket = stub.directory / "http.sock"

    async def scenario() -> None:
        provisioner = GPUShareProvisioner(
            kernel_id="k-1", kernel_spec=KernelSpec(argv=["true"], display_name="Test")
        )
        provisioner.request_timeout_s = WAIT_S_MAX
        await provisioner.pre_launch(env=stub_env)
        socket.unlink()
        for act in (partial(provisioner.send_signal, 2), provisioner.cleanup):
            with StubScheduler(stub.directory, "hang") as hangs:
                waits = asyncio.ensure_future(act())
                while not hangs.connections:
                    await asyncio.sleep(0.01)
                assert not waits.done()
            socket.unlink()
            await waits

    async def without_end() -> None:
        provisioner = GPUShareProvisioner(
            kernel_id="k-2", kernel_spec=KernelSpec(argv=["true"], display_name="Test")
        )
        await provisioner.pre_launch(env=stub_env)
        socket.unlink()
        provisioner.request_timeout_s = 0.1
        with StubScheduler(stub.directory, "hang"):
            await provisioner.send_signal(2)
            await provisioner.cleanup()

    asyncio.run(scenario())
    with StubScheduler(stub.directory):
        asyncio.run(without_end())


@pytest.mark.promise(
    "jupyter-37",
    "The provisioner works in batch tools, and beside other people's provisioners",
)
def test_batch_tools_find_the_provisioner_by_name() -> None:
    """The entry point is there under the name that documentation and settings use."""
    factory = KernelProvisionerFactory(default_provisioner_name=PROVISIONER)
    spec = KernelSpec(argv=["true"], display_name="Test")
    created = factory.create_provisioner_instance("k-1", spec, parent=None)
    assert type(created) is GPUShareProvisioner
