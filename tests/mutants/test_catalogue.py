"""The mutants can still be made, and name tests that exist: the campaign itself (bin/test mutants) takes minutes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.catalogue import ALL, Mutant, SchemaMutant

ROOT = Path(__file__).resolve().parents[2]


def test_there_are_enough_and_each_has_its_name() -> None:
    assert len({each.name for each in ALL}) == len(ALL) >= 24


@pytest.mark.parametrize("mutant", ALL, ids=lambda each: each.name)
def test_it_can_still_be_made(mutant: Mutant | SchemaMutant) -> None:
    if isinstance(mutant, Mutant):
        text = (ROOT / mutant.path).read_text()
        assert text.count(mutant.old) == 1, f"{mutant.path}: put the defect back into the catalogue as the code is now"
        ast.parse(text.replace(mutant.old, mutant.new))
    else:
        assert any(mutant.names in path.read_text() for path in ROOT.glob("*/migrations/*.py"))


@pytest.mark.parametrize("mutant", ALL, ids=lambda each: each.name)
def test_its_tests_exist(mutant: Mutant | SchemaMutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name}(" in (ROOT / path).read_text(), test
