"""Break each rule of who goes next in a copy of the project, and see that a test fails.

    python -m tests.mutate [WORD …]      only rules that have one of these words

The last line is JSON: how many rules were broken, and how many of these nobody noticed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.paths import ROOT

from .mutations import MUTATIONS, Mutation

PACKAGE = "jupyter_gpushare"
CORE = Path(PACKAGE, "core")


def copy_to(folder: Path) -> None:
    """What the tests of the core need."""
    for name in (PACKAGE, "tests"):
        leave = shutil.ignore_patterns("__pycache__", "lib", "labextension", "node_modules")
        shutil.copytree(ROOT / name, folder / name, ignore=leave, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", folder)


def broken(mutation: Mutation, text: str) -> str:
    """The file with the rule broken."""
    if text.count(mutation.text) != 1:
        raise SystemExit(
            f"core/{mutation.file}.py does not have the text of {mutation.rule!r} once. Bring "
            f"tests/mutate/mutations.py up to date."
        )
    return text.replace(mutation.text, mutation.broken)


def files_of(names: str) -> list[str]:
    paths = (Path("tests/core", name) for name in names.split())
    return [f"{path.parent}/test_{path.name}.py" for path in paths]


def run(folder: Path, files: list[str]) -> tuple[int, str]:
    """The exit status of pytest, and the first test that failed."""
    options = ["-x", "-q", "-m", "not full", "-p", "no:cacheprovider", "--no-header"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    first = said[0].split(" - ")[0].rpartition("/")[2] if said else done.stdout[-300:].strip()
    return done.returncode, first


def try_one(mutation: Mutation) -> tuple[Mutation, bool, str, float]:
    """Whether a test noticed, which one, and after how many seconds."""
    since_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        folder = Path(name)
        copy_to(folder)
        path = folder / CORE / f"{mutation.file}.py"
        path.write_text(broken(mutation, path.read_text()))
        status, first = run(folder, files_of(mutation.tests))
    return mutation, status == 1, first, time.monotonic() - since_s


def main() -> int:
    words = [word.lower() for word in sys.argv[1:]]
    chosen = [each for each in MUTATIONS if not words or any(w in each.rule.lower() for w in words)]
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        copy_to(Path(name))
        files = sorted({file for each in chosen for file in files_of(each.tests)})
        status, first = run(Path(name), files)
    if status != 0:
        print(f"The tests fail already without a mutation: {first}. Mend that first.")
        return 1
    survived = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutation, noticed, first, took_s in pool.map(try_one, chosen):
            survived += not noticed
            print(f"{'seen by' if noticed else 'NOT SEEN'} {took_s:6.1f} s  {mutation.rule}")
            print(
                f"{'':18}{first if noticed else mutation.file + ': ' + mutation.text}", flush=True
            )
    print(json.dumps({"mutations": len(chosen), "survived": survived}))
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
