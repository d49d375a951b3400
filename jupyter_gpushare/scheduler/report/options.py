"""Where reports go, checked at the start: an address, a token's file, and whom to trust for TLS."""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from jupyter_gpushare.client.connection import user_name

from ..base.errors import StartError
from .standing import Failure

PLATFORMS = ("machine", "docker", "slurm", "kubernetes")
ROUTE = "api/v1/reports"
TOKEN_BYTES_MAX = 16 << 10
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_MOUNTED = "..data"
"""A link beside each file that a kubelet projects: it puts a new one in place when it renews
them."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NoToken(Exception):
    """The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """`url` is of a WebSocket."""

    url: str
    token_file: Path
    ca_file: Path | None = None
    platform: str = ""

    @property
    def is_encrypted(self) -> bool:
        return self.url.startswith("wss:")


def report_options(
    *, to: str, token_file: str, ca_file: str, platform: str
) -> ReportOptions | None:
    """None where nobody wants reports. Raises StartError."""
    if platform and platform not in PLATFORMS:
        raise StartError(
            f"There is no platform {platform!r}. Give --report-platform one of: "
            f"{', '.join(PLATFORMS)}."
        )
    if not to:
        for flag, value in (("token-file", token_file), ("ca", ca_file)):
            if value:
                raise StartError(
                    f"There is a --report-{flag} and no view to report to. Name it in --report-to, "
                    f"or leave --report-{flag} out."
                )
        return None
    if not token_file:
        raise StartError(
            "The view knows this node by a token, and there is none. Give --report-token-file a "
            "file with the token that `jupyter gpushare view token` has made for this node."
        )
    found = ReportOptions(
        url_of(to),
        Path(token_file).absolute(),
        Path(ca_file).absolute() if ca_file else None,
        platform,
    )
    if ca_file and not found.is_encrypted:
        raise StartError(
            f"There is a --report-ca, and {to} is not encrypted. Give --report-to an https "
            f"address, or leave --report-ca out."
        )
    try:
        read_token(found.token_file)
    except NoToken as error:
        raise StartError(str(error)) from error
    if found.ca_file:
        _check_authority(found.ca_file)
    return found


def url_of(text: str) -> str:
    """Of the WebSocket. Raises StartError for an address that no token may be sent to."""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        parts.port  # noqa: B018 - it is checked when it is read
    except ValueError as error:
        raise StartError(f"{text!r} is not an address: {error}. Correct --report-to.") from error
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not host or any(each.isspace() or not each.isprintable() for each in text):
        raise StartError(
            f"{text!r} is not the address of a view. Give --report-to one such as "
            f"https://hub.example.org/services/gpushare-view/."
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise StartError(
            "The address of the view has more in it than a host and a path. Give --report-to the "
            "address alone; the token goes into --report-token-file."
        )
    if scheme == "ws" and not _is_loopback(host):
        raise StartError(
            f"The node's token would go to {host} for everybody on the network to read. Give "
            f"--report-to an address that begins with https."
        )
    path = parts.path.rstrip("/")
    whole = path if path.endswith(f"/{ROUTE}") else f"{path}/{ROUTE}"
    return urlunsplit((scheme, parts.netloc, whole, "", ""))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: Path) -> str:
    """What the file holds now: a kubelet writes a new token from time to time. Raises NoToken."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NoToken(
            f"The token file {path} cannot be read: {error.strerror}. Put the node's token there, "
            f"or correct --report-token-file."
        ) from error
    try:
        if problem := _problem_with(path, os.fstat(fd)):
            raise NoToken(problem)
        text = os.read(fd, TOKEN_BYTES_MAX + 2).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    finally:
        os.close(fd)
    if not text or len(text) > TOKEN_BYTES_MAX or any(not "!" <= each <= "~" for each in text):
        raise NoToken(
            f"{path} holds no token. Write the line there that `jupyter gpushare view token` has "
            f"made for this node."
        )
    return text


def _problem_with(path: Path, found: os.stat_result) -> str | None:
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is not a file. Give --report-token-file the file with the node's token."
    if found.st_uid not in (0, os.getuid()):
        return (
            f"The token file {path} belongs to {user_name(found.st_uid)}, who does not administer "
            f"this scheduler. Give it to root or to {user_name(os.getuid())}."
        )
    if found.st_uid == 0 and (path.parent / _MOUNTED).is_symlink():
        if mode & _OTHERS_WRITE:
            return (
                f"Others may write to {path} (mode {mode:04o}). Give the mount of the token the "
                f"mode 0444 or less."
            )
        return None
    if mode & _OTHERS:
        return (
            f"Others may read the node's token in {path} (mode {mode:04o}). Run `chmod 600 {path}`."
        )
    return None


def _check_authority(path: Path) -> None:
    try:
        ssl.create_default_context(cafile=str(path))
    except OSError as error:  # ssl.SSLError is one
        raise StartError(_no_authority(path, error)) from error


def _no_authority(path: Path | None, error: OSError) -> str:
    said = (not isinstance(error, ssl.SSLError) and error.strerror) or "there is no certificate"
    return (
        f"The certificates in {path} cannot be read: {said}. Give --report-ca a file in PEM format "
        f"with the authority of the view's certificate."
    )


def tls_of(options: ReportOptions) -> ssl.SSLContext | None:
    """Made anew for each connection, as certificates are renewed; it takes some milliseconds.
    Raises Failure."""
    if not options.is_encrypted:
        return None
    try:
        return ssl.create_default_context(cafile=str(options.ca_file) if options.ca_file else None)
    except OSError as error:
        raise Failure("authority", _no_authority(options.ca_file, error)) from error
