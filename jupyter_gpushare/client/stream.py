"""The scheduler's event stream, read by a thread that may block."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

from .connection import UnixHTTPConnection

STREAM_TIMEOUT_S = 40.0
"""The scheduler says something at least every 15 s; a silence this long means that it hangs."""
_LINE_BYTES_MAX = 64 << 20
_DATA = b"data: "


class StatusStream:
    """Iterate over it for one status after another; it ends when either side closes, and never
    raises."""

    def __init__(
        self,
        connection: UnixHTTPConnection,
        sock: socket.socket,
        response: http.client.HTTPResponse,
    ) -> None:
        """`sock` is the connection's, which it forgets once an answer ends with the connection."""
        self._connection = connection
        self._socket = sock
        self._response = response

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            while line := self._response.readline(_LINE_BYTES_MAX):
                if line.startswith(_DATA):
                    yield json.loads(line[len(_DATA) :])

    def close(self) -> None:
        """From any thread: the one that iterates comes to the end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> StatusStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
        self._response.close()
        self._connection.close()
