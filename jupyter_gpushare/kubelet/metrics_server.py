"""Answers Prometheus: one path, no state, and a bound on what a caller may do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

REQUEST_S_MAX = 5.0
REQUEST_BYTES_MAX = 8 << 10
CALLERS_MAX = 8
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def serve_metrics(
    port: int, text: Callable[[], Awaitable[str]], *, host: str = ""
) -> asyncio.Server:
    """Raises OSError where the port is taken."""
    callers = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal callers
        callers += 1
        try:
            if callers <= CALLERS_MAX:
                answer = await asyncio.wait_for(_answer(reader, text), REQUEST_S_MAX)
                writer.write(answer)
                await asyncio.wait_for(writer.drain(), REQUEST_S_MAX)
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            pass  # a caller that hangs up, says nothing or too much
        except asyncio.LimitOverrunError:
            pass
        finally:
            callers -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    return await asyncio.start_server(handle, host or None, port, limit=REQUEST_BYTES_MAX)


async def _answer(reader: asyncio.StreamReader, text: Callable[[], Awaitable[str]]) -> bytes:
    request = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].split(b" ")
    if request[:2] != [b"GET", b"/metrics"]:
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    body = (await text()).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n"
    )
    return head.encode() + body
