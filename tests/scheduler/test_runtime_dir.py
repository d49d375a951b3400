"""The runtime directory: one scheduler, its owner's alone, and nobody else's things in it."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import stat
from pathlib import Path

import pytest

from jupyter_gpushare.client import SchedulerClient, SchedulerUnavailable, SchedulerUntrusted
from jupyter_gpushare.core.configuration.values import ALL_SETTINGS
from jupyter_gpushare.scheduler.app import GPUShareScheduler, main
from jupyter_gpushare.scheduler.base.errors import AlreadyServed, StartError
from jupyter_gpushare.scheduler.runtime_dir import RuntimeDir
from tests.support.other_user import OTHER_UID, as_other_user, as_root_only, let_others_in
from tests.support.scheduler_process import (
    SchedulerDidNotStart,
    SchedulerUnderTest,
    running_scheduler,
)


def opened(path: Path, *, open_to_all: bool = False) -> RuntimeDir:
    return RuntimeDir(path, open_to_all=open_to_all, version="1")


@pytest.mark.promise("scheduler-95")
def test_it_is_made_for_its_owner_alone(runtime: Path) -> None:
    """A directory that we make has mode 0700, its lock and sockets 0600."""
    directory = opened(runtime)
    sock = directory.listen("hook.sock")
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert stat.S_IMODE((runtime / "scheduler.lock").stat().st_mode) == 0o600
    assert stat.S_IMODE((runtime / "hook.sock").stat().st_mode) == 0o600
    sock.close()
    directory.release(clients_left=False)
    assert not (runtime / "hook.sock").exists()


@pytest.mark.promise(
    "scheduler-90",
    "A second scheduler is refused and told whose the first is; stale sockets are recovered",
)
def test_a_second_scheduler_is_refused_and_told_whose_the_first_is(runtime: Path) -> None:
    """The message names process and user of the one who serves; the exit status is 3."""
    with running_scheduler(runtime) as first:
        with pytest.raises(SchedulerDidNotStart) as second:
            SchedulerUnderTest(runtime)
        assert second.value.exit_status == AlreadyServed.exit_code
        assert f"process {first.process.pid} of" in second.value.output
        assert "jupyter gpushare status" in second.value.output
        assert first.status()["scheduler"]["pid"] == first.process.pid


@as_root_only
def test_a_directory_of_another_user_is_refused(runtime: Path) -> None:
    """A squatted directory is named with its owner, and nothing is put into it."""
    runtime.mkdir(mode=0o700)
    os.chown(runtime, OTHER_UID, OTHER_UID)
    with pytest.raises(StartError, match=r"belongs to .*Name a directory of your own"):
        opened(runtime)
    assert not list(runtime.iterdir())


@pytest.mark.promise("scheduler-95")
def test_a_symbolic_link_is_refused(runtime: Path, tmp_path: Path) -> None:
    """A link in the directory's place could lead anywhere."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    runtime.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match="symbolic link"):
        opened(runtime)


@pytest.mark.parametrize(
    ("mode", "open_to_all"), [(0o755, False), (0o770, False), (0o777, True), (0o700, True)]
)
def test_a_mode_that_is_too_wide_or_too_narrow(runtime: Path, mode: int, open_to_all: bool) -> None:
    """The message names the chmod that is needed."""
    runtime.mkdir()
    runtime.chmod(mode)
    with pytest.raises(StartError, match=r"Run `chmod 7[01][01] "):
        opened(runtime, open_to_all=open_to_all)


@as_root_only
@pytest.mark.parametrize("name", ["hook.sock", "http.sock"])
def test_a_socket_squatted_by_another_user(runtime: Path, name: str) -> None:
    """Somebody else's socket in our place is not removed, but named."""
    runtime.mkdir(mode=0o700)
    squatter = socket.socket(socket.AF_UNIX)
    squatter.bind(str(runtime / name))
    os.chown(runtime / name, OTHER_UID, OTHER_UID)
    with pytest.raises(SchedulerDidNotStart) as failed:
        SchedulerUnderTest(runtime)
    assert f"{name} belongs to" in failed.value.output
    assert (runtime / name).exists()
    squatter.close()


def test_what_is_no_socket_is_left_alone(runtime: Path) -> None:
    """A file in a socket's place is the user's to move away."""
    directory = opened(runtime)
    (runtime / "hook.sock").write_text("mine")
    with pytest.raises(StartError, match="is not a socket"):
        directory.listen("hook.sock")
    assert (runtime / "hook.sock").read_text() == "mine"
    directory.release(clients_left=False)


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    """The limit of the kernel is explained, not met with a traceback."""
    directory = opened(tmp_path / ("d" * 120))
    with pytest.raises(StartError, match="too long for a socket"):
        directory.listen("hook.sock")
    directory.release(clients_left=False)


def test_a_lock_that_is_a_link_is_refused(runtime: Path, tmp_path: Path) -> None:
    """The lock is never written through a link."""
    runtime.mkdir(mode=0o700)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (runtime / "scheduler.lock").symlink_to(victim)
    with pytest.raises(StartError, match="lock"):
        opened(runtime)
    assert victim.read_text() == "precious"


@pytest.mark.promise("scheduler-90")
@pytest.mark.promise("bad-input-69")
def test_stale_sockets_are_recovered(runtime: Path) -> None:
    """After a SIGKILL the next scheduler takes the place over without help."""
    with running_scheduler(runtime) as first:
        first.kill()
        assert (runtime / "hook.sock").exists()
        with pytest.raises(SchedulerUnavailable, match="has ended"):
            first.status()
        with running_scheduler(runtime) as second:
            assert second.status()["scheduler"]["pid"] == second.process.pid


def test_no_scheduler_is_said_in_a_sentence(tmp_path: Path) -> None:
    """A client without a scheduler is told what is wrong and how to start one."""
    with pytest.raises(SchedulerUnavailable, match=r"No scheduler serves .* Start one with"):
        SchedulerClient(tmp_path / "http.sock").status()


@pytest.mark.promise("bad-input-8")
def test_clients_do_not_trust_strangers(scheduler: SchedulerUnderTest) -> None:
    """A socket whose other end runs as somebody unexpected gets no request."""
    client = SchedulerClient(scheduler.directory / "http.sock", uids=frozenset({OTHER_UID}))
    with pytest.raises(SchedulerUntrusted, match="neither you nor root"):
        client.status()


@pytest.mark.promise("scheduler-76")
@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        pytest.param("--quantum-min=0", "outside 0.01", marks=pytest.mark.full),
        ("--quantum=soon", "quantum_s cannot be 'soon'. Write it like 5s"),
        pytest.param("--idle-exit-s=soon", "expected a float", marks=pytest.mark.full),
        pytest.param("--turns=maybe", "Give one of: on, off", marks=pytest.mark.full),
        ("--journal={folder}/missing/journal", "cannot be written"),
        pytest.param("quickly", "takes no argument 'quickly'", marks=pytest.mark.full),
        pytest.param(
            "--config={folder}/missing.py", "no configuration file", marks=pytest.mark.full
        ),
        ("--config={folder}/broken.py", "cannot be read: NameError"),
        pytest.param(
            "--devices=GPU-none", "No device is called 'GPU-none'", marks=pytest.mark.full
        ),
        ("--visibilty=everyone", "There is no flag --visibilty. Did you mean --visibility?"),
        pytest.param(
            "--GPUShareScheduler.quantm=3",
            "There is no --GPUShareScheduler.quantm. Did you mean",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "--SettingConfig.quantum_s=3",
            "There is no section SettingConfig",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "--visibility=all",
            "visibility cannot be 'all'. Give one of: anonymous, users",
            marks=pytest.mark.full,
        ),
        ("--quantum_s=-5", "quantum_s is -5.0, which is outside 0 to 86400 seconds."),
        pytest.param(
            "--idle_ms=soon",
            "idle_ms cannot be 'soon'. Write it like 50ms or 2s.",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_wrong_configuration_is_said_in_a_sentence(
    runtime: Path, flag: str, sentence: str
) -> None:
    """What cannot be started says why, without a traceback, and leaves no lock behind."""
    (runtime.parent / "broken.py").write_text("nonsense")
    with pytest.raises(SchedulerDidNotStart) as failed:
        SchedulerUnderTest(runtime, flag.format(folder=runtime.parent))
    assert failed.value.exit_status == 1
    assert sentence in failed.value.output
    assert "Traceback" not in failed.value.output
    lock = runtime / "scheduler.lock"
    assert not lock.exists() or lock.read_bytes() == b"", "the next one would wait for clients"


def test_configuration_comes_from_files_and_flags(runtime: Path, tmp_path: Path) -> None:
    """A file sets what it names; a flag wins over it."""
    config = tmp_path / "gpushare.py"
    config.write_text("c.GPUShareScheduler.quantum_s = 3\nc.GPUShareScheduler.idle_ms = 99\n")
    with running_scheduler(runtime, f"--config={config}", "--quantum=4") as configured:
        settings = configured.status()["settings"]
        assert (settings["quantum_s"], settings["idle_ms"]) == (4.0, 99)


def test_a_name_in_a_file_that_nothing_reads(runtime: Path, tmp_path: Path) -> None:
    """A misspelt setting is no setting that is silently left out."""
    config = tmp_path / "gpushare.py"
    config.write_text("c.GPUShareScheduler.visibilty = 'everyone'\n")
    with pytest.raises(SchedulerDidNotStart) as failed:
        SchedulerUnderTest(runtime, f"--config={config}")
    sentences = "There is no c.GPUShareScheduler.visibilty. Did you mean visibility?"
    assert sentences in failed.value.output
    assert "WARNING" not in failed.value.output.upper(), "it is said once"


def test_files_are_found_as_every_jupyter_application_finds_them(
    runtime: Path, tmp_path: Path
) -> None:
    """The file of that name in a folder of Jupyter's counts, more than what is set for all."""
    (tmp_path / "jupyter_config.py").write_text(
        "c.GPUShareScheduler.quantum_s = '7s'\nc.GPUShareScheduler.idle_ms = 98\n"
    )
    (tmp_path / "jupyter_gpushare_config.json").write_text(
        '{"GPUShareScheduler": {"quantum_s": 3}, "GPUShareExtension": {"of_another": 1}}'
    )
    env = {"JUPYTER_CONFIG_DIR": str(tmp_path)}
    with running_scheduler(runtime, env=env) as configured:
        settings = configured.status()["settings"]
        assert (settings["quantum_s"], settings["idle_ms"]) == (3.0, 98)


def test_a_file_with_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--generate-config writes each setting with its default, and what it writes can be read."""
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    assert main(["--generate-config"]) == 0
    file = tmp_path / "jupyter_gpushare_config.py"
    written = file.read_text()
    for row in ALL_SETTINGS:
        assert f"# c.GPUShareScheduler.{row.name} = {row.plain_default!r}\n" in written
    file.write_text(written.replace("# c.GPUShareScheduler.", "c.GPUShareScheduler."))
    assert main(["--check-config"]) == 0


def test_the_log_level_of_a_flag(tmp_path: Path) -> None:
    """A flag wins over a file, also where JupyterApp's own flag would set it for all classes."""
    config = tmp_path / "gpushare.py"
    config.write_text("c.GPUShareScheduler.log_level = 'WARN'\n")
    app = GPUShareScheduler()
    app.initialize([f"--config={config}", "--debug"])
    assert app.log_level == logging.DEBUG


def test_flags_may_have_units(runtime: Path) -> None:
    """A setting is spelt and measured as everywhere else."""
    flags = ("--quantum_s=250ms", "--idle=1s", "--device-bytes-max=1GiB")
    with running_scheduler(runtime, *flags) as configured:
        settings = configured.status()["settings"]
        told = [settings[name] for name in ("quantum_s", "idle_ms", "device_bytes_max")]
        assert told == [0.25, 1000, 1 << 30]


@as_root_only
def test_a_user_without_a_home() -> None:
    """A container's bare number has no home and no name; configuration is the machine's then."""

    def action() -> str:
        os.environ.pop("HOME", None)
        app = GPUShareScheduler()
        app.initialize([])
        return " ".join(app.config_file_paths)

    assert "jupyter" in as_other_user(action, uid=54321)


def test_a_log_that_cannot_be_written(runtime: Path) -> None:
    """Said in a sentence, before anybody is served."""
    runtime.mkdir(mode=0o700)
    (runtime / "scheduler.log").mkdir()
    with pytest.raises(SchedulerDidNotStart) as failed:
        SchedulerUnderTest(runtime, "--log-to-file")
    assert "scheduler.log cannot be written: Is a directory. Remove it" in failed.value.output
    assert "Traceback" not in failed.value.output


def test_a_directory_for_all_that_others_cannot_reach(tmp_path: Path) -> None:
    """With --serve-all-users a closed folder on the way is named, rather than leaving users with
    sockets that they may not use."""
    let_others_in(tmp_path)
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(StartError, match=r"because .*/closed is closed to them\. Name a directory"):
        opened(tmp_path / "closed" / "run", open_to_all=True)
    opened(tmp_path / "closed" / "mine").release(clients_left=False)


def test_the_directory_is_locked_against_tidying_up(runtime: Path) -> None:
    """systemd-tmpfiles leaves out what it cannot lock: a lock or a socket that it removed would
    let a second scheduler serve the same devices."""
    directory = opened(runtime)
    fd = os.open(runtime, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    directory.release(clients_left=False)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)


def test_a_directory_that_is_being_tidied_up(tmp_path: Path) -> None:
    """systemd-tmpfiles locks what it looks at; the start fails with a sentence, and works later."""
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(StartError, match="Start the scheduler again in a moment"):
        RuntimeDir(path, open_to_all=False, version="1")
    os.close(held)
    RuntimeDir(path, open_to_all=False, version="1").release(clients_left=False)
