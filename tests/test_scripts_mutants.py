"""The faults that scripts/mutants plants still fit the code, none is there twice, and a copy has what tests need."""

import filecmp
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

import mutants  # noqa: E402
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


def test_a_name_that_is_no_faults_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Mutant] = []
    monkeypatch.setattr(mutants, "run", lambda mutant, *_: ran.append(mutant))
    monkeypatch.setattr(sys, "argv", ["mutants", "release-twice", "no-such-fault"])
    assert (mutants.main(), ran) == (2, [])
    assert "no fault is called no-such-fault" in capsys.readouterr().out


def test_a_copy_has_the_locks_and_the_environments_that_the_tree_has(tmp_path: Path) -> None:
    tree, root = tmp_path / "tree", tmp_path / "root"
    for name in mutants.COPIED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(ROOT / name)
    for name in (".venv", ".venv-real"):
        (root / name).mkdir()
    tree.mkdir()
    mutants.copy(root, tree)
    assert filecmp.cmp(tree / "requirements" / "real.lock", ROOT / "requirements" / "real.lock", shallow=False)
    assert sorted(each.name for each in tree.glob(".venv*")) == [".venv", ".venv-real"]
    assert (tree / ".venv-real").resolve() == root / ".venv-real"
