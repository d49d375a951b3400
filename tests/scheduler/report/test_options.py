"""Where reports go is checked at the start, in sentences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.scheduler.base.errors import StartError
from jupyter_gpushare.scheduler.report.options import (
    TOKEN_BYTES_MAX,
    NoToken,
    ReportOptions,
    read_token,
    report_options,
    url_of,
)
from tests.support.other_user import OTHER_UID, as_root_only
from tests.support.view_stand_in import TOKEN, token_file

COMMAND = [sys.executable, "-m", "jupyter_gpushare.cli.main", "scheduler", "--check-config"]


def made(to: str, **given: str) -> ReportOptions | None:
    return report_options(to=to, **{"token_file": "", "ca_file": "", "platform": "", **given})


@pytest.mark.promise("scheduler-66")
@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://hub/services/gpushare-view/", "wss://hub/services/gpushare-view/api/v1/reports"),
        ("wss://hub:8443/x/api/v1/reports", "wss://hub:8443/x/api/v1/reports"),
        ("https://hub", "wss://hub/api/v1/reports"),
        ("http://localhost:8000/v", "ws://localhost:8000/v/api/v1/reports"),
        ("ws://127.3.0.1:80/v", "ws://127.3.0.1:80/v/api/v1/reports"),
        ("http://[::1]:8000/v", "ws://[::1]:8000/v/api/v1/reports"),
    ],
)
def test_addresses(given: str, url: str) -> None:
    """With or without the route; unencrypted only where nobody else can read it."""
    assert url_of(given) == url


@pytest.mark.promise("scheduler-66")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("http://hub/v", r"would go to hub for everybody .* begins with https"),
        ("ws://10.0.0.1/v", r"would go to 10.0.0.1 for everybody"),
        ("http://localhost.example.org/v", "for everybody"),
        ("hub:8081", "is not the address of a view. Give --report-to one such as"),
        ("ftp://hub/v", "is not the address of a view"),
        ("https://", "is not the address of a view"),
        ("https://hub/a b", "is not the address of a view"),
        ("https://hub:port/v", "is not an address: .* Correct --report-to"),
        ("https://[hub/v", "is not an address: .* Correct --report-to"),
        ("https://me:secret@hub/v", "more in it than a host and a path. Give --report-to"),
        ("https://hub/v?token=secret", "more in it than a host and a path"),
    ],
)
def test_addresses_that_are_refused(given: str, words: str) -> None:
    """One sentence on what is wrong, and one on what to do; a secret is not repeated."""
    with pytest.raises(StartError, match=words) as refused:
        url_of(given)
    assert "secret" not in str(refused.value)


def test_what_belongs_together(tmp_path: Path) -> None:
    """An address and a token; an authority and TLS."""
    token = str(token_file(tmp_path))
    assert made("") is None
    assert made("", platform="slurm") is None
    assert made("https://hub", token_file=token, platform="docker") == ReportOptions(
        "wss://hub/api/v1/reports", Path(token), None, "docker"
    )
    for given, words in (
        ({"to": "", "token_file": token}, "a --report-token-file and no view to report to. Name"),
        ({"to": "", "ca_file": token}, "a --report-ca and no view to report to. Name"),
        ({"to": "https://hub"}, "there is none. Give --report-token-file a file"),
        ({"to": "", "platform": "cloud"}, "There is no platform 'cloud'. Give --report-platform"),
        (
            {"to": "http://localhost", "token_file": token, "ca_file": token},
            "is not encrypted. Give --report-to an https",
        ),
        (
            {"to": "https://hub", "token_file": token, "ca_file": "/nowhere"},
            "in /nowhere cannot be read: No such file or directory. Give --report-ca",
        ),
        (
            {"to": "https://hub", "token_file": token, "ca_file": token},
            "cannot be read: there is no certificate. Give --report-ca",
        ),
    ):
        with pytest.raises(StartError, match=words):
            made(**given)


# ---- the token ----


@pytest.mark.promise(
    "scheduler-62",
    "A node's token is read from a file that nobody else may read, or from a mount of Kubernetes",
)
def test_a_private_file(tmp_path: Path) -> None:
    """Its one line."""
    assert read_token(token_file(tmp_path)) == TOKEN


@pytest.mark.promise("scheduler-62")
@pytest.mark.parametrize("mode", [0o604, 0o640, 0o666, 0o601])
def test_a_file_that_others_may_read(tmp_path: Path, mode: int) -> None:
    path = token_file(tmp_path)
    path.chmod(mode)
    with pytest.raises(NoToken, match=rf"Others may read .* \(mode {mode:04o}\). Run `chmod 600"):
        read_token(path)


@as_root_only
@pytest.mark.promise("scheduler-62")
@pytest.mark.parametrize(("mode", "is_read"), [(0o644, True), (0o440, True), (0o646, False)])
def test_a_mount_of_kubernetes(tmp_path: Path, mode: int, is_read: bool) -> None:
    """A kubelet gives it to root, readable; a link leads to it, which it moves when it renews the
    token."""
    data = tmp_path / "..2026_01_01"
    data.mkdir()
    token_file(data).rename(data / "token")
    (data / "token").chmod(mode)
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "token").symlink_to("..data/token")
    if is_read:
        assert read_token(tmp_path / "token") == TOKEN
        return
    with pytest.raises(NoToken, match=r"Others may write to .* Give the mount of the token"):
        read_token(tmp_path / "token")


@as_root_only
def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    path = token_file(tmp_path)
    os.chown(path, OTHER_UID, OTHER_UID)
    with pytest.raises(NoToken, match=r"does not administer this scheduler. Give it to root"):
        read_token(path)


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"two words\n", b"\xff\xfe", b"a\nb", b"x" * (TOKEN_BYTES_MAX + 1)]
)
def test_what_is_no_token(tmp_path: Path, content: bytes) -> None:
    """It would be a header of a request."""
    path = token_file(tmp_path)
    path.write_bytes(content)
    with pytest.raises(NoToken, match=r"holds no token. Write the line there"):
        read_token(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    """Nor does it wait for somebody to write into a pipe."""
    with pytest.raises(NoToken, match=r"cannot be read: No such file or directory. Put the node's"):
        read_token(tmp_path / "missing")
    with pytest.raises(NoToken, match="is not a file"):
        read_token(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(NoToken, match="is not a file"):
        read_token(tmp_path / "pipe")


# ---- the flags ----


@pytest.mark.promise("scheduler-62")
def test_flags_are_checked_at_the_start(tmp_path: Path) -> None:
    """By `--check-config` too; the exit status says it."""

    def checked(*flags: str) -> tuple[int, str]:
        done = subprocess.run([*COMMAND, *flags], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.strip()

    to = "--report-to=https://hub/services/gpushare-view/"
    assert checked(
        to, f"--report-token-file={token_file(tmp_path)}", "--report-platform=slurm"
    ) == (
        0,
        "",
    )
    status, said = checked(to, f"--report-token-file={tmp_path / 'missing'}")
    assert status == 1
    assert said.startswith(
        f"jupyter-gpushare: The token file {tmp_path / 'missing'} cannot be read"
    )
