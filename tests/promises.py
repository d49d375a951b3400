"""What the software promises: marks on the tests. `make promises` prints the list.

`@pytest.mark.promise("hook-17", "Direct linking reaches the wrappers")` states a promise, on one of
the tests that hold it: its id is a key of `HEADINGS` and a number. The others that hold it have the
id alone: `@pytest.mark.promise("hook-17")`. A new one takes the next number of its heading; numbers
are not used again. Marks are read from the sources, without imports.

As a pytest plugin (tests/conftest.py loads it) this module fails a run in which a promised test was
skipped.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

ID = re.compile(r"[a-z-]+-[1-9][0-9]*")

HEADINGS = {
    "simulated": "The simulated GPU",
    "hook": "The hook",
    "protocol": "The protocol",
    "scheduler": "The scheduler",
    "jupyter": "Jupyter",
    "server": "The Jupyter server",
    "hub": "JupyterHub",
    "kubernetes": "Kubernetes",
    "view": "The view of all nodes",
    "panel": "The panel",
    "packaging": "Packaging",
    "cli": "The command line",
    "simulator": "The simulator",
    "accounts": "Memory that follows the turn: who has what",
    "kernels": "Memory that follows the turn: kernels",
    "backing": "Memory that follows the turn: backing",
    "park": "Memory that follows the turn: park and restore",
    "together": "Memory that follows the turn: by programs, the real mover and the real scheduler",
    "demo": "The demo, and how the project is run",
    "bad-input": "Bad input",
    "bad-memory": "Bad input while memory moves",
    "speed": "Speed",
    "gpu": "On a real GPU",
}


@dataclass(frozen=True)
class Mark:
    """One mark, on a test that pytest calls `test`, or on all of a file."""

    test: str
    line: int
    arguments: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.test.partition('::')[0]}:{self.line}"


@dataclass
class Promise:
    """With the tests that hold it, the one that states it first."""

    id: str
    text: str
    tests: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        return self.id.rpartition("-")[0]

    @property
    def number(self) -> int:
        return int(self.id.rpartition("-")[2])


class BadMark(Exception):
    """A mark that states no promise and names none."""


def marks_on(path: str, test: str, *nodes: ast.AST) -> Iterator[Mark]:
    """The marks in a test's decorators, or in a list of marks."""
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="promise"), args=args
            ):
                texts = tuple(
                    arg.value
                    for arg in args
                    if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                )
                mark = Mark(f"{path}::{test}" if test else path, node.lineno, texts)
                if test and not test.rpartition("::")[2].startswith(("test", "runTest")):
                    raise BadMark(f"{mark.place}: pytest does not collect {test} as a test.")
                yield mark


def marks_of(path: str, source: str) -> Iterator[Mark]:
    """The marks of a file. `pytestmark` of a machine of Hypothesis has those of its runTest, that
    of a module those of all its tests."""
    named: dict[str, ast.expr] = {}

    def marked(test: str, *nodes: ast.expr) -> Iterator[Mark]:
        """A mark may have a name."""
        yield from marks_on(path, test, *nodes)
        for name in (node.id for node in nodes if isinstance(node, ast.Name) and node.id in named):
            yield from marks_on(path, test, named[name])

    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                yield from marks_on(path, "", value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                named[name] = value
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from marked(node.name, *node.decorator_list)
            case ast.ClassDef():
                for method in node.body:
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                        name = f"{node.name}::{method.name}"
                        yield from marked(name, *method.decorator_list)
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id=name), attr="pytestmark")], value=value
            ):
                yield from marks_on(path, f"{name}::runTest", value)


def read_marks(root: Path = ROOT) -> list[Mark]:
    """All marks, in the order of files and lines."""
    marks: list[Mark] = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        source = file.read_text()
        if "mark.promise" in source:
            marks += marks_of(file.relative_to(root).as_posix(), source)
    return marks


def promises_of(marks: list[Mark]) -> list[Promise]:
    """The promises in the order of headings and numbers, each with its tests."""
    stated: dict[str, Promise] = {}
    order = list(HEADINGS)
    for mark in marks:
        match mark.arguments:
            case (name, text) if ID.fullmatch(name) and name.rpartition("-")[0] in HEADINGS:
                promise = stated.setdefault(name, Promise(name, text))
                if promise.text != text:
                    raise BadMark(
                        f"{mark.place}: {promise.tests[0]} states {name}. "
                        f"The next free id is {next_id(stated, promise.heading)}."
                    )
                promise.tests.append(mark.test)
            case (name,) if ID.fullmatch(name):
                pass
            case _:
                raise BadMark(
                    f"{mark.place}: a mark has an id, such as hook-17, of a heading of "
                    "tests/promises.py, and the text where the promise is stated."
                )
    for mark in marks:
        if len(mark.arguments) == 1:
            if mark.arguments[0] not in stated:
                raise BadMark(f"{mark.place}: no test states {mark.arguments[0]}.")
            stated[mark.arguments[0]].tests.append(mark.test)
    return sorted(stated.values(), key=lambda each: (order.index(each.heading), each.number))


def next_id(stated: Mapping[str, Promise], heading: str) -> str:
    numbers = (each.number for each in stated.values() if each.heading == heading)
    return f"{heading}-{max(numbers, default=0) + 1}"


def render(promises: list[Promise]) -> str:
    """The list, as text."""
    lines: list[str] = []
    for key, heading in HEADINGS.items():
        lines += ["", heading, ""]
        for promise in promises:
            if promise.heading == key:
                lines.append(f"{promise.id}: {promise.text}")
                lines += (f"    {test}" for test in promise.tests)
    return "\n".join(lines[1:]) + "\n"


class SkippedPromises:
    """Notes tests that were skipped, and fails the run for those that hold a promise."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A skipped file or folder skips all that is in it."""
        if report.skipped:
            self.skipped.append(report.nodeid)

    def broken(self) -> list[str]:
        """The promised tests that were skipped, alone or with all that is around them."""
        if not self.skipped:
            return []
        promised = {mark.test for mark in read_marks(self.root)}
        promised = {test for test in promised if not test.startswith("tests/gpu/")}
        broken: list[str] = []
        for node in self.skipped:
            inside = (node.rstrip("/") + "/", node + "::")
            is_promised = {node.split("[")[0], node.split("::")[0]} & promised
            broken += [node] if is_promised else []
            broken += sorted(test for test in promised - {node} if test.startswith(inside))
        return broken

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self.broken():
            terminalreporter.write_line(f"PROMISED, BUT SKIPPED: {test}", red=True)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.broken():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def main() -> int:
    try:
        print(render(promises_of(read_marks())), end="")
    except BadMark as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
