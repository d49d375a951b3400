"""Code blocks of the README and of other pages, so that tests do what stands there and not what
somebody thinks stands there."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

from tests.support.paths import ROOT

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.M | re.S)


README = ROOT / "README.md"


def blocks_under(heading: str, language: str, page: Path = README) -> list[str]:
    """The code blocks of one language in a section, in order."""
    section = page.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [dedent(text) for _, found, text in _BLOCK.findall(section) if found == language]


def commands_under(heading: str, page: Path = README) -> list[str]:
    """The lines of all shell blocks of a section."""
    blocks = blocks_under(heading, "sh", page)
    return [line for block in blocks for line in block.splitlines() if line]
