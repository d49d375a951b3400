"""Asks whether the JupyterHub that started this server can be reached from here, and what time it
is there."""

from __future__ import annotations

import email.utils
import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

API_URL = "JUPYTERHUB_API_URL"
ANSWER_S_MAX = 3.0
_OWN_CERTIFICATES = "JUPYTERHUB_SSL_KEYFILE"
"""Where a hub has certificates of its own, who it is cannot be checked here."""


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """`address` is of its API, and empty where there is none to ask."""

    address: str = ""
    why_unreachable: str = ""
    clock_ahead_s: float | None = None
    """Our clock, compared with that of whoever answers; None where nobody tells the time."""


def ask_hub(environ: Mapping[str, str]) -> HubAnswer:
    url = environ.get(API_URL, "")
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return HubAnswer(url, str(error))
    if not host or parts.scheme not in ("http", "https") or environ.get(_OWN_CERTIFICATES):
        return HubAnswer()
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=ANSWER_S_MAX)
    asked_s = time.time()
    try:
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
    except (OSError, ssl.SSLError, http.client.HTTPException) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return HubAnswer(url, said)
    finally:
        connection.close()
    if answer.status >= 500 or answer.status == 404:
        return HubAnswer(url, f"the answer there is {answer.status}")
    return HubAnswer(url, "", _ahead_s(answer.getheader("Date"), (asked_s + time.time()) / 2))


def _ahead_s(date: str | None, here_s: float) -> float | None:
    """The header tells whole seconds, cut off."""
    try:
        return here_s - email.utils.parsedate_to_datetime(date or "").timestamp() - 0.5
    except (ValueError, TypeError, OverflowError):
        return None
