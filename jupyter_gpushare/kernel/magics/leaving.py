"""`%gpushare off` and `on`: a kernel leaves the sharing at its next start, and comes back.

Work on the GPU cannot leave it while the kernel runs: others count on its memory and its turns. The
provisioner looks for the file when it starts the kernel again, and removes it at the kernel's end.
"""

import os
from pathlib import Path

from .hook import hook_of
from .words import Unable

_FILE = "GPUSHARE_LEAVE_FILE"
_HUB_TOKEN = "JUPYTERHUB_API_TOKEN"
_NOT_ALLOWED_BY_HUB = (
    "Your administrator has not allowed that notebooks leave GPU sharing. Ask them for "
    "GPUSHARE_MAY_LEAVE=1 in the environment of your server."
)
_NOT_ALLOWED = (
    "This Jupyter server does not let notebooks leave GPU sharing. Whoever starts it may allow "
    "that: set GPUSHARE_MAY_LEAVE=1 in its environment, and start it again."
)


def leave(notice: str) -> str:
    """From the next restart on, for as long as the notebook has this kernel."""
    file = os.environ.get(_FILE)
    if not file:
        hook_of(notice)  # or says why it does not share the GPU already
        raise Unable(_NOT_ALLOWED_BY_HUB if os.environ.get(_HUB_TOKEN) else _NOT_ALLOWED)
    try:
        Path(file).touch(mode=0o600)
    except OSError as error:
        raise Unable(f"It cannot be noted: {error}. Tell your administrator.") from None
    try:
        hook_of(notice)
    except Unable as why:
        return f"{why} A restart does not change that now."
    return (
        "This kernel still shares the GPU. Restart it, and it uses the GPU like any other program: "
        "without turns, and also while others compute. `%gpushare on` takes that back."
    )


def come_back(notice: str) -> str:
    """From the next restart on, if it has left; at once, if it has not been restarted since."""
    file = os.environ.get(_FILE)
    try:
        had_left = bool(file) and Path(str(file)).exists()
        if had_left:
            Path(str(file)).unlink()
    except OSError as error:
        raise Unable(f"It cannot be noted: {error}. Tell your administrator.") from None
    if had_left and notice:
        return "Restart this kernel, and it shares the GPU again."
    hook_of(notice)
    return "This kernel shares the GPU, and goes on to do so."
