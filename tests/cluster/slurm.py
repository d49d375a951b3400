"""A Slurm of two nodes in a folder: Debian's munged, slurmctld and slurmds, run as root, with a
scheduler of ours and a simulated GPU on each node. What docs/slurm.md has is read from there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpushare.client import ClientError, SchedulerClient
from jupyter_gpushare.client.paths import HTTP_SOCKET
from tests.cluster.views import Views
from tests.deploy.unit import PLACEHOLDER, as_the_unit_bounds_it, start_command
from tests.hub.running_hub import MARK
from tests.support.environments import shared_packages
from tests.support.machine import Machine
from tests.support.paths import HOOK_LIBRARY, ROOT
from tests.support.ports import free_ports
from tests.support.sim import MIB, SimulatedMachine

NODES = ("n1", "n2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "setpriv")
WHERE = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
READY_S_MAX = 60.0
END_S_MAX = 20.0
LOOK_EVERY_S = 0.1
DEVICE_BYTES = 512 * MIB
PACKAGES = ("batchspawner==1.3.0", "jupyter_kernel_gateway==3.0.1", "async_generator==1.10")
_BASE = """
ClusterName=ci
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmctldPort={ctld_port}
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
SchedulerType=sched/backfill
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
InactiveLimit=0
KillWait=5
"""
_NODE = "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8"


class CannotRun(AssertionError):
    """What the machine lacks, and what to do."""


def check_machine() -> None:
    """Raises CannotRun."""
    if os.getuid() != 0:
        raise CannotRun("Slurm's daemons start jobs as their users. Run this as root.")
    missing = [name for name in PROGRAMS if shutil.which(name, path=WHERE) is None]
    if missing:
        raise CannotRun(
            f"{', '.join(missing)} is not installed. Run `apt-get install slurm-wlm munge` "
            f"(Debian, Ubuntu)."
        )
    tried = subprocess.run(
        ["unshare", "--mount", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        raise CannotRun(f"No mount namespace can be made: {tried.stderr.strip()}. Allow it.")


def packages() -> Path:
    """What the hub, its servers and a gateway need besides. Raises CannotRun."""
    try:
        return shared_packages("cluster", list(PACKAGES))
    except subprocess.CalledProcessError as error:
        raise CannotRun(
            f"pip cannot install {', '.join(PACKAGES)}. Let it reach a package index."
        ) from error


@dataclass(frozen=True)
class PagesFiles:
    """Slurm's files of configuration, as the page has them."""

    slurm: str
    cgroup: str
    gres: str


class SlurmCluster:
    """`start` and `stop`; what it started carries a mark, by which all of it is found and ended."""

    def __init__(self, folder: Path, users: Sequence[str], pages: PagesFiles) -> None:
        self.folder = folder
        self.python_path = f"{ROOT}:{packages()}"
        self.views = Views(folder, NODES, users)
        self.runtime_dir = self.views.here / "run"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.machines = {node: self._simulated(node) for node in NODES}
        for name in ("munge", "state", "spool", "run", "log", "etc", "dev"):
            (folder / name).mkdir(mode=0o755)
        self.device_file = folder / "dev" / "nvidia0"
        os.mknod(self.device_file, 0o666 | 0o020000, os.makedev(1, 3))
        self.env = {
            "PATH": WHERE,
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(folder / "etc" / "slurm.conf"),
            MARK: str(folder),
        }
        self._configure(pages)
        self._install()

    def _simulated(self, node: str) -> SimulatedMachine:
        """All accounts of the node may write to its files, which are its devices."""
        machine = SimulatedMachine(
            self.views.of(node) / "machine", bytes_per_device=DEVICE_BYTES, context_bytes=8 * MIB
        )
        for path in (machine.directory, *machine.directory.iterdir()):
            path.chmod(0o777)
        return machine

    def _configure(self, pages: PagesFiles) -> None:
        """The administrator's lines, as the page has them, with this machine's nodes and paths."""
        host = socket.gethostname()
        ctld_port, *ports = free_ports(1 + len(NODES))
        base = _BASE.format(folder=self.folder, host=host, ctld_port=ctld_port)
        made = []
        for line in pages.slurm.splitlines():
            if not line.startswith("NodeName="):
                made.append(line)
                continue
            rest = " ".join(w for w in line.split()[1:] if not w.startswith("CPUs="))
            for node, port in zip(NODES, ports, strict=True):
                made.append(f"{_NODE.format(node=node, host=host, port=port)} {rest}")
        text = re.sub(r"\bnode\[1-2\]", ",".join(NODES), "\n".join(made))
        (self.folder / "etc" / "slurm.conf").write_text(base + self.as_here(text) + "\n")
        (self.folder / "etc" / "cgroup.conf").write_text(pages.cgroup)
        gres = re.sub(r"\bnode\[1-2\]", "n[1-2]", pages.gres)
        (self.folder / "etc" / "gres.conf").write_text(self.as_here(gres) + "\n")

    def as_here(self, text: str) -> str:
        """Paths of a cluster as they are in this folder. /etc/systemd/system is a node's own."""
        return (
            text.replace("/etc/slurm/", f"{self.folder}/etc/")
            .replace("/etc/systemd/system/", f"{self.views.here}/")
            .replace("/dev/nvidia0", str(self.device_file))
            .replace("/run/jupyter-gpushare", str(self.runtime_dir))
            .replace(PLACEHOLDER, str(self.folder / "opt"))
        )

    def _install(self) -> None:
        """/opt/jupyter, as a wheel would fill it: programs, and the files to copy from."""
        programs = self.folder / "opt" / "bin"
        programs.mkdir(parents=True)
        shared = self.folder / "opt" / "share" / "jupyter-gpushare"
        shutil.copytree(ROOT / "deploy", shared)
        for name, module in (
            ("jupyter-gpushare", "jupyter_gpushare.cli.main"),
            ("jupyter-kernelgateway", "kernel_gateway"),
            ("jupyter-lab", "jupyterlab"),
            ("batchspawner-singleuser", "batchspawner.singleuser"),
        ):
            program = programs / name
            run = f'exec {sys.executable} -m {module} "$@"'
            program.write_text(f"#!/bin/sh\nexport PYTHONPATH={self.python_path}\n{run}\n")
            program.chmod(0o755)
        for file in (*shared.rglob("*.service"), *shared.rglob("*.sh")):
            file.write_text(self.as_here(file.read_text()))

    def start(self) -> SlurmCluster:
        """Daemons and schedulers, until the nodes are idle."""
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        socket_path, log = self.folder / "munge" / "socket", self.folder / "log" / "munged.log"
        munge = [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={socket_path}",
        ]
        munge += [f"--pid-file={self.folder}/run/munged.pid", f"--log-file={log}"]
        munge += [f"--seed-file={self.folder}/munge/seed"]
        self._spawn("munged", "", munge)
        self.wait_until(socket_path.exists, "munged answers")
        self.start_controller()
        for node in NODES:
            self.start_slurmd(node)
        self.wait_until(lambda: self.states() == ["idle"] * len(NODES), "the nodes are idle")
        return self

    def start_controller(self) -> None:
        self._spawn("slurmctld", "", ["slurmctld", "-D"])

    def start_slurmd(self, node: str) -> None:
        self._spawn(f"slurmd-{node}", node, ["slurmd", "-D", "-N", node])

    def start_scheduler(self, node: str) -> None:
        """Until it answers."""
        self.launch_scheduler(node)
        self.wait_until(lambda: self.answers(node), f"the scheduler of {node} answers")

    def launch_scheduler(self, node: str) -> None:
        """As systemd does by the unit that lies on the node, with its capabilities."""
        unit = (self.views.of(node) / "jupyter-gpushare.service").read_text()
        # Small, so that two contexts and what is kept for others leave room on a small device.
        command = [*start_command(text=unit), f"--device-reserve-bytes={DEVICE_BYTES // 16}"]
        name = f"scheduler-{node}"
        self._spawn(name, node, as_the_unit_bounds_it(command), self.device_env())

    def machine(self, node: str) -> Machine:
        """The node's device, as the test sees it."""
        sim = self.machines[node]
        return Machine(device="simulated GPU", env=sim.env(), sim=sim)

    def device_env(self) -> dict[str, str]:
        """What leads a program of a node to the node's device."""
        env = self.machines[NODES[0]].env()
        return {
            "LD_LIBRARY_PATH": env["LD_LIBRARY_PATH"],
            "GPUSHARE_SIM_DIR": str(self.views.here / "machine"),
            "GPUSHARE_LIBRARY": str(HOOK_LIBRARY),
        }

    def start_job(self, user: str, job: Sequence[str]) -> None:
        """Of `srun`; it goes on until the cluster stops."""
        command = [*self.as_user(user), "srun", *job]
        self._spawn(f"job-{user}", "", command, self.device_env())

    def _spawn(
        self, name: str, node: str, command: Sequence[str], env: dict[str, str] | None = None
    ) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.views.command(node, command),
                env={**self.env, **(env or {})},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(END_S_MAX)

    def scheduler(self, node: str) -> SchedulerClient:
        """As root sees it on the node."""
        return SchedulerClient(self.views.of(node) / "run" / HTTP_SOCKET)

    def answers(self, node: str) -> bool:
        try:
            return bool(self.scheduler(node).status())
        except ClientError:
            return False

    def tenants(self, node: str) -> list[dict[str, Any]]:
        tenants: list[dict[str, Any]] = self.scheduler(node).status()["tenants"]
        return tenants

    def follow(self, node: str, command: str) -> None:
        """A command of the page, typed by root on a node."""
        if command.startswith("systemctl enable --now jupyter-gpushare"):
            self.start_scheduler(node)
        else:
            self.run(["sh", "-c", self.as_here(command)], node=node)

    def states(self) -> list[str]:
        done = self.run(["sinfo", "-h", "-N", "-o", "%t"], check=False)
        return done.stdout.split()

    def run(
        self,
        command: Sequence[str | Path],
        *,
        user: str = "",
        node: str = "",
        check: bool = True,
        env: dict[str, str] | None = None,
        timeout_s: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """On a node or the submitting machine, as root or a user with a clean environment."""
        return subprocess.run(
            self.views.command(node, [*self.as_user(user), *command]),
            env={**self.env, **(env or {})},
            cwd=self.views.accounts[user].home if user else "/",
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout_s,
        )

    def as_user(self, user: str) -> list[str]:
        if not user:
            return []
        uid = self.views.accounts[user].uid
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]

    def wait_until(
        self, holds: Callable[[], object], what: str, seconds: float = READY_S_MAX
    ) -> None:
        until_s = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until_s, f"not within {seconds} s: {what}\n{self.logs()}"
            time.sleep(LOOK_EVERY_S)

    def logs(self) -> str:
        """The end of each log, for a test that fails."""
        files = sorted((self.folder / "log").iterdir())
        return "\n".join(f"== {f.name}\n{f.read_text(errors='replace')[-2500:]}" for f in files)

    def stop(self) -> None:
        """Jobs first, so that Slurm ends them itself; slurmctld last but munged, or slurmd waits to
        tell it."""
        if "slurmctld" in self.processes:
            self.run(["scancel", "--quiet", *self.jobs()], check=False)
            with contextlib.suppress(AssertionError):
                self.wait_until(lambda: not self.jobs(), "all jobs have ended", END_S_MAX)
        for kind in ("scheduler", "slurmd", "slurmctld", "munged"):
            for name in [each for each in self.processes if each.partition("-")[0] == kind]:
                with contextlib.suppress(subprocess.TimeoutExpired):  # the mark finds it
                    self.end(name)

    def jobs(self) -> list[str]:
        return self.run(["squeue", "-h", "-o", "%i"], check=False).stdout.split()

    def remove_groups(self) -> None:
        """Control groups of the nodes, which Slurm leaves behind; once nobody is in them."""
        for node in NODES:
            found = Path("/sys/fs/cgroup").glob(f"*/slurm_{node}")
            for top in found:
                for group in sorted([top, *top.rglob("*/")], reverse=True):
                    with contextlib.suppress(OSError):
                        group.rmdir()
