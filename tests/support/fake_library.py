"""A library that can be preloaded in the hook's place and does nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def fake_library(tmp_path: Path) -> Path:
    """For tests that need the hook's file to be there, and not what it does."""
    source = tmp_path / "nothing.c"
    source.write_text("int gpushare_test_nothing;\n")
    library = tmp_path / "libgpushare.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library
