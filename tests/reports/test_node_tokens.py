"""The file of node tokens: written by the command line and by a hub, read by the view."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.reports import node_tokens
from jupyter_gpushare.reports.node_tokens import (
    Tokens,
    TokensError,
    digest_of,
    is_name,
    kept_token,
    new_token,
    put_token,
    read_tokens,
    tokens_of,
)


@pytest.mark.promise(
    "view-14",
    "A node token is in no file of the view, only its digest, in a file for its owner alone",
)
def test_a_new_token(tmp_path: Path) -> None:
    """Made with 0600, whatever the umask; the token is long and of one word."""
    path = tmp_path / "tokens"
    before = os.umask(0)
    try:
        token = new_token(path, "node-a")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == f"node-a {digest_of(token)}\n"
    assert token not in path.read_text()
    assert len(token) >= 40 and token.isascii() and token.isprintable() and " " not in token
    assert [each.name for each in tmp_path.iterdir()] == ["tokens"]


@pytest.mark.promise("bad-input-53", "A node token that was replaced counts no more")
def test_a_token_is_replaced(tmp_path: Path) -> None:
    """That of this node alone; comments and what cannot be read stay in the file."""
    path = tmp_path / "tokens"
    other = new_token(path, "node-b")
    with path.open("a") as file:
        file.write("# racks 1 to 4\nnode-a broken\n")
    old = new_token(path, "node-a")
    new = new_token(path, "node-a")
    tokens = read_tokens(path)
    assert (tokens.name_of(old), tokens.name_of(new)) == (None, "node-a")
    assert tokens.name_of(other) == "node-b"
    assert "# racks 1 to 4" in path.read_text()


@pytest.mark.promise("bad-input-53")
def test_a_line_that_somebody_has_indented(tmp_path: Path) -> None:
    """It counts, so it goes as any other."""
    path = tmp_path / "tokens"
    old = new_token(path, "node-a")
    path.write_text(f"  {path.read_text()}")
    assert read_tokens(path).name_of(old) == "node-a"
    new_token(path, "node-a")
    assert read_tokens(path).name_of(old) is None


def test_two_at_once(tmp_path: Path) -> None:
    """Neither loses the other's line."""
    path = tmp_path / "tokens"
    threads = [
        threading.Thread(target=new_token, args=(path, f"node-{number}")) for number in range(20)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {name for name, _ in read_tokens(path).lines} == {f"node-{n}" for n in range(20)}


@pytest.mark.parametrize(
    "name", ["", "a b", "-a", "a/b", "..", "../etc", "ä", "a\n", "a\x00", "x" * 254, "#a", "a%2f"]
)
def test_names_that_no_node_may_have(tmp_path: Path, name: str) -> None:
    """They go into addresses, logs and pages."""
    assert not is_name(name)
    with pytest.raises(TokensError, match=r"cannot be called .*\. Give it a name"):
        new_token(tmp_path / "tokens", name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "gpu-1.example.org", "Node_7", "10.0.0.1", "x" * 253])
def test_names_that_a_node_may_have(name: str) -> None:
    assert is_name(name)


@given(st.text(max_size=300))
def test_whatever_the_file_says(text: str) -> None:
    """What is no line of ours is passed over, and nobody is known by it."""
    tokens = tokens_of(text)
    assert all(is_name(name) and len(digest) == 64 for name, digest in tokens.lines)
    assert tokens.name_of("") is None


def test_lines_that_say_nothing() -> None:
    """Each is named by its number; of two nodes with one token the first one counts."""
    digest, other = digest_of("t"), digest_of("u")
    text = f"a {digest}\n\n# b {other}\nb {digest}\nc {other.upper()}\nd\ne {other}  \n"
    tokens = tokens_of(text)
    assert tokens.lines == (("a", digest), ("e", other))
    assert tokens.wrong == (4, 5, 6)


def test_all_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """However early one fits: how long it takes says nothing."""
    compared = []

    def compare(one: str, other: str) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr(node_tokens.hmac, "compare_digest", compare)
    lines = tuple((f"n{number}", digest_of(str(number))) for number in range(9))
    assert Tokens(lines).name_of("0") == "n0"
    assert len(compared) == 9


def test_files_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence, and what to do."""
    with pytest.raises(TokensError, match=r"cannot be read: No such file.* Make it with"):
        read_tokens(tmp_path / "none")
    with pytest.raises(TokensError, match=r"cannot be written: No such file"):
        new_token(tmp_path / "none" / "tokens", "a")
    with pytest.raises(TokensError, match=r"cannot be read: Is a directory"):
        read_tokens(tmp_path)
    monkeypatch.setattr(node_tokens, "FILE_BYTES_MAX", 3)
    (tmp_path / "big").write_text("xxxx")
    with pytest.raises(TokensError, match="more than 3 bytes"):
        read_tokens(tmp_path / "big")


def test_a_token_that_is_kept(tmp_path: Path) -> None:
    """It stays while the view knows it under that name; else it is made anew."""
    tokens, own = tmp_path / "tokens", tmp_path / "own"
    kept_token(tokens, "a", own)
    first = own.read_text()
    assert own.stat().st_mode & 0o777 == 0o600
    kept_token(tokens, "a", own)
    assert own.read_text() == first
    kept_token(tokens, "b", own)
    assert read_tokens(tokens).name_of(own.read_text().strip()) == "b"
    own.write_bytes(b"\xff\x00")
    kept_token(tokens, "b", own)
    assert read_tokens(tokens).name_of(own.read_text().strip()) == "b"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_leaves_the_file_to_its_owner(tmp_path: Path) -> None:
    """The view, which does not run as root, still reads it."""
    path = tmp_path / "tokens"
    put_token(path, "a", "t")
    os.chown(path, 12345, 12345)
    put_token(path, "b", "u")
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (12345, 0o600)
