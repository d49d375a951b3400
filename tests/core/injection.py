"""Makes the core fail just before one of the lines that change something.

A line that changes something assigns to an attribute or an item, or calls a method that changes its
object. The lines are read from the sources, so that new ones are among them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from jupyter_gpushare import core

CHANGING_METHODS = {
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "popleft", "remove"),
    *("put", "put_before_grant", "setdefault", "subtract", "update"),
    *("heapify", "heappop", "heappush", "insort"),
}
NOT_OF_THE_MACHINE = {"invariants.py", "estimates.py", "settings.py", "configuration"}
"""Two look, and two are done before there is an event."""
NOT_OF_AN_EVENT = {"Scheduler", "Bars", "__init__", "in_place_of", "begin", "_take_over"}
"""The first two outlive the machine; the others make what nobody has seen yet."""

Line = tuple[str, int]


class Injected(Exception):
    """A bug of ours, put there by a test."""


@cache
def changing_lines() -> frozenset[Line]:
    """All lines of the machine that change something."""
    (folder,) = core.__path__
    files = [
        path
        for path in Path(folder).rglob("*.py")
        if not {path.name, path.parent.name} & NOT_OF_THE_MACHINE
    ]
    return frozenset((str(path), line) for path in files for line in _changing_lines(path))


def _changing_lines(path: Path) -> Iterator[int]:
    for node in _walk(ast.parse(path.read_text())):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                parts = [part for target in targets for part in _parts(target)]
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                parts = _parts(target)
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if (
                name in CHANGING_METHODS
            ):
                yield node.lineno
                continue
            case _:
                continue
        if any(isinstance(part, ast.Attribute | ast.Subscript) for part in parts):
            yield node.lineno


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.ClassDef | ast.FunctionDef)
        if not (named and child.name in NOT_OF_AN_EVENT):
            yield from _walk(child)


def _parts(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, ast.Tuple | ast.List) else [target]


@contextmanager
def watching(seen: Callable[[Line], None]) -> Iterator[None]:
    """Calls `seen` before each line that changes something; what it raises is raised there, and
    ends the watch."""
    lines = changing_lines()
    files = {file for file, _ in lines}

    def in_frame(frame: FrameType, event: str, arg: object) -> Any:
        line = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and line in lines:
            seen(line)
        return in_frame

    def in_call(frame: FrameType, event: str, arg: object) -> Any:
        return in_frame if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(in_call)
    try:
        yield
    finally:
        sys.settrace(before)
