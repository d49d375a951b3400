"""The scheduler's socket closed to this user, or in the hands of another one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hook.runtime.process import GpuProcess
from tests.kernel.conftest import SharedGpu
from tests.support.other_user import OTHER_UID, as_other_user, let_others_in
from tests.support.tenant_programs import TenantPrograms
from tests.support.waits import WAIT_S_MAX, wait_until

Bystanders = Callable[[], None]
CANCELLED = 800
ANOTHER_ME = "#include <unistd.h>\nuid_t geteuid(void) { return 4242; }\n"


def told(program: GpuProcess) -> str:
    """What the user reads, as soon as there is something: one line of two sentences."""
    wait_until(lambda: program.errors() != "", "the user is told")
    errors = program.errors()
    assert errors.startswith("gpushare: ") and errors.count("\n") == 1, errors
    return errors


def goes_on_without(program: GpuProcess) -> None:
    """Its calls wait, can be cancelled, and the process ends well."""
    program.say("0 spin d 1000")
    program.say("0 echo")
    assert program.is_silent(for_s=0.2)
    program.say("1 hook cancel_waits")
    program.expect(f"0 spin {CANCELLED}")
    program.expect("0 echo 0")
    assert program.finish() == 0


@pytest.fixture
def squatted(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket at which, to the process of the test, another user listens: a real one where the
    test may become another user. Elsewhere it is the test that seems to be another user to itself
    (`me_as_another`)."""
    folder = tmp_path / "squatted"
    folder.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    path = str(folder / "hook.sock")
    if os.getuid() == 0:
        # Who called listen() counts, so the socket is made by a child that is somebody else.
        let_others_in(folder)
        folder.chmod(0o777)

        def listen() -> str:
            listener.bind(path)
            listener.listen()
            return "listens"

        assert as_other_user(listen) == "listens"
    else:
        listener.bind(path)
        listener.listen()
    yield listener
    listener.close()


@pytest.fixture
def me_as_another(tmp_path: Path) -> dict[str, str]:
    """The environment in which a process takes itself for another user, where that is needed."""
    if os.getuid() == 0:
        return {}
    source, library = tmp_path / "another.c", tmp_path / "libanother.so"
    source.write_text(ANOTHER_ME)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.promise(
    "bad-input-8",
    "A socket squatted by another user: nothing is sent to it, and its owner is named",
)
def test_a_squatted_socket_gets_nothing(
    tenant_programs: TenantPrograms,
    bystanders: Bystanders,
    squatted: socket.socket,
    me_as_another: dict[str, str],
) -> None:
    """Not a byte of the token is sent to a stranger who listens at the scheduler's address; the
    user reads whose socket it is and what to do; tenants of the real scheduler go on."""
    program = tenant_programs.opened(
        "careful", socket=Path(squatted.getsockname()), token="secret", env=me_as_another
    )
    errors = told(program)
    assert f"is served by user {os.getuid() or OTHER_UID}, who is neither root nor you" in errors
    assert "Remove it, or name the service account in GPUSHARE_SCHEDULER_UID" in errors
    squatted.settimeout(WAIT_S_MAX)
    connection, _ = squatted.accept()
    with connection:
        assert connection.recv(4096) == b"", "the hook closes without having said a word"
    bystanders()
    goes_on_without(program)


@pytest.mark.promise(
    "bad-input-9",
    "A socket without permission: said where the user looks, nobody dies, and it is served when "
    "permitted",
)
def test_a_socket_that_may_not_be_opened(
    shared: SharedGpu, tenant_programs: TenantPrograms, bystanders: Bystanders
) -> None:
    """A hook.sock without permission: who opens CUDA now is told so and waits, who is connected
    already goes on, and with the permission the waiting call is served."""
    shared.scheduler.client.change_settings({"reconnect_s": 0})
    hook_socket = shared.scheduler.directory / "hook.sock"
    hook_socket.chmod(0)
    program = tenant_programs.opened(
        "outside", env={"GPUSHARE_RECONNECT_S": "0"}, wrapper=without_roots_privilege()
    )
    program.say("0 spin d 1000")
    errors = told(program)
    assert f"this user may not open the GPU scheduler's socket {hook_socket}. Ask" in errors
    bystanders()
    hook_socket.chmod(0o600)
    program.expect("0 spin 0")
    assert program.finish() == 0


def without_roots_privilege() -> list[str]:
    """A command before a command: modes of files hold for root too."""
    cap_dac_override, drop_from_bounding_set = 1, 24
    code = (
        "import ctypes, os, sys\n"
        f"ctypes.CDLL(None).prctl({drop_from_bounding_set}, {cap_dac_override}, 0, 0, 0)\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    return [sys.executable, "-c", code]
