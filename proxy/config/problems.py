"""What is wrong with a configuration, said so that the operator can find it and mend it.

Finding problems is not here: yaml_nodes.py reads, mends.py words what the schema refuses, conflicts.py compares keys.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from proxy.config.marks import Marks
from proxy.errors import ConfigError

# A file that is not a configuration at all (a log, a dump) would give a problem a line; nobody mends more at a time.
MAX_PROBLEMS = 100

KeyPath = tuple[str | int, ...]

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}|[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend. `line` and `column` count from 1, 0 outside a file; `key` is dotted, "" for the whole."""

    file: str
    line: int
    column: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        said = ": ".join(part for part in (place, self.key, self.message) if part)
        return said.encode("utf-8", "backslashreplace").decode()  # a folder's name need not be UTF-8


class InvalidConfig(ConfigError):
    """The configuration cannot be used. `problems` holds each fault in the order of its file, `marks` the files that
    were read: a change of any of them may mend it."""

    def __init__(self, problems: Iterable[Problem], marks: Marks | None = None) -> None:
        self.marks = marks or {}
        ordered = sorted(problems, key=lambda problem: (problem.file, problem.line, problem.column, problem.key))
        self.problems: tuple[Problem, ...] = tuple(ordered[:MAX_PROBLEMS])
        lines = [str(problem) for problem in self.problems]
        if len(ordered) > MAX_PROBLEMS:
            lines.append(f"... and {len(ordered) - MAX_PROBLEMS} more; mend these first")
        super().__init__("\n".join(lines))


def dotted(path: KeyPath) -> str:
    """The key path for messages, logs and docs: `routing.rules.0.when`.

    A part that does not look like a name may be a secret in the wrong place (`{api_key:...}` without a space after
    the colon is one long key), so it is not shown.
    """
    return ".".join(part if _PLAIN_NAME.fullmatch(part) else "(a name not shown)" for part in map(str, path))
