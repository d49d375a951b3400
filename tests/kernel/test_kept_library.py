"""The copy of the hook's library that containers and pods see."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jupyter_gpushare.client import kept_library
from jupyter_gpushare.client.kept_library import CannotKeep


def keep(directory: Path) -> None:
    kept_library.keep_library(directory, named_in="--here")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This installation's library; a test may upgrade it."""
    path = tmp_path / "installed.so"
    path.write_bytes(b"one")
    monkeypatch.setattr(kept_library, "PACKAGED_LIBRARY", path)
    return path


@pytest.mark.promise(
    "hub-28", "After an upgrade of the hub, new kernels of containers that run have its new hook"
)
def test_an_upgrade(built: Path, tmp_path: Path) -> None:
    """The directory that containers see stays; the file in it is exchanged, so a program that has
    the old one mapped keeps it."""
    directory = tmp_path / "deep" / "library"
    keep(directory)
    copy = directory / "libgpushare.so"
    before = directory.stat().st_ino
    with copy.open("rb") as mapped:
        assert stat.S_IMODE(copy.stat().st_mode) == 0o755
        built.write_bytes(b"two")
        keep(directory)
        assert (mapped.read(), copy.read_bytes()) == (b"one", b"two")
    assert directory.stat().st_ino == before
    assert [each.name for each in directory.iterdir()] == ["libgpushare.so"]


def test_nothing_is_written_where_it_is_there(built: Path, tmp_path: Path) -> None:
    """A configuration is read by other commands too, and by other accounts."""
    copy = tmp_path / "library" / "libgpushare.so"
    keep(tmp_path / "library")
    before = copy.stat()
    keep(tmp_path / "library")
    assert copy.stat() == before


@pytest.mark.promise(
    "bad-input-43",
    "A directory for the hook's library that others may write to is refused by the hub, and by a "
    "node's plugin",
)
def test_others_may_write_there(built: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(CannotKeep, match=r"Others may write to .* Run `chmod go-w`"):
        keep(tmp_path / "open")


def test_it_cannot_be_copied(built: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotKeep, match=r"cannot be copied to .* --here"):
        keep(tmp_path / "file" / "library")


def test_a_file_system_without_programs(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /run is on Debian: no process could load it from there."""

    class Flags:
        f_flag = os.ST_NOEXEC

    monkeypatch.setattr("os.statvfs", lambda path: Flags)
    with pytest.raises(CannotKeep, match="mounted with `noexec`"):
        keep(tmp_path / "library")


def test_a_package_without_its_library(built: Path, tmp_path: Path) -> None:
    built.unlink()
    with pytest.raises(CannotKeep, match=r"cannot be read: .* Reinstall jupyter-gpushare"):
        keep(tmp_path / "library")
