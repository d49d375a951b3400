"""Ending with the process that started us.

A hub that is killed leaves its services behind, and the next one starts its own: the old scheduler
would keep the runtime directory from it for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable


def watch_parent(ended: Callable[[], None], *, parent: int = 0) -> None:
    """Call `ended` on the running loop when our parent is gone; at once when it is already. We
    can only see that where the parent has passed us its pid; otherwise getppid() names the process
    that has adopted us."""
    loop = asyncio.get_running_loop()
    found = os.getppid()
    if found and parent not in (0, found):  # 0: it is in another pid namespace
        loop.call_soon(ended)
        return
    try:
        pidfd = os.pidfd_open(found)
    except ProcessLookupError:
        loop.call_soon(ended)
        return
    except OSError:
        return  # a parent in another pid namespace: whoever made that ends us with it

    def gone() -> None:
        loop.remove_reader(pidfd)
        with contextlib.suppress(OSError):
            os.close(pidfd)
        ended()

    loop.add_reader(pidfd, gone)
