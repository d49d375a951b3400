"""Asks whether the JupyterHub that started this server can be reached from here."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

API_URL = "JUPYTERHUB_API_URL"
ANSWER_S_MAX = 3.0
_OWN_CERTIFICATES = "JUPYTERHUB_SSL_KEYFILE"
"""Where a hub has certificates of its own, who it is cannot be checked here."""


def why_unreachable(environ: Mapping[str, str]) -> tuple[str, str]:
    """The address of its API (empty where there is none to ask), and why it does not answer."""
    url = environ.get(API_URL, "")
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return url, str(error)
    if not host or parts.scheme not in ("http", "https") or environ.get(_OWN_CERTIFICATES):
        return "", ""
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=ANSWER_S_MAX)
    try:
        connection.request("GET", parts.path or "/")
        status = connection.getresponse().status
    except (OSError, ssl.SSLError, http.client.HTTPException) as error:
        return url, getattr(error, "strerror", None) or str(error) or type(error).__name__
    finally:
        connection.close()
    return url, f"the answer there is {status}" if status >= 500 or status == 404 else ""
