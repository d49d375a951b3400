"""Real Jupyter kernels for tests, demo and benchmarks: started by the provisioner, driven by
blocking calls, cells submitted without waiting so that several kernels can be busy at once."""

from __future__ import annotations

import queue
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from jupyter_client.manager import KernelManager

from jupyter_gpushare.kernel.environment import without_gpushare
from tests.support.paths import HOOK_LIBRARY
from tests.support.waits import WAIT_S_MAX

PROVISIONER = "gpushare-provisioner"
START_S = ANSWER_S_MAX = WAIT_S_MAX


def kernel_env(machine_env: Mapping[str, str], runtime_dir: Path) -> dict[str, str]:
    """What leads a kernel to a machine's device, a scheduler and the hook that was just built."""
    env = without_gpushare(machine_env)
    env.pop("PYTEST_CURRENT_TEST", None)  # with it, ipykernel shows less than a user would see
    return {
        **env,
        "GPUSHARE_RUNTIME_DIR": str(runtime_dir),
        "GPUSHARE_LIBRARY": str(HOOK_LIBRARY),
    }


class CellFailed(AssertionError):
    """A cell that should have succeeded ended with an error."""


@dataclass
class Printed:
    """What a cell put into the notebook."""

    text: str = ""
    html: str = ""
    stderr: str = ""
    errors: list[str] = field(default_factory=list)


@dataclass
class Reply:
    """How a cell ended; `ended_s` is time.monotonic() when its reply came."""

    status: str
    ename: str | None
    evalue: str | None
    ended_s: float
    printed: Printed
    expressions: dict[str, Any]

    @property
    def text(self) -> str:
        return self.printed.text

    @property
    def html(self) -> str:
        return self.printed.html

    @property
    def stderr(self) -> str:
        return self.printed.stderr

    def ok(self) -> Reply:
        if self.status != "ok":
            raise CellFailed(f"{self.ename}: {self.evalue}\n{''.join(self.printed.errors)}")
        return self


class Kernel:
    """One kernel and its client. `submit` and `wait` are the two halves of `run`."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        name: str = "",
        provisioner: str = PROVISIONER,
        argv: list[str] | None = None,
    ) -> None:
        self.name = name
        self._env = {**env, **({"JPY_SESSION_NAME": name} if name else {})}
        # Sockets in a folder of our own: no port can clash, and none is open to the network.
        self._sockets = tempfile.TemporaryDirectory(prefix="gpushare-kernel-")
        self.manager = KernelManager(
            kernel_name="python3",
            transport="ipc",
            connection_file=f"{self._sockets.name}/kernel.json",
        )
        assert self.manager.kernel_spec is not None
        self.manager.kernel_spec.metadata["kernel_provisioner"] = {"provisioner_name": provisioner}
        if argv is not None:
            self.manager.kernel_spec.argv = argv
        self.client: Any = None
        self._replies: dict[str, Any] = {}
        self._printed: dict[str, Printed] = {}
        self._printed_all: set[str] = set()

    def start(self, **options: Any) -> Kernel:
        self.manager.start_kernel(env=self._env, **options)
        self._connect()
        return self

    def _connect(self) -> None:
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=START_S)
        self._replies.clear()

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)  # type: ignore[union-attr]

    @property
    def tenant_id(self) -> str | None:
        return self.manager.provisioner._tenant_id  # type: ignore[union-attr]

    def submit(
        self, code: str, *, silent: bool = False, subshell_id: str | None = None, **changes: Any
    ) -> str:
        """Send a cell; answers with the id under which its reply will come. `changes` are of the
        request."""
        content = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
            **changes,
        }
        message = self.client.session.msg("execute_request", content)
        if subshell_id is not None:
            message["header"]["subshell_id"] = subshell_id
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def done(self, cell: str) -> bool:
        """Whether the cell's reply is here already."""
        self._collect(timeout_s=0)
        return cell in self._replies

    def text_of(self, cell: str) -> str:
        """What a cell that may still run has printed so far; waits up to a second for more."""
        self._collect_output()
        return self._printed.get(cell, Printed()).text

    def stderr_of(self, cell: str) -> str:
        """What a cell that may still run has written to stderr so far; waits likewise."""
        self._collect_output()
        return self._printed.get(cell, Printed()).stderr

    def wait(self, cell: str, timeout_s: float = ANSWER_S_MAX) -> Reply:
        """The reply to a cell, with what it printed until then."""
        deadline_s = time.monotonic() + timeout_s
        while cell not in self._replies:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"{self.name or 'the kernel'} has not answered in {timeout_s} s")
            self._collect(timeout_s=min(left_s, 1.0))
        content, ended_s = self._replies.pop(cell)
        while cell not in self._printed_all and time.monotonic() < deadline_s + 5:
            self._collect_output()
        self._printed_all.discard(cell)
        printed = self._printed.pop(cell, Printed())
        return Reply(
            content["status"],
            content.get("ename"),
            content.get("evalue"),
            ended_s,
            printed,
            content.get("user_expressions") or {},
        )

    def run(self, code: str, timeout_s: float = ANSWER_S_MAX, **options: Any) -> Reply:
        return self.wait(self.submit(code, **options), timeout_s)

    def send(self, kind: str, content: Mapping[str, Any]) -> str:
        """A message on the shell channel that has no reply, as those of widgets have none."""
        message = self.client.session.msg(kind, dict(content))
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def wait_until_handled(self, sent: str, timeout_s: float = ANSWER_S_MAX) -> Printed:
        """What the kernel has printed when it has done with such a message."""
        deadline_s = time.monotonic() + timeout_s
        while sent not in self._printed_all:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.name or 'the kernel'} is not done in {timeout_s} s")
            self._collect_output()
        self._printed_all.discard(sent)
        return self._printed.pop(sent, Printed())

    def control(self, kind: str, content: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request on the control channel and its answer (subshells are made this way)."""
        message = self.client.session.msg(kind, dict(content or {}))
        self.client.control_channel.send(message)
        while True:
            answer = self.client.get_control_msg(timeout=ANSWER_S_MAX)
            if answer["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return dict(answer["content"])

    def _collect(self, timeout_s: float) -> None:
        try:
            while True:
                message = self.client.get_shell_msg(timeout=timeout_s)
                parent = message["parent_header"].get("msg_id")
                self._replies[parent] = (message["content"], time.monotonic())
                timeout_s = 0
        except queue.Empty:
            return

    def _collect_output(self) -> None:
        """One message; a cell's outputs end with the kernel's `idle` for it."""
        try:
            message = self.client.get_iopub_msg(timeout=1)
        except queue.Empty:
            return
        cell = message["parent_header"].get("msg_id")
        printed = self._printed.setdefault(cell, Printed())
        kind, content = message["msg_type"], message["content"]
        if kind == "stream" and content["name"] == "stderr":
            printed.stderr += content["text"]
        elif kind == "stream":
            printed.text += content["text"]
        elif kind in ("execute_result", "display_data"):
            printed.text += content["data"].get("text/plain", "")
            printed.html += content["data"].get("text/html", "")
        elif kind == "error":
            printed.errors = content["traceback"]
        elif kind == "status" and content["execution_state"] == "idle":
            self._printed_all.add(cell)

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def restart(self, *, now: bool = True) -> None:
        self.client.stop_channels()
        self.manager.restart_kernel(now=now)
        self._connect()

    def stop(self, *, now: bool = True) -> None:
        if self.client is not None:
            self.client.stop_channels()
            self.client = None
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=now)
        self._sockets.cleanup()

    def __enter__(self) -> Kernel:
        try:
            return self if self.client is not None else self.start()
        except BaseException:  # Ctrl-C included: nothing that was started stays behind
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
