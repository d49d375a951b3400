"""A workload by the name of a preset, or from files: a trace, or journals of the scheduler."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from . import journal_trace
from .base.errors import SimulationError
from .base.workload import Workload
from .policies import suggestion
from .presets import PRESETS
from .trace import objects_of, read_trace


def of_preset(name: str, seed: int) -> Workload:
    if name not in PRESETS:
        raise SimulationError(f"There is no preset {name!r}. {suggestion(name, list(PRESETS))}")
    return PRESETS[name].workload(name, seed)


def of_files(
    paths: Sequence[Path], progress: Callable[[int], None] = lambda characters: None
) -> Workload:
    """A trace; or journals in the order of their times. `progress` hears how many more characters
    have been read."""
    first = objects_of(paths[0], progress)
    number, head = next(first, (0, {}))
    lines = itertools.chain([(number, head)] if number else [], first)
    if not journal_trace.is_journal(head):
        if len(paths) > 1:
            raise SimulationError("Several files are read only as journals. Name one trace.")
        return read_trace(lines)
    rest = itertools.chain.from_iterable(objects_of(path, progress) for path in paths[1:])
    return journal_trace.read_journal(itertools.chain(lines, rest))
