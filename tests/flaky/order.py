"""A pytest plugin: the files in a random order that a seed repeats.

The tests of a file keep their order."""

from __future__ import annotations

import os
import random

import pytest

SEED = "GPUSHARE_FILES_SEED"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each worker of a run shuffles alike."""
    files = sorted({_file(item) for item in items})
    random.Random(int(os.environ[SEED])).shuffle(files)
    place = {file: number for number, file in enumerate(files)}
    items.sort(key=lambda item: place[_file(item)])


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
