"""What the tests of bad input share: real kernels and small C programs as tenants of a real
scheduler, all under the real hook and on a simulated device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hook.conftest import headers
from tests.hook.runtime.conftest import programs
from tests.hook.runtime.process import GpuProcess, Programs
from tests.kernel.conftest import SharedGpu, shared
from tests.support.tenant_programs import TenantPrograms

__all__ = ["headers", "programs", "shared"]


@pytest.fixture
def tenant_programs(
    shared: SharedGpu, programs: Programs, tmp_path: Path
) -> Iterator[TenantPrograms]:
    """C programs beside the kernels of `shared`; they are ended with the test."""
    with TenantPrograms(shared.scheduler, shared.machine.env, programs, tmp_path) as started:
        yield started


@pytest.fixture
def bystanders(shared: SharedGpu, tenant_programs: TenantPrograms) -> Iterator[Callable[[], None]]:
    """Two tenants that have nothing to do with what goes wrong. Calling the fixture lets each of
    them compute once more; at the end they do so again, and their processes end well."""
    first, second = (tenant_programs.opened(name) for name in ("first", "second"))

    def both_compute() -> None:
        for program in (first, second):
            program.say("0 spin d 1000 3")
            program.say("0 sync")
        for program in (first, second):
            program.expect("0 spin 0")
            program.expect("0 sync 0")

    both_compute()
    yield both_compute
    both_compute()
    for program in (first, second):
        assert finished_well(program)


def finished_well(program: GpuProcess) -> bool:
    """It ends with status 0 and has had nothing to complain about."""
    return program.finish() == 0 and program.errors() == ""
