"""Tokens: what proves that a process belongs to a tenant.

A token is its tenant's description and a signature over it, so a scheduler that was started again
knows its tenants without having written anything down but the key.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from dataclasses import dataclass

from jupyter_gpushare.client.connection import user_name

from ..base.errors import StartError

KEY_FILE = "token.key"
KEY_BYTES = 32
NAME_BYTES_MAX = 96
"""Keeps the longest token below what the protocol allows, quotes and all; a hub's user is in the
token too, so that a tenant's name may have to be cut further there."""
TOKEN_BYTES_MAX = 512
"""What the protocol allows."""
_FORMAT = 3
_ID_BYTES = 8
_NONCE_BYTES = 12
_HUB_KEY_DIGITS = 24
_KEY = re.compile(rf"\d{{1,10}}|h[0-9a-f]{{{_HUB_KEY_DIGITS}}}", re.ASCII)


class BadToken(Exception):
    """Neither this scheduler nor a predecessor with its key has given out this text."""


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """What a token says about its tenant."""

    tenant_id: str
    uid: int
    name: str
    kind: str
    cap_bytes: int = 0
    hub_user: str = ""
    """The owner as the hub names them; empty where the account counts."""
    asked_class: str = ""

    @property
    def owner_key(self) -> str:
        return owner_key(self.uid, self.hub_user)


def owner_of(record: TenantRecord) -> str:
    """As people call them."""
    return record.hub_user or user_name(record.uid)


def owner_key(uid: int, hub_user: str = "") -> str:
    """Equal for tenants of the same owner; no hub user can take a name that makes it an account's,
    or another's."""
    if not hub_user:
        return str(uid)
    return "h" + hashlib.sha256(hub_user.encode()).hexdigest()[:_HUB_KEY_DIGITS]


def new_tenant_id(key: str) -> str:
    """Names its owner, so that a tenant can be removed after a restart that forgot it."""
    return f"{key}-{secrets.token_hex(_ID_BYTES)}"


def key_of(tenant_id: str) -> str | None:
    """The owner's key in a tenant id; None when it is not a tenant id."""
    key, _, rest = tenant_id.partition("-")
    if len(rest) != 2 * _ID_BYTES or not _KEY.fullmatch(key):
        return None
    return key


class TokenSigner:
    """Gives tokens out and recognises them."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, record: TenantRecord) -> str:
        """A token that was never given out before, for the same tenant too."""
        fields = [
            _FORMAT,
            record.tenant_id,
            record.uid,
            record.name,
            record.kind,
            record.cap_bytes,
            record.hub_user,
            record.asked_class,
            secrets.token_hex(_NONCE_BYTES),
        ]
        payload = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        return f"{_encode(payload)}.{_encode(self._sign(payload))}"

    def verify(self, token: str) -> TenantRecord:
        """The tenant that the token belongs to; raises BadToken."""
        head, dot, tail = token.partition(".")
        try:
            payload, signature = _decode(head), _decode(tail)
        except (ValueError, binascii.Error) as error:
            raise BadToken("not a token") from error
        if not dot or not hmac.compare_digest(signature, self._sign(payload)):
            raise BadToken("the signature does not match")
        # Signed by us, so what is inside is well-formed unless its format is another one.
        fields = json.loads(payload)
        if fields[0] != _FORMAT:
            raise BadToken("a token of another version")
        _, tenant_id, uid, name, kind, cap_bytes, hub_user, asked_class, _ = fields
        return TenantRecord(tenant_id, uid, name, kind, cap_bytes, hub_user, asked_class)

    def _sign(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, hashlib.sha256)


def load_or_make_key(dir_fd: int) -> bytes:
    """The key in this directory; made, complete and 0600, when there is none."""
    with contextlib.suppress(FileNotFoundError):
        return _read_key(dir_fd)
    key = secrets.token_bytes(KEY_BYTES)
    try:
        _write_key(dir_fd, key)
    except OSError as error:
        raise StartError(
            f"{KEY_FILE} in the runtime directory cannot be written: {error.strerror}. Make room "
            f"there, or name another directory."
        ) from error
    return key


def _write_key(dir_fd: int, key: bytes) -> None:
    """Under its name it is complete, whenever somebody looks."""
    temporary = f"{KEY_FILE}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=dir_fd)
    fd = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=dir_fd
    )
    try:
        os.write(fd, key)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, KEY_FILE, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def _read_key(dir_fd: int) -> bytes:
    try:
        fd = os.open(KEY_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StartError(
            f"{KEY_FILE} in the runtime directory cannot be read: {error.strerror}. Remove it; "
            f"running kernels then have to be restarted."
        ) from error
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        key = file.read(KEY_BYTES + 1)
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise StartError(
            f"{KEY_FILE} in the runtime directory may have been read by others. Remove it; "
            f"running kernels then have to be restarted."
        )
    if len(key) != KEY_BYTES:
        raise StartError(
            f"{KEY_FILE} in the runtime directory is damaged. Remove it; running kernels then "
            f"have to be restarted."
        )
    return key


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
