"""A library that can be preloaded in the hook's place and does nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.compiled import library_named


@pytest.fixture
def fake_library(tmp_path: Path) -> Path:
    """For tests that need the hook's file to be there, and not what it does."""
    return library_named(tmp_path / "libgpushare.so", "int gpushare_test_nothing;\n")
