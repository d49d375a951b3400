"""What the demo shows while it runs."""

from __future__ import annotations

import io
from typing import Any

import pytest

from tests.demo.live import LiveView


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def status(holder: str, *waiters: str) -> dict[str, Any]:
    holders = [{"name": holder}] if holder else []
    return {"devices": [{"holders": holders, "queue": [{"name": name} for name in waiters]}]}


@pytest.mark.promise(
    "demo-10",
    "The demo shows live who holds and who waits, and stops what it started",
)
def test_without_a_terminal_each_change_is_a_line() -> None:
    """Plain lines, and none while nothing changes."""
    out = io.StringIO()
    view = LiveView(("a", "b"), out)
    for seen in (status("a", "b"), status("a", "b"), status("b"), status("")):
        view.show(seen)
    lines = [line.split(" s  ")[1] for line in out.getvalue().splitlines()]
    assert lines == ["a holds, b waits", "a idle, b holds", "a idle, b idle"]


@pytest.mark.promise("demo-10")
def test_on_a_terminal_a_strip_per_kernel_is_redrawn() -> None:
    """Two lines that grow in place; a headline leaves them standing."""
    out = Terminal()
    view = LiveView(("a", "b"), out)
    view.show(status("a", "b"))
    view.show(status("b"))
    assert out.getvalue().count("\x1b[2A") == 1
    assert "█·" in out.getvalue() and "░█" in out.getvalue()
    view.headline("next")
    view.show(status("a"))
    assert out.getvalue().count("\x1b[2A") == 1
