"""The house's own gates: sizes, names, sleeps in tests, tests that mirror modules. Prints each breach with its mend.

Not here: format, lint, types and floors, which have tools of their own (scripts/check runs all of them).
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parent.parent

# Past this a file holds more than one idea; at home under 250.
MAX_FILE_LINES = 400
# Past this a function cannot be read at once; 5 to 10 is usual, 40 long.
MAX_FUNCTION_LINES = 50

# Words that name anything and so nothing; whole words of a module's or class's name.
EMPTY_WORDS = frozenset(
    ("manager", "helper", "helpers", "util", "utils", "common", "base", "data", "info", "process", "handle", "do")
)

# The floors where everything is a rule over values: each module there has a test file of its own name...
MIRRORED = ("routing", "protocol", "state", "config")
# ...but for those that another module's test reaches better, since nothing but that module uses them.
TESTED_WITH = {"protocol/allowlist": "test_protocol_routes", "protocol/quiet": "test_protocol_sse"}

# The place where tests may wait for the clock of the wall: it waits for what is needed.
WAITING_PLACES = ("tests/fakes/until.py",)
# A test file with one of these in it runs on a loop whose clock leaps to the next timer: its sleeps take no time.
LEAPING = ("LeapingLoop", "@leaping\n")
# Ends a line that has to sleep all the same, and says why: `# sleeps: a fault that comes at a random time`.
REASONED = "# sleeps: "


def main() -> int:
    """Returns the exit code: 0 when the tree keeps all gates."""
    breaches = [*long_files(), *long_functions(), *empty_names(), *sleeps(), *missing_mirrors(), *stale_mirrors()]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


def long_files() -> Iterator[str]:
    """Modules over the limit."""
    for path in modules():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            yield f"{shown(path)}: {lines} lines, over {MAX_FILE_LINES}; split it by its ideas"


def long_functions() -> Iterator[str]:
    """Functions over the limit, docstring included."""
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    yield f"{shown(path)}:{node.lineno}: {node.name} has {lines} lines, over {MAX_FUNCTION_LINES}"


def empty_names() -> Iterator[str]:
    """Modules and classes whose names say nothing."""
    for path in modules():
        for word in EMPTY_WORDS.intersection(path.stem.split("_")):
            yield f"{shown(path)}: a module called {word} says nothing; name it after its one idea"
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and node.name.lower().endswith(("manager", "helper", "util", "utils")):
                yield f"{shown(path)}:{node.lineno}: class {node.name}: name what it is"


def sleeps() -> Iterator[str]:
    """Tests that wait for the clock of the wall; `asyncio.sleep(0)` only lets others run and is fine."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if shown(path).startswith(WAITING_PLACES) or any(word in text for word in LEAPING):
            continue
        lines = text.splitlines()
        for node in ast.walk(tree(path)):
            if waits(node) and REASONED not in lines[node.lineno - 1]:
                yield f"{shown(path)}:{node.lineno}: a test sleeps; wait for what it needs (fakes.until)"


def waits(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether this is a sleep for more than no time at all."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {"time.sleep", "asyncio.sleep"}:
        return False
    return not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)


def missing_mirrors() -> Iterator[str]:
    """Modules of the mirrored floors without a test file of their name."""
    for path in modules():
        module = path.relative_to(ROOT / "proxy").with_suffix("").as_posix()
        if path.stem == "__init__" or module.split("/")[0] not in MIRRORED:
            continue
        test = TESTED_WITH.get(module, f"test_{module.replace('/', '_')}")
        if not (ROOT / "tests" / f"{test}.py").exists():
            yield f"{shown(path)}: no tests/{test}.py; a rule has its test beside it"


def stale_mirrors() -> Iterator[str]:
    """Test files that are named after no module: `test_routing_threshold`, or that and more words, names one."""
    named = {f"test_{flat(path)}" for path in modules()} | {f"test_scripts_{path.stem}" for path in scripts()}
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        if not any(path.stem == name or path.stem.startswith(f"{name}_") for name in named):
            yield f"{shown(path)}: named after no module of proxy/; rename it or move it to a folder of its theme"


def modules() -> list[Path]:
    """All modules of the package."""
    return sorted((ROOT / "proxy").rglob("*.py"))


def scripts() -> list[Path]:
    """All scripts, of whatever language."""
    return sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file())


def flat(path: Path) -> str:
    """A module's name as its test file has it: proxy/routing/threshold.py is routing_threshold."""
    parts = path.relative_to(ROOT / "proxy").with_suffix("").parts
    return "_".join(part.strip("_") for part in parts)


def tree(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def shown(path: Path) -> str:
    """A path as people write it."""
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    sys.exit(main())
