"""What is wrong with the pods of this node, for its scheduler, which tells the view of all nodes.

The file lies in the scheduler's runtime directory and is for root alone: it names pods. It is
complete under its name whenever somebody looks, and counts for some minutes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from jupyter_gpushare.client.paths import PLUGIN_PROBLEMS

from .pods import Mistake

WRITE_EVERY_S = 60.0
SENTENCES_MAX = 8
CHARACTERS_MAX = 400


def write_problems(runtime_dir: Path, mistakes: Iterable[Mistake]) -> None:
    """The worst ones. Raises OSError."""
    told = [
        f"{each.what} {each.remedy}"[:CHARACTERS_MAX] for each in islice(mistakes, SENTENCES_MAX)
    ]
    path = runtime_dir / PLUGIN_PROBLEMS
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump({"problems": told}, file)
    new.replace(path)
