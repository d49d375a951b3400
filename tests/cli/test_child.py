"""The parent of a command, where the command does not end."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.support.waits import WAIT_S_MAX

DEAF = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    f"time.sleep({2 * WAIT_S_MAX})"
)
PARENT = (
    "import os, sys\n"
    "from jupyter_gpushare.cli.child import Child\n"
    "sys.exit(Child([sys.executable, '-c', sys.argv[1]], os.environ).wait(ends_s=0.1))"
)


def test_a_command_that_stays_after_sigterm_is_killed() -> None:
    """As `jupyter gpushare try` does with a JupyterLab that a thread keeps from ending."""
    command = [sys.executable, "-c", PARENT, DEAF]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(WAIT_S_MAX) == 128 + signal.SIGKILL
