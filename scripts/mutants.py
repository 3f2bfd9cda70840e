"""Plants one fault at a time in a copy of the tree and shows which tests notice it, by their case where they have one.

    scripts/mutants                    all of them, two at a time; some minutes
    scripts/mutants release-twice ...  these alone

A fault that no test notices is a hole in the tests: exit code 1. The tests have to pass on a copy without a fault
before: exit code 2 where they do not, and where a name is no fault's. The faults are in mutants_list.py.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants_list import MUTANTS
from mutants_terms import Mutant

ROOT = Path(__file__).resolve().parent.parent
# What a copy needs to run the tests; the environments that the tree has are used from there. Without the locks in
# requirements/ tests that want an environment could neither find it current nor make it.
COPIED = ("proxy", "config", "docs", "tests", "scripts", "requirements", "pyproject.toml", "README.md", "CHANGELOG.md")
AT_ONCE = 2
# Of one mutant. The tests named with it take some seconds; one that makes them hang is noticed as well.
LIMIT_S = 300
# Of all tests that are named, where nothing is planted.
SOUND_WITHIN_S = 1800
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
CASE = re.compile(r"test_(h\d+)[a-e]*_")


@dataclass(frozen=True, slots=True)
class Found:
    """What the tests said of one mutant: those that failed, or that they did not end."""

    mutant: Mutant
    failed: tuple[str, ...]
    hung: bool

    @property
    def cases(self) -> list[str]:
        """The case numbers of the failed tests, each once."""
        return sorted({case.upper() for test in self.failed for case in CASE.findall(test)}, key=lambda it: int(it[1:]))


def main() -> int:
    """Returns the exit code: 0 when every fault was noticed."""
    names = sys.argv[1:] or [mutant.name for mutant in MUTANTS]
    if unknown := sorted(set(names) - {mutant.name for mutant in MUTANTS}):
        print(
            f"no fault is called {', '.join(unknown)}; their names are in scripts/mutants_list.py and mutants_path.py"
        )
        return 2
    chosen = [mutant for mutant in MUTANTS if mutant.name in names]
    sound = run(Mutant("none", "", tuple(sorted({test for each in chosen for test in each.tests})), ()), SOUND_WITHIN_S)
    if sound.failed or sound.hung:
        print(f"without any fault: {', '.join(sound.failed) or 'the tests do not end'}")
        return 2
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = []
        for each in pool.map(run, chosen):
            found.append(each)
            print(shown(each), flush=True)
    missed = [each.mutant.name for each in found if not each.failed and not each.hung]
    print(json.dumps({"mutants": len(found), "missed": missed, "by": {it.mutant.name: it.cases for it in found}}))
    return 1 if missed else 0


def run(mutant: Mutant, within_s: float = LIMIT_S) -> Found:
    """Run the mutant's tests on a copy that has the fault."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        copy(ROOT, tree)
        plant(mutant, tree)
        tests = [f"tests/{name}" for name in mutant.tests]
        command = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "-p", "no:cacheprovider", "--maxfail=3", *tests]
        try:
            done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=within_s, check=False)
        except subprocess.TimeoutExpired:
            return Found(mutant, (), hung=True)
        return Found(mutant, tuple(FAILED.findall(done.stdout)), hung=False)


def copy(root: Path, tree: Path) -> None:
    """Put into `tree` what tests need of `root`."""
    for name in COPIED:
        whole = root / name
        (shutil.copytree if whole.is_dir() else shutil.copy2)(whole, tree / name)
    for environment in root.glob(".venv*"):
        (tree / environment.name).symlink_to(environment)


def plant(mutant: Mutant, tree: Path) -> None:
    """Change the copy. Raises ValueError where the text to change is not there exactly once."""
    for edit in mutant.edits:
        path = tree / edit.file
        text = path.read_text(encoding="utf-8")
        if text.count(edit.before) != 1:
            raise ValueError(f"{mutant.name}: the text to change is in {edit.file} {text.count(edit.before)} times")
        path.write_text(text.replace(edit.before, edit.after), encoding="utf-8")


def shown(found: Found) -> str:
    """One line of the table."""
    names = sorted({test.rpartition("::")[2].partition("[")[0] for test in found.failed})
    noticed = ", ".join(found.cases) or ("hung" if found.hung else ", ".join(names)) or "NOT NOTICED"
    return f"{found.mutant.name:28} {noticed:20} {found.mutant.fault}"


if __name__ == "__main__":
    sys.exit(main())
