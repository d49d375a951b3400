"""Writes docs/states.md from the scheduler core's transition tables.

With `--check` it writes nothing and fails when the page is not what the tables say.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jupyter_gpushare.core.diagram import render

PAGE = Path(__file__).resolve().with_name("states.md")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; fail on a difference")
    options = parser.parse_args(arguments)
    if PAGE.exists() and PAGE.read_text() == render():
        return 0
    if options.check:
        print(
            "docs/states.md is not what the tables say. Run python docs/generate_states.py.",
            file=sys.stderr,
        )
        return 1
    PAGE.write_text(render())
    print("wrote docs/states.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
