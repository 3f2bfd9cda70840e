"""The faults that scripts/mutants plants still fit the code, and none is there twice."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from mutants_list import MUTANTS  # noqa: E402
from mutants_terms import Mutant  # noqa: E402


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_text_to_change_is_there_once(mutant: Mutant) -> None:
    for edit in mutant.edits:
        text = (ROOT / edit.file).read_text(encoding="utf-8")
        assert text.count(edit.before) == 1, f"{edit.file}: mend the edit of {mutant.name}"
        assert edit.after != edit.before


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_tests_named_with_a_fault_exist(mutant: Mutant) -> None:
    assert mutant.tests and all((ROOT / "tests" / name).is_file() for name in mutant.tests)


def test_each_fault_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
