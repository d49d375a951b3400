"""`make mutate` breaks rules in texts that are there."""

from __future__ import annotations

import pytest

from tests.mutate.__main__ import CORE, broken, files_of
from tests.mutate.mutations import MUTATIONS, Mutation
from tests.support.paths import ROOT


@pytest.mark.promise(
    "scheduler-33",
    "Each rule of who goes next is held by a test: `make mutate` breaks them one by one",
)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.rule)
def test_a_mutation_has_its_text(mutation: Mutation) -> None:
    text = (ROOT / CORE / f"{mutation.file}.py").read_text()
    assert broken(mutation, text) != text
    assert all((ROOT / file).is_file() for file in files_of(mutation.tests))
