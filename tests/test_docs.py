"""What the documents say about the code is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import paths_of_the_machine

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.promise("demo", "The documents tell the truth about settings and files")
def test_the_settings_page_is_what_the_table_says() -> None:
    """docs/settings.md is generated; one error says what to do after a change of the table."""
    command = [sys.executable, ROOT / "docs" / "generate_settings.py", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.promise("The documents tell the truth about...")
def test_links_between_documents_lead_somewhere() -> None:
    """Each relative link of a document names a file that exists."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "hook").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_no_document_or_code_names_this_machine() -> None:
    """No file names the folder of this checkout, of its Python or of its user, nor a registry."""
    folders = [re.escape(path) for path in paths_of_the_machine()]
    registry = rb"https?://(\w+\.)*(pypi\.org|npmjs\.org)"
    forbidden = re.compile(b"|".join([*folders, registry]))
    files = [p for suffix in ("py", "c", "h", "md", "toml", "S") for p in tracked(suffix)]
    for path in files:
        if path != Path(__file__):
            assert not forbidden.search(path.read_bytes()), path


def tracked(suffix: str) -> list[Path]:
    """Files of this kind in the folders that are ours."""
    folders = ("jupyter_gpushare", "hook", "tests", "docs")
    inside = [p for folder in folders for p in (ROOT / folder).rglob(f"*.{suffix}")]
    return [p for p in inside if p.is_file()] + list(ROOT.glob(f"*.{suffix}"))
