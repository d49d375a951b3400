"""The file of node tokens: a line for each, `NAME SHA256`. No token itself is in it.

The view reads it, `jupyter gpushare view token` and a hub's configuration write it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NAME_CHARACTERS_MAX = 253
"""As many as a host's name may have."""
TOKEN_CHARACTERS_MAX = 16 << 10
"""Kubernetes' tokens have some thousand."""
FILE_BYTES_MAX = 16 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class TokensError(Exception):
    """A name that no node may have, or a file that cannot be used: a sentence, and what to do."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the file says. Of one name there may be several tokens, of a token one name."""

    lines: tuple[tuple[str, str], ...] = ()
    """Name and digest."""
    wrong: tuple[int, ...] = ()
    """Numbers of the lines that say nothing, from 1; they are passed over."""

    def name_of(self, token: str) -> str | None:
        """Takes as long for one that is nearly right as for any other."""
        digest = digest_of(token)
        found = None
        for name, kept in self.lines:
            if hmac.compare_digest(digest, kept):
                found = name
        return found


def is_name(name: str) -> bool:
    return len(name) <= NAME_CHARACTERS_MAX and _NAME.fullmatch(name) is not None


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_regular(path: Path, bytes_max: int) -> bytes:
    """The beginning of a file. Raises OSError, also for a pipe, which would be waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with os.fdopen(fd, "rb", closefd=False) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file", str(path))
            return file.read(bytes_max)
    finally:
        os.close(fd)


def read_tokens(path: Path) -> Tokens:
    """Raises TokensError where there is no such file."""
    try:
        raw = read_regular(path, FILE_BYTES_MAX + 1)
    except OSError as error:
        raise TokensError(
            f"The file of node tokens {path} cannot be read: {error.strerror}. Make it with "
            f"`jupyter gpushare view token NODE --tokens {path}`, as the account of the view."
        ) from error
    if len(raw) > FILE_BYTES_MAX:
        raise TokensError(
            f"The file of node tokens {path} has more than {FILE_BYTES_MAX} bytes. Name the right "
            f"file, or remove old lines."
        )
    return tokens_of(raw.decode("utf-8", "replace"))


def tokens_of(text: str) -> Tokens:
    lines: dict[str, str] = {}
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, digest = line.strip().partition(" ")
        if not is_name(name) or not _DIGEST.fullmatch(digest.strip()) or digest.strip() in lines:
            wrong.append(number)
            continue
        lines[digest.strip()] = name
    return Tokens(tuple((name, digest) for digest, name in lines.items()), tuple(wrong))


def new_token(path: Path, name: str) -> str:
    """A token for this node, in the place of those that it has had. Raises TokensError."""
    token = secrets.token_urlsafe(32)
    put_token(path, name, token)
    return token


def put_token(path: Path, name: str, token: str) -> None:
    """Let this token be the node's only one. Raises TokensError."""
    check_name(name)
    try:
        with _alone(path.parent):
            try:
                kept = path.read_text("utf-8", "replace").splitlines()
            except FileNotFoundError:
                kept = []
            others = [line for line in kept if line.split()[:1] != [name]]
            _replace(path, "".join(f"{line}\n" for line in (*others, f"{name} {digest_of(token)}")))
    except OSError as error:
        raise TokensError(
            f"The file of node tokens {path} cannot be written: {error.strerror}. Name a file in a "
            f"directory of your own, or run this as the account of the view."
        ) from error


def check_name(name: str) -> None:
    """Raises TokensError."""
    if not is_name(name):
        raise TokensError(
            f"A node cannot be called {name!r}. Give it a name of letters, digits, dots, hyphens "
            f"and underscores, {NAME_CHARACTERS_MAX} characters at most."
        )


def kept_token(tokens: Path, name: str, own: Path) -> None:
    """Let the file `own` have a token of this node: the one that it has, while the view knows it,
    else a new one. Raises TokensError."""
    try:
        token = own.read_text("ascii").strip()
        if read_tokens(tokens).name_of(token) == name:
            return
    except (OSError, ValueError, TokensError):
        pass  # there is none yet, or none that counts
    token = new_token(tokens, name)
    try:
        _replace(own, f"{token}\n")
    except OSError as error:
        raise TokensError(
            f"The node's token {own} cannot be written: {error.strerror}. Let its directory belong "
            f"to the account that runs this."
        ) from error


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Of two who change the file at once, neither loses a line."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _replace(path: Path, text: str) -> None:
    """In one step, for its owner alone. Root leaves the file to whom it belonged."""
    try:
        found = path.stat()
    except FileNotFoundError:
        found = path.parent.stat()
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".new-", delete=False) as new:
        try:
            new.write(text)  # made with 0600, whatever the umask
            new.flush()
            os.fsync(new.fileno())
            if os.geteuid() == 0:
                os.fchown(new.fileno(), found.st_uid, found.st_gid)
            Path(new.name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(new.name).unlink()
            raise
