"""Each promise of docs/promises.md is held by a test that exists."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.promises import ROOT, Promise, SkippedPromises, read_promises

pytest_plugins = ["pytester"]

HEADINGS = [
    "The simulated GPU",
    "The hook",
    "The protocol",
    "The scheduler",
    "Jupyter",
    "The Jupyter server",
    "JupyterHub",
    "The panel",
    "Packaging",
    "The command line",
    "The demo, and how the project is run",
    "Memory that follows the turn: who has what",
    "Memory that follows the turn: kernels",
    "Memory that follows the turn: backing",
    "Memory that follows the turn: park and restore",
    "Memory that follows the turn: by programs, the real mover and the real scheduler",
    "Bad input",
    "Bad input while memory moves",
    "Speed",
    "On a real GPU",
]


@cache
def functions_of(path: str) -> set[str]:
    """Names of the test functions of a file, methods as Class::name. A machine of Hypothesis is a
    name that is assigned at module level, and its test is called runTest."""
    names = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}::{method.name}"
                for method in node.body
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.Assign):
            names |= {f"{t.id}::runTest" for t in node.targets if isinstance(t, ast.Name)}
    return names


@pytest.mark.parametrize("promise", read_promises(), ids=lambda p: p.text[:60])
def test_promise_names_tests_that_exist(promise: Promise) -> None:
    """A promise names at least one test, and each named test is there."""
    assert promise.tests, "This promise has no test. Name the one that holds it."
    for test in promise.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), f"{path} is missing."
        assert name in functions_of(path), f"{path} has no {name}."


def test_every_part_has_promises() -> None:
    """No part of what was promised is left out of the document."""
    headings = {promise.heading for promise in read_promises()}
    assert set(HEADINGS) == headings


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\ndef test_promised(): pytest.skip('no reason')",
        "import pytest\npytest.skip('no reason', allow_module_level=True)",
        "import pytest\n@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_promised(n): n == 1 or pytest.skip('no reason')",
    ],
    ids=["test", "file", "one-of-several"],
)
def test_a_skipped_promise_fails_the_run(pytester: pytest.Pytester, source: str) -> None:
    """A run in which a promised test was skipped, alone or with its whole file, does not pass."""
    pytester.makepyfile(test_it=source, test_other="def test_other(): pass")
    plugin = SkippedPromises()
    plugin.promised = {"test_it.py::test_promised"}
    result = pytester.inline_run("-p", "no:cacheprovider", plugins=[plugin])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    plugin.skipped.clear()
    plugin.promised = set()
    assert pytester.inline_run("-p", "no:cacheprovider", plugins=[plugin]).ret == 0
