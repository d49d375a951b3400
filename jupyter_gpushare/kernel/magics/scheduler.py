"""The scheduler beside the hook's socket, over HTTP."""

import base64
import http.client
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

from .words import Unable

ANSWER_S = 2.0
_CREDENTIALS = struct.Struct("3i")
SILENT = "The scheduler does not answer. `%gpushare doctor` tells more."


class _UnixConnection(http.client.HTTPConnection):
    """HTTP to the scheduler beside the hook's socket, if it runs as whom it should."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(str(self._path))
        raw = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid = _CREDENTIALS.unpack(raw)[1]
        service = os.environ.get("GPUSHARE_SCHEDULER_UID", "")
        if uid not in (0, os.getuid()) and str(uid) != service:
            raise ConnectionError(f"the socket {self._path} is served by uid {uid}")


class SchedulerRefused(Unable):
    """The scheduler has answered no."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def own_tenant() -> str:
    """The id of this kernel, which its token tells also before it has used the GPU."""
    head = os.environ.get("GPUSHARE_TOKEN", "").partition(".")[0]
    try:
        padded = head + "=" * (-len(head) % 4)
        return str(json.loads(base64.urlsafe_b64decode(padded.encode()).decode())[1])
    except (ValueError, IndexError, KeyError, TypeError):
        raise Unable("The token of this kernel is of a version not known here.") from None


def scheduler_status() -> Any:
    """Devices, holders and queues as this user may see them; None when nobody answers."""
    try:
        code, status = _asked("GET", "/status", None)
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return status if code == 200 else None


def ask(verb: str, path: str, body: Any = None) -> Any:
    """What the scheduler answers. A refusal is its own sentence."""
    try:
        code, answer = _asked(verb, path, body)
    except (OSError, ValueError, http.client.HTTPException):
        raise Unable(SILENT) from None
    if code >= 300:
        said = answer.get("message") if isinstance(answer, dict) else None
        raise SchedulerRefused(code, str(said or f"The scheduler answered {code} and no reason."))
    return answer


def _asked(verb: str, path: str, body: Any) -> "tuple[int, Any]":
    hook_socket = os.environ.get("GPUSHARE_SOCKET")
    if not hook_socket:
        raise OSError("no scheduler is known")
    # Under a hub it is the token, and not the account, that says whose eyes these are.
    token = os.environ.get("JUPYTERHUB_API_TOKEN")
    headers = {"Authorization": "token " + token} if token else {}
    data = None
    if body is not None:
        headers["Content-Type"], data = "application/json", json.dumps(body).encode()
    connection = _UnixConnection(Path(hook_socket).with_name("http.sock"))
    try:
        connection.request(verb, "/api/v1" + path, body=data, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()
