"""A library that can be preloaded in the hook's place and does nothing."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def fake_library(tmp_path: Path) -> Path:
    """For tests that need the hook's file to be there, and not what it does."""
    library = tmp_path / "libgpushare.so"
    library.write_bytes(_compiled())
    library.chmod(0o755)
    return library


@functools.cache
def _compiled() -> bytes:
    """Once a process."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "nothing.c", Path(folder) / "libgpushare.so"
        source.write_text("int gpushare_test_nothing;\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return library.read_bytes()
