"""Callers of http.sock that do not wait for their answers."""

from __future__ import annotations

import socket

from jupyter_gpushare.client import HTTP_SOCKET
from tests.support.scheduler_process import SchedulerUnderTest

REQUEST = b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n"


def test_requests_of_a_caller_that_has_gone_are_dropped(scheduler: SchedulerUnderTest) -> None:
    """Many at once, and the connection is closed: no answer, no word in the log, and the next
    caller is served."""
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(scheduler.directory / HTTP_SOCKET))
            caller.sendall(REQUEST * 100)
        assert "devices" in scheduler.status()
    assert scheduler.stop() == 0
    assert "Traceback" not in scheduler.log
