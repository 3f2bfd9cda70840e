"""One target under atheris, which follows coverage: `python -m fuzz.drive NAME FOLDER EXECUTIONS FLAG...`.

A broken property is written down and the run goes on, so that one finding does not hide the next. FOLDER gets the
figures. Not here: running several and telling what came of them (campaign.py).
"""

import hashlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

with atheris.instrument_imports(include=["proxy"]):
    from fuzz.targets import TARGETS

if TYPE_CHECKING:
    from fuzz.targets import Target

# CPU seconds from which an input counts as a hang: a thousand times what the slowest honest one needs.
MAX_INPUT_S = 1.0
# Different findings that are kept of one target; whoever has more mends these first.
MAX_FOUND = 20
# How often the figures are written; a run that is killed loses no more than this.
WRITE_EVERY_S = 2.0
FIGURES = "figures.json"


class Watch:
    """Runs a target on each input, times it, and keeps what breaks a property or takes too long."""

    def __init__(self, name: str, run: Callable[[bytes], None], corpus: Path, folder: Path, executions: int) -> None:
        self._name = name
        self._run = run
        self._corpus = corpus
        self._folder = folder
        self._last = executions
        self._seen: set[str] = set()
        self._written_s = 0.0
        self.figures = {"executions": 0, "cpu_s": 0.0, "slowest_s": 0.0, "slowest_bytes": 0, "hangs": 0, "found": []}

    def __call__(self, data: bytes) -> None:
        """One execution."""
        began_s = time.process_time()
        try:
            self._run(data)
        except Exception as error:  # noqa: BLE001 - whatever a target raises is a finding
            self._keep(data, error)
        now_s = time.process_time()
        self._count(data, now_s - began_s)
        if now_s - self._written_s > WRITE_EVERY_S or self.figures["executions"] == self._last:
            self._written_s = self.figures["cpu_s"] = now_s
            self.write()

    def write(self) -> None:
        """Write the figures down."""
        (self._folder / FIGURES).write_text(json.dumps(self.figures), encoding="utf-8")

    def _count(self, data: bytes, spent_s: float) -> None:
        self.figures["executions"] += 1
        if spent_s > self.figures["slowest_s"]:
            self.figures["slowest_s"], self.figures["slowest_bytes"] = spent_s, len(data)
        if spent_s > MAX_INPUT_S:
            self.figures["hangs"] += 1
            self._keep(data, TimeoutError(f"one input took {spent_s:.1f} s of CPU"))

    def _keep(self, data: bytes, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{type(error).__name__} {[(frame.filename, frame.lineno) for frame in frames]}"
        if where in self._seen or len(self._seen) >= MAX_FOUND:
            return
        self._seen.add(where)
        self._corpus.mkdir(parents=True, exist_ok=True)
        path = self._corpus / hashlib.sha256(data).hexdigest()[:16]
        path.write_bytes(data)
        self.figures["found"].append({"file": path.name, "error": f"{type(error).__name__}: {error}"[:500]})
        self.write()
        print(f"{self._name}: {path}", file=sys.stderr)
        traceback.print_exception(error)


def main() -> None:
    """Does not return: atheris ends the process."""
    name, folder, executions, *flags = sys.argv[1:]
    target: Target = TARGETS[name]
    watch = Watch(name, target.run, target.corpus, Path(folder), int(executions))
    atheris.Setup([sys.argv[0], *flags], watch)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
