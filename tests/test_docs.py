"""What the documents say about the code is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import paths_of_the_machine

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.promise("demo-16", "The documents tell the truth about settings and files")
def test_the_settings_page_is_what_the_table_says() -> None:
    """docs/settings.md is generated; one error says what to do after a change of the table."""
    command = [sys.executable, ROOT / "docs" / "generate_settings.py", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.promise("demo-16")
def test_links_between_documents_lead_somewhere() -> None:
    """Each relative link of a document names a file that exists."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "hook").rglob("*.md")]
    pages += (ROOT / "jupyter_gpushare").rglob("*.md")
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


PAGES = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "hook/README.md",
    "hook/sim/README.md",
    "jupyter_gpushare/core/README.md",
)
BASES = ("", "jupyter_gpushare", "hook", "hook/src", "hook/sim", "tests")
"""A path in a page begins at the page, or in one of these."""
MADE = {"build", "jupyter_gpushare/lib"}
SUFFIXES = "py|c|h|S|md|toml|ts|tsx|yaml|json|ptx|cu|sh|map"
PATH = re.compile(rf"(?:[\w.*-]+/)*[\w.*-]+\.(?:{SUFFIXES})|(?:[\w.-]+/)+[\w.-]*|Makefile")


@pytest.mark.promise("demo-16")
@pytest.mark.parametrize("page", PAGES)
def test_each_path_that_a_page_names_exists(page: str) -> None:
    """A page for developers names no file or folder that is gone."""
    text = (ROOT / page).read_text()
    paths = [each for each in re.findall(r"`([^`\n]+)`", text) if PATH.fullmatch(each)]
    assert paths, f"{page} names no path at all"
    missing = [path for path in paths if not _is_there(path, ROOT / page)]
    assert not missing, f"{page} names what does not exist: {missing}. Correct the page."


@pytest.mark.promise("demo-16")
def test_each_name_in_brackets_stands_in_the_file_before_it() -> None:
    """ARCHITECTURE.md names functions and tables behind their file, where they are."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    found = re.findall(r"`([\w./-]+\.(?:py|c|h))` \(([^)]*)\)", text)
    named = {(path, name) for path, brackets in found for name in re.findall(r"`(\w+)`", brackets)}
    assert len(named) > 10, "the form of the table has changed: read it in another way here"
    for path, name in sorted(named):
        files = [ROOT / base / path for base in BASES if (ROOT / base / path).is_file()]
        assert files, f"{path} does not exist"
        assert re.search(rf"\b{name}\b", files[0].read_text()), f"{path} has no {name}"


@pytest.mark.promise("demo-16")
def test_the_list_of_decisions_has_each_page_with_its_title() -> None:
    """docs/decisions/README.md names every decision in the words of its page."""
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^- \[\d+\]\((.+)\): (.+)$", (folder / "README.md").read_text(), re.M)
    pages = sorted(folder.glob("0*.md"))
    titles = [(page.name, page.read_text().splitlines()[0].removeprefix("# ")) for page in pages]
    assert listed == titles


def test_a_path_that_is_gone_is_found_missing() -> None:
    """The test above tells files that exist from others, by folder and by name."""
    page = ROOT / "ARCHITECTURE.md"
    assert _is_there("core/turns.py", page)
    assert _is_there("turns.py", page)
    assert not _is_there("core/gate.c", page)
    assert not _is_there("core/turn.py", page)
    assert not _is_there("no_such_file.py", page)


def _is_there(path: str, page: Path) -> bool:
    """A bare name may be that of any file; a name in a room's folder may lack its suffix."""
    if any(path.startswith(f"{made}/") for made in MADE):
        return True
    folders = [page.parent, *(ROOT / base for base in BASES)]
    if any(_matches(folder, path) for folder in folders):
        return True
    if "/" in path:
        return any(_matches(folder, f"{path}.[ch]") for folder in folders)
    ours = ("jupyter_gpushare", "hook", "tests", "docs")
    bare = any(_matches(ROOT / folder, f"**/{path}") for folder in ours)
    return bare or any(_matches(ROOT / "labextension", f"{where}{path}") for where in ("", "src/"))


def _matches(folder: Path, pattern: str) -> bool:
    return any(folder.glob(pattern))


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
