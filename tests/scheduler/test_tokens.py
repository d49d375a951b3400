"""Tokens: signed, unforgeable, and good after a restart."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.protocol.messages import Hello
from jupyter_gpushare.scheduler.base.errors import StartError
from jupyter_gpushare.scheduler.identity.tokens import (
    BadToken,
    TenantRecord,
    TokenSigner,
    key_of,
    load_or_make_key,
    new_tenant_id,
    owner_key,
)
from jupyter_gpushare.scheduler.service.service import clean_name

RECORD = TenantRecord(new_tenant_id("1000"), 1000, "notebook", "kernel", 1 << 40)
TOKEN_BYTES_MAX = next(f.bytes_max for f in Hello.FIELDS if f.name == "token")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """A descriptor of an empty folder."""
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_token_tells_its_tenant() -> None:
    """What was issued is recognised, by another signer with the same key too."""
    token = TokenSigner(b"k" * 32).issue(RECORD)
    assert TokenSigner(b"k" * 32).verify(token) == RECORD


@pytest.mark.promise(
    "scheduler-94",
    "Each tenant has a token that cannot be forged, fresh at every start of a kernel",
)
def test_each_token_is_fresh() -> None:
    """The same tenant never gets the same token twice."""
    signer = TokenSigner(b"k" * 32)
    assert signer.issue(RECORD) != signer.issue(RECORD)


@pytest.mark.promise("scheduler-94")
def test_another_key_does_not_recognise_it() -> None:
    """A token of another runtime directory is worth nothing here."""
    with pytest.raises(BadToken):
        TokenSigner(b"l" * 32).verify(TokenSigner(b"k" * 32).issue(RECORD))


@pytest.mark.promise("scheduler-94")
@given(position=st.integers(min_value=0), replacement=st.characters())
def test_a_changed_token_is_refused(position: int, replacement: str) -> None:
    """Whatever single character is changed, it is no token of that tenant's any more."""
    signer = TokenSigner(b"k" * 32)
    token = signer.issue(RECORD)
    position %= len(token)
    changed = token[:position] + replacement + token[position + 1 :]
    if changed == token:
        return
    try:
        # The last character of base64 has bits without meaning, so it may still be the same.
        assert signer.verify(changed) == RECORD
        assert position in (token.index(".") - 1, len(token) - 1)
    except BadToken:
        pass


@pytest.mark.promise("scheduler-94")
@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    """No text makes the check do anything but refuse."""
    with pytest.raises(BadToken):
        TokenSigner(b"k" * 32).verify(text)


@given(st.text(min_size=1), st.sampled_from(["kernel", "run"]))
def test_every_name_fits_into_a_token(name: str, kind: str) -> None:
    """The longest and oddest name makes a token that the protocol can carry."""
    record = TenantRecord(new_tenant_id(str(2**32 - 2)), 2**32 - 2, clean_name(name), kind, 2**63)
    token = TokenSigner(b"k" * 32).issue(record)
    assert len(token) <= TOKEN_BYTES_MAX
    assert TokenSigner(b"k" * 32).verify(token) == record


@pytest.mark.promise(
    "scheduler-95",
    "The key of the tokens, the runtime directory and its sockets are private",
)
def test_the_key_is_made_once_and_private(folder: int, tmp_path: Path) -> None:
    """The key is there with mode 0600 after the first call, and stays the same."""
    key = load_or_make_key(folder)
    assert len(key) == 32
    assert load_or_make_key(folder) == key
    assert stat.S_IMODE((tmp_path / "token.key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["token.key"]


@pytest.mark.promise("scheduler-95")
def test_a_key_that_others_could_read_is_refused(folder: int, tmp_path: Path) -> None:
    """A key with a wide mode may be known to others already."""
    load_or_make_key(folder)
    (tmp_path / "token.key").chmod(0o644)
    with pytest.raises(StartError, match="read by others"):
        load_or_make_key(folder)


def test_a_damaged_key_is_refused(folder: int, tmp_path: Path) -> None:
    """A key of the wrong size is named, not used."""
    load_or_make_key(folder)
    (tmp_path / "token.key").write_bytes(b"short")
    with pytest.raises(StartError, match="damaged"):
        load_or_make_key(folder)


def test_a_tenant_id_names_its_owner() -> None:
    """The owner can be read from an id, and only from one; a hub's user is nobody else's owner,
    whatever the name."""
    for key in (owner_key(1000), owner_key(1000, "alice"), owner_key(0, "0")):
        assert key_of(new_tenant_id(key)) == key
    assert owner_key(1, "alice") == owner_key(2, "alice") != owner_key(1, "bob")
    assert owner_key(1, "1") != owner_key(1) != owner_key(2)
    for text in ("", "1000", "-1-0123456789abcdef", "root-0123456789abcdef", "1-0123"):
        assert key_of(text) is None


def test_a_key_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    """A directory in which nothing can be made is named in a sentence; so is a full disk."""
    gone = tmp_path / "gone"
    gone.mkdir()
    fd = os.open(gone, os.O_RDONLY)
    gone.rmdir()
    with pytest.raises(StartError, match="cannot be written: No such file"):
        load_or_make_key(fd)
    os.close(fd)


def test_what_a_crash_left_of_a_key_is_replaced(folder: int, tmp_path: Path) -> None:
    """Half a key under its temporary name is in nobody's way."""
    (tmp_path / "token.key.new").write_bytes(b"half")
    assert len(load_or_make_key(folder)) == 32
    assert [path.name for path in tmp_path.iterdir()] == ["token.key"]
