"""What a newcomer has: the committed files, in a new folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.packaging.environments import run
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout, so there is nothing to clone")
    folder = tmp_path_factory.mktemp("fresh") / "clone"
    run(["git", "clone", "--quiet", ROOT, folder], cwd=folder.parent)
    return folder
