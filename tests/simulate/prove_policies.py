"""The proof of the policies on curves: exact numbers on the Markov chain, and contests on the virtual clock.

Usage: scripts/prove_policies --help. What has been run is kept in a file, and running again goes on from there. What is
written of it is in verdicts.py.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.provenance import machine, today
from simulate.contests import Contest, Score, held
from simulate.exact import Case, Exact, judged
from simulate.verdicts import hardest, report

import proxy
from proxy.lab import curves

LEAST_POINTS = 5
LOADS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
# Curves of which the rest are variations: strong and weak crossings, two of them, none, a reverse one.
EIGHT = (
    "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21",
    "h200_llama8b_sglang_tree_2_4_16",
    "rtx6kpro_kimi26_v1_dcp1_ctx0",
    "rtx6kpro_kimi26_v1_dcp1_ctx21k",
    "rtx6kpro_glm51_dcp4_ctx0",
    "rtx6kpro_qwen35_397b_awq_vllm_ctx64k",
    "hochelaga8b_rtx5090_k8",
    "seed",
)
PLACEMENTS = ("separate", "shared")
WORST = 20


class Kept:
    """Results by what was asked, on disk as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[str, Any] = {}
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            self.found = dict(json.loads(line) for line in lines)

    def all(self, pool: ProcessPoolExecutor, work: Callable[..., Any], asked: Iterable[Any], *more: Any) -> None:
        """Do what is not done yet."""
        new = [each for each in asked if _key(each) not in self.found]
        with self._path.open("a", encoding="utf-8") as out:
            for number, (each, result) in enumerate(zip(new, pool.map(_Work(work, more), new), strict=True), 1):
                self.found[_key(each)] = result
                out.write(json.dumps([_key(each), result]) + "\n")
                out.flush()
                print(f"\r{type(each).__name__} {number} of {len(new)} ", end="", file=sys.stderr, flush=True)

    def scores(self, of: type[Any], into: type[Any]) -> dict[Any, Any]:
        """The results of one kind of question."""
        prefix = f"{of.__name__} "
        return {
            of(*json.loads(key.removeprefix(prefix))): into(*result)
            for key, result in self.found.items()
            if key.startswith(prefix)
        }


class _Work:
    """A call with more arguments, as a worker can be sent it."""

    def __init__(self, work: Callable[..., Any], more: Sequence[Any]) -> None:
        self.work, self.more = work, more

    def __call__(self, each: Any) -> Any:
        return self.work(each, *self.more)


def _key(asked: Any) -> str:
    return f"{type(asked).__name__} {json.dumps(asked)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Prove; the exit code."""
    asked = _parser().parse_args(argv)
    names = asked.curves or [name for name in curves.shipped() if len(curves.find(name).points) >= LEAST_POINTS]
    kept = Kept(asked.kept)
    with ProcessPoolExecutor(asked.processes) as pool:
        if "exact" in asked.parts:
            cases = [Case(name, load, prompt) for load in LOADS for prompt in asked.prompts for name in names]
            kept.all(pool, judged, cases)
        if "library" in asked.parts:
            kept.all(pool, held, _library(names, asked.loads), asked.requests)
        if "worst" in asked.parts:
            first = {each: score for each, score in kept.scores(Contest, Score).items() if each.seed == 1}
            kept.all(pool, held, _again(hardest(first, WORST), asked.seeds), asked.requests)
        if "eight" in asked.parts:
            eight = [name for name in EIGHT if asked.curves is None or name in asked.curves]
            kept.all(pool, held, _eight(eight, asked.eight_seeds), asked.requests)
    print(file=sys.stderr)
    exact, contests = kept.scores(Case, Exact), kept.scores(Contest, Score)
    made = {
        "date": today(),
        "made_by": f"crossover {proxy.__version__}",
        "machine": machine(),
        "requests": asked.requests,
    }
    written = report(made, exact, contests)
    if asked.markdown is not None:
        asked.markdown.write_text(written.text, encoding="utf-8")
    if asked.json is not None:
        asked.json.write_text(json.dumps({**made, **written.figures}, indent=1) + "\n", encoding="utf-8")
    print(written.text)
    return 0


def _library(names: Sequence[str], loads: Sequence[float]) -> list[Contest]:
    return [Contest(name, place, load, "poisson", 1) for place in PLACEMENTS for load in loads for name in names]


def _again(contests: Iterable[Contest], seeds: int) -> list[Contest]:
    return [each._replace(seed=seed) for each in contests for seed in range(2, seeds + 1)]


def _eight(names: Sequence[str], seeds: int) -> list[Contest]:
    cells = [(load, kind) for kind in ("poisson", "gamma:3") for load in (0.1, 0.5)]
    cells += [(0.4, "alternating:60"), (0.4, "alternating:300")]
    return [
        Contest(name, place, load, kind, seed, whole=True)
        for seed in range(1, seeds + 1)
        for place in PLACEMENTS
        for load, kind in cells
        for name in names
    ]


def _parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="scripts/prove_policies", description=__doc__.partition("\n")[0])
    add = out.add_argument
    add("--kept", type=Path, required=True, metavar="FILE", help="results so far, a line each; runs go on from there")
    add("--curves", type=lambda text: text.split(","), metavar="A,B", help="names; all with five points or more")
    add("--parts", type=lambda text: text.split(","), default=["exact", "library", "worst", "eight"], metavar="P,P")
    add("--prompts", type=_numbers, default=[400.0, 0.0], metavar="N,N", help="prompt tokens of exact cases (400,0)")
    add("--loads", type=_numbers, default=[0.1, 0.3, 0.5, 0.7], metavar="X,X", help="of the whole library's contests")
    add("--requests", type=int, default=1500, metavar="N", help="that count in each run (1500)")
    add("--seeds", type=int, default=10, metavar="N", help="of the worst cells (10)")
    add("--eight-seeds", type=int, default=10, metavar="N", help="of the eight curves (10)")
    add("--processes", type=int, default=os.cpu_count(), metavar="N", help="at once (default: all cores)")
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    add("--markdown", type=Path, metavar="FILE", help="write the tables there")
    return out


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
