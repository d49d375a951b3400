"""What the software promises: marks on the tests, from which docs/promises.md is made.

`@pytest.mark.promise("hook", "Direct linking reaches the wrappers")` states a promise under one of
`HEADINGS`, on one of the tests that hold it. The others that hold it name its beginning:
`@pytest.mark.promise("Direct linking...")`. Marks are read from the sources, without imports.

Run `python -m tests.promises` after a change of a mark (`make generate` does); with `--check` it
writes nothing and fails where the document differs. As a pytest plugin (tests/conftest.py loads it)
this module fails a run in which a promised test was skipped.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "promises.md"

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

INTRODUCTION = """\
# What the software promises

`make generate` writes this page from the marks on the tests (`tests/promises.py`). Each line is a
promise, with the ids of the tests that hold it. A run in which a promised test was skipped fails;
only the tests under `tests/gpu/` may be skipped, for they need a real device. The tests in
`tests/bad_input/` and `tests/end_to_end/` run the real scheduler and the real hook together, on the
simulated GPU.
"""


@dataclass(frozen=True)
class Mark:
    """One mark, on a test that pytest calls `test`."""

    test: str
    line: int
    arguments: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.test.partition('::')[0]}:{self.line}"


@dataclass
class Promise:
    """One line of the document, under its heading."""

    heading: str
    text: str
    tests: list[str] = field(default_factory=list)


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
                mark = Mark(f"{path}::{test}", node.lineno, texts)
                if not test.rpartition("::")[2].startswith(("test", "runTest")):
                    raise BadMark(f"{mark.place}: pytest does not collect {test} as a test.")
                yield mark


def marks_of(path: str, source: str) -> Iterator[Mark]:
    """The marks of a file. `pytestmark` of a machine of Hypothesis has those of its runTest."""
    named: dict[str, ast.expr] = {}
    stated: set[str] = set()

    def marked(test: str, *nodes: ast.expr) -> Iterator[Mark]:
        """A mark that has a name is stated by the first test that bears it, and named by others."""
        yield from marks_on(path, test, *nodes)
        for name in (node.id for node in nodes if isinstance(node, ast.Name) and node.id in named):
            for mark in marks_on(path, test, named[name]):
                again = name in stated and len(mark.arguments) > 1
                stated.add(name)
                yield replace(mark, arguments=(f"{mark.arguments[1]}...",)) if again else mark

    for node in ast.parse(source).body:
        match node:
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
    """The promises by heading, each with its tests; the one that states it comes first."""
    stated: dict[str, Promise] = {}
    for mark in marks:
        match mark.arguments:
            case (heading, text) if heading in HEADINGS and text not in stated:
                stated[text] = Promise(heading, text, [mark.test])
            case (heading, text) if heading in HEADINGS:
                raise BadMark(
                    f"{mark.place}: {stated[text].tests[0]} states this promise too. "
                    'Name its beginning instead: @pytest.mark.promise("beginning...").'
                )
            case (beginning,) if beginning.endswith("..."):
                pass
            case _:
                raise BadMark(
                    f"{mark.place}: a mark has a heading of tests/promises.py and a text, "
                    "or the beginning of another mark's text with three dots."
                )
    for mark in marks:
        if len(mark.arguments) == 1:
            beginning = mark.arguments[0].removesuffix("...")
            fitting = [text for text in stated if text.startswith(beginning)]
            if len(fitting) != 1:
                raise BadMark(f"{mark.place}: {len(fitting)} promises begin so. Name one.")
            stated[fitting[0]].tests.append(mark.test)
    order = list(HEADINGS)
    return sorted(stated.values(), key=lambda promise: order.index(promise.heading))


def render(promises: list[Promise]) -> str:
    """The document."""
    lines = [INTRODUCTION]
    for key, heading in HEADINGS.items():
        lines.append(f"## {heading}\n")
        for promise in promises:
            if promise.heading == key:
                tests = ", ".join(f"`{test}`" for test in promise.tests)
                lines.append(f"- {promise.text} — {tests}")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


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
            broken += [node] if node.split("[")[0] in promised else []
            broken += sorted(test for test in promised if test.startswith(inside))
        return broken

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self.broken():
            terminalreporter.write_line(f"PROMISED, BUT SKIPPED: {test}", red=True)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.broken():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; fail on a difference")
    options = parser.parse_args(arguments)
    try:
        page = render(promises_of(read_marks()))
    except BadMark as problem:
        print(problem, file=sys.stderr)
        return 1
    if DOCUMENT.exists() and DOCUMENT.read_text() == page:
        return 0
    if options.check:
        print("docs/promises.md is not what the marks say. Run `make generate`.", file=sys.stderr)
        return 1
    DOCUMENT.write_text(page)
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
