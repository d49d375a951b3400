"""Machines for the doctor, told as facts: one in which all is well, and what may differ."""

from __future__ import annotations

import dataclasses
from typing import Any

from jupyter_gpushare.cli.checkup.facts import (
    CgroupFacts,
    DeviceFacts,
    Facts,
    FileFacts,
    HubFacts,
    JupyterFacts,
    LibraryFacts,
    MachineFacts,
    RuntimeFacts,
    SchedulerFacts,
)
from jupyter_gpushare.cli.checkup.findings import Finding, Level, findings

GIB = 1 << 30
UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
DEVICE_ID = "00112233445566778899aabbccddeeff"
ALICE = 1000
BOB = 1001


def status(**changes: Any) -> dict[str, Any]:
    """What the scheduler of that machine answers: one kernel, process 42, with 2 GiB. An older one
    does not tell what is parked."""
    opened = {"device": DEVICE_ID, "bytes_allocated": 2 * GIB}
    return {
        "scheduler": {"version": "1.0", "pid": 7, "user": "alice", "runtime_dir": "/run/x"},
        "settings": {"turns": "on"},
        "devices": [{"id": DEVICE_ID, "name": "GPU 0", "bytes_allocated": 2 * GIB}],
        "tenants": [{"clients": [{"pid": 42, "devices": [opened]}]}],
        **changes,
    }


def device(**changes: Any) -> DeviceFacts:
    plain = DeviceFacts(
        uuid=UUID, name="GPU 0", bytes_total=80 * GIB, bytes_used=3 * GIB, pids=(42,)
    )
    return dataclasses.replace(plain, **changes)


def socket(name: str, **changes: Any) -> FileFacts:
    plain = FileFacts(
        path=f"/run/x/{name}", exists=True, uid=ALICE, owner="alice", mode=0o600, is_socket=True
    )
    return dataclasses.replace(plain, **changes)


def directory(**changes: Any) -> FileFacts:
    plain = FileFacts(
        path="/run/x", exists=True, uid=ALICE, owner="alice", mode=0o700, is_directory=True
    )
    return dataclasses.replace(plain, **changes)


HEALTHY = Facts(
    library=LibraryFacts(
        path="/lib/libgpushare.so", needs_glibc="2.17", has_glibc="2.36", api_version=1
    ),
    runtime=RuntimeFacts(
        directory=directory(),
        sockets=(socket("hook.sock"), socket("http.sock")),
        own_uid=ALICE,
        trusted_uids=frozenset({0, ALICE}),
    ),
    scheduler=SchedulerFacts(status=status(), own_version="1.0"),
    jupyter=JupyterFacts(
        has_server=True,
        provisioners=frozenset({"local-provisioner", "gpushare-provisioner"}),
        extension_enabled=True,
    ),
    machine=MachineFacts(
        driver_version="580.1",
        cuda_version=13000,
        devices=(device(),),
        names_of_pids={42: "python", 99: "train"},
    ),
    cgroup=CgroupFacts(),
    hub=HubFacts(uid=ALICE),
)


def machine_with(part: str, **changes: Any) -> Facts:
    """The healthy machine, but for one part of the facts."""
    changed = dataclasses.replace(getattr(HEALTHY, part), **changes)
    return dataclasses.replace(HEALTHY, **{part: changed})


def bad(facts: Facts) -> list[Finding]:
    """What is not ok."""
    return [finding for finding in findings(facts) if finding.level is not Level.OK]
