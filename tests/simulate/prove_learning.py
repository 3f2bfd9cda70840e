"""The proof of learning: what it costs with wrong curves and with right ones, when engines change and when they lie.

Usage: scripts/prove_learning --help. One run is in learning.py, what engines tell in tellings.py.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.provenance import machine, today
from simulate import by_hand
from simulate.learning import Like, Scaled, Study, compared, flat, rate_of, right, swapped
from simulate.learning_report import Found, page
from simulate.tellings import FromLaunch, Lying, Unbroken, broken, counters, lost, nothing, plainly

from proxy.lab import curves
from proxy.model import BASELINE, Placement

LEAST_POINTS = 5
FIRST, LAST = 500, 2500
# Where acceptance falls: after so long, to so much, and until when it must have been found out.
CHANGE_S, ACCEPTS, WITHIN_S, LASTS_S, RATE_PER_S = 200.0, 0.55, 60.0, 400.0, 5.0

SHARED, TREE = Placement.SHARED, "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21"


class Cell(NamedTuple):
    """One run: a part of the proof, what sets it apart there, and between which requests its two spans lie."""

    part: str
    kind: str
    study: Study
    seed: int
    spans: tuple[int, int, int] = (0, FIRST, LAST)


def cold(names: Sequence[str], seeds: range) -> Iterable[Cell]:
    """Both are believed to be like the baseline."""
    tellings = {"moments": plainly, "counters": counters, "answers": nothing}
    for name in names:
        for load in (0.1, 0.4, 0.7):
            for kind, telling in tellings.items():
                yield from (Cell("cold", kind, Study(name, load, flat, telling), seed) for seed in seeds)


def steady(names: Sequence[str], seeds: range) -> Iterable[Cell]:
    """What is believed is right, and steps scatter."""
    kinds = {"moments": (plainly, 0.0), "scatter of 5 %": (plainly, 0.05), "a third of polls lost": (lost, 0.03)}
    kinds |= {"counters": (counters, 0.0), "answers": (nothing, 0.0)}
    for name in names:
        for load in (0.1, 0.4, 0.7):
            for kind, (telling, noise) in kinds.items():
                yield from (
                    Cell("steady", kind, Study(name, load, right, telling, noise=noise), seed) for seed in seeds
                )


def changed(names: Sequence[str], seeds: range) -> Iterable[Cell]:
    """Acceptance falls in mid-run. The first span is the time within which that must be found out."""
    spans = tuple(round(RATE_PER_S * s) for s in (CHANGE_S, CHANGE_S + WITHIN_S, CHANGE_S + WITHIN_S + LASTS_S))
    for name in names:
        study = Study(name, rate_per_s=RATE_PER_S, change_s=CHANGE_S, accepts=ACCEPTS)
        if rate_of(Study(name, 0.6)) < RATE_PER_S:
            continue  # more than both could serve afterwards
        yield from (Cell("changed", "acceptance to 55 %", study, seed, spans) for seed in seeds)  # type: ignore[arg-type]


def adverse(names: Sequence[str], seeds: range) -> Iterable[Cell]:
    """Curves that are wrong, and engines that lie."""
    priors = {"curve x 3": Scaled(3.0), "curve / 3": Scaled(1 / 3), "swapped": swapped, "another machine's": Like(TREE)}
    tellings = {"steps told x 3": Lying(3.0), "steps told / 3": Lying(1 / 3), "told x 1.4": Lying(1.4)}
    tellings |= {"baseline's told x 3": Lying(3.0, BASELINE), "broken": broken}
    for name in names:
        for load in (0.1, 0.4):
            kinds = {kind: Study(name, load, prior) for kind, prior in priors.items()}
            kinds |= {kind: Study(name, load, right, telling) for kind, telling in tellings.items()}
            kinds["no usage, broken"] = Study(name, load, right, broken, usage=False)
            for kind, study in kinds.items():
                yield from (Cell("adverse", kind, study, seed) for seed in seeds)


def shared(names: Sequence[str], seeds: range) -> Iterable[Cell]:
    """Policy consolidate on shared GPUs."""
    for name in names:
        for load in (0.1, 0.3, 0.6):
            for kind, prior in {"right": right, "flat": flat}.items():
                yield from (Cell("shared", kind, Study(name, load, prior, placement=SHARED), seed) for seed in seeds)


def clocks(names: Sequence[str], seeds: range) -> Iterable[Cell]:
    """Engines that count steps as two versions of SGLang do."""
    for name in names:
        for load in (0.02, 0.1, 0.4, 0.7):
            for steps, said in ((FromLaunch, "from launch"), (Unbroken, "unbroken")):
                for prior in (flat, right):
                    study = Study(name, load, prior, steps=steps)
                    yield from (Cell("clocks", f"{said}, {prior.__name__}", study, seed) for seed in seeds)


PARTS: dict[str, Callable[[Sequence[str], range], Iterable[Cell]]] = {
    "cold": cold,
    "steady": steady,
    "changed": changed,
    "adverse": adverse,
    "shared": shared,
    "clocks": clocks,
}


def work(cell: Cell) -> Found:
    """Run one cell."""
    began, first, last = cell.spans
    found = compared(cell.study, cell.seed, last)
    spans = ((began, first), (first, last))
    one, other, third = ((share(*spans[0]), share(*spans[1])) for share in (found.regret, found.unlearned, found.harm))
    ours, switches = found.ours, (found.ours.switches, found.known.switches)
    told = (cell.part, cell.kind, cell.study.curve, cell.study.load, cell.seed)
    return Found(*told, one, other, third, ours.probes, ours.requests, ours.suspended, switches)


def table(found: Sequence[Found]) -> str:
    """A row for each kind."""
    head = f"{'part':9}{'kind':24}{'runs':>5}  {'unlearned':>16} {'first':>16} {'after':>16} {'probes':>7} {'susp.':>6}"
    rows = [head]
    kinds = dict.fromkeys((each.part, each.kind) for each in found)
    for part, kind in kinds:
        these = [each for each in found if (each.part, each.kind) == (part, kind)]
        columns = (
            [each.unlearned[1] for each in these],
            [each.regret[0] for each in these],
            [each.regret[1] for each in these],
        )
        shares = " ".join(f"{median(column):7.1%} {max(column):8.1%}" for column in columns)
        probes = sum(each.probes for each in these) / sum(each.requests for each in these)
        suspended = sum(each.suspended > 0 for each in these)
        rows.append(f"{part:9}{kind:24}{len(these):5}  {shares} {probes:7.2%} {suspended:6}")
    return "\n".join(rows)


def worst(found: Sequence[Found], most: int = 8) -> str:
    """The runs with the highest regret after the first requests."""
    ordered = sorted(found, key=lambda each: -each.regret[1])[:most]
    return "\n".join(
        f"{each.regret[1]:7.1%} after, {each.regret[0]:7.1%} first: {each.part} {each.kind}, {each.curve} {each.load:g}"
        for each in ordered
    )


def written(made: dict[str, Any], found: Sequence[Found]) -> str:
    """All runs as JSON, a line for each."""
    told = ",\n".join(json.dumps(each._asdict()) for each in found)
    return f'{json.dumps(made)[:-1]}, "runs": [\n{told}\n]}}\n'


def runs(path: Path) -> list[Found]:
    """The runs that `--json` wrote. Raises OSError or ValueError."""
    spans = ("regret", "unlearned", "harm", "switches")
    told = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return [Found(**{**each, **{name: tuple(each[name]) for name in spans}}) for each in told]


def main(argv: Sequence[str] | None = None) -> int:
    """Prove; the exit code."""
    asked = _parser().parse_args(argv)
    names = asked.curves or [name for name in curves.shipped() if len(curves.find(name).points) >= LEAST_POINTS]
    seeds = range(1, asked.seeds + 1)
    cells = [cell for part in asked.parts for cell in PARTS[part](names, seeds)]
    found = [each for path in asked.add for each in runs(path)]
    before = len(found)
    with ProcessPoolExecutor(asked.processes) as pool:
        for each in pool.map(work, cells, chunksize=4):
            found.append(each)
            print(f"\r{len(found) - before} of {len(cells)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(table(found))
    print(worst(found))
    made = {"date": today(), "machine": machine()}
    if asked.markdown is not None:
        by_hand.write(asked.markdown, page(made, found))
    if asked.json is not None:
        asked.json.write_text(written(made, found), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="scripts/prove_learning", description=__doc__.partition("\n")[0])
    add = out.add_argument
    add("--curves", type=lambda text: text.split(","), metavar="A,B", help="names; all with five points or more")
    add("--seeds", type=int, default=2, metavar="N", help="runs of each cell (default 2)")
    add(
        "--parts",
        type=lambda text: [each for each in text.split(",") if each],
        default=list(PARTS),
        metavar="A,B",
        help=f"of {', '.join(PARTS)} (default all; may be empty)",
    )
    add("--processes", type=int, default=os.cpu_count(), metavar="N", help="at once (default: all cores)")
    add("--add", type=_paths, default=[], metavar="FILE,FILE", help="of --json: these runs count too")
    add("--json", type=Path, metavar="FILE", help="write all runs there")
    add("--markdown", type=Path, metavar="FILE", help="write the tables there")
    return out


def _paths(text: str) -> list[Path]:
    return [Path(each) for each in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
