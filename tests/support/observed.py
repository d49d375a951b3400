"""Kernels on one device, and when each of them had it: from the simulated device's journal, or from
stamps that a real device writes itself. Nothing here asks the scheduler."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Sequence

from tests.support import gpu_cells
from tests.support.kernels import ANSWER_S_MAX, Kernel, Reply
from tests.support.machine import Machine
from tests.support.sim import load_journal_reader
from tests.support.timeline import Cell, Work, hand_overs, waits_served
from tests.support.waits import WAIT_S_MAX

SETUP_S = WAIT_S_MAX
READ = """
import json
print(json.dumps([_cells, gpu.intervals() if hasattr(gpu, "intervals") else []]))
del _cells[:]
"""


class ObservedKernels:
    """Runs timed cells in kernels, numbered as given, and tells what the device did.

    The kernels keep the times until somebody wants to know: a cell that printed them would take
    longer by that."""

    def __init__(self, machine: Machine, kernels: Sequence[Kernel]) -> None:
        self.machine = machine
        self.kernels = kernels
        self.failed: list[Reply] = []
        self._cells: list[Cell] = []
        self._unread: set[int] = set()
        """Kernels that keep times of cells that have ended."""
        self._stamped: list[Work] = []
        self._since_ns = 0

    def set_up(self) -> None:
        """Open CUDA in every kernel, one after the other."""
        code = gpu_cells.setup(stamped=not self.machine.simulated)
        for kernel in self.kernels:
            if kernel.tenant_id is None:
                raise RuntimeError(f"{kernel.name}: {kernel.run('pass').stderr.strip()}")
            kernel.run(code, SETUP_S).ok()
        self.begin()

    def begin(self) -> None:
        """Forget what was until now."""
        self._read()
        self._cells, self.failed, self._stamped = [], [], []
        self._since_ns = time.monotonic_ns()

    def submit(self, number: int, code: str) -> str:
        """Send a timed cell to a kernel; its own output comes back in its reply."""
        return self.kernels[number].submit(
            "import time\n"
            "_began_ns = time.monotonic_ns()\n"
            "try:\n"
            f"{textwrap.indent(code, '    ')}\n"
            "finally:\n"
            "    globals().setdefault('_cells', []).append([_began_ns, time.monotonic_ns()])\n"
        )

    def collect(self, number: int, cell: str, timeout_s: float = ANSWER_S_MAX) -> Reply:
        """Wait for a timed cell."""
        reply = self.kernels[number].wait(cell, timeout_s)
        if reply.status != "ok":
            self.failed.append(reply)
        self._unread.add(number)
        return reply

    def give_up(self, number: int) -> None:
        """The kernel is lost, and the times that it keeps with it."""
        self._unread.discard(number)

    def play(self, code: str, cells_each: int) -> None:
        """Send the same cells to all kernels at once, and wait for them."""
        sent = [
            (number, self.submit(number, code))
            for _ in range(cells_each)
            for number in range(len(self.kernels))
        ]
        for number, cell in sent:
            self.collect(number, cell).ok()

    def play_until_served(self, code: str, times: int) -> list[Work]:
        """Send cells to all kernels at once, until each has had to wait so often and was served.
        How many that takes depends on how soon a kernel comes to its next cell. All that the
        device did."""
        while True:
            self.play(code, times + 1)
            works = self.works()
            if min(waits_served(hand_overs(works, self.cells), len(self.kernels))) >= times:
                return works

    def _read(self) -> None:
        """Ask the kernels for what they keep."""
        for number in sorted(self._unread):
            said = self.kernels[number].run(READ, SETUP_S).ok().text
            cells, intervals = json.loads(said.strip().splitlines()[-1])
            self._cells += [Cell(began_ns, ended_ns, number) for began_ns, ended_ns in cells]
            self._stamped += [Work(start, end, number) for start, end in intervals]
        self._unread.clear()

    @property
    def cells(self) -> list[Cell]:
        """The cells that were collected since `begin`, in the order in which they began."""
        self._read()
        return sorted(self._cells)

    def bytes_parked(self, told: int) -> int:
        """What has left the device since `begin`: by its journal, else what the scheduler told."""
        if self.machine.sim is None:
            return told
        pids = {kernel.pid for kernel in self.kernels}
        return sum(
            record.amount
            for record in self.machine.sim.journal()
            if record.kind.name == "COPY_D2H"
            and record.pid in pids
            and record.started_ns >= self._since_ns
        )

    def works(self, *, computing_only: bool = False) -> list[Work]:
        """All work of these kernels on the device since `begin`, in order; without copies where
        memory moves."""
        if self.machine.sim is None:
            self._read()
            return sorted(self._stamped)
        reader = load_journal_reader()
        kinds = reader.COMPUTING if computing_only else reader.DEVICE_WORK
        numbers = {kernel.pid: number for number, kernel in enumerate(self.kernels)}
        return sorted(
            Work(record.started_ns, record.ended_ns, numbers[record.pid])
            for record in self.machine.sim.journal()
            if record.kind in kinds
            and record.pid in numbers
            and record.started_ns >= self._since_ns
        )

    @property
    def judged_by(self) -> str:
        """For reports: whose word the times are."""
        if self.machine.simulated:
            return "the simulated device's journal"
        return "time stamps that the device wrote before and after each launch"
