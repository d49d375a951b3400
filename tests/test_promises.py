"""What the software promises is marked on tests that exist, and none of them is skipped."""

from __future__ import annotations

import functools
import re

import pytest

from tests.promises import (
    HEADINGS,
    BadMark,
    SkippedPromises,
    main,
    marks_of,
    promises_of,
    read_marks,
)

pytest_plugins = ["pytester"]

promises_here = functools.cache(lambda: promises_of(read_marks()))
"""Reading them parses all tests."""
STATED = '@pytest.mark.promise("hook-1", "Frees never wait for the turn")\n'
NAMED = '@pytest.mark.promise("hook-1")\n'


@pytest.mark.promise(
    "demo-17", "Each promise has a test that exists, and a skipped one fails the run"
)
def test_the_list_has_each_promise_with_its_tests(capsys: pytest.CaptureFixture[str]) -> None:
    """`make promises` prints it."""
    assert main() == 0
    printed = capsys.readouterr().out
    for promise in promises_here():
        tests = "".join(f"    {test}\n" for test in promise.tests)
        assert f"{promise.id}: {promise.text}\n{tests}" in printed


@pytest.mark.promise("demo-17")
def test_every_heading_has_promises() -> None:
    """No part of what was promised is without a test."""
    assert {promise.heading for promise in promises_here()} == set(HEADINGS)


@pytest.mark.promise("demo-17")
def test_each_promise_is_held_without_a_gpu_too() -> None:
    """CI has no GPU: only what stands under "On a real GPU" may need one."""
    for promise in promises_here():
        if promise.heading != "gpu":
            assert not all(test.startswith("tests/gpu/") for test in promise.tests), promise.text


def test_a_promise_has_all_its_tests() -> None:
    """Functions, methods, machines of Hypothesis and whole files hold a promise by its id."""
    source = (
        f"{STATED}def test_a(): pass\n"
        f"class TestB:\n    {NAMED}    def test_c(self): pass\n"
        "TestD = D.TestCase\n"
        'TestD.pytestmark = [pytest.mark.full, pytest.mark.promise("hook-1")]\n'
        'pytestmark = pytest.mark.promise("hook-1")\n'
    )
    (promise,) = promises_of(list(marks_of("tests/test_it.py", source)))
    ids = ["test_a", "TestB::test_c", "TestD::runTest"]
    assert promise.tests == [*(f"tests/test_it.py::{name}" for name in ids), "tests/test_it.py"]


def test_a_mark_may_have_a_name() -> None:
    """The first test that bears it states the promise, and the others hold it too."""
    mark = STATED.removeprefix("@").rstrip()
    source = f"M = {mark}\n\n@M\ndef test_a(): pass\n\n@other\n@M\ndef test_b(): pass\n"
    (promise,) = promises_of(list(marks_of("tests/test_it.py", source)))
    assert promise.tests == ["tests/test_it.py::test_a", "tests/test_it.py::test_b"]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (f"{STATED}def helper(): pass", "does not collect helper"),
        (
            f"{STATED}def test_a(): pass\n{STATED.replace('never', 'soon')}def test_b(): pass",
            "test_a states hook-1. The next free id is hook-2.",
        ),
        (f"{NAMED}def test_a(): pass", "no test states hook-1"),
        ('@pytest.mark.promise("hok-1", "Frees")\ndef test_a(): pass', "has an id"),
        ('@pytest.mark.promise("Frees")\ndef test_a(): pass', "has an id"),
        ('@pytest.mark.promise("hook", "Frees")\ndef test_a(): pass', "has an id"),
    ],
    ids=["no-test", "stated-twice", "not-stated", "no-such-heading", "no-id", "no-number"],
)
def test_a_bad_mark_is_told(source: str, complaint: str) -> None:
    """A mark that states no promise and names none is an error with its place."""
    with pytest.raises(BadMark, match=f"tests/test_it.py:.*{complaint}"):
        promises_of(list(marks_of("tests/test_it.py", source)))


@pytest.mark.promise("demo-17")
@pytest.mark.parametrize(
    "source",
    [
        f"{STATED}def test_promised(): pytest.skip('no reason')",
        f"pytest.skip('no reason', allow_module_level=True)\n{STATED}def test_promised(): pass",
        f"pytestmark = {STATED.removeprefix('@')}def test_promised(): pytest.skip('no reason')",
        "@pytest.mark.parametrize('n', [1, 2])\n"
        f"{STATED}def test_promised(n): n == 1 or pytest.skip('no reason')",
    ],
    ids=["test", "file", "of-a-file", "one-of-several"],
)
def test_a_skipped_promise_fails_the_run(pytester: pytest.Pytester, source: str) -> None:
    """A run in which a promised test was skipped, alone or with its whole file, does not pass. One
    that was not promised may be skipped."""
    folder = pytester.mkdir("tests")
    (folder / "test_other.py").write_text("def test_other(): pass\n")
    for text, status in (
        (source, pytest.ExitCode.TESTS_FAILED),
        (re.sub(r"pytestmark = .*|@pytest.mark.promise.*", "", source), pytest.ExitCode.OK),
    ):
        (folder / "test_it.py").write_text(f"import pytest\n{text}\n")
        plugin = SkippedPromises(pytester.path)
        result = pytester.inline_run("-p", "no:cacheprovider", folder, plugins=[plugin])
        assert result.ret == status
