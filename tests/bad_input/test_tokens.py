"""Processes under the real hook that the real scheduler does not know."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.tenant_programs import TenantPrograms
from tests.support.waits import wait_until

Bystanders = Callable[[], None]
CANCELLED = 800


@pytest.mark.promise(
    "bad-input-12",
    "A wrong token: refused with what is wrong and what to do; tenants notice nothing",
)
def test_a_wrong_token_is_said_to_the_user(
    tenant_programs: TenantPrograms, bystanders: Bystanders
) -> None:
    """One line on stderr tells what is wrong and what to do; the call waits, can be cancelled, and
    the process lives; tenants notice nothing."""
    stranger = tenant_programs.opened("stranger", token="c29tZWJvZHk.c29tZWJvZHk")
    stranger.say("0 spin d 1000")
    bystanders()
    stranger.expect_error(".\n")
    stranger.say("1 hook cancel_waits")
    stranger.expect(f"0 spin {CANCELLED}")
    stranger.say("0 echo")
    stranger.expect("0 echo 0")
    assert stranger.finish() == 0
    told = stranger.errors()
    assert told.startswith("gpushare: ") and told.count("\n") == 1, told
    assert told.count(". ") == 1 and told.endswith(".\n"), told
    assert "token" in told.lower() and "estart" in told


@pytest.mark.promise(
    "bad-input-13",
    "A token of a kernel that is gone: said in the notebook, and cured by a restart",
)
def test_a_kernel_whose_tenant_was_removed_says_so_in_the_notebook(
    shared: SharedGpu, bystanders: Bystanders
) -> None:
    """The scheduler does not know the kernel any more: its GPU cell waits and shows why; an
    interrupt ends it, cells without GPU go on, and a restart makes all well."""
    kernel = shared.kernel("forgotten.ipynb")
    assert kernel.tenant_id is not None
    shared.scheduler.client.change_settings({"reconnect_s": 1})
    shared.scheduler.client.remove_tenant(kernel.tenant_id)
    cell = kernel.submit(gpu_cells.spin(1))
    wait_until(
        lambda: kernel.stderr_of(cell).rstrip().endswith("waits; interrupt it to stop."),
        "the notebook is told",
    )
    told = kernel.stderr_of(cell)
    assert told.startswith("gpushare: "), told
    assert not kernel.done(cell)
    assert "was shut down. Start it again to use the GPU." in told
    bystanders()
    kernel.interrupt()
    assert kernel.wait(cell).ename == "KeyboardInterrupt"
    assert kernel.run("6 * 7").ok().text == "42"
    kernel.restart()
    kernel.run(gpu_cells.setup()).ok()
    kernel.run(gpu_cells.spin(1)).ok()
