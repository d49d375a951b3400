"""What the generators of docs/ share: a page is written, or compared with `--check`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def write_or_check(page: Path, text: str, *, description: str) -> int:
    """The generator's exit status; 1 where `--check` finds another text in the page."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="only compare; fail on a difference")
    options = parser.parse_args()
    if page.exists() and page.read_text() == text:
        return 0
    if options.check:
        print(f"docs/{page.name} is out of date. Run `make generate`.", file=sys.stderr)
        return 1
    page.write_text(text)
    print(f"wrote docs/{page.name}")
    return 0
