"""The long form of a random test, which nobody should have to wait for in `make test`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Making a failing example small would take longer than reading it does."""


def many_runs(test: Callable[..., Any]) -> Callable[..., Any]:
    """10,000 examples, in `make test-full`."""
    marks = (pytest.mark.full, pytest.mark.long, pytest.mark.timeout(3600))
    for mark in (settings(max_examples=10_000, phases=PHASES), *marks):
        test = mark(test)
    return test
