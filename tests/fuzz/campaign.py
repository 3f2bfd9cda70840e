"""Runs targets under atheris side by side, one process each on the cores given, and tells what came of it.

Corpora grow in an ignored folder; an input that breaks something is written to tests/fuzz/corpus, to be committed.
Not here: one target's run (drive.py).
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fuzz.targets import TARGETS, Target

ROOT = Path(__file__).resolve().parent.parent.parent
# A look at the clock of the wall beside the CPU time of drive.py: an input that waits instead of working.
MAX_INPUT_S = 30
MAX_MEMORY_MB = 2048
LOOK_EVERY_S = 0.5
FEATURES = re.compile(r"\bft: (\d+)")


@dataclass
class Outcome:
    """What one target's run came to. `crashes` holds broken properties, hangs and what ended the process."""

    target: str
    executions: int = 0
    minutes: float = 0.0
    executions_per_s: float = 0.0
    features: int = 0
    crashes: int = 0
    hangs: int = 0
    slowest_s: float = 0.0
    slowest_bytes: int = 0
    found: list[Any] = field(default_factory=list)


class Run:
    """One target's process."""

    def __init__(self, target: Target, folder: Path, executions: int, seconds: int) -> None:
        self.target = target
        self.folder = folder
        self.began_s = time.monotonic()
        shutil.rmtree(folder / "artifacts", ignore_errors=True)
        (folder / "figures.json").unlink(missing_ok=True)
        for name in ("corpus", "artifacts"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        words = folder / "words.dict"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words), encoding="ascii")
        limit = f"-max_total_time={seconds}" if seconds else f"-runs={executions}"
        flags = [
            limit,
            f"-max_len={target.max_bytes}",
            f"-timeout={MAX_INPUT_S}",
            f"-rss_limit_mb={MAX_MEMORY_MB}",
            f"-artifact_prefix={folder / 'artifacts'}/",
            "-print_final_stats=1",
            *([f"-dict={words}"] if target.words else []),
            str(folder / "corpus"),
            *([str(target.corpus)] if target.corpus.is_dir() else []),
        ]
        with (folder / "log").open("wb") as log:
            command = [sys.executable, "-P", "-m", "fuzz.drive", target.name, str(folder), str(executions), *flags]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)

    def outcome(self) -> Outcome:
        """What the ended run came to."""
        seconds = time.monotonic() - self.began_s
        figures_file = self.folder / "figures.json"
        figures = json.loads(figures_file.read_text()) if figures_file.exists() else {}
        log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        found = figures.get("found", []) + [self._adopted(path) for path in (self.folder / "artifacts").iterdir()]
        if self.process.returncode and not found:
            found.append({"file": "", "error": f"ended with {self.process.returncode}; see {self.folder / 'log'}"})
        told = re.search(r"stat::number_of_executed_units:\s*(\d+)", log)
        executions = int(told[1]) if told else figures.get("executions", 0)
        return Outcome(
            target=self.target.name,
            executions=executions,
            minutes=round(seconds / 60, 2),
            executions_per_s=round(executions / seconds, 1),
            features=max(map(int, FEATURES.findall(log)), default=0),
            crashes=len(found),
            hangs=figures.get("hangs", 0),
            slowest_s=round(figures.get("slowest_s", 0.0), 4),
            slowest_bytes=figures.get("slowest_bytes", 0),
            found=found,
        )

    def _adopted(self, path: Path) -> dict[str, str]:
        """An input that ended the process, as a file of the corpus to be committed."""
        self.target.corpus.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, self.target.corpus / path.name)
        return {"file": path.name, "error": f"ended the process; see {self.folder / 'log'}"}


def main() -> int:
    """Returns the exit code: 0 when nothing was found."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or the targets' processes would outlive this one
    chosen = [TARGETS[name] for name in options.target or TARGETS]
    total = sum(target.share for target in chosen)
    waiting = [(target, round(options.executions * target.share / total)) for target in chosen]
    running: list[Run] = []
    outcomes: list[Outcome] = []
    try:
        while waiting or running:
            while waiting and len(running) < options.cores:
                target, executions = waiting.pop(0)
                running.append(Run(target, options.work / target.name, executions, options.seconds))
            time.sleep(LOOK_EVERY_S)  # sleeps: other processes are waited for, and this is no test
            for run in [run for run in running if run.process.poll() is not None]:
                running.remove(run)
                outcomes.append(run.outcome())
                _tell(outcomes[-1:], head=len(outcomes) == 1)
                _write(outcomes, options.work)
    finally:
        for run in running:
            run.process.terminate()
    print(f"{sum(one.executions for one in outcomes)} executions, {sum(one.crashes for one in outcomes)} crashes")
    return 1 if any(one.crashes for one in outcomes) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz the proxy, guided by coverage.")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one; may be repeated")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--executions", type=int, default=1_000_000, help="over all targets (default: %(default)s)")
    limit.add_argument("--seconds", type=int, default=0, help="of each target, instead of a number of executions")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="targets at once (default: all cores)")
    parser.add_argument("--work", type=Path, default=ROOT / "out" / "fuzz", help="where corpora and logs grow")
    return parser.parse_args()


def _tell(outcomes: list[Outcome], *, head: bool) -> None:
    if head:
        print(f"{'target':16} {'executions':>11} {'min':>7} {'per s':>8} {'features':>8} {'crashes':>7} {'slowest':>9}")
    for one in outcomes:
        print(
            f"{one.target:16} {one.executions:11} {one.minutes:7.1f} {one.executions_per_s:8.0f} {one.features:8} "
            f"{one.crashes:7} {one.slowest_s * 1000:6.0f} ms",
            flush=True,
        )
        for finding in one.found:
            print(f"  {one.target}/{finding['file']}: {finding['error']}", flush=True)


def _write(outcomes: list[Outcome], work: Path) -> None:
    text = json.dumps([asdict(one) for one in outcomes], indent=2)
    (work / "outcomes.json").write_text(text + "\n", encoding="utf-8")


def _escaped(word: bytes) -> str:
    """A word as libFuzzer's dictionaries write it."""
    return "".join(chr(byte) if 32 < byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
