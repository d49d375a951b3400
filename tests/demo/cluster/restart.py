"""In the middle, the scheduler of a node is killed, and starts again a little later."""

from __future__ import annotations

import signal
import time

from tests.cluster.slurm import READY_S_MAX, SlurmCluster
from tests.demo.cluster.people import LOOK_EVERY_S
from tests.demo.cluster.stage import NodeStage
from tests.demo.cluster.table import TableView

AFTER_PART = 0.5
"""Of the cells."""
AWAY_S = 1.0


class Restart:
    """`look_on` does what is due. The node's tenants are looked at before it, and after it."""

    def __init__(self, cluster: SlurmCluster, stage: NodeStage, view: TableView) -> None:
        self._cluster = cluster
        self._stage = stage
        self._view = view
        self.node = stage.name
        self._before: dict[str, str] = {}
        self._killed_ns = 0
        self._is_launched = False
        self.away_ns: list[tuple[int, int]] = []
        """From its death until it answered again."""

    @property
    def is_over(self) -> bool:
        return bool(self.away_ns)

    def look_on(self, part: float) -> None:
        if self.is_over:
            return
        if not self._killed_ns:
            if part >= AFTER_PART and self._somebody_has_a_turn():
                self._kill()
        elif not self._is_launched:
            if time.monotonic_ns() - self._killed_ns >= AWAY_S * 1e9:
                self._cluster.launch_scheduler(self.node)
                self._is_launched = True
        elif self._stage.status() is not None:
            self.away_ns.append((self._killed_ns, time.monotonic_ns()))
            self._view.headline(f"The scheduler of {self.node} is back.")

    def finish(self) -> None:
        """Where all cells ended sooner."""
        until_s = time.monotonic() + READY_S_MAX
        while self._killed_ns and not self.is_over and time.monotonic() < until_s:
            self.look_on(1.0)
            time.sleep(LOOK_EVERY_S)

    def tenants_lost(self) -> int:
        """Who was a tenant before it, and is none now."""
        return len(self._before.items() - self._stage.tenants().items())

    def _somebody_has_a_turn(self) -> bool:
        status = self._stage.status()
        return status is not None and any(each["holders"] for each in status["devices"])

    def _kill(self) -> None:
        self._before = self._stage.tenants()
        self._view.headline(f"The scheduler of {self.node} is killed while a cell has the device.")
        self._killed_ns = time.monotonic_ns()
        self._cluster.end(f"scheduler-{self.node}", signal.SIGKILL)
