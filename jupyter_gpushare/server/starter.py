"""Starts a scheduler that serves this user alone and outlives this server.

A server that starts one need not look whether another does the same: the lock in the runtime
directory lets one of them serve, and the others end at once.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from jupyter_gpushare.kernel.environment import without_gpushare

IDLE_EXIT_S = 600
START_S_MAX = 30.0
END_S_MAX = 10.0
"""For a process that has closed its end of the pipe: a busy machine takes a while to bury it."""
_EXIT_ALREADY_SERVED = 3
_MESSAGE_BYTES_MAX = 2000
_PREFIX = "jupyter-gpushare: "


def start_scheduler(runtime_dir: Path, *, idle_exit_s: float = IDLE_EXIT_S) -> str | None:
    """Returns when a scheduler serves the directory, or another one is about to: None; else what is
    wrong and what to do. Blocks for a second or so."""
    try:
        with tempfile.TemporaryFile() as errors:
            process, ready = _spawned(runtime_dir, idle_exit_s, errors)
            if _is_ready(ready):
                _reap(process)
                return None
            return _why_not(process, errors.fileno())
    except OSError as error:  # no room for a file or a process
        return f"The scheduler cannot be started: {error}. Mend that, or start one yourself."


def _spawned(
    runtime_dir: Path, idle_exit_s: float, errors: IO[bytes]
) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and the end of a pipe that has a line once it serves."""
    ready, tell = os.pipe()
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                *("-m", "jupyter_gpushare.cli.main", "scheduler"),
                f"--runtime-dir={runtime_dir}",
                f"--idle-exit-s={idle_exit_s:g}",
                f"--ready-fd={tell}",
                "--log-to-file",
            ],
            pass_fds=[tell],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=without_gpushare(os.environ),
            cwd="/",
            start_new_session=True,  # a Ctrl-C at this server's terminal is not for it
        )
    except OSError:
        os.close(ready)
        raise
    finally:
        os.close(tell)
    return process, ready


def _is_ready(ready: int) -> bool:
    """The pipe has a line once it serves, and only an end when it has failed."""
    with os.fdopen(ready, "rb") as pipe:
        news = select.poll()  # select() knows no descriptors beyond 1023, and servers have many
        news.register(pipe, select.POLLIN)
        return bool(news.poll(START_S_MAX * 1000) and pipe.read(1))


def _why_not(process: subprocess.Popen[bytes], errors: int) -> str | None:
    try:
        status = process.wait(END_S_MAX)
    except subprocess.TimeoutExpired:
        _reap(process)
        return "The scheduler takes very long to start. Look into its log."
    if status == _EXIT_ALREADY_SERVED:
        return None
    text = os.pread(errors, _MESSAGE_BYTES_MAX, 0).decode(errors="replace").strip()
    said = text.splitlines()[-1].removeprefix(_PREFIX) if text else ""
    return said or f"The scheduler ended with status {status} as it was started. Look into its log."


def _reap(process: subprocess.Popen[bytes]) -> None:
    """It is our child for as long as we live: when it ends, somebody has to take note."""
    threading.Thread(target=process.wait, name="gpushare-reaper", daemon=True).start()
