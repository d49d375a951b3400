"""Writes the *_pb2.py and *_pb2.pyi here from the .proto files: `make generate`.

With `--check` it writes nothing and fails where they differ. The compiler is of one version: its
Python runs with each later one of the package protobuf, up to the next major version but one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent.parent


def main(arguments: list[str]) -> int:
    """The exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        made = _compiled(Path(scratch))
        stale = [name for name, text in made.items() if _text_of(FOLDER / name) != text]
        if "--check" not in arguments:
            for name in stale:
                (FOLDER / name).write_text(made[name])
            return 0
    if stale:
        print(f"{', '.join(stale)} differ from the .proto files. Run `make generate`.")
    return int(bool(stale))


def _compiled(scratch: Path) -> dict[str, str]:
    sources = sorted(FOLDER.glob("*.proto"))
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}"),
            *(f"--python_out={scratch}", f"--pyi_out={scratch}"),
            *map(str, sources),
        ],
        check=True,
    )
    found = (scratch / FOLDER.relative_to(ROOT)).glob("*_pb2.py*")
    return {path.name: path.read_text() for path in found}


def _text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
