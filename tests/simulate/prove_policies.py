"""The proof of the policies on curves: exact numbers on the Markov chain, and contests on the virtual clock.

Usage: scripts/prove_policies --help. What has been run is kept in a file, and running again goes on from there; within
a budget of time it does what it can, seed by seed, and says what is missing. What is written of it is in verdicts.py.
"""

import argparse
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from bench.provenance import machine, today
from simulate import by_hand
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
PARTS = ("exact", "library", "worst", "eight")
WORST = 20


class Kept:
    """Results by what was asked, on disk as they come. After `until_s`, monotonic seconds, nothing more is begun."""

    def __init__(self, path: Path, until_s: float) -> None:
        self._path = path
        self._until_s = until_s
        self.found: dict[str, Any] = {}
        self.missing: list[str] = []
        """What was asked and is not done, a line for each part."""
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            self.found = dict(json.loads(line) for line in lines)

    def all(self, pool: "Pool", part: str, work: Callable[..., Any], asked: Sequence[Any], *more: Any) -> None:
        """Do what is not done yet, in this order."""
        new = [each for each in asked if _key(each) not in self.found]
        running: deque[tuple[Any, Future[Any]]] = deque()
        done = 0
        for each in new:
            if monotonic() >= self._until_s:
                break
            running.append((each, pool.workers.submit(work, each, *more)))
            done += 1
            if len(running) > pool.processes:  # one waits for whoever comes free first
                self._keep(*running.popleft())
            print(f"\r{part}: {done} of {len(new)} ", end="", file=sys.stderr, flush=True)
        for each, result in running:
            self._keep(each, result)
        if done < len(new):
            self.missing.append(f"{len(new) - done} of {len(asked)} of the part {part}")

    def _keep(self, each: Any, result: Future[Any]) -> None:
        self.found[_key(each)] = result.result()
        with self._path.open("a", encoding="utf-8") as out:
            out.write(json.dumps([_key(each), result.result()]) + "\n")

    def scores(self, of: type[Any], into: type[Any]) -> dict[Any, Any]:
        """The results of one kind of question."""
        prefix = f"{of.__name__} "
        return {
            of(*json.loads(key.removeprefix(prefix))): into(*result)
            for key, result in self.found.items()
            if key.startswith(prefix)
        }


class Pool(NamedTuple):
    """So many workers."""

    workers: ProcessPoolExecutor
    processes: int


def _key(asked: Any) -> str:
    return f"{type(asked).__name__} {json.dumps(asked)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Prove; the exit code."""
    asked = _parser().parse_args(argv)
    kept = Kept(asked.kept, monotonic() + asked.budget_s)
    with ProcessPoolExecutor(asked.processes) as workers:
        for part in asked.parts:
            _prove(part, asked, kept, Pool(workers, asked.processes))
    print(file=sys.stderr)
    exact, contests = kept.scores(Case, Exact), kept.scores(Contest, Score)
    made = {
        "date": today(),
        "made_by": f"crossover {proxy.__version__}",
        "machine": machine(),
        "requests": asked.requests,
        "missing": kept.missing,
    }
    written = report(made, exact, contests)
    if asked.markdown is not None:
        by_hand.write(asked.markdown, written.text)
    if asked.json is not None:
        asked.json.write_text(json.dumps({**made, **written.figures}, indent=1) + "\n", encoding="utf-8")
    print(written.text)
    return 0


def _prove(part: str, asked: argparse.Namespace, kept: Kept, pool: Pool) -> None:
    names = asked.curves or [name for name in curves.shipped() if len(curves.find(name).points) >= LEAST_POINTS]
    if part == "exact":
        cases = [Case(name, load, prompt) for load in LOADS for prompt in asked.prompts for name in names]
        kept.all(pool, part, judged, cases)
    elif part == "library":
        kept.all(pool, part, held, _library(names, asked), asked.requests)
    elif part == "worst":
        library = kept.scores(Contest, Score).items()
        seen = {each: score for each, score in library if not each.whole and each.seed <= asked.library_seeds}
        kept.all(pool, part, held, _again(hardest(seen, WORST), asked.seeds), asked.requests)
    else:
        eight = [name for name in EIGHT if name in names]
        kept.all(pool, part, held, _eight(eight, asked.eight_seeds), asked.requests)


def _library(names: Sequence[str], asked: argparse.Namespace) -> list[Contest]:
    return [
        Contest(name, place, load, kind, seed)
        for seed in range(1, asked.library_seeds + 1)
        for kind in asked.traffic
        for place in PLACEMENTS
        for load in asked.loads
        for name in names
    ]


def _again(contests: Iterable[Contest], seeds: int) -> list[Contest]:
    found = list(contests)
    return [each._replace(seed=seed) for seed in range(1, seeds + 1) for each in found]


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
    add("--curves", type=_words, metavar="A,B", help="names; all with five points or more")
    add("--parts", type=_parts, default=list(PARTS), metavar="P,P", help=f"in this order; all: {','.join(PARTS)}")
    add("--prompts", type=_numbers, default=[400.0, 0.0], metavar="N,N", help="prompt tokens of exact cases (400,0)")
    add("--loads", type=_numbers, default=[0.1, 0.3, 0.5, 0.7], metavar="X,X", help="of the whole library's contests")
    add("--traffic", type=_words, default=["poisson"], metavar="T,T", help="of these: poisson, gamma:2, alternating:60")
    add("--library-seeds", type=int, default=1, metavar="N", help="of the whole library's contests (1)")
    add(
        "--budget-s",
        type=float,
        default=inf,
        metavar="S",
        help="begin nothing more after so long; then say what is missing",
    )
    add("--requests", type=int, default=1500, metavar="N", help="that count in each run (1500)")
    add("--seeds", type=int, default=10, metavar="N", help="of the worst cells (10)")
    add("--eight-seeds", type=int, default=10, metavar="N", help="of the eight curves (10)")
    add("--processes", type=int, default=os.cpu_count(), metavar="N", help="at once (default: all cores)")
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    add("--markdown", type=Path, metavar="FILE", help="write the tables there")
    return out


def _words(text: str) -> list[str]:
    return text.split(",")


def _parts(text: str) -> list[str]:
    found = _words(text)
    if set(found) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no parts but {','.join(PARTS)}")
    return found


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
