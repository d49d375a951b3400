"""Cells for kernels that a Jupyter server has started, by their connection files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

from tests.support.waits import WAIT_S_MAX


def run_cell(connection_file: Path, code: str) -> str:
    """What it printed; it has to succeed."""
    client = BlockingKernelClient()
    client.load_connection_file(str(connection_file))
    # A kernel that answers late on a busy machine is not a dead one.
    client.hb_channel.time_to_dead = WAIT_S_MAX
    client.start_channels()
    printed: list[str] = []

    def note(message: dict[str, Any]) -> None:
        content = message["content"]
        printed.append(content.get("text") or content.get("data", {}).get("text/plain", ""))

    try:
        client.wait_for_ready(timeout=WAIT_S_MAX)
        reply = client.execute_interactive(code, timeout=WAIT_S_MAX, output_hook=note)
    finally:
        client.stop_channels()
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed)
