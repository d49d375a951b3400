"""Which processes are frozen: stopped by a signal or a debugger, or their control group is frozen
(`kill -STOP`, `docker pause`, `scontrol suspend`).

A frozen process does not answer, and is not to be waited for where it has left the device free. The
processes are looked at one after the other, for a bounded part of the loop's time, and only while
somebody waits for a turn or is known to be frozen: an idle scheduler is not to be woken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from jupyter_gpushare.core.events import ClientFrozen, Event
from jupyter_gpushare.core.ids import ClientId

LOOK_S = 0.25
WORK_S = 0.002
"""Of the loop's time, at each look."""
_STOPPED = ("T", "t")
_USED_FIELDS = slice(11, 13)
"""Of what stands behind the name in /proc/PID/stat: the time that the process has used."""
Seen = tuple[str, ...]


class FreezeWatch:
    """`pids` are those of the clients, as far as they are numbers of our own pid namespace;
    `somebody_waits` for a turn."""

    def __init__(
        self,
        *,
        submit: Callable[[Event], None],
        pids: Callable[[], Mapping[ClientId, int]],
        somebody_waits: Callable[[], bool] = lambda: True,
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._submit = submit
        self._pids = pids
        self._somebody_waits = somebody_waits
        self._proc = proc
        self._cgroups = cgroups
        self._spent_s = spent_s
        self._timer: asyncio.TimerHandle | None = None
        self._seen: dict[ClientId, Seen] = {}
        """Of those that were stopped at the last look: how much time they had used."""
        self._frozen: set[ClientId] = set()
        self._last: ClientId | None = None
        """The one that was looked at last; the next look goes on behind it."""

    def wake(self) -> None:
        """Something has happened: begin to look, unless that is going on."""
        if self._timer is None and self._somebody_waits():
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_on)

    def _look_on(self) -> None:
        """What is found is told to the core, which wakes us again: the timer is there still."""
        self.look()
        self._timer = None
        if self._frozen or self._somebody_waits():
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_on)

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()

    def look(self) -> None:
        """At as many as the time allows, and at one in any case."""
        pids = dict(self._pids())
        self._frozen &= pids.keys()
        for gone in self._seen.keys() - pids.keys():
            del self._seen[gone]
        began_s = self._spent_s()
        for client in self._in_order(sorted(pids)):
            self._look_at(client, pids[client])
            self._last = client
            if self._spent_s() - began_s >= WORK_S:
                return

    def _in_order(self, clients: list[ClientId]) -> list[ClientId]:
        last = self._last
        if last is None:
            return clients
        behind = [each for each in clients if each > last]
        return behind + clients[: len(clients) - len(behind)]

    def _look_at(self, client: ClientId, pid: int) -> None:
        before = self._seen.pop(client, None)
        stopped = time_used_if_stopped(self._proc, pid)
        if stopped is not None:
            self._seen[client] = stopped
        # A traced process stops for moments, and works in between.
        frozen = stopped is not None and (stopped == before or client in self._frozen)
        frozen = frozen or is_group_frozen(self._proc, self._cgroups, pid)
        if frozen == (client in self._frozen):
            return
        self._frozen ^= {client}
        cause = "its process is frozen" if frozen else "its process goes on"
        self._submit(ClientFrozen(client=client, frozen=frozen, cause=cause))


def time_used_if_stopped(proc: Path, pid: int) -> Seen | None:
    """How much time a stopped process has used; None for one that is not stopped, or has ended."""
    # The name may be anything, with blanks and brackets.
    fields = _read(proc / str(pid) / "stat").rpartition(")")[2].split()
    return tuple(fields[_USED_FIELDS]) if fields and fields[0] in _STOPPED else None


def is_group_frozen(proc: Path, cgroups: Path, pid: int) -> bool:
    """Whether the control group of the process, or one around it, is frozen."""
    for line in _read(proc / str(pid) / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        group = path.lstrip("/")
        if number == "0" and "frozen 1" in _read(cgroups / group / "cgroup.events").splitlines():
            return True
        if controllers == "freezer":
            return _read(cgroups / "freezer" / group / "freezer.state").strip() == "FROZEN"
    return False


def _read(path: Path) -> str:
    """Empty where there is nothing to read, or nothing that we may read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
