"""What users bring along: their IPython configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.conftest import Recording
from tests.support.kernels import Kernel

Start = Callable[..., Kernel]
BEGAN_ENDED = ["began", "ended"]

CONFIGURATION = """
c = get_config()
c.InteractiveShellApp.extensions = ["mine_ext"]
c.InteractiveShellApp.exec_lines = ["from_a_line = 1"]
c.InteractiveShell.ast_node_interactivity = "all"
"""
EXTENSION = """
def load_ipython_extension(ip):
    ip.events.register("pre_run_cell", lambda *about: ip.user_ns.update(seen=True))
    ip.events.register("post_run_cell", lambda *about: 1 / 0)
"""


@pytest.mark.promise(
    "bad-input-48",
    "The user's own IPython configuration: extensions, lines, startup files and options take "
    "effect",
)
def test_the_users_ipython_configuration_is_kept(
    start_kernel: Start, stub_env: dict[str, str], recording: Recording, tmp_path: Path
) -> None:
    """Their extensions, lines, startup files and options all take effect, cells are reported, and
    a callback of theirs that fails takes nothing away from ours."""
    profile = tmp_path / "ipython" / "profile_default"
    (profile / "startup").mkdir(parents=True)
    (profile / "ipython_config.py").write_text(CONFIGURATION)
    (profile / "startup" / "first.py").write_text("from_a_file = 2")
    (tmp_path / "mine_ext.py").write_text(EXTENSION)
    env = {**stub_env, "IPYTHONDIR": str(tmp_path / "ipython"), "PYTHONPATH": str(tmp_path)}
    kernel = start_kernel(env)
    at_the_start = recording.of(kernel.pid)
    assert at_the_start == BEGAN_ENDED  # for the line of the configuration, which is run as a cell
    said = kernel.run("from_a_line\nfrom_a_file\nseen").ok().text
    assert said.startswith("12True")
    assert recording.of(kernel.pid) == at_the_start + BEGAN_ENDED
