"""The 35 cases are all there: each with tests of its number, and with its row in docs/cases.md."""

import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "cases.md"
CASES = [f"H{number}" for number in range(1, 36)]
ROW = re.compile(r"^\| (H\d+) \|.*\| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"^(?:async )?def test_h(\d+)[a-e]*_", re.MULTILINE)


def files_of_cases() -> dict[str, set[str]]:
    """The cases that have tests, with the files where these are."""
    found: dict[str, set[str]] = {}
    for path in HERE.glob("test_*.py"):
        for number in TEST.findall(path.read_text(encoding="utf-8")):
            found.setdefault(f"H{number}", set()).add(path.name)
    return found


def test_every_case_has_a_test_with_its_number() -> None:
    assert sorted(files_of_cases(), key=lambda case: int(case[1:])) == CASES


def test_every_case_has_one_row_that_names_its_files() -> None:
    rows = ROW.findall(TABLE.read_text(encoding="utf-8"))
    assert [case for case, _ in rows] == CASES
    named = {case: set(re.findall(r"`(test_\w+\.py)`", files)) for case, files in rows}
    assert named == files_of_cases()


def test_no_case_is_skipped() -> None:
    for path in HERE.glob("test_*.py"):
        if path != Path(__file__):
            assert not re.search(r"skip|xfail", path.read_text(encoding="utf-8")), f"{path.name} leaves something out"
