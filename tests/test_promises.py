"""What the software promises is marked on tests that exist, and none of them is skipped."""

from __future__ import annotations

import functools

import pytest

from tests.promises import (
    DOCUMENT,
    HEADINGS,
    BadMark,
    SkippedPromises,
    marks_of,
    promises_of,
    read_marks,
    render,
)

pytest_plugins = ["pytester"]

promises_here = functools.cache(lambda: promises_of(read_marks()))
"""Reading them parses all tests."""
STATED = '@pytest.mark.promise("hook", "Frees never wait for the turn")\n'


@pytest.mark.promise("demo", "Each promise has a test that exists, and a skipped one fails the run")
def test_the_document_says_what_the_marks_say() -> None:
    """docs/promises.md is made from the marks."""
    page = render(promises_here())
    assert page == DOCUMENT.read_text(), "Run `make generate`; a promise is a mark on a test."


@pytest.mark.promise("Each promise has a test that...")
def test_every_heading_has_promises() -> None:
    """No part of what was promised is without a test."""
    assert {promise.heading for promise in promises_here()} == set(HEADINGS)


@pytest.mark.promise("Each promise has a test that...")
def test_each_promise_is_held_without_a_gpu_too() -> None:
    """CI has no GPU: only what stands under "On a real GPU" may need one."""
    for promise in promises_here():
        if promise.heading != "gpu":
            assert not all(test.startswith("tests/gpu/") for test in promise.tests), promise.text


def test_a_promise_has_all_its_tests() -> None:
    """Functions, methods and machines of Hypothesis hold a promise; its beginning names it."""
    source = (
        f"{STATED}def test_a(): pass\n"
        'class TestB:\n    @pytest.mark.promise("Frees never...")\n    def test_c(self): pass\n'
        "TestD = D.TestCase\n"
        'TestD.pytestmark = [pytest.mark.full, pytest.mark.promise("Frees never...")]\n'
    )
    (promise,) = promises_of(list(marks_of("tests/test_it.py", source)))
    ids = ["test_a", "TestB::test_c", "TestD::runTest"]
    assert promise.tests == [f"tests/test_it.py::{name}" for name in ids]


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
        (f"{STATED}def test_a(): pass\n{STATED}def test_b(): pass", "test_a states this promise"),
        ('@pytest.mark.promise("Frees...")\ndef test_a(): pass', "0 promises begin so"),
        ('@pytest.mark.promise("hok", "Frees")\ndef test_a(): pass', "has a heading"),
        ('@pytest.mark.promise("Frees")\ndef test_a(): pass', "has a heading"),
    ],
    ids=["no-test", "stated-twice", "not-stated", "no-such-heading", "no-dots"],
)
def test_a_bad_mark_is_told(source: str, complaint: str) -> None:
    """A mark that states no promise and names none is an error with its place."""
    with pytest.raises(BadMark, match=f"tests/test_it.py:.*{complaint}"):
        promises_of(list(marks_of("tests/test_it.py", source)))


@pytest.mark.promise("Each promise has a test that...")
@pytest.mark.parametrize(
    "source",
    [
        f"{STATED}def test_promised(): pytest.skip('no reason')",
        f"pytest.skip('no reason', allow_module_level=True)\n{STATED}def test_promised(): pass",
        "@pytest.mark.parametrize('n', [1, 2])\n"
        f"{STATED}def test_promised(n): n == 1 or pytest.skip('no reason')",
    ],
    ids=["test", "file", "one-of-several"],
)
def test_a_skipped_promise_fails_the_run(pytester: pytest.Pytester, source: str) -> None:
    """A run in which a promised test was skipped, alone or with its whole file, does not pass. One
    that was not promised may be skipped."""
    folder = pytester.mkdir("tests")
    (folder / "test_other.py").write_text("def test_other(): pass\n")
    for text, status in (
        (source, pytest.ExitCode.TESTS_FAILED),
        (source.replace(STATED, ""), pytest.ExitCode.OK),
    ):
        (folder / "test_it.py").write_text(f"import pytest\n{text}\n")
        plugin = SkippedPromises(pytester.path)
        result = pytester.inline_run("-p", "no:cacheprovider", folder, plugins=[plugin])
        assert result.ret == status
