"""Programs that close all their descriptors and use the numbers for files of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.hook.runtime.process import GpuProcess
from tests.kernel.conftest import SharedGpu
from tests.support.paths import BUILD, BUILTINS_PTX, SIM_LIBRARIES
from tests.support.tenant_programs import TenantPrograms

Bystanders = Callable[[], None]


def test_a_program_that_closes_all_descriptors_keeps_its_files(
    shared: SharedGpu, tenant_programs: TenantPrograms, bystanders: Bystanders, tmp_path: Path
) -> None:
    """Its files stay as they were and open, it goes on with turns, and so does everybody else."""
    file = tmp_path / "users-file"
    program = tenant_programs.start("closer", "closes_all", file)
    program.expect("launched")
    program.say("close")
    program.expect("closed")
    bystanders()
    for _ in range(3):
        program.say("launch")
        program.expect("launched")
        bystanders()
    shared.scheduler.eventually(lambda s: clients_named(s, "closer") == [program.pid])
    assert program.finish() == 0
    assert file.read_bytes() == b"mine"
    assert program.errors() == ""


def clients_named(status: dict[str, object], name: str) -> list[int]:
    tenants = status["tenants"]
    assert isinstance(tenants, list)
    return [c["pid"] for t in tenants if t["name"] == name for c in t["clients"]]
