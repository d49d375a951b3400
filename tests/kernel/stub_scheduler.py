"""A scheduler's HTTP socket that registers tenants and remembers what it was asked, or misbehaves
as told: for tests of the provisioner alone."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from pathlib import Path
from types import TracebackType


class StubScheduler:
    """Listens on `http.sock` in `directory`. `mode`: serve, hang (accept and never answer) or
    garbage (answer what is no HTTP). The first `without_hub` requests find no hub to ask."""

    def __init__(self, directory: Path, mode: str = "serve", *, without_hub: int = 0) -> None:
        self.requests: list[tuple[str, str, dict[str, object]]] = []
        self.authorizations: list[str] = []
        self.connections = 0
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        stub = self
        self._ended = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle(self) -> None:
                stub.connections += 1
                if mode == "hang":
                    stub._ended.wait()
                elif mode == "garbage":
                    self.wfile.write(b"\x00\xff" * 100)
                else:
                    super().handle()

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def do_DELETE(self) -> None:
                self._answer()

            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size) or b"{}")
                stub.requests.append((self.command, self.path, body))
                stub.authorizations.append(self.headers.get("Authorization") or "")
                if len(stub.requests) <= without_hub:
                    self._refuse()
                    return
                number = sum(path == "/api/v1/tenants" for _, path, _ in stub.requests)
                answer = {
                    "tenant_id": f"tenant-{number}",
                    "token": f"token-{number}",
                    "socket": str(directory / "hook.sock"),
                    "hold_s": body.get("hold_s"),
                }
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _refuse(self) -> None:
                data = json.dumps({"message": "JupyterHub does not answer. Try later."}).encode()
                self.send_response(503)
                self.send_header("Retry-After", "1")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def address_string(self) -> str:
                return "unix"

            def log_message(self, *_: object) -> None:
                """Quiet."""

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self._server = Server(str(directory / "http.sock"), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def asked(self) -> list[str]:
        """The requests so far, as `VERB path`."""
        return [f"{verb} {path.removeprefix('/api/v1')}" for verb, path, _ in self.requests]

    def __enter__(self) -> StubScheduler:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
