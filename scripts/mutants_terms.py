"""What a planted fault is: a change of a few lines, and who should notice it. The faults are in mutants_list.py and
mutants_path.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """Text of one file to be put in place of other text."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: what is wrong then, the edits that make it so, and the files below tests that should notice."""

    name: str
    fault: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]


def mutant(name: str, fault: str, tests: str, *edits: tuple[str, str, str]) -> Mutant:
    """A fault from its words: of `tests` each is a file of tests/cases by its theme, or one below tests by its name."""
    files = tuple(f"{each}.py" if "test_" in each else f"cases/test_{each}.py" for each in tests.split())
    return Mutant(name, fault, files, tuple(Edit(*edit) for edit in edits))
