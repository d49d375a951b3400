"""The machine, the scheduler and the tenants of a soak, and how each of them is brought back."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_gpushare.client import RequestRefused, SchedulerUnavailable
from jupyter_gpushare.kernel.environment import without_gpushare
from tests.soak.ground import TENANTS_FEW, Ground, simulated
from tests.soak.score import Score, Totals, meaning_of
from tests.support.fake_cgroup import FakeCgroup
from tests.support.memory_tenants import built_tenant
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.stacks import stacks_of
from tests.support.tenants import Tenants

PROGRAM = Path(__file__).parent / "programs" / "soak_tenant.c"
TENANTS = (
    (150, "0,1", 3),
    (150, "0,1", 1),
    (120, "0,1", 2),
    (90, "0,1", 3),
    (120, "0", 2),
    (120, "1", 2),
)
"""MiB that each holds on each of its devices, those devices, and threads. All never fit."""
OWNERS = ("ann", "ben", "carl")
"""Two of the tenants are each one's: some turns go to siblings, and most to others."""
SETTINGS = {
    "memory_mode": "swap",
    "quantum_s": 0.1,
    "swap_percent": 50,
    "swap_wait_max_s": 1,
    "reclaim_s": 1,
    "park_timeout_s": 5,
    "memory_wait_s": 10,
    "probe_period_s": 0.5,
}
SERVED_S_MAX = 120.0
"""Who has not gone on for so long after everything was healed hangs."""
LOOK_EVERY_S = 0.02
MOMENT_LOOKS = 100
ENDING = ("return", "exit", "quick_exit", "pthread_exit", "_exit", "exec")


class SchedulerWithBugs(SchedulerUnderTest):
    """Its core fails at some events."""

    function = "tests.scheduler.failing_scheduler:command_line_with_bugs"
    imports = ("tests.scheduler.failing_scheduler",)


class Tenant:
    """A program that works by itself, and what it has said so far."""

    def __init__(
        self,
        name: str,
        tenant_id: str,
        place: int,
        command: list[str],
        env: Mapping[str, str],
        folder: Path,
    ) -> None:
        self.name, self.tenant_id, self.place = name, tenant_id, place
        self.totals = Totals()
        self.answers: Counter[str] = Counter()
        self.findings: list[tuple[str, str]] = []
        self.is_ready = False
        self.is_ending = False
        """It was told to: what fails in it from now on is no finding, but a wrong byte is."""
        self._output = folder / f"{name}.out"
        self.errors = folder / f"{name}.err"
        with self._output.open("wb") as output, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=output, stderr=errors
            )
        self._reader = self._output.open()
        self._torn = ""

    def read(self) -> None:
        """What it has said since."""
        *lines, self._torn = (self._torn + self._reader.read()).split("\n")
        for line in lines:
            self.is_ready |= line == "ready"
            said = meaning_of(line)
            if said.totals:
                self.totals = said.totals
            if said.answer:
                self.answers[said.answer] += 1
            if said.finding == "bytes_wrong" or (said.finding and not self.is_ending):
                self.findings.append((said.finding, line))

    def say(self, command: str) -> None:
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.read()
        self._reader.close()
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


def has_ended(tenant: Tenant) -> bool:
    return not tenant.is_alive


@dataclass
class Bed:
    """Everything that a fault may happen to. `ground`: None for simulated devices; `shared`: false
    for tenants without turns."""

    folder: Path
    chance: random.Random
    score: Score
    ground: Ground | None = None
    shared: bool = True
    patience_s: float = SERVED_S_MAX
    tenants: list[Tenant] = field(default_factory=list)
    groups: dict[str, FakeCgroup] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.on = self.ground or simulated(self.folder)
        self.machine = self.on.machine
        self._program = built_tenant(source=PROGRAM)
        self._number = 0
        self._names: dict[int, str] = {}
        """By process."""
        self._told_to_end_ns: dict[int, int] = {}
        self._overlapped: set[tuple[Any, ...]] = set()
        self._log_read = 0
        if self.shared:
            self.start_scheduler()

    # ---- the scheduler ----

    def start_scheduler(self, kind: type[SchedulerUnderTest] = SchedulerUnderTest) -> None:
        settings = {**SETTINGS, **self.on.settings}
        options = [f"--GPUShareScheduler.{name}={value}" for name, value in settings.items()]
        env = {**self.machine.env, "CUDA_VISIBLE_DEVICES": ",".join(self.on.ordinals)}
        self.scheduler = kind(self.folder / "run", *options, env=env, check=False)

    def status(self) -> dict[str, Any]:
        return self.scheduler.status()

    def parked_bytes(self) -> dict[str, int]:
        """By tenant, on all devices."""
        return {
            each["id"]: sum(int(memory["bytes_parked"]) for memory in each["memory"])
            for each in self.status()["tenants"]
        }

    # ---- the tenants ----

    def begin(self) -> None:
        count = TENANTS_FEW if self.on.left_out else len(TENANTS)
        for place in range(count):
            self.add(place)

    def add(self, place: int) -> Tenant:
        """Another one of this line of TENANTS."""
        held_mib, wanted, threads = TENANTS[place]
        devices = self.on.devices_of(wanted)
        self._number += 1
        name = f"tenant-{self._number}"
        group = self.groups[name] = FakeCgroup(self.folder / f"cgroup-{self._number}")
        env, tenant_id = without_gpushare(self.machine.env), ""
        if self.shared:
            owner = OWNERS[place % len(OWNERS)]
            tenant_id, env = Tenants(self.scheduler).of(owner, name, env)
            env |= {"GPUSHARE_LOG": "info", "GPUSHARE_LOG_FILE": str(self.folder / f"{name}.log")}
        env |= {**group.env(), "CUDA_VISIBLE_DEVICES": devices}
        numbers = (
            self.chance.getrandbits(31),
            held_mib * self.on.scale,
            len(devices.split(",")),
            threads,
        )
        command = [str(self._program), *map(str, numbers)]
        tenant = Tenant(name, tenant_id, place, command, env, self.folder)
        self._names[tenant.process.pid] = name
        self.tenants.append(tenant)
        return tenant

    def look(self) -> None:
        """Reads what all have said, and finds those that have died by themselves."""
        for tenant in list(self.tenants):
            tenant.read()
            if not tenant.is_alive and not tenant.is_ending:
                status = tenant.process.returncode
                self.score.find("kernels_lost", f"{tenant.name} ended with {status}")
                self.replace(tenant)

    def remove(self, tenant: Tenant) -> None:
        """It has ended; what it has found counts. Who started it says so to the scheduler, where
        that hears it."""
        tenant.close()
        if self.shared:
            with contextlib.suppress(RequestRefused, SchedulerUnavailable):
                self.scheduler.client.remove_tenant(tenant.tenant_id)
        self.tenants.remove(tenant)
        self.score.count(tenant.totals)
        for finding, what in tenant.findings:
            self.score.find(finding, f"{tenant.name}: {what}")

    def replace(self, tenant: Tenant) -> None:
        self.remove(tenant)
        self.add(tenant.place)

    def until(self, holds: Callable[[], object], within_s: float | None = None) -> bool:
        """Whether it came true in this time."""
        until_s = time.monotonic() + (self.patience_s if within_s is None else within_s)
        while True:
            self.look()
            if holds():
                return True
            if time.monotonic() > until_s:
                return False
            time.sleep(LOOK_EVERY_S)

    def _tell_to_end(self, tenant: Tenant, kind: str) -> None:
        tenant.is_ending = True
        self._told_to_end_ns[tenant.process.pid] = time.monotonic_ns()
        tenant.say(f"exit {kind}")

    def end(self, tenant: Tenant, kind: str) -> bool:
        """It is told to end in this way, and somebody else takes its place. Whether it did."""
        self._tell_to_end(tenant, kind)
        ended = self.until(lambda: not tenant.is_alive)
        if not ended:
            self.hangs(tenant, f"does not end by {kind}")
        elif tenant.process.returncode != 0:
            status = tenant.process.returncode
            self.score.find("kernels_lost", f"{tenant.name} ended by {kind} with {status}")
        self.replace(tenant)
        return ended

    def kill(self, tenant: Tenant) -> None:
        tenant.is_ending = True
        tenant.signal(signal.SIGKILL)
        tenant.process.wait()
        self.replace(tenant)

    def hangs(self, tenant: Tenant, why: str) -> None:
        """Says where it stands and what the scheduler knows, and ends it."""
        stacks = stacks_of(tenant.process.pid)
        self.score.find("hangs", f"{tenant.name} {why}:\n{stacks}\n{self._what_is_known()}")
        tenant.is_ending = True
        tenant.signal(signal.SIGKILL)
        tenant.process.wait()

    def _what_is_known(self) -> str:
        """Who has the devices and who waits for what, as the scheduler has it, and where the
        holders stand."""
        if not self.shared:
            return ""
        try:
            status = self.status()
        except (RequestRefused, SchedulerUnavailable) as nothing:
            return str(nothing)
        holders = {each["name"] for device in status["devices"] for each in device["holders"]}
        stand = [
            f"{each.name} has a turn:\n{stacks_of(each.process.pid)}"
            for each in self.tenants
            if each.name in holders
        ]
        known = (str(each) for kind in ("devices", "tenants") for each in status[kind])
        return "\n".join([*stand, *known])

    def _has_gone_on_or_away(self, tenant: Tenant, before: Totals) -> bool:
        return tenant not in self.tenants or tenant.totals.more_than(before)

    # ---- the judges ----

    def scheduler_uses(self) -> tuple[int, int]:
        """How many descriptors it has open at least in a moment, for children come and go,
        and its resident memory in KiB."""
        folder = Path(f"/proc/{self.scheduler.process.pid}")
        (resident,) = re.findall(r"VmRSS:\s+(\d+)", (folder / "status").read_text())
        open_now = []
        for _ in range(MOMENT_LOOKS):
            open_now.append(len([*(folder / "fd").iterdir()]))
            time.sleep(LOOK_EVERY_S)
        return min(open_now), int(resident)

    def heal(self) -> None:
        """Everything is as it was at the beginning, and everybody has to go on."""
        for group in self.groups.values():
            group.limit(None)
        for tenant in self.tenants:
            tenant.signal(signal.SIGCONT)
        if self.shared:
            for device in self.status()["devices"]:
                self.scheduler.client.set_device_mode(device["id"], "open")
        self.look()
        before = {tenant.name: tenant.totals for tenant in self.tenants}
        for tenant in list(self.tenants):
            gone_on = partial(self._has_gone_on_or_away, tenant, before[tenant.name])
            if not self.until(gone_on):
                self.hangs(tenant, "did not go on")
                self.replace(tenant)
        self.judge()
        self.score.heals += 1

    def judge(self) -> None:
        """What the device's journal, where it has one, and the scheduler's log say."""
        overlaps = self.machine.sim.computing_overlaps() if self.machine.sim else []
        for first, second in overlaps:
            if {first.pid, second.pid} <= set(self._names) and first.pid != second.pid:
                pair = (first.pid, second.pid, first.started_ns, second.started_ns)
                if pair in self._overlapped:
                    continue
                self._overlapped.add(pair)
                if self._passes_at_its_end(first, second):
                    self.score.overlaps_at_an_end += 1
                else:
                    later_ns = max(first.started_ns, second.started_ns)
                    names = [self._names[each.pid] for each in (first, second)]
                    what = f"{first} and {second}, of {' and '.join(names)}"
                    self.score.find("overlaps", f"{what}: {self.score.faults_before(later_ns)}")
        if self.shared:
            log = self.scheduler.log[self._log_read :]
            self._log_read += len(log)
            for _ in range(log.count("Traceback")):
                self.score.find("tracebacks", log[log.index("Traceback") :][:2000])

    def _passes_at_its_end(self, *both: Any) -> bool:
        """What a process does once its exit handlers run passes a shut gate where its memory is
        there, and what it has in flight then goes with it."""
        told_ns = (self._told_to_end_ns.get(each.pid) for each in both)
        return any(
            told is not None and told < max(each.started_ns for each in both) for told in told_ns
        )

    def ignore_log(self) -> None:
        """What the scheduler has written until now is no finding."""
        self._log_read = len(self.scheduler.log)

    def close(self) -> None:
        for tenant in list(self.tenants):
            tenant.signal(signal.SIGCONT)
            self._tell_to_end(tenant, "return")
        for tenant in list(self.tenants):
            if not self.until(partial(has_ended, tenant)):
                self.hangs(tenant, "does not end")
            self.remove(tenant)
        self.judge()
        if self.shared and self.scheduler.stop() != 0:
            self.score.find("tracebacks", f"the scheduler ended: {self.scheduler.log[-2000:]}")

    def abandon(self) -> None:
        """Nothing of it is left behind, whatever state it is in."""
        for tenant in self.tenants:
            tenant.signal(signal.SIGKILL)
        if self.shared and self.scheduler.process.poll() is None:
            os.kill(self.scheduler.process.pid, signal.SIGCONT)
            self.scheduler.kill()
