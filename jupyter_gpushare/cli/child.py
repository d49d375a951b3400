"""Being the parent of a command as if one were not there: signals, stops, and its exit status.

Both processes are in one process group, so what a terminal sends (Ctrl-C, Ctrl-Z, a new window
size) reaches the command by itself; only what was sent to this process alone is passed on. The
kernel tells the two apart: a terminal's signals have `si_code` SI_KERNEL.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping, Sequence

_SI_KERNEL = 0x80
_FORWARDED = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
        signal.SIGTSTP,
        signal.SIGCONT,
    }
)
_JOB_STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
NOT_FOUND = 127
NOT_EXECUTABLE = 126


class CannotStart(Exception):
    """The command cannot be executed; `exit_status` is the one that shells use for it."""

    def __init__(self, exit_status: int, message: str) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class Child:
    """A started command. Its parent's signals stay blocked until the parent ends."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._watched = _FORWARDED | {signal.SIGCHLD}
        # Inherited as ignored, the child would be reaped behind our back.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        try:
            self.pid = os.posix_spawnp(
                argv[0], list(argv), env, setsigmask=before, setsigdef=_IGNORED_BY_PYTHON
            )
        except FileNotFoundError as error:
            raise CannotStart(
                NOT_FOUND, f"There is no command {argv[0]!r}. Check its name and PATH."
            ) from error
        except OSError as error:
            raise CannotStart(
                NOT_EXECUTABLE,
                f"The command {argv[0]!r} cannot be executed: {error.strerror}. Check the file and "
                f"its mode.",
            ) from error

    def wait(self, *, ends_s: float | None = None) -> int:
        """Pass signals on until the command ends; its exit status, or 128 and its signal. A command
        that has not ended `ends_s` after a SIGTERM is killed."""
        until_s = math.inf
        while True:
            info = self._next_signal(until_s)
            if info is None:
                os.kill(self.pid, signal.SIGKILL)
                until_s = math.inf
                continue
            if info.si_signo != signal.SIGCHLD:
                if info.si_code != _SI_KERNEL:
                    os.kill(self.pid, info.si_signo)
                if info.si_signo == signal.SIGTERM and ends_s is not None:
                    until_s = min(until_s, time.monotonic() + ends_s)
                continue
            status = self._reap()
            if status is not None:
                return status

    def _next_signal(self, until_s: float) -> signal.struct_siginfo | None:
        """None: none came until then."""
        if until_s == math.inf:
            return signal.sigwaitinfo(self._watched)
        return signal.sigtimedwait(self._watched, max(0.0, until_s - time.monotonic()))

    def _reap(self) -> int | None:
        """The exit status once the command has ended. One SIGCHLD may stand for several changes."""
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return None
            if not os.WIFSTOPPED(status):
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if os.WSTOPSIG(status) in _JOB_STOPS:
                # So that the shell sees a stopped job; its SIGCONT wakes us and is passed on.
                os.kill(os.getpid(), signal.SIGSTOP)
