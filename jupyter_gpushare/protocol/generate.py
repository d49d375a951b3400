"""messages.toml → messages.py and docs/protocol.md, and when the hook is built its messages.h.

Run `python -m jupyter_gpushare.protocol.generate` after a change of the schema; with `--check` it
writes nothing and fails when a generated file is not what the schema says. `--header FILE`, which
hook/Makefile gives, writes the C header alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import render_c, render_docs, render_python, schema

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent.parent
SCHEMA = PACKAGE / "messages.toml"


def render_all(root: Path = ROOT, schema_path: Path = SCHEMA) -> dict[Path, str]:
    """Every generated file of the repository with the text that it should have."""
    spec = schema.load(schema_path)
    return {
        root / "jupyter_gpushare/protocol/messages.py": render_python.render(spec),
        root / "docs/protocol.md": render_docs.render(spec),
    }


def drifted(files: dict[Path, str]) -> list[Path]:
    """The files that are missing or differ."""
    return [path for path, text in files.items() if not path.exists() or path.read_text() != text]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; fail on a difference")
    parser.add_argument("--header", type=Path, help="write the C header to this file, and no more")
    options = parser.parse_args(arguments)
    if options.header is not None:
        options.header.parent.mkdir(parents=True, exist_ok=True)
        options.header.write_text(render_c.render(schema.load(SCHEMA)))
        return 0
    files = render_all()
    stale = drifted(files)
    if options.check:
        for path in stale:
            print(
                f"{path.relative_to(ROOT)} is not what messages.toml says. "
                "Run python -m jupyter_gpushare.protocol.generate.",
                file=sys.stderr,
            )
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
